"""Changes of the whole fit: pauses, slow steps, what grows over time."""

from trainperf.analysis.diagnosis.changes.change import HF, LIGHTNING, Change


CHANGES: tuple[Change, ...] = (
    Change(
        id="keep_prepared",
        of=("before_first_step",),
        advice="Keep what {name} prepares",
        how="write its result to a file once and read that when it is there (numpy.save, "
        "torch.save, datasets' cache); what cannot be kept, make in several processes",
        effort="minutes",
        realises=0.95,
        source="docs/measurements/cpu-2-cores/before-first-step.json",
        confirm="the second start of the script reaches its first step at once",
        costs="a file that has to be made anew where what it is made of changes",
    ),
    Change(
        id="prepare_cheaper",
        of=("before_first_step",),
        advice="Make {name} cheaper",
        how="look words up in a dict or a set, not in a list; keep what comes again "
        "(functools.cache); join parts once, at the end; whole arrays, not value by value; or keep "
        "its result in a file",
        realises=0.9,
        source="recipes_bag, river_gauge, recipe_cuisine and support_ticket_router by strangers: "
        "0.76 to 1.00, docs/research/accuracy.md",
        confirm="the script reaches its first step sooner",
    ),
    Change(
        id="let_datasets_cache",
        of=("before_first_step",),
        advice="Let datasets keep what it maps",
        how="the cache had nothing of it because {why}: datasets.enable_caching(), and pass map a "
        "function that can be pickled (no open file, lock or generator in it), or a "
        "new_fingerprint= of your own",
        realises=0.95,
        source="docs/measurements/cpu-2-cores/before-first-step.json",
        confirm="the second start of the script reaches its first step at once",
    ),
    Change(
        id="map_in_processes",
        of=("before_first_step",),
        advice="Map the dataset in {number} processes",
        how="dataset.map(…, num_proc={number})",
        realises=None,
        source="the rank's CPUs, if each row takes one process as long as it does now",
        confirm="the first start of the script takes less time before its first step",
        costs="the memory of a process for each",
    ),
    Change(
        id="prepare_once",
        of=("before_first_step",),
        advice="Prepare on one rank, read on the others",
        how="on rank 0 first, then torch.distributed.barrier(), then the others from the cache or "
        "the file",
        how_in={
            LIGHTNING: "in LightningDataModule.prepare_data, which one rank of a machine calls",
            HF: "with args.main_process_first(): around it (TrainingArguments)",
        },
        realises=None,
        source="ranks that prepare at once share CPUs and disk, by how much differs",
        confirm="the other ranks are in prepared_s for a moment only",
    ),
    Change(
        id="cheaper_lines",
        of=("validation",),
        advice="Make a batch of the validation cheaper",
        how="{name}: one call for all of a batch in place of a loop over its samples, no .item(), "
        ".tolist() or copy for each; keep sums and counts, not outputs; generate with a cache",
        realises=None,
        source="what a batch takes beyond one of training, in each run",
        confirm="trainperf report: a validation is shorter",
    ),
    Change(
        id="keep_no_logits",
        of=("validation",),
        advice="Keep predictions of the evaluation, not its logits",
        how="Trainer(preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1)), and "
        "a compute_metrics that takes them; without it all logits are copied, joined and held",
        realises=None,
        source="four fifths of what a batch takes beyond one of training, in each run: "
        "syslog_mlm and logline_lm, docs/measurements/cpu-2-cores/strangers_second.json and _sixth",
        confirm="trainperf report: a validation is shorter, and the memory peak lower",
    ),
    Change(
        id="workers_of_validation",
        of=("validation",),
        advice="Make the batches of the validation beside it",
        how="DataLoader(…, num_workers={number}, persistent_workers=True) for it too, or keep the "
        "samples as they are made",
        realises=None,
        source="what its loader takes beyond that of training, in each run",
        confirm="trainperf report: a validation is shorter",
        costs="a process and its memory for each worker",
    ),
    Change(
        id="larger_validation_batches",
        of=("validation",),
        advice="Validate in larger batches",
        how="batch_size={samples} in its DataLoader, as in training, not {size}: without gradients "
        "a batch takes less memory",
        how_in={
            HF: "TrainingArguments(per_device_eval_batch_size={samples}), as in training, not "
            "{size}: without gradients a batch takes less memory"
        },
        realises=None,
        source="by the time of a sample in a training batch, in each run",
        confirm="trainperf report: a validation is shorter",
    ),
    Change(
        id="validate_less",
        of=("validation",),
        advice="Validate less",
        how="validate {fewer} × less often, or on 1/{fewer} of the batches",
        how_in={
            LIGHTNING: "Trainer(limit_val_batches={part}), or {fewer} × less often by "
            "check_val_every_n_epoch or val_check_interval",
            HF: 'TrainingArguments(eval_strategy="steps", eval_steps=…) with {fewer} × as many '
            "steps in between, or 1/{fewer} of the rows in eval_dataset",
        },
        realises=0.9,
        source="what is left takes a twentieth of the fit; by how many times fewer, in each run",
        confirm="trainperf report: validation takes at most 5 % of the fit",
        costs="fewer looks at what the model learns, or on less data",
    ),
    Change(
        id="checkpoint_less",
        of=("checkpoint",),
        advice="Checkpoint less often",
        how="save {fewer} × less often, or in the background: "
        "torch.distributed.checkpoint.async_save(…)",
        how_in={
            LIGHTNING: "ModelCheckpoint(every_n_train_steps=…) with {fewer} × as many steps in "
            "between, or in the background: Trainer(plugins=[AsyncCheckpointIO()])",
            HF: 'TrainingArguments(save_strategy="steps", save_steps=…) with {fewer} × as many '
            "steps in between",
        },
        realises=0.9,
        source="what is left takes a twentieth of the fit; by how many times fewer, in each run",
        confirm="trainperf report: checkpoint takes at most 5 % of the fit",
    ),
    Change(
        id="sharded_checkpoint",
        of=("checkpoint",),
        advice="Save each rank's own shard",
        how="torch.distributed.checkpoint.save(…) of the sharded state, in place of a whole one "
        "that is gathered first",
        how_in={
            LIGHTNING: 'FSDPStrategy(state_dict_type="sharded")',
            HF: 'fsdp_config={{"state_dict_type": "SHARDED_STATE_DICT"}}',
        },
        realises=None,
        source="depends on the ranks and the network",
        confirm="trainperf report: checkpoint is shorter",
    ),
    Change(
        id="validate_without_grad",
        of=("validation",),
        advice="Validate under torch.no_grad()",
        how="with torch.no_grad(): around the validation loop, or @torch.no_grad() on it",
        realises=0.1,
        source="a forward of linear layers, convolutions or a transformer takes 8 to 13 % less CPU "
        "time without a graph (torch 2.13, medians of 150 in turns)",
        confirm="validation is shorter, and the memory peak lower",
    ),
    Change(
        id="lighten_pause",
        of=("epoch_boundary", "shutdown"),
        advice="Make {name} cheaper, or have it do less",
        how="one call for whole arrays in place of a loop over values, a dict or a set in place of "
        "a list that is searched; or less often, on 1/{fewer} of the data, or in the background",
        realises=0.9,
        source="what is left takes a twentieth of the fit; by how many times fewer, in each run",
        confirm="trainperf report: the pause takes at most 5 % of the fit",
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
        how="{loop.bf16} where the hardware has it; else look for infinities in the loss, and clip "
        "gradients after unscaling",
        how_in={
            LIGHTNING: 'precision="bf16-mixed" where the hardware has it; else look for infinities '
            "in the loss, and clip gradients after unscaling"
        },
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
)
"""In the order in which they are listed."""
