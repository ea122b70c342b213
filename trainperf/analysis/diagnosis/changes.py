"""Catalogue of changes: what to do about causes, what it takes, and what it usually realises.

Words have places: `{loop.…}` is what the kind of loop calls a thing, the others are the detector's.
A number without a source is not here: `realises` is the share of the seconds that its cause removes
which the change saves, by the law itself (1), by what is left on purpose (a callback every tenth
step), or by the twins of `tests/faults` in which it was made (`docs/research/accuracy.md`).  Where
none of these tells, it is `None`: the finding then says what is gained at most, and not about what.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainperf.core.findings import Effort
from trainperf.core.loop_kind import LoopKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that can be done, in code where there is code to change."""

    id: str
    of: tuple[str, ...]
    """Causes that it removes, or a part of them."""
    advice: str
    """What to do, as an imperative of a few words without a full stop."""
    how: str
    """The change in one line, for any loop; `{loader}` is the call with the options of `loader`."""
    how_in: Mapping[str, str] = field(default_factory=dict)
    """The same for a kind of loop, by its name."""
    loader: str = ""
    """Options of the `DataLoader`, as arguments: a kind of loop may call them by other names."""
    effort: Effort = "minutes"
    realises: float | None = 1.0
    """Share of the removed seconds that it usually saves; `None` where nothing tells."""
    source: str = "the law of the step"
    """Of that share, or why there is none."""
    bounded: bool = True
    """Whether it changes only what its cause claims: else the claim does not bound its gain."""
    trials: tuple[str, ...] = ()
    """Built-in trials that measure it."""
    confirm: str = "trainperf compare BEFORE AFTER: the step is shorter"
    """How to see that it helped."""
    costs: str = ""
    """What it may cost: memory, accuracy, another loss."""

    def worded(self, loop: LoopKind, values: Mapping[str, object]) -> tuple[str, str, str]:
        """Advice, action and how to confirm, for a kind of loop."""
        places = {"loop": loop, **values}
        places["loader"] = loop.data_loader(self.loader.format(**places))
        how = self.how_in.get(loop.name, self.how)
        return self.advice.format(**places), how.format(**places), self.confirm.format(**places)


_HF, _LIGHTNING, _PLAIN = "huggingface", "lightning", "plain"
_TWINS = "twins in tests/faults, docs/research/accuracy.md"
_WAITS = "the next run waits for data for less than a tenth of its step"
_TENTH = "every tenth time leaves a tenth"
_FIFTIETH = "every fiftieth time leaves a fiftieth"
_AUDIT = "trainperf compare BEFORE AFTER; the next audit has fewer of these operators"
_LOADER = "data_wait"
_PHASE = "trainperf compare BEFORE AFTER: the phase is shorter"

