"""Changes of the way of a batch: workers, copies, padding."""

from trainperf.analysis.diagnosis.changes.change import HF, LIGHTNING, PHASE, TWINS, Change


_WAITS = "the next run waits for data for less than a tenth of its step"

CHANGES: tuple[Change, ...] = (
    Change(
        id="more_workers",
        of=("data_wait",),
        advice="Load in {workers}",
        how="{loader}",
        loader="num_workers={number}, persistent_workers=True",
        trials=("workers_N",),
        confirm=_WAITS,
        costs="a process and its memory for each worker",
    ),
    Change(
        id="workers_and_threads",
        of=("data_wait",),
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
        of=("data_wait",),
        advice="Fix the loader",
        how="load with {loader}, or make batches cheaper",
        loader="num_workers=2, persistent_workers=True",
        realises=0.7,
        source=TWINS,
        confirm=_WAITS,
    ),
    Change(
        id="its_own_workers",
        of=("data_wait",),
        advice="Have {library} make more batches at once",
        how="{how}; or make a sample cheaper",
        realises=0.7,
        source=TWINS,
        confirm=_WAITS,
    ),
    Change(
        id="share_the_data",
        of=("idle_workers",),
        advice="Give every worker a part of the data",
        how="in __iter__, info = torch.utils.data.get_worker_info(): go through every "
        "info.num_workers-th shard or sample from info.id on; of a Hugging Face dataset "
        "to_iterable_dataset(num_shards={workers}); or num_workers of as many as have a shard",
        confirm=_WAITS,
    ),
    Change(
        id="leave_out_fields",
        of=("unread_fields",),
        advice="Leave {name} out of the batch",
        how="do not make it where the sample is made (__getitem__, the columns of the dataset, "
        "collate_fn), unless another step, a metric or the validation reads it",
        confirm=_WAITS,
    ),
    Change(
        id="no_workers",
        of=("data_wait",),
        advice="Load without workers",
        how="{loader}: handing a batch over costs more than making it",
        loader="num_workers=0",
        trials=("workers_N",),
        confirm=_WAITS,
    ),
    Change(
        id="cheaper_sample",
        of=("data_wait", "workers_compete"),
        advice="Make a sample cheaper",
        how="cache or preprocess what {part} computes, or fetch a batch at once (__getitems__, one "
        "index into a tensor) instead of sample by sample",
        effort="hours",
        realises=1.0,
        source=TWINS,
        confirm=_WAITS,
    ),
    Change(
        id="nearer_data",
        of=("data_wait",),
        advice="Bring the data nearer",
        how="{part} waits for a disk or a network and computes little: copy the files to a local "
        "disk first, read larger pieces of fewer files, or keep more of what was read (a larger "
        "cache)",
        effort="hours",
        realises=0.9,
        source="of the wait, where a local disk or memory takes its place",
        confirm=_WAITS,
    ),
    Change(
        id="send_less",
        of=("data_wait",),
        advice="Send less from the workers",
        how="send smaller dtypes, e.g. uint8 until the device, and fewer tensors per batch",
        effort="hours",
        realises=0.5,
        source="half the bytes",
        confirm=_WAITS,
    ),
    Change(
        id="own_loaders",
        of=("data_wait",),
        advice="Let each rank load its own batches",
        how="Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=False)); a "
        "stream is split by rank first (split_dataset_by_node), else every rank reads all of it",
        how_in={
            HF: 'TrainingArguments(accelerator_config={{"dispatch_batches": False}}); a stream is '
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
        id="one_thread_in_workers",
        of=("oversubscription",),
        advice="Compute with one thread in each worker",
        how="in worker_init_fn: torch.set_num_threads(1), cv2.setNumThreads(0), "
        "threadpoolctl.threadpool_limits(1): whichever of them makes the {threads}",
        realises=None,
        source="a thread less computes less, by how much differs",
        confirm="in the next run workers have no CPU for less than a third of their time",
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
        source=TWINS,
    ),
    Change(
        id="persistent_workers",
        of=("epoch_start",),
        advice="Keep the loader's workers",
        how="{loader}, made once, before the first epoch",
        loader="persistent_workers=True",
        realises=1.0,
        source=TWINS,
        confirm="data_wait_all_fraction comes near data_wait_fraction; epoch boundaries shrink",
    ),
    Change(
        id="pin_memory",
        of=("transfer",),
        advice="Copy from pinned memory",
        how="{loader}, and batch.to(device, non_blocking=True)",
        how_in={
            HF: "TrainingArguments(dataloader_pin_memory=True, "
            'accelerator_config={{"non_blocking": True}})',
            LIGHTNING: "{loader}: Lightning then copies without blocking",
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
        how="send less: smaller dtypes, or make on the device what can be made there"
        "{device.unblocked}",
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
        confirm=PHASE,
    ),
    Change(
        id="update_on_device",
        of=("offloaded_update",),
        advice="Keep the optimizer on the device",
        how="no offload of optimizer or parameters, as far as memory allows; recompute activations "
        "or shard over more ranks first",
        how_in={
            HF: "in the DeepSpeed or FSDP configuration no offload_optimizer, offload_param or "
            "offload_params, as far as memory allows"
        },
        effort="hours",
        realises=None,
        source="what an update on the device takes is not known before",
        confirm=PHASE,
        costs="memory of the device for the optimizer's state",
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
        source=TWINS,
        confirm="padding_fraction near 0",
    ),
    Change(
        id="pack",
        of=("padding",),
        advice="Pack the sequences",
        how="pack documents into full sequences, or batch those of similar length together",
        effort="hours",
        realises=0.8,
        source=TWINS,
        confirm="padding_fraction near 0",
    ),
    Change(
        id="pack_rows",
        of=("padding",),
        advice="Pack the sequences",
        how="put several into one row of {capacity:,} tokens, with attention kept apart",
        effort="hours",
        realises=0.8,
        source=TWINS,
        confirm="padding_fraction near 0",
    ),
    Change(
        id="pad_to_longest",
        of=("padding",),
        advice="Pad less",
        how="pad to the longest sequence of each batch, as it is put together",
        how_in={
            HF: 'no padding="max_length" where it is tokenised: DataCollatorWithPadding pads each '
            "batch to its longest"
        },
        realises=0.9,
        source=TWINS,
        trials=("trimmed_batches",),
        confirm="padding_fraction near 0",
    ),
    Change(
        id="pad_less",
        of=("padding",),
        advice="Pad less",
        how="pad to the longest of the batch, or to {longest:,} tokens instead of {capacity:,}",
        realises=0.9,
        source=TWINS,
        trials=("trimmed_batches",),
        confirm="padding_fraction near 0",
    ),
    Change(
        id="similar_lengths",
        of=("padding",),
        advice="Batch sequences of similar length",
        how="a batch_sampler that sorts by length within some batches, and padding to the longest",
        how_in={
            HF: 'TrainingArguments(train_sampling_strategy="group_by_length"; before transformers '
            "5 "
            "group_by_length=True), and a collator that pads to the longest of the batch"
        },
        effort="hours",
        realises=0.95,
        source=TWINS,
        trials=("sorted_batches",),
        confirm="padding_fraction near 0",
    ),
)
"""In the order in which they are listed."""
