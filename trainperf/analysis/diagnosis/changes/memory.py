"""Changes of memory that ran out, is short, or grows."""

from trainperf.analysis.diagnosis.changes.change import Change


CHANGES: tuple[Change, ...] = (
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
        how="{device.workspace}a smaller micro-batch that leaves room",
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
        id="samples_in_arrays",
        of=("worker_memory",),
        advice="Keep what the dataset holds in arrays",
        how="one NumPy array, tensor or Arrow table in place of lists and dictionaries of Python "
        "objects: reading those copies them into every worker; and no cache that grows with "
        "every sample",
        effort="hours",
        confirm="the workers' own memory stays (`workers` in lines.json)",
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
        how="a smaller micro-batch, batches of equal shape{device.holes}",
        confirm="alloc_retries is 0 in the next run",
    ),
    Change(
        id="leave_room",
        of=("memory_limit", "slower_since", "host_pressure"),
        advice="Leave room in memory",
        how="a smaller micro-batch with {loop.accumulation}, torch.utils.checkpoint around the "
        "blocks, or less of what other programs hold there",
        confirm="trainperf compare BEFORE AFTER shows a lower peak",
    ),
    Change(
        id="expandable_segments",
        of=("memory_limit", "driver_allocations"),
        advice="Let segments grow",
        how="{device.growing}, batches of equal shape, and no empty_cache() in the loop",
        confirm="fragmentation_bytes is lower in the next run",
    ),
)
"""In the order in which they are listed."""
