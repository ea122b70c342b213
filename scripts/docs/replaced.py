"""What is put into other people's objects while a fit goes on: one row each, with its reason.

`tests/contracts/test_replaced.py` names the test that looks at each place before, in and after a
fit, and after one that raised.
"""

from dataclasses import dataclass

from scripts.docs.tables import table


PROCESS_ENDS = "not at all: the process is there for it, and ends"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """Something that is not ours and is not the same while a fit goes on."""

    id: str
    """By which the test knows it."""
    what: str
    door: str
    """Which kind of measurement does it."""
    span: str
    """From when to when."""
    because: str
    """Why nothing that is meant for it does the same."""
    back: str
    """How it is taken back."""


REPLACED = (
    Replacement(
        id="profiler",
        what="`trainer.profiler`, a public attribute: a profiler that forwards to yours",
        door="Lightning",
        span="`setup` to `teardown` or `on_exception`",
        because="callbacks have no hook around the loader, the copy, backward or other callbacks",
        back="`Fit.undo`, as the fit ends",
    ),
    Replacement(
        id="own_hooks",
        what="hooks of our own callback, as attributes of the object: `None`, or a function",
        door="Lightning, Hugging Face",
        span="from its making to the end of the fit; Lightning: `None` stays",
        because="a method that does nothing costs a call and a bracket in every step",
        back="Hugging Face: `Fit.undo`; Lightning mutes them again",
    ),
    Replacement(
        id="backward",
        what="`accelerator.backward`, on the Trainer's one Accelerator: a function around it",
        door="Hugging Face",
        span="`on_train_begin` to the end of the fit",
        because="there is no event between forward and backward, nor one at backward's end; hooks "
        "of tensors hear its beginning only, and not of what a scaler or DDP does after it",
        back="`Fit.undo`",
    ),
    Replacement(
        id="post_training",
        what="methods of a TRL trainer that generate, reward and weigh answers (`_generate`, "
        "`_generate_single_turn`, `_tool_call_loop`, `_calculate_rewards`, "
        "`_get_per_token_logps_and_entropies`), `sync_weights` of its `vllm_generation`, and the "
        "entries of its list `reward_funcs`: functions around them",
        door="Hugging Face",
        span="`on_train_begin` to the end of the fit",
        because="TRL tells these times to W&B, MLflow and Trackio alone, and only when they are "
        "over; no callback hears of a rollout",
        back="`Fit.undo`",
    ),
    Replacement(
        id="base_dataloader",
        what="`base_dataloader` of the prepared loader: an iterable around it",
        door="Hugging Face",
        span="`on_train_begin` to the end of the fit",
        because="the Trainer fetches all micro-batches of an update before its first event",
        back="`Fit.undo`",
    ),
    Replacement(
        id="prepared",
        what="`base_dataloader` (Accelerate) or `_dataloader` (Fabric) of the loader that "
        "`batches` is given: an iterable around it",
        door="LoopMonitor",
        span="one epoch, and only where the loader copies to a device",
        because="the copy is made inside the loader's iterator; only from under it can it be told "
        "from the wait",
        back="`finally`, as the epoch ends or is left",
    ),
    Replacement(
        id="object_hooks",
        what="entries in the hook tables of your model, parameters and optimizers (`register_…`)",
        door="all",
        span="start of the fit to its end; some for one step",
        because="this is what is meant for it",
        back="handles, by the probes as they are detached and by `Fit.undo`",
    ),
    Replacement(
        id="gradient_hook",
        what="the hook dictionary of a tensor that the model returned",
        door="from outside",
        span="one forward and backward",
        because="`Tensor.register_hook` does it, and takes twice as long: it makes a handle "
        "that nobody needs",
        back="it goes with the tensor",
    ),
    Replacement(
        id="gc",
        what="an entry of `gc.callbacks`",
        door="all",
        span="start of the fit to its end",
        because="this is what is meant for it",
        back="by its probe, as it is detached",
    ),
    Replacement(
        id="switch_interval",
        what="`sys.setswitchinterval`, 0.5 ms in place of 5; on Python 3.11 `gc.disable` while a "
        "stack is read",
        door="all, with `lines=True`",
        span="a moment before each sample of lines, 0.1 % of the time",
        because="a thread cannot ask for the interpreter; without it short code would never be "
        "sampled",
        back="right after the sample, unless somebody has set another one meanwhile",
    ),
    Replacement(
        id="atexit",
        what="an `atexit` function",
        door="all",
        span="as the fit begins, to its end",
        because="this is what is meant for it",
        back="`atexit.unregister`",
    ),
    Replacement(
        id="module_table",
        what="one entry of torch's table of forward hooks common to all modules; for an audited "
        "step two more, and two in that of optimizers",
        door="from outside; `--audit-at`",
        span="while the loop is recorded and no forward goes on; one step",
        because="a hook of a module would be saved, copied, scripted or compiled with it",
        back="handles",
    ),
    Replacement(
        id="dispatch_mode",
        what="a `TorchDispatchMode`",
        door="all, with `audit_at`",
        span="the audited step",
        because="this is what is meant for it",
        back="as the step ends, or the fit",
    ),
    Replacement(
        id="fork",
        what="functions of `os.register_at_fork`",
        door="all, with `lines=True`; `trainperf run` and its kin, in a loader's workers as well",
        span="from the start of the first fit on, or from the import of torch",
        because="this is what is meant for it: a worker samples itself, and a child must not go on "
        "with its parent's recording",
        back=PROCESS_ENDS,
    ),
    Replacement(
        id="optimizer_table",
        what="two entries of torch's table of hooks common to all optimizers",
        door="`trainperf run` and its kin",
        span="from the import of torch on",
        because="this is what is meant for it: nobody has told us of the loop",
        back="not at all: the process was launched to be measured, and PyTorch goes through the "
        "table while they run",
    ),
    Replacement(
        id="monitoring",
        what="a tool of `sys.monitoring`, for two functions of torch's loader",
        door="from outside, Python ≥ 3.12",
        span="while the loop is recorded",
        because="this is what is meant for it",
        back="the tool's number is freed",
    ),
    Replacement(
        id="import_hook",
        what="a finder in `sys.meta_path`, or a hook of parameters that are registered",
        door="`trainperf run` and its kin",
        span="from the import of torch to that of `transformers.trainer`",
        because="transformers has no entry point that tells of a Trainer",
        back="by itself, as the module is loaded; `exec_module` of the module's own loader, which "
        "calls us then, is the loader's again before it runs",
    ),
    Replacement(
        id="default_callbacks",
        what="an entry of the list `transformers.trainer.DEFAULT_CALLBACKS`",
        door="`trainperf run` and its kin",
        span="from the import of that module on",
        because="as above",
        back=PROCESS_ENDS,
    ),
    Replacement(
        id="trainer_in_trials",
        what="`trainer.loggers`, `callbacks`, `log_every_n_steps`, limits of epochs and steps, "
        "`strategy.checkpoint_io`, `precision_plugin` and `lr_scheduler_configs`; the iterator of "
        "the loop; `log` of the module",
        door="`trainperf try`, Lightning",
        span="`setup` on",
        because="a trial switches what a user would write elsewhere, in a fit that goes on",
        back=PROCESS_ENDS,
    ),
    Replacement(
        id="arguments_in_trials",
        what="limits in `args`, `state.logging_steps`, `callbacks` of the handler",
        door="`trainperf try`, Hugging Face",
        span="`on_init_end` on",
        because="as above",
        back=PROCESS_ENDS,
    ),
    Replacement(
        id="switches_in_trials",
        what="what a trial is about: precisions of `torch.backends`, flags of modules, the layout "
        "of parameters, compiled parts, threads",
        door="`trainperf try`",
        span="the blocks of steps in which the change is on",
        because="this is what is tried",
        back="by the trial, after each block; then the process ends",
    ),
    Replacement(
        id="tf32",
        what="`torch.backends.cuda.matmul.fp32_precision`",
        door="all, on CUDA",
        span="a benchmark of the chip after the fit, once per machine",
        because="this is what is meant for it; there is no context of torch's",
        back="`finally`",
    ),
)
"""By door, the usual ones first."""


def replaced() -> str:
    """One row each."""
    rows = [(row.what, row.door, row.span, row.because, row.back) for row in REPLACED]
    head = ("what", "where", "from … to", "why nothing else does", "how it is taken back")
    return table(head, rows)