CHANGES: tuple[Change, ...] = (
    # -- loaders
    Change(
        id="more_workers",
        of=(_LOADER,),
        advice="Load in {workers}",
        how="{loader}",
        loader="num_workers={number}, persistent_workers=True",
        trials=("workers_N",),
        confirm=_WAITS,
        costs="a process and its memory for each worker",
    ),
    Change(
        id="workers_and_threads",
        of=(_LOADER,),
        advice="Load in {workers}, compute with fewer threads",
        how="{loader}, and torch.set_num_threads({threads}) before the training: what the workers "
        "compute needs CPUs, too",
        loader="num_workers={number}, persistent_workers=True",
        trials=("workers_N",),
        confirm=_WAITS,
        costs="a process and its memory for each worker",
    ),
    Change(
        id="some_workers",
        of=(_LOADER,),
        advice="Fix the loader",
        how="load with {loader}, or make batches cheaper",
        loader="num_workers=2, persistent_workers=True",
        realises=0.7,
        source=_TWINS,
        confirm=_WAITS,
    ),
    Change(
        id="no_workers",
        of=(_LOADER,),
        advice="Load without workers",
        how="{loader}: handing a batch over costs more than making it",
        loader="num_workers=0",
        trials=("workers_N",),
        confirm=_WAITS,
    ),
    Change(
        id="cheaper_sample",
        of=(_LOADER,),
        advice="Make a sample cheaper",
        how="cache or preprocess what {part} computes, or fetch a batch at once (__getitems__, one "
        "index into a tensor) instead of sample by sample",
        effort="hours",
        realises=0.9,
        source=_TWINS,
        confirm=_WAITS,
    ),
    Change(
        id="send_less",
        of=(_LOADER,),
        advice="Send less from the workers",
        how="send smaller dtypes, e.g. uint8 until the device, and fewer tensors per batch",
        effort="hours",
        realises=0.5,
        source="half the bytes",
        confirm=_WAITS,
    ),
    Change(
        id="own_loaders",
        of=(_LOADER,),
        advice="Let each rank load its own batches",
        how="Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=False)); a "
        "stream is split by rank first (split_dataset_by_node), else every rank reads all of it",
        how_in={
            _HF: 'TrainingArguments(accelerator_config={{"dispatch_batches": False}}); a stream is '
            "split by rank first (split_dataset_by_node), else every rank reads all of it"
        },
        confirm=_WAITS,
    ),
    Change(
        id="leave_the_loader",
        of=("data_hidden",),
        advice="Leave the loader as it is",
        how="no change: while the host waits, the device still has work; a faster loader gains "
        "nothing",
        trials=("free_loader",),
        confirm="data_stall_fraction stays small when the step gets faster",
    ),
    Change(
        id="fewer_workers",
        of=("oversubscription",),
        advice="Use fewer workers",
        how="{loader}, as the rank has {cpus}",
        loader="num_workers={number}",
        confirm="in the next run a training thread has no CPU for less than a tenth of the time",
    ),
    Change(
        id="fewer_threads",
        of=("oversubscription",),
        advice="Use fewer threads",
        how="torch.set_num_threads({threads}) on every rank, as each has {cpus}",
        realises=None,
        source="a thread less computes less, by how much differs",
        confirm="in the next run a training thread has no CPU for less than a tenth of the time",
    ),
    Change(
        id="more_cpus",
        of=("oversubscription",),
        advice="Give every rank a CPU",
        how="ask for {ranks} CPUs or more (--cpus-per-task, the container's quota, the mask), or "
        "start fewer ranks; OMP_NUM_THREADS=1 and num_workers=0 until then",
        effort="hours",
        confirm="in the next run a training thread has no CPU for less than a tenth of the time",
    ),
    Change(
        id="join_copies",
        of=("many_small_tensors",),
        advice="Put the batch into fewer tensors",
        how="one tensor per batch: torch.cat the fields in collate_fn, and split them on the "
        "device",
        effort="hours",
        realises=0.8,
        source=_TWINS,
    ),
    Change(
        id="join_fields",
        of=("many_small_tensors",),
        advice="Put the batch into fewer tensors",
        how="one tensor per sample in __getitem__ for all its fields, taken apart in the model",
        effort="hours",
        realises=0.8,
        source=_TWINS,
    ),
    Change(
        id="persistent_workers",
        of=("epoch_start",),
        advice="Keep the loader's workers",
        how="{loader}, made once, before the first epoch",
        loader="persistent_workers=True",
        realises=0.8,
        source=_TWINS,
        confirm="data_wait_all_fraction comes near data_wait_fraction; epoch boundaries shrink",
    ),
    Change(
        id="pin_memory",
        of=("transfer",),
        advice="Copy from pinned memory",
        how="{loader}, and batch.to(device, non_blocking=True)",
        how_in={
            _HF: "TrainingArguments(dataloader_pin_memory=True, "
            'accelerator_config={{"non_blocking": True}})',
            _LIGHTNING: "{loader}: Lightning then copies without blocking",
        },
        loader="pin_memory=True",
        realises=None,
        source="a copy from pinned memory is quicker and may overlap, by how much differs",
        trials=("no_transfer",),
        confirm="h2d_fraction below a tenth, h2d_bytes_per_s near the link's rate",
    ),
    Change(
        id="send_smaller",
        of=("transfer",),
        advice="Make the batch transfer cheaper",
        how="send less: smaller dtypes, or make on the device what can be made there; "
        "batch.to(device, non_blocking=True)",
        effort="hours",
        realises=0.5,
        source="half the bytes",
        trials=("no_transfer",),
        confirm="h2d_fraction below a tenth",
    ),
    Change(
        id="hooks_of_transfer",
        of=("transfer",),
        advice="Make the batch transfer cheaper",
        how="nothing is copied on a CPU: look at the batch-transfer hooks of the module",
        confirm=_PHASE,
    ),
    # -- padding
    Change(
        id="pack_more",
        of=("padding",),
        advice="Pack from more sequences at once",
        how="fill each row with sequences of several batches: the more there are to choose from, "
        "the less padding is left",
        effort="hours",
        realises=0.7,
        source=_TWINS,
        trials=("packed_batches",),
        confirm="padding_fraction near 0",
    ),
    Change(
        id="pack",
        of=("padding",),
        advice="Pack the sequences",
        how="pack documents into full sequences, or batch those of similar length together",
        effort="hours",
        realises=0.8,
        source=_TWINS,
        trials=("packed_batches",),
        confirm="padding_fraction near 0",
    ),
    Change(
        id="pack_rows",
        of=("padding",),
        advice="Pack the sequences",
        how="put several into one row of {capacity:,} tokens, with attention kept apart",
        effort="hours",
        realises=0.8,
        source=_TWINS,
        trials=("packed_batches",),
        confirm="padding_fraction near 0",
    ),
    Change(
        id="pad_to_longest",
        of=("padding",),
        advice="Pad less",
        how="pad to the longest sequence of each batch: they are of similar length already",
        trials=("trimmed_batches",),
        confirm="padding_fraction near 0",
    ),
    Change(
        id="pad_less",
        of=("padding",),
        advice="Pad less",
        how="pad to the longest of the batch, or to {longest:,} tokens instead of {capacity:,}",
        realises=0.9,
        source=_TWINS,
        trials=("trimmed_batches",),
        confirm="padding_fraction near 0",
    ),
    Change(
        id="similar_lengths",
        of=("padding",),
        advice="Batch sequences of similar length",
        how="a batch_sampler that sorts by length within some batches, and padding to the longest",
        how_in={
            _HF: 'TrainingArguments(train_sampling_strategy="group_by_length"; before transformers '
            "5 "
            "group_by_length=True), and a collator that pads to the longest of the batch"
        },
        effort="hours",
        realises=0.8,
        source=_TWINS,
        trials=("sorted_batches",),
        confirm="padding_fraction near 0",
    ),
    # -- the host
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
            _LIGHTNING: "self.log(…, prog_bar=False) and {loop.log_rarely}: a value on the "
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
        source=_TENTH,
        confirm="trainperf compare BEFORE AFTER: the step is shorter",
    ),
    Change(
        id="tensor_operations",
        of=("hidden_syncs",),
        advice="Let tensors decide, not Python",
        how="one operator for all of them instead of the loop, e.g. torch.where(scores > 0, "
        "values, 0).sum(); print every n-th step",
        realises=0.9,
        source=_TWINS,
        confirm="phase_forward_s falls; on a GPU each such value is a wait for the device too",
    ),
    Change(
        id="read_later",
        of=("hidden_syncs",),
        advice="Read values later",
        how="{loop.kept}",
        confirm="torch.cuda.set_sync_debug_mode('warn') says nothing in the step",
    ),
    Change(
        id="quiet_progress_bar",
        of=("hidden_syncs",),
        advice="Read values later",
        how="self.log(…, prog_bar=False): a value on the progress bar is read in every batch",
        confirm="torch.cuda.set_sync_debug_mode('warn') says nothing in the step",
    ),
    Change(
        id="no_nan_filter",
        of=("hidden_syncs",),
        advice="Read values later",
        how="logging_nan_inf_filter=False: the log then shows a loss that is no number",
        confirm="torch.cuda.set_sync_debug_mode('warn') says nothing in the step",
    ),
    Change(
        id="no_throughput_monitor",
        of=("hidden_syncs",),
        advice="Read values later",
        how="leave ThroughputMonitor out of the callbacks: it waits for the device in every batch",
        confirm="torch.cuda.set_sync_debug_mode('warn') says nothing in the step",
    ),
    Change(
        id="fused_for_scaler",
        of=("hidden_syncs",),
        advice="Read values later",
        how="{loop.fused}: the scaler then skips an update without a value that the host reads",
        how_in={
            _LIGHTNING: "{loop.fused}: the scaler then skips an update without a value that the "
            "host reads, but Lightning refuses gradient_clip_val"
        },
        confirm="torch.cuda.set_sync_debug_mode('warn') says nothing in the step",
    ),
    Change(
        id="python_out_of_step",
        of=("python_in_step",),
        advice="Move what {name} does out of the step",
        how="replace a Python loop by tensor operations; do the rest in the dataset's workers, "
        "every 50th step, or after the fit",
        realises=0.98,
        source=_FIFTIETH,
        confirm=_PHASE,
    ),
    Change(
        id="lighten",
        of=("unnamed_time",),
        advice="Lighten {name}",
        how="what changes gradients or weights: one call for all of them (clip_grad_norm_, "
        "AveragedModel(model, multi_avg_fn=…)); what only watches: every n-th step; what makes the "
        "batch: in a DataLoader's workers",
        realises=0.8,
        source=_TWINS,
        confirm="trainperf compare BEFORE AFTER: the step is shorter by it",
    ),
    Change(
        id="name_it",
        of=("unnamed_time",),
        advice="Find out what runs there",
        how="train for some minutes: the line that takes the time is then named; or put what you "
        "suspect into {loop.user_code}, and its time is shown",
        how_in={
            _LIGHTNING: "train for some minutes: the line that takes the time is then named; or "
            "move what you suspect into a hook of a callback, and its time is shown",
            _HF: "train for some minutes: the line that takes the time is then named; or move what "
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
        advice="Bracket what is not measured",
        how='with monitor.phase("…"): around each of {phases}; what takes the rest of the step '
        "then stands out",
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
        how="{loop.no_anomaly}, and no torch.autograd.detect_anomaly() around the step",
        realises=0.8,
        source=_TWINS,
        confirm="phase_backward_s falls",
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
            _LIGHTNING: "Trainer(deterministic=False), unless runs must be equal bit by bit",
            _HF: "TrainingArguments(full_determinism=False), unless runs must be equal bit by bit",
        },
    ),
    Change(
        id="no_one_thread",
        of=("debug_modes",),
        advice="Compute with more threads",
        how="torch.set_num_threads({cpus}), or OMP_NUM_THREADS={cpus} (torchrun sets 1)",
    ),
    Change(
        id="freeze_garbage",
        of=("garbage",),
        advice="Tame the garbage collector",
        how="gc.freeze() after set-up, and gc.collect() only between epochs",
        realises=0.9,
        source=_TWINS,
        confirm="trainperf compare BEFORE AFTER: gc_s falls",
    ),
    Change(
        id="measure_less",
        of=("own_cost",),
        advice="Measure less",
        how="{loop.less}",
        realises=None,
        source="depends on what is left out",
        confirm="trainperf report: overhead below 3 % of the step",
    ),
    # -- operators
    Change(
        id="fused_attention",
        of=("attention",),
        advice="Use fused attention",
        how="torch.nn.functional.scaled_dot_product_attention(q, k, v), with is_causal=True for a "
        'causal mask; in transformers attn_implementation="sdpa"',
        realises=0.7,
        source=_TWINS,
        trials=("attention_sdpa", "attention_cudnn"),
        confirm="the next audit has no softmax between two bmm",
    ),
    Change(
        id="no_dropout_in_attention",
        of=("attention",),
        advice="Attend without dropout",
        how="on a CPU scaled_dot_product_attention is not fused with dropout: dropout_p=0.0, in "
        "transformers attn_pdrop=0.0 or attention_probs_dropout_prob=0.0, if the model learns as "
        "well without",
        realises=0.7,
        source=_TWINS,
        costs="less regularisation: another loss",
        confirm="the next audit has no softmax between two bmm",
    ),
    Change(
        id="fusible_attention",
        of=("attention",),
        advice="Have attention fused",
        how="scaled_dot_product_attention runs unfused here, mostly for its mask, its dtype or the "
        "size of a head; under torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION) it says "
        "why",
        effort="hours",
        realises=0.7,
        source=_TWINS,
        confirm="the next audit has no softmax between two bmm",
    ),
    Change(
        id="fused_optimizer",
        of=("optimizer_not_fused",),
        advice="Fuse the optimizer",
        how="{loop.fused}",
        how_in={_LIGHTNING: "{loop.fused}; in fp16 Lightning refuses gradient_clip_val with it"},
        realises=0.8,
        source=_TWINS,
        trials=("optimizer_fused", "optimizer_foreach"),
        confirm="trainperf compare BEFORE AFTER: phase_optimizer_s falls",
    ),
    Change(
        id="foreach_update",
        of=("optimizer_not_fused",),
        advice="Update all parameters at once",
        how="foreach=True for an optimizer of torch.optim; in one of your own, operators on "
        "lists of parameters instead of a loop (torch._foreach_mul_, torch._foreach_add_)",
        realises=0.8,
        source=_TWINS,
        trials=("optimizer_foreach",),
        confirm="trainperf compare BEFORE AFTER: phase_optimizer_s falls",
    ),
    Change(
        id="one_operator",
        of=("launch_bound",),
        advice="Do in one operator what the loop does",
        how="at {where} one operator over all rows, time steps, heads or experts instead of the "
        "loop: nn.LSTM or nn.GRU for cells, bmm or einsum for heads, indexing with a tensor for "
        "items",
        realises=0.85,
        source=_TWINS,
        confirm="trainperf compare BEFORE AFTER in samples per second",
    ),
    Change(
        id="compile_step",
        of=("launch_bound", "elementwise_chain"),
        advice="Compile the model",
        how='{loop.compiled}; on a GPU with mode="reduce-overhead", where shapes are the same in '
        "every step",
        how_in={
            _HF: "{loop.compiled}; on a GPU with "
            'torch_compile_mode="reduce-overhead", where shapes are the same in every step'
        },
        realises=None,
        source="differs from model to model: the trial tells",
        bounded=False,
        trials=("compile",),
        costs="a first step of a minute or more",
        confirm="trainperf compare BEFORE AFTER in samples per second",
    ),
    Change(
        id="larger_batch",
        of=("launch_bound",),
        advice="Use a larger batch",
        how="a batch twice as large: twice the samples with as many launches",
        realises=0.5,
        source="twice the batch halves the launches of a sample",
        bounded=False,
        costs="memory, and another loss for the same number of steps",
        confirm="trainperf compare BEFORE AFTER in samples per second",
    ),
    Change(
        id="larger_micro_batches",
        of=("launch_bound",),
        advice="Take larger micro-batches",
        how="a micro-batch {number} times as large, without {loop.accumulation}: the same samples "
        "in each update",
        how_in={
            _HF: "TrainingArguments(per_device_train_batch_size={rows}, "
            "gradient_accumulation_steps=1): the same samples in each update"
        },
        realises=None,
        source="of all micro-batches' launches those of one are left",
        bounded=False,
        costs="memory",
        confirm="trainperf compare BEFORE AFTER in samples per second",
    ),
    Change(
        id="fuse_chain",
        of=("elementwise_chain",),
        advice="Fuse the elementwise operators",
        how="one operator of torch instead of a formula, e.g. torch.nn.functional.gelu(x, "
        'approximate="tanh"); where there is none, torch.compile the function that has the formula',
        realises=0.6,
        source=_TWINS,
    ),
    Change(
        id="register_buffer",
        of=("constant_rebuilt",),
        advice="Build the constants once",
        how='in __init__ self.register_buffer("mask", …, persistent=False), made for the longest '
        "input; in forward a slice of it",
        realises=0.95,
        source=_TWINS,
        confirm=_AUDIT,
    ),
    Change(
        id="convert_once",
        of=("autocast_casts",),
        advice="Convert once",
        how="make the tensor in the dtype in which it is used, and drop .to(dtype) after it",
        realises=0.9,
        source=_TWINS,
        confirm=_AUDIT,
    ),
    Change(
        id="keep_dtype",
        of=("autocast_casts",),
        advice="Convert once",
        how="have masks and labels in the dtype in which they are used: convert them in the "
        "dataset, or keep a constant in self.register_buffer(…)",
        realises=0.9,
        source=_TWINS,
        confirm=_AUDIT,
    ),
    Change(
        id="weights_in_half",
        of=("autocast_casts",),
        advice="Convert once",
        how="weights are converted in every micro-batch: take fewer and larger ones, or keep the "
        "weights in bf16, {loop.bf16_weights}",
        realises=0.8,
        source=_TWINS,
        confirm=_AUDIT,
    ),
    Change(
        id="fp32_instead",
        of=("autocast_casts",),
        advice="Train without autocast",
        how="no torch.autocast: by the peaks of this chip its conversions take longer than the "
        "products save; or keep the weights in bf16, too, {loop.bf16_weights}",
        how_in={
            _LIGHTNING: 'Trainer(precision="32-true"): by the peaks of this chip the conversions '
            "take longer than the products save; or {loop.bf16_weights}",
            _HF: "TrainingArguments(bf16=False, fp16=False): by the peaks of this chip the "
            "conversions take longer than the products save; or {loop.bf16_weights}",
        },
        realises=None,
        source="conversions against what the products save, by the peaks of the chip",
        bounded=False,
        costs="memory for activations",
        confirm="trainperf prove with and without autocast, in samples per second",
    ),
    Change(
        id="one_layout",
        of=("layout_copies",),
        advice="Keep one memory layout",
        how="have the dataset make the batch in the layout that the model wants; drop contiguous() "
        "and clone() where the next operator works without",
        realises=0.9,
        source=_TWINS,
        trials=("channels_last",),
        confirm=_AUDIT,
    ),
    Change(
        id="single_precision",
        of=("matmul_precision",),
        advice="Compute in fp32",
        how="model.float(), and batches in dtype=torch.float32: float64 is the default of numpy",
        realises=0.9,
        source=_TWINS,
        confirm="the next audit has no fp64",
    ),
    Change(
        id="tf32_products",
        of=("matmul_precision",),
        advice="Use the tensor cores",
        how='torch.set_float32_matmul_precision("high"); more with {loop.bf16}',
        trials=("matmul_precision", "autocast_bf16"),
        costs="digits of products",
        confirm="faster, and the loss still matches",
    ),
    Change(
        id="bf16_products",
        of=("matmul_precision",),
        advice="Multiply in bf16",
        how="{loop.bf16}",
        trials=("autocast_bf16", "matmul_precision"),
        costs="digits of products",
        confirm="faster, and the loss still matches",
    ),
    Change(
        id="fp16_products",
        of=("matmul_precision",),
        advice="Multiply in fp16",
        how="{loop.fp16}",
        trials=("matmul_precision",),
        costs="digits of products; a loss scale",
        confirm="faster, and the loss still matches",
    ),
    Change(
        id="loss_in_fp32",
        of=("half_sensitive",),
        advice="Compute the loss in fp32",
        how="logits.float() before the loss; torch.autocast computes losses in fp32 by itself",
        confirm="compare the loss curves; the next audit has them in fp32",
    ),
    Change(
        id="sums_in_fp32",
        of=("half_sensitive",),
        advice="Compute norms and softmax in fp32",
        how="{loop.bf16}; torch.autocast computes norms and softmax in fp32 by itself, in fp16 too",
        confirm="compare the loss curves; the next audit has them in fp32",
    ),
    Change(
        id="keep_activations",
        of=("recompute",),
        advice="Keep the activations",
        how="no torch.utils.checkpoint around the blocks, or around fewer of them; in transformers "
        "model.gradient_checkpointing_disable()",
        how_in={
            _HF: "TrainingArguments(gradient_checkpointing=False), and no "
            "model.gradient_checkpointing_enable()"
        },
        realises=0.9,
        source=_TWINS,
        trials=("no_checkpointing",),
        costs="memory for the activations",
        confirm="phase_backward_s falls; the comparison shows the peak, too",
    ),
    Change(
        id="inference_mode",
        of=("gradients_on",),
        advice="Answer under torch.inference_mode()",
        how="with torch.inference_mode(): around the loop, or @torch.inference_mode() on the "
        "function that answers",
        confirm="this finding is gone; the step is no slower, and the memory peak lower",
    ),
    # -- ranks
    Change(
        id="even_work",
        of=("straggler",),
        advice="Even out the ranks",
        how="give every rank the same work: batches of equal length, the same input speed",
        effort="hours",
        realises=0.8,
        source=_TWINS,
        trials=("no_reduction",),
        confirm="trainperf compare BEFORE AFTER: allreduce_skew_s falls",
    ),
    Change(
        id="faster_loader_of_rank",
        of=("straggler",),
        advice="Look at {who}",
        how="give {who} a loader as fast as the others'",
        realises=0.9,
        source=_TWINS,
        confirm="trainperf compare BEFORE AFTER: allreduce_skew_s falls, no rank is named",
    ),
    Change(
        id="look_at_rank",
        of=("straggler",),
        advice="Look at {who}",
        how="find what {who} {does} that the others do not",
        realises=0.9,
        source=_TWINS,
        confirm="trainperf compare BEFORE AFTER: allreduce_skew_s falls, no rank is named",
    ),
    Change(
        id="compare_hosts",
        of=("straggler",),
        advice="Look at {who}",
        how="compare the device and host of {who} with the others'",
        effort="hours",
        realises=0.9,
        source=_TWINS,
        confirm="trainperf compare BEFORE AFTER: allreduce_skew_s falls, no rank is named",
    ),
    Change(
        id="no_sync",
        of=("no_sync",),
        advice="Reduce gradients once per step",
        how="with {loop.wrapped_model}.no_sync(): around forward and backward of all micro-batches "
        "but the last",
        realises=0.7,
        source=_TWINS,
        trials=("no_reduction",),
        confirm="allreduces_per_step in the run's configuration is 1, and the tail is shorter",
    ),
    Change(
        id="larger_buckets",
        of=("allreduce_tail",),
        advice="Reduce larger buckets",
        how="DistributedDataParallel(bucket_cap_mb={megabytes}) or larger",
        how_in={
            _LIGHTNING: "DDPStrategy(bucket_cap_mb={megabytes}) or larger",
            _HF: "TrainingArguments(ddp_bucket_cap_mb={megabytes}) or larger",
        },
        realises=0.5,
        source=_TWINS,
        trials=("no_reduction",),
        confirm="trainperf compare BEFORE AFTER: allreduce_tail_s falls",
    ),
    Change(
        id="no_unused_parameters",
        of=("allreduce_tail",),
        advice="Stop looking for unused parameters",
        how="DistributedDataParallel(find_unused_parameters=False)",
        how_in={
            _LIGHTNING: "DDPStrategy(find_unused_parameters=False)",
            _HF: "TrainingArguments(ddp_find_unused_parameters=False)",
        },
        realises=0.3,
        source=_TWINS,
        trials=("no_reduction",),
        confirm="trainperf compare BEFORE AFTER: allreduce_tail_s falls",
    ),
    Change(
        id="bucket_views",
        of=("allreduce_tail",),
        advice="Send less, or less often",
        how="send half the bytes: "
        "model.register_comm_hook(None, default_hooks.bf16_compress_hook), default_hooks of "
        "torch.distributed.algorithms.ddp_comm_hooks; gradient_as_bucket_view=True spares a copy",
        how_in={
            _LIGHTNING: "send half the bytes: DDPStrategy(gradient_as_bucket_view=True, "
            "ddp_comm_hook=default_hooks.bf16_compress_hook), default_hooks of "
            "torch.distributed.algorithms.ddp_comm_hooks",
            _HF: "a larger gradient_accumulation_steps: gradients are then sent less often",
        },
        realises=0.5,
        source="half the bytes",
        trials=("no_reduction",),
        confirm="trainperf compare BEFORE AFTER: allreduce_tail_s falls",
    ),
    Change(
        id="reduce_less",
        of=("allreduce_tail",),
        advice="Send less, or less often",
        how="accumulate more micro-batches under no_sync(), or send bf16: "
        "model.register_comm_hook(None, default_hooks.bf16_compress_hook), default_hooks of "
        "torch.distributed.algorithms.ddp_comm_hooks",
        how_in={
            _LIGHTNING: "a larger accumulate_grad_batches, or send bf16: "
            "DDPStrategy(ddp_comm_hook=default_hooks.bf16_compress_hook), default_hooks of "
            "torch.distributed.algorithms.ddp_comm_hooks",
            _HF: "a larger gradient_accumulation_steps",
        },
        realises=0.5,
        source="half the bytes",
        trials=("no_reduction",),
        confirm="trainperf compare BEFORE AFTER: allreduce_tail_s falls",
    ),
    Change(
        id="larger_messages",
        of=("allreduce_tail",),
        advice="Send larger messages",
        how="{kind} runs many times per step on little data each time: raise bucket_cap_mb of "
        "DistributedDataParallel, or join tensors that are sent one by one",
        effort="hours",
        realises=None,
        source="depends on the network",
        confirm="trainperf trace of a new capture: exposed communication falls",
    ),
    Change(
        id="overlap_communication",
        of=("allreduce_tail",),
        advice="Overlap communication",
        how="start {kind} before work that does not need it, on a stream of its own",
        effort="hours",
        realises=None,
        source="depends on the work that it can overlap",
        confirm="trainperf trace of a new capture: exposed communication falls",
    ),
    Change(
        id="no_wrapper",
        of=("data_parallel",),
        advice="Take the wrapper off",
        how="train the model itself",
        confirm="wrapper is gone from the run's configuration",
    ),
    Change(
        id="distributed",
        of=("data_parallel",),
        advice="Use DistributedDataParallel",
        how="torchrun --nproc-per-node={devices} SCRIPT, and in it DistributedDataParallel(model)",
        how_in={
            _LIGHTNING: 'Trainer(strategy="ddp", devices={devices}), and no wrapper in the module',
            _HF: "torchrun --nproc-per-node={devices} SCRIPT: the Trainer then wraps the model in "
            "DistributedDataParallel",
        },
        effort="hours",
    ),
    # -- the fit
    Change(
        id="validate_less",
        of=("validation",),
        advice="Validate less",
        how="validate {fewer} × less often, or on 1/{fewer} of the batches",
        how_in={
            _LIGHTNING: "Trainer(limit_val_batches={part}), or {fewer} × less often by "
            "check_val_every_n_epoch or val_check_interval",
            _HF: 'TrainingArguments(eval_strategy="steps", eval_steps=…) with {fewer} × as many '
            "steps in between, or 1/{fewer} of the rows in eval_dataset",
        },
        realises=0.9,
        source="what is left takes a twentieth of the fit; by how many times fewer, in each run",
        confirm="trainperf report: validation takes at most 5 % of the fit",
    ),
    Change(
        id="checkpoint_less",
        of=("checkpoint",),
        advice="Checkpoint less often",
        how="save {fewer} × less often, or in the background: "
        "torch.distributed.checkpoint.async_save(…)",
        how_in={
            _LIGHTNING: "ModelCheckpoint(every_n_train_steps=…) with {fewer} × as many steps in "
            "between, or in the background: Trainer(plugins=[AsyncCheckpointIO()])",
            _HF: 'TrainingArguments(save_strategy="steps", save_steps=…) with {fewer} × as many '
            "steps in between",
        },
        realises=0.9,
        source="what is left takes a twentieth of the fit; by how many times fewer, in each run",
        confirm="trainperf report: checkpoint takes at most 5 % of the fit",
    ),
    Change(
        id="validate_without_grad",
        of=("validation",),
        advice="Validate under torch.no_grad()",
        how="with torch.no_grad(): around the validation loop, or @torch.no_grad() on it",
        realises=0.25,
        source="of a forward with autograd a quarter is the graph's; docs/research/accuracy.md",
        confirm="validation is shorter, and the memory peak lower",
    ),
    Change(
        id="growing_checkpoint",
        of=("slower_since",),
        advice="Keep what grows out of the checkpoint",
        how="compare the sizes of two checkpoint files: keep no lists of outputs in them, and see "
        "whether the disk gets full or slow",
        effort="hours",
        confirm="pauses at the end of the run take what they took at its begin",
    ),
    Change(
        id="growing_epoch_boundary",
        of=("slower_since",),
        advice="Clear what epochs gather",
        how="look for a list that keeps every step's output, and for a log file that is rewritten "
        "at each epoch's end",
        effort="hours",
        confirm="pauses at the end of the run take what they took at its begin",
    ),
    Change(
        id="growing_pause",
        of=("slower_since",),
        advice="Find what grows in it",
        how="look for a list or a file that it reads or writes as a whole every time",
        effort="hours",
        confirm="pauses at the end of the run take what they took at its begin",
    ),
    Change(
        id="do_less_often",
        of=("slow_steps",),
        advice="Run {name} less often",
        how="do the work of {name} less often, on less data, or in the background",
        realises=0.8,
        source="every fiftieth instead of every tenth step",
        confirm="trainperf report: p99 comes close to the median",
    ),
    Change(
        id="find_slow_steps",
        of=("slow_steps",),
        advice="Find {name}",
        how="do the work of {name} less often, on less data, or in the background",
        effort="hours",
        realises=0.8,
        source="every fiftieth instead of every tenth step",
        confirm="trainperf report: p99 comes close to the median",
    ),
    Change(
        id="without_profiler",
        of=("slower_since",),
        advice="Measure again without the profiler",
        how="set TEARDOWN_CUPTI=1, or restart the fit after profiling",
        confirm="trainperf compare with a run without captures: equal",
    ),
    Change(
        id="quiet_machine",
        of=("noisy_run",),
        advice="Measure on a quiet machine",
        how="stop other work on the machine, fix clocks and lengths, run more steps; batches of "
        "unequal length vary like this too",
        confirm="step_iqr_s is below a tenth of step_s",
    ),
    Change(
        id="train_longer",
        of=("no_steady_state",),
        advice="Train longer",
        how="200 steps are enough for a first answer",
        confirm="trainperf report counts steady steps",
    ),
    Change(
        id="find_what_changes",
        of=("no_steady_state",),
        advice="Find what keeps changing",
        how="look for changing shapes, recompilations, or other work on this machine",
        effort="hours",
        confirm="trainperf report counts steady steps",
    ),
    Change(
        id="log_more",
        of=("no_steady_state",),
        advice="Log more of it",
        how="a log of more steps, or trainperf run SCRIPT for 200 of them",
        confirm="trainperf report counts steady steps",
    ),
    Change(
        id="stop_overflows",
        of=("overflow",),
        advice="Stop the overflows",
        how="{loop.overflows_less} where the hardware has it; else look for infinities in the "
        "loss, and clip gradients after unscaling",
        confirm="trainperf report: overflows below 2 % of the updates",
    ),
    Change(
        id="larger_batches",
        of=("slower_since",),
        advice="See why batches got larger",
        how="compare the batches {across}: longer sequences, another data set, a schedule of the "
        "batch size",
        effort="hours",
    ),
    Change(
        id="slower_machine",
        of=("slower_since",),
        advice="Look at the machine, not at the code",
        how="see what else ran there {since}, and the clocks, the power and the temperature of its "
        "processors",
        effort="hours",
    ),
    Change(
        id="slower_data",
        of=("slower_since",),
        advice="Look at the data that is read from there on",
        how="time the loader alone on the shards or files read {since}: another storage, larger or "
        "compressed files, a full cache",
        effort="hours",
    ),
    Change(
        id="hook_does_more",
        of=("slower_since",),
        advice="Find the hook that does more",
        how="see which hooks and loggers were switched on, or write a growing file, {since}",
    ),
    Change(
        id="loop_does_more",
        of=("slower_since",),
        advice="Find what the loop does more",
        how="see which loggers write a growing file, and which rank the others wait for, {since}",
        effort="hours",
    ),
    Change(
        id="something_changed",
        of=("slower_since",),
        advice="See what changed there",
        how="capture a trace {across}, and compare the two",
        effort="hours",
    ),
    Change(
        id="append_to_log",
        of=("slower_since",),
        advice="Keep {name} from doing more with every step",
        how="append to the log file instead of writing all of it again (a CSV logger that does is "
        "fixed by a later release), and keep no list of every step's values",
        confirm="trainperf report RUN --steps of the last tenth: as fast as the first",
    ),
    Change(
        id="find_what_gathers",
        of=("slower_since",),
        advice="Find what {name} goes through more of with every step",
        how="look in {name} for what gathers, e.g. a list of outputs or a history that is gone "
        "through as a whole; clear it after use, or keep a running sum",
        confirm="trainperf report RUN --steps of the last tenth: as fast as the first",
    ),
    Change(
        id="clear_what_gathers",
        of=("slower_since", "leak"),
        advice="Stop the accumulation",
        how="clear {name} after use, or keep a running sum instead of all values",
        confirm="the last tenth of the steps is as fast as the first; memory_slope_bytes_per_step "
        "is 0",
    ),
    Change(
        id="compile_long_runs",
        of=("first_step",),
        advice="Compile long runs only",
        how="leave torch.compile out of short runs, train longer in one go, or keep the cache "
        "(TORCHINDUCTOR_FX_GRAPH_CACHE=1)",
        realises=0.9,
        source=_TWINS,
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
        source=_TWINS,
        confirm="the reading recompiles is 0 after the first steps",
    ),
    Change(
        id="one_grad_mode",
        of=("recompiles",),
        advice="Stop the recompilations",
        how="call it under one grad mode, or compile a copy for each mode",
        realises=0.9,
        source=_TWINS,
        confirm="the reading recompiles is 0 after the first steps",
    ),
    Change(
        id="same_guards",
        of=("recompiles",),
        advice="Stop the recompilations",
        how="keep what the guard checks the same in every step: pass a number that changes as a "
        "tensor, and leave dynamic=False out",
        realises=0.9,
        source=_TWINS,
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
    # -- the machine
    Change(
        id="cool_device",
        of=("device_throttled",),
        advice="Cool the GPU",
        how="look at fans, airflow and the room (nvidia-smi -q -d PERFORMANCE,TEMPERATURE); until "
        "then a lower power limit (nvidia-smi -pl) keeps the clock even",
        effort="hours",
        confirm="trainperf report: no step is slower for the clock of a GPU",
    ),
    Change(
        id="power_device",
        of=("device_throttled",),
        advice="Give the GPU its power",
        how="look at the power supply and its cables: the board is asked to draw less (nvidia-smi "
        "-q -d PERFORMANCE,POWER)",
        effort="hours",
        confirm="trainperf report: no step is slower for the clock of a GPU",
    ),
    Change(
        id="own_device",
        of=("device_shared",),
        advice="Train on a GPU of its own",
        how="end the other process, or start one of the two on another device "
        "(CUDA_VISIBLE_DEVICES); nvidia-smi lists who is there",
        confirm="trainperf report: no other process on the GPU while it trains",
    ),
    Change(
        id="own_host",
        of=("host_shared",),
        advice="Train on a host of its own",
        how="end the other processes or move them; where both must run, give each its CPUs "
        "(taskset, --cpus-per-task, a container's quota)",
        effort="hours",
        confirm="trainperf report: no other process keeps the CPUs busy",
    ),
    Change(
        id="room_in_memory",
        of=("host_pressure",),
        advice="Make room in the host's memory",
        how="fewer loader workers, a smaller prefetch_factor or cache, or a larger host",
        effort="hours",
        confirm="trainperf report: no step is slower for the host's memory",
    ),
    Change(
        id="room_in_disk",
        of=("host_pressure",),
        advice="Read less from that disk",
        how="keep the data on a local disk or in memory, in larger pieces; write checkpoints "
        "elsewhere",
        effort="hours",
        confirm="trainperf report: no step is slower for the host's disk",
    ),
    Change(
        id="room_in_network",
        of=("host_pressure",),
        advice="Look at the network",
        how="lost segments are a cable, a switch or too many senders (ethtool -S): keep data that "
        "is read often on a local disk",
        effort="hours",
        confirm="trainperf report: no step is slower for the host's network",
    ),
    # -- memory, and what is learned
    Change(
        id="shrink_activations",
        of=("out_of_memory",),
        advice="Shrink the activations",
        how="a smaller micro-batch with {loop.accumulation}, shorter sequences, or "
        "torch.utils.checkpoint around the blocks",
        confirm="the fit goes on beyond this step",
    ),
    Change(
        id="shrink_optimizer_state",
        of=("out_of_memory",),
        advice="Shrink the optimizer state",
        how="an optimizer that keeps less, e.g. torch.optim.Adafactor or SGD, or one sharded over "
        "ranks: ZeroRedundancyOptimizer",
        confirm="the fit goes on beyond this step",
    ),
    Change(
        id="shrink_parameters",
        of=("out_of_memory",),
        advice="Shrink the parameters",
        how="a smaller or a half-precision model, or one sharded over ranks: {loop.fully_sharded}",
        effort="hours",
        confirm="the fit goes on beyond this step",
    ),
    Change(
        id="shrink_gradients",
        of=("out_of_memory",),
        advice="Shrink the gradients",
        how="gradients sharded over ranks: {loop.fully_sharded}",
        effort="hours",
        confirm="the fit goes on beyond this step",
    ),
    Change(
        id="shrink_workspace",
        of=("out_of_memory",),
        advice="Make room in memory",
        how="CUBLAS_WORKSPACE_CONFIG=:4096:2, or a smaller micro-batch that leaves room",
        confirm="the fit goes on beyond this step",
    ),
    Change(
        id="detach",
        of=("leak",),
        advice="Detach what is kept",
        how="store value.detach() in {name}, or clear it when the step is over",
        confirm="trainperf.smoke.assert_no_graph_held passes; memory_slope_bytes_per_step is 0",
    ),
    Change(
        id="find_the_leak",
        of=("leak",),
        advice="Stop the accumulation",
        how="look for tensors, arrays or batches kept in a list: "
        "trainperf.smoke.assert_no_graph_held(model)",
        confirm="memory_slope_bytes_per_step is 0 within its interval",
    ),
    Change(
        id="room_for_allocator",
        of=("memory_limit",),
        advice="Make room in memory",
        how="a smaller micro-batch, batches of equal shape, or where the memory is in holes "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment",
        confirm="alloc_retries is 0 in the next run",
    ),
    Change(
        id="leave_room",
        of=("memory_limit",),
        advice="Leave room in memory",
        how="a smaller micro-batch with {loop.accumulation}, or torch.utils.checkpoint around the "
        "blocks",
        confirm="trainperf compare BEFORE AFTER shows a lower peak",
    ),
    Change(
        id="expandable_segments",
        of=("memory_limit",),
        advice="Let segments grow",
        how="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment, and batches of "
        "equal shape",
        confirm="fragmentation_bytes is lower in the next run",
    ),
    Change(
        id="zero_grad",
        of=("zero_grad",),
        advice="Zero the gradients",
        how="optimizer.zero_grad() once per update, before the first backward of the step",
        confirm="this finding is gone, and the loss falls as it should",
    ),
    Change(
        id="schedule_per_update",
        of=("scheduler_per_micro_batch",),
        advice="Step the scheduler once per update",
        how="call scheduler.step() only after optimizer.step(), not in every micro-batch",
        confirm="scheduler_steps and updates in the run's configuration are equal",
    ),
    Change(
        id="schedule_once",
        of=("scheduler_per_micro_batch",),
        advice="Step the scheduler less",
        how="call scheduler.step() once after each optimizer.step()",
        confirm="scheduler_steps and updates in the run's configuration are equal",
    ),
    Change(
        id="eval_mode",
        of=("train_mode",),
        advice="Put the model into eval mode",
        how="model.eval() before the first request",
        confirm="this finding is gone; trainperf.smoke.assert_inference(model, request) passes",
    ),
    Change(
        id="dropout_by_mode",
        of=("dropout_left_on",),
        advice="Tell dropout the mode",
        how="F.dropout(x, p, training=self.training), dropout_p=self.p if self.training else 0.0 "
        "in attention, or nn.Dropout",
        confirm="this finding is gone; trainperf.smoke.assert_inference(model, request) passes",
    ),
)
"""All of them."""

BY_ID: Mapping[str, Change] = {change.id: change for change in CHANGES}


def changes_of(cause: str) -> tuple[Change, ...]:
    """Those that remove a cause, or a part of it."""
    return tuple(change for change in CHANGES if cause in change.of)
