"""Changes of several ranks: work, reductions, one process for several devices."""

from trainperf.analysis.diagnosis.changes.change import HF, LIGHTNING, TWINS, Change


CHANGES: tuple[Change, ...] = (
    Change(
        id="even_work",
        of=("straggler",),
        advice="Even out the ranks",
        how="give every rank the same work: batches of equal length, the same input speed",
        effort="hours",
        realises=0.8,
        source=TWINS,
        trials=("no_reduction",),
        confirm="trainperf compare BEFORE AFTER: allreduce_skew_s falls",
    ),
    Change(
        id="faster_loader_of_rank",
        of=("straggler",),
        advice="Look at {who}",
        how="give {who} a loader as fast as the others'",
        realises=0.9,
        source=TWINS,
        confirm="trainperf compare BEFORE AFTER: allreduce_skew_s falls, no rank is named",
    ),
    Change(
        id="look_at_rank",
        of=("straggler",),
        advice="Look at {who}",
        how="find what {who} {does} that the others do not",
        realises=0.9,
        source=TWINS,
        confirm="trainperf compare BEFORE AFTER: allreduce_skew_s falls, no rank is named",
    ),
    Change(
        id="compare_hosts",
        of=("straggler",),
        advice="Look at {who}",
        how="compare the device and host of {who} with the others'",
        effort="hours",
        realises=0.9,
        source=TWINS,
        confirm="trainperf compare BEFORE AFTER: allreduce_skew_s falls, no rank is named",
    ),
    Change(
        id="divide_batches",
        of=("same_batches",),
        advice="Divide the batches among the ranks",
        how="sampler=DistributedSampler(dataset) in the DataLoader, in place of shuffle=True, and "
        "sampler.set_epoch(epoch) as each epoch begins; of an IterableDataset every rank its part: "
        "datasets.distributed.split_dataset_by_node(dataset, rank, world_size)",
        how_in={
            LIGHTNING: "Trainer(use_distributed_sampler=True), which is the default, and no batch "
            "sampler of your own; of an IterableDataset every rank its part",
        },
        confirm="this finding is gone, and an epoch has fewer steps on each rank",
    ),
    Change(
        id="divide_validation",
        of=("same_validation",),
        advice="Divide the validation among the ranks",
        how="sampler=DistributedSampler(dataset, shuffle=False) in its DataLoader, and "
        "torch.distributed.all_reduce of the sums and counts at its end",
        how_in={
            LIGHTNING: "Trainer(use_distributed_sampler=True), which is the default, and "
            "self.log(…, sync_dist=True) in validation_step",
        },
        realises=0.95,
        source="the sums at its end stay; photo_denoise_ddp gained more, 1.53 and 2.27 times, in "
        "docs/measurements/cpu-2-cores/strangers_sixth.json",
        confirm="trainperf compare BEFORE AFTER, by the fit clock: this finding is gone",
        costs="a few samples are validated twice where the ranks' parts are uneven",
    ),
    Change(
        id="no_sync",
        of=("no_sync",),
        advice="Reduce gradients once per step",
        how="with {loop.wrapped_model}.no_sync(): around forward and backward of all micro-batches "
        "but the last",
        realises=1.0,
        source=TWINS,
        trials=("no_reduction",),
        confirm="allreduces_per_step in the run's configuration is 1, and the tail is shorter",
    ),
    Change(
        id="larger_buckets",
        of=("allreduce_tail", "ddp_pieces"),
        advice="Reduce larger buckets",
        how="DistributedDataParallel(bucket_cap_mb={megabytes}) or larger",
        how_in={
            LIGHTNING: "DDPStrategy(bucket_cap_mb={megabytes}) or larger",
            HF: "TrainingArguments(ddp_bucket_cap_mb={megabytes}) or larger",
        },
        realises=0.5,
        source=TWINS,
        trials=("no_reduction",),
        confirm="trainperf compare BEFORE AFTER: allreduce_tail_s falls",
    ),
    Change(
        id="send_no_objects",
        of=("object_collectives",),
        advice="Sum counts over the ranks, or gather tensors, not objects",
        how="{where}: count on each rank and add the counts (torch.distributed.all_reduce), or "
        "gather the tensor (all_gather_into_tensor); objects are pickled, and each rank then does "
        "the work of all",
        realises=0.9,
        source="a count of a few numbers is sent instead",
        confirm="trainperf compare BEFORE AFTER: the step is shorter",
    ),
    Change(
        id="smaller_buckets",
        of=("allreduce_tail",),
        advice="Reduce smaller buckets",
        how="DistributedDataParallel(bucket_cap_mb={megabytes}): what is reduced while backward "
        "computes costs nothing",
        how_in={
            LIGHTNING: "DDPStrategy(bucket_cap_mb={megabytes}): what is reduced while backward "
            "computes costs nothing",
            HF: "TrainingArguments(ddp_bucket_cap_mb={megabytes}): what is reduced while backward "
            "computes costs nothing",
        },
        realises=None,
        source="depends on what backward can hide",
        trials=("no_reduction",),
        confirm="trainperf compare BEFORE AFTER: allreduce_tail_s falls",
    ),
    Change(
        id="static_graph",
        of=("allreduce_tail",),
        advice="Look for unused parameters once",
        how="DistributedDataParallel(static_graph=True), where the same are unused in every step",
        how_in={
            LIGHTNING: "DDPStrategy(static_graph=True), where the same are unused in every step",
            HF: "TrainingArguments(ddp_static_graph=True), where the same are unused in every step",
        },
        realises=None,
        source="depends on the size of the graph that is searched",
    ),
    Change(
        id="keep_gathered",
        of=("allreduce_tail",),
        advice="Gather parameters once a step",
        how="fully_shard(…, reshard_after_forward=False), or ShardingStrategy.SHARD_GRAD_OP: they "
        "fit into the memory that is left",
        how_in={
            LIGHTNING: 'FSDPStrategy(sharding_strategy="SHARD_GRAD_OP"): the parameters fit into '
            "the memory that is left",
            HF: 'TrainingArguments(fsdp="shard_grad_op"): the parameters fit into the memory that '
            "is left",
        },
        realises=0.3,
        source="two collectives in place of three",
        costs="memory for all parameters on every rank",
        confirm="trainperf trace of a new capture: exposed communication falls",
    ),
    Change(
        id="use_infiniband",
        of=("allreduce_tail",),
        advice="Let NCCL use InfiniBand",
        how="take NCCL_IB_DISABLE out of the environment; in a container pass /dev/infiniband on "
        "and install libibverbs",
        realises=0.75,
        source="100 Gbit/s, the slowest InfiniBand of today (HDR100), beside Ethernet of 25",
        confirm="nccl_ways in the run's configuration has NET/IB",
    ),
    Change(
        id="use_links",
        of=("allreduce_tail",),
        advice="Let NCCL use the links between GPUs",
        how="take NCCL_P2P_DISABLE out of the environment, unless it was set because P2P does not "
        "work here: data goes through the host's memory now",
        realises=None,
        source="depends on the links; there may be none that work",
        confirm="nccl_ways in the run's configuration has P2P",
    ),
    Change(
        id="use_nvlink",
        of=("allreduce_tail",),
        advice="Let NCCL use NVLink",
        how="NCCL_P2P_LEVEL unset or NVL, and all ranks of a host in one container (or with --ipc "
        "and --pid of the host): data goes through the host's memory now; `nvidia-smi topo -p2p n` "
        "says which devices reach each other",
        realises=None,
        source="depends on the links, and on which devices they join",
        confirm="nccl_ways in the run's configuration has P2P",
    ),
    Change(
        id="faster_interface",
        of=("allreduce_tail",),
        advice="Send over the faster interface",
        how="GLOO_SOCKET_IFNAME={name}, a link of {rate}, if it leads to the other hosts",
        realises=None,
        source="a link twice as fast, if it is where they meet",
        confirm="trainperf compare BEFORE AFTER: allreduce_tail_s falls",
    ),
    Change(
        id="no_broadcast",
        of=("broadcast_buffers",),
        advice="Do not send buffers that are equal",
        how="DistributedDataParallel(broadcast_buffers=False)",
        how_in={
            LIGHTNING: "DDPStrategy(broadcast_buffers=False)",
            HF: "TrainingArguments(ddp_broadcast_buffers=False)",
        },
        confirm="trainperf compare BEFORE AFTER: phase_forward_s falls",
    ),
    Change(
        id="no_unused_parameters",
        of=("allreduce_tail",),
        advice="Stop looking for unused parameters",
        how="DistributedDataParallel(find_unused_parameters=False)",
        how_in={
            LIGHTNING: "DDPStrategy(find_unused_parameters=False)",
            HF: "TrainingArguments(ddp_find_unused_parameters=False)",
        },
        realises=0.3,
        source=TWINS,
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
            LIGHTNING: "send half the bytes: DDPStrategy(gradient_as_bucket_view=True, "
            "ddp_comm_hook=default_hooks.bf16_compress_hook), default_hooks of "
            "torch.distributed.algorithms.ddp_comm_hooks",
            HF: "a larger gradient_accumulation_steps: gradients are then sent less often",
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
            LIGHTNING: "a larger accumulate_grad_batches, or send bf16: "
            "DDPStrategy(ddp_comm_hook=default_hooks.bf16_compress_hook), default_hooks of "
            "torch.distributed.algorithms.ddp_comm_hooks",
            HF: "a larger gradient_accumulation_steps",
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
            LIGHTNING: 'Trainer(strategy="ddp", devices={devices}), and no wrapper in the module',
            HF: "torchrun --nproc-per-node={devices} SCRIPT: the Trainer then wraps the model in "
            "DistributedDataParallel",
        },
        effort="hours",
    ),
)
"""In the order in which they are listed."""
