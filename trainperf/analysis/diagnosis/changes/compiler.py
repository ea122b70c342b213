"""Changes of first steps and the compiler: caches, recompiles, graph breaks."""

from trainperf.analysis.diagnosis.changes.change import TWINS, Change


CHANGES: tuple[Change, ...] = (
    Change(
        id="compile_long_runs",
        of=("first_step",),
        advice="Compile long runs only",
        how="leave torch.compile out of short runs, train longer in one go, or keep the cache "
        "(TORCHINDUCTOR_FX_GRAPH_CACHE=1)",
        realises=0.9,
        source=TWINS,
        confirm="first_step_s is near step_s",
    ),
    Change(
        id="first_batch_sooner",
        of=("first_step",),
        advice="Have the first batch sooner",
        how="do what sampler and dataset do before the first batch (a sort by length, an index) "
        "once, and keep its result on disk",
        effort="hours",
        realises=0.9,
        source="reading a result is quick",
        confirm="first_step_s is a smaller part of the fit",
    ),
    Change(
        id="pay_once",
        of=("first_step",),
        advice="Pay for the first step once",
        how="train longer in one go, keep the compilation cache, or do not compile short runs",
        realises=0.9,
        source="reading a result is quick",
        confirm="first_step_s is a smaller part of the fit",
    ),
    Change(
        id="dynamic_shapes",
        of=("recompiles",),
        advice="Stop the recompilations",
        how="torch._dynamo.mark_dynamic({name}, {dim}) before the call, torch.compile(…, "
        "dynamic=True), or a few fixed lengths (bucketing)",
        realises=0.9,
        source=TWINS,
        confirm="the reading recompiles is 0 after the first steps",
    ),
    Change(
        id="one_grad_mode",
        of=("recompiles",),
        advice="Stop the recompilations",
        how="call it under one grad mode, or compile a copy for each mode",
        realises=0.9,
        source=TWINS,
        confirm="the reading recompiles is 0 after the first steps",
    ),
    Change(
        id="same_guards",
        of=("recompiles",),
        advice="Stop the recompilations",
        how="keep what the guard checks the same in every step: pass a number that changes as a "
        "tensor, and leave dynamic=False out",
        realises=0.9,
        source=TWINS,
        confirm="the reading recompiles is 0 after the first steps",
    ),
    Change(
        id="no_print_in_graph",
        of=("graph_breaks",),
        advice="Remove the graph breaks",
        how="take the print out of what is compiled, or do it every n-th step outside of it",
        effort="hours",
        confirm="torch.compile(…, fullgraph=True) raises where a break is left",
    ),
    Change(
        id="tensor_branch",
        of=("graph_breaks",),
        advice="Remove the graph breaks",
        how="keep the value a tensor: torch.where or torch.cond instead of if, .item() after the "
        "step",
        effort="hours",
        confirm="torch.compile(…, fullgraph=True) raises where a break is left",
    ),
    Change(
        id="no_break",
        of=("graph_breaks",),
        advice="Remove the graph breaks",
        how="move that line out of what is compiled, or write it with torch operators",
        effort="hours",
        confirm="torch.compile(…, fullgraph=True) raises where a break is left",
    ),
    Change(
        id="ignore_logging",
        of=("graph_breaks",),
        advice="Compile without the lines that break",
        how="add the method that logs there to torch._dynamo.config.ignore_logging_functions, or "
        "compile the parts without it (layer.compile() for each layer)",
        effort="hours",
        confirm="torch.compile(…, fullgraph=True) raises where a break is left",
    ),
    Change(
        id="compile_parts",
        of=("graph_breaks",),
        advice="Compile without the lines that break",
        how="compile the parts without it (layer.compile() for each layer), or try another version "
        "or setting of {package}; else leave it",
        effort="hours",
        confirm="torch.compile(…, fullgraph=True) raises where a break is left",
    ),
    Change(
        id="compile_it",
        of=("not_compiled",),
        advice="Compile the model yourself",
        how="model.compile() before the Trainer is made",
        confirm="compiled is true in the run's configuration",
    ),
    Change(
        id="no_switch",
        of=("not_compiled",),
        advice="Let torch compile",
        how="take {name} out of the environment",
        confirm="ran_compiled is true in the run's configuration",
    ),
    Change(
        id="call_compiled",
        of=("not_compiled",),
        advice="Call what torch.compile returned",
        how="model = torch.compile(model), then model(batch) in the step: not the module inside of "
        "it, nor another method of that",
        confirm="ran_compiled is true in the run's configuration",
    ),
    Change(
        id="one_device",
        of=("cuda_graphs",),
        advice="Keep the compiled code on one device",
        how="have every tensor that the compiled code takes or makes on the device of the model: "
        "device=x.device, register_buffer",
        confirm="unrecorded is 0 in compile.json",
    ),
    Change(
        id="no_mutation",
        of=("cuda_graphs",),
        advice="Change no input in compiled code",
        how="return what is new in place of writing into a tensor that the compiled code was given",
        confirm="unrecorded is 0 in compile.json",
    ),
    Change(
        id="fixed_shapes",
        of=("cuda_graphs",),
        advice="Give compiled code a few fixed shapes",
        how="pad to a few lengths (bucketing), leave a last batch out that is shorter, or compile "
        "without CUDA graphs: no mode, dynamic=True",
        confirm="recorded and unrecorded in compile.json are few",
    ),
    Change(
        id="another_mode",
        of=("cuda_graphs",),
        advice="Compile without CUDA graphs",
        how='no mode="reduce-overhead" or "max-autotune", or move what torch names out of what is '
        "compiled",
        confirm="unrecorded is 0 in compile.json",
    ),
)
"""In the order in which they are listed."""
