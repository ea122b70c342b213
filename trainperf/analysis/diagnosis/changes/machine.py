"""Changes of the machine beside the loop: clocks, neighbours, pressure."""

from trainperf.analysis.diagnosis.changes.change import Change


CHANGES: tuple[Change, ...] = (
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
        id="more_threads",
        of=("idle_cores",),
        advice="Compute with {number} threads",
        how="torch.set_num_threads({number}), or leave it out: torch then uses all cores; "
        "OMP_NUM_THREADS={number} where a launcher sets it",
        realises=None,
        source="how much one more thread gains differs by model",
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
        id="near_cpus",
        of=("far_cpus",),
        advice="Run on CPUs near the device",
        how="taskset -c {cpus} in front of the command, or the launcher's binding by NUMA node",
        realises=None,
        source="depends on what is copied",
        confirm="trainperf compare BEFORE AFTER: h2d_bytes_per_s is higher",
    ),
)
"""In the order in which they are listed."""
