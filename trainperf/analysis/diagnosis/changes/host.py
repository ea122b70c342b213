"""Changes of host code: callbacks, logging, metrics, values read back, Python in the step."""

from trainperf.analysis.diagnosis.changes.change import HF, LIGHTNING, OUTSIDE, PHASE, TWINS, Change


_FIFTIETH = "every fiftieth time leaves a fiftieth"

CHANGES: tuple[Change, ...] = (
    Change(
        id="rarer_callback",
        of=("callbacks",),
        advice="Lighten {hook}",
        how="do the work of {hook} every 50th step, or not at all",
        realises=0.98,
        source=_FIFTIETH,
        trials=("no_callback_NAME",),
        confirm="trainperf compare BEFORE AFTER: phase_callbacks_s falls",
    ),
    Change(
        id="log_less",
        of=("logging",),
        advice="Log fewer values, less often",
        how="if step % 50 == 0: …, and {loop.log_rarely}",
        realises=0.98,
        source=_FIFTIETH,
        trials=("no_logging", "no_logger_NAME", "logging_interval"),
        confirm="phase_forward_s and phase_loop_s fall",
    ),
    Change(
        id="log_rarely",
        of=("loop",),
        advice="Log less often",
        how="{loop.log_rarely}",
        how_in={
            LIGHTNING: "self.log(…, prog_bar=False) and {loop.log_rarely}: a value on the "
            "progress bar is read back in every batch"
        },
        realises=0.98,
        source=_FIFTIETH,
        trials=("no_logging", "no_logger_NAME", "logging_interval"),
        confirm="trainperf compare BEFORE AFTER: phase_loop_s falls",
    ),
    Change(
        id="rarer_metric",
        of=("metrics_every_batch",),
        advice="Compute metrics less often",
        how="compute the metric{at} in validation, or every n-th batch: if step % 50 == 0: …",
        realises=0.98,
        source=_FIFTIETH,
        confirm="phase_forward_s falls by about that much",
    ),
    Change(
        id="quiet_thread",
        of=("busy_thread",),
        advice="Let the thread beside the training work less",
        how="do what {name} does seldom, after the fit, or in a process on CPUs of its own",
        realises=0.9,
        source="every tenth time leaves a tenth",
        confirm="trainperf compare BEFORE AFTER: the step is shorter",
    ),
    Change(
        id="tensor_operations",
        of=("hidden_syncs",),
        advice="Let tensors decide, not Python",
        how="at {where} one operator over whole tensors, with a mask where Python decides, in "
        "place of the loop and of those around it, e.g. torch.where(scores > 0, values, 0).sum(); "
        "print every n-th step",
        realises=0.9,
        source=TWINS,
        confirm="phase_forward_s falls; on a GPU each such value is a wait for the device too",
    ),
    Change(
        id="read_later",
        of=("hidden_syncs",),
        advice="Read values later",
        how="{loop.kept}",
        confirm="{device.no_waits}",
    ),
    Change(
        id="quiet_progress_bar",
        of=("hidden_syncs",),
        advice="Read values later",
        how="self.log(…, prog_bar=False): a value on the progress bar is read in every batch",
        confirm="{device.no_waits}",
    ),
    Change(
        id="no_nan_filter",
        of=("hidden_syncs",),
        advice="Read values later",
        how="logging_nan_inf_filter=False: the log then shows a loss that is no number",
        confirm="{device.no_waits}",
    ),
    Change(
        id="no_throughput_monitor",
        of=("hidden_syncs",),
        advice="Read values later",
        how="leave ThroughputMonitor out of the callbacks: it waits for the device in every batch",
        confirm="{device.no_waits}",
    ),
    Change(
        id="fused_for_scaler",
        of=("hidden_syncs",),
        advice="Read values later",
        how="{loop.fused}: the scaler then skips an update without a value that the host reads",
        how_in={
            LIGHTNING: "{loop.fused}: the scaler then skips an update without a value that the "
            "host reads, but Lightning refuses gradient_clip_val"
        },
        confirm="{device.no_waits}",
    ),
    Change(
        id="python_out_of_step",
        of=("python_in_step",),
        advice="Move what {name} does out of the step",
        how="replace a Python loop by tensor operations; do the rest in the dataset's workers, "
        "every 50th step, or after the fit",
        realises=0.98,
        source=_FIFTIETH,
        confirm=PHASE,
    ),
    Change(
        id="write_rarely",
        of=("python_in_step",),
        advice="Write less often in {name}",
        how="gather what is to be written, and add it to the file every 50th step (open(…, 'a')) "
        "instead of writing all of it anew",
        realises=0.98,
        source=_FIFTIETH,
        confirm=PHASE,
    ),
    Change(
        id="one_array",
        of=("python_in_step",),
        advice="Make tensors of one array, not of lists, in {name}",
        how="torch.from_numpy(np.stack(arrays)), of numbers np.array(…): torch.tensor goes through "
        "a list value by value",
        realises=0.95,
        source="64 to 192 arrays of 243 to 3,072 numbers: 5 to 26 ms in torch.tensor, 0.07 to 0.11 "
        "through np.stack; 256 of 8 numbers: 0.52 and 0.11 (an AMD EPYC, torch 2.13)",
        confirm=PHASE,
    ),
    Change(
        id="lighten",
        of=("unnamed_time",),
        advice="Lighten {name}",
        how="{where}: if training does not depend on it (printing, logging, statistics), run it "
        "every 50th step; if it does (clipping, averaging weights, building the batch), replace "
        "the loop there by one call for all tensors: clip_grad_norm_, AveragedModel(model, "
        "multi_avg_fn=…), torch.from_numpy(np.stack(…))",
        realises=0.9,
        source=TWINS,
        confirm=PHASE,
    ),
    Change(
        id="name_it",
        of=("unnamed_time",),
        advice="Find out what runs there",
        how="train for some minutes: the line that takes the time is then named; or put what you "
        "suspect into {loop.user_code}, and its time is shown",
        how_in={
            LIGHTNING: "train for some minutes: the line that takes the time is then named; or "
            "move what you suspect into a hook of a callback, and its time is shown",
            HF: "train for some minutes: the line that takes the time is then named; or move what "
            "you suspect into a hook of a callback, and its time is shown",
        },
        effort="hours",
        realises=None,
        source="what runs there is not known",
        confirm="trainperf report shows its time",
    ),
    Change(
        id="bracket",
        of=("unnamed_time",),
        advice="Bracket {phases}",
        how='with monitor.phase("{first}"): and so around each of {phases}; what takes the rest of '
        "the step then stands out",
        confirm="trainperf report shows its time",
    ),
    Change(
        id="measure_more",
        of=("unnamed_time",),
        advice="Measure what the log does not divide",
        how="trainperf run SCRIPT, or {loop.everything}, for 200 steps",
        confirm="trainperf report shows the time of each phase",
    ),
    Change(
        id="no_detect_anomaly",
        of=("debug_modes",),
        advice="Switch anomaly detection off",
        how="torch.autograd.set_detect_anomaly(False), and no torch.autograd.detect_anomaly() "
        "around the step",
        how_in={
            LIGHTNING: "Trainer(detect_anomaly=False), and no torch.autograd.detect_anomaly() "
            "around the step"
        },
        realises=0.95,
        source=TWINS,
        confirm="phase_backward_s falls",
    ),
    Change(
        id="no_python_tracer",
        of=("debug_modes",),
        advice="Train without a debugger or a profiler of Python",
        how="start the script plainly: no cProfile, no coverage, no debugger, no sys.settrace; "
        "py-spy looks at it from another process",
    ),
    Change(
        id="no_launch_blocking",
        of=("debug_modes",),
        advice="Let kernels be launched ahead",
        how="unset that variable of the environment: it is for finding the kernel that fails",
    ),
    Change(
        id="no_autograd_profiler",
        of=("debug_modes",),
        advice="Switch the autograd profiler off",
        how="no torch.autograd.profiler around the loop; {loop.capture} records a few steps",
        confirm="phase_backward_s falls",
    ),
    Change(
        id="no_deterministic",
        of=("debug_modes",),
        advice="Allow the fastest kernels",
        how="torch.use_deterministic_algorithms(False), unless runs must be equal bit by bit",
        how_in={
            LIGHTNING: "Trainer(deterministic=False), unless runs must be equal bit by bit",
            HF: "TrainingArguments(full_determinism=False), unless runs must be equal bit by bit",
        },
    ),
    Change(
        id="no_cudnn_deterministic",
        of=("debug_modes",),
        advice="Allow the fastest convolutions",
        how="torch.backends.cudnn.deterministic = False, as it is unless somebody sets it, and "
        "cudnn.benchmark = True where shapes stay: unless runs must be equal bit by bit",
    ),
    Change(
        id="freeze_garbage",
        of=("garbage",),
        advice="Tame the garbage collector",
        how="gc.freeze() after set-up, and gc.collect() only between epochs",
        realises=0.9,
        source=TWINS,
        confirm="trainperf compare BEFORE AFTER: gc_s falls",
    ),
    Change(
        id="rare_collect",
        of=("garbage",),
        advice="Leave the garbage to Python",
        how="no gc.collect() in the loop, at most between epochs: Python collects by itself; where "
        "its pauses are long, too, gc.freeze() after set-up",
        realises=0.9,
        source=TWINS,
        confirm="trainperf compare BEFORE AFTER: gc_s falls",
    ),
    Change(
        id="keep_cache",
        of=("device_calls",),
        advice="Let the allocator keep its memory",
        how="no empty_cache() in the loop: what it gives back the next step asks for again; the "
        "memory is free for tensors without it",
        bounded=False,
        confirm="trainperf compare BEFORE AFTER: the step is shorter, memory_peak_bytes the same",
    ),
    Change(
        id="no_synchronize",
        of=("device_calls",),
        advice="Let the device run behind",
        how="no synchronize() in the loop: time steps with events (torch.Event, "
        "enable_timing=True), or synchronise every 50th step",
        realises=None,
        source="the device works meanwhile: only what the host would have prepared is lost",
        bounded=False,
        confirm="{device.no_waits}",
    ),
    Change(
        id="measure_less",
        of=("own_cost",),
        advice="Measure less",
        how="bracket fewer phases, and pass monitor.watch() only what you need measured",
        how_in={
            LIGHTNING: "attach only the monitors you need, e.g. StepTimeMonitor() and "
            "DataWaitMonitor()",
            HF: "measure a part of the training: TrainPerfCallback() in some runs only",
            **dict.fromkeys(OUTSIDE, "run the script without trainperf"),
        },
        realises=None,
        source="depends on what is left out",
        confirm="trainperf report: overhead below 3 % of the step",
    ),
)
"""In the order in which they are listed."""
