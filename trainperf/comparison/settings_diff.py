"""Differences in the settings of two runs, and whether they are one experiment at all."""

from collections.abc import Mapping

from trainperf.analysis.summary.schema import Summary
from trainperf.comparison.results import Difference
from trainperf.core.steps.records import Scalar


SAME_SIZE = 0.05
"""Relative difference in parameters up to which it is the same model, its vocabulary padded."""

_CHANGES: dict[str, str] = {
    name: change
    for change, names in {
        "loader": "loader num_workers prefetch_factor persistent_workers pin_memory",
        "model size": "parameters trainable_parameters parameter_tensors gradient_bytes vocabulary",
        "optimizer": "optimizers optimizer_fused optimizer_foreach",
        "precision": "precision autocast grad_scaler",
        "matmul precision": "float32_matmul_precision matmul_allow_tf32 cudnn_allow_tf32",
        "batch": "batch_size accumulate_grad_batches micro_batches_per_step sequence_length",
        "ranks": "world_size strategy wrapper allreduces_per_step",
    }.items()
    for name in names.split()
}
"""Fact to the change it belongs to: facts that go together are one change."""

_NO_CHANGE = frozenset(
    {
        "seed",
        "max_steps",
        "max_epochs",
        "log_every_n_steps",
        "scheduler_steps",
        "updates",
        "micro_batches",
    }
)
"""What changes neither the work of a step nor its speed."""


def differences(before: Summary, after: Summary) -> tuple[Difference, ...]:
    """Every fact that differs, except those that make no difference to a step."""
    old, new = _facts(before), _facts(after)
    return tuple(
        Difference(
            name=name,
            before=old.get(name),
            after=new.get(name),
            change=_CHANGES.get(name, name),
        )
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name) and name not in _NO_CHANGE
    )


def obstacle(before: Summary, after: Summary) -> str | None:
    """Why the two are not runs of one experiment; `None` if they are."""
    for name, what in (("device_name", "hardware"), ("model", "model"), ("dataset", "task")):
        old, new = _facts(before).get(name), _facts(after).get(name)
        if old != new and None not in (old, new):
            return f"the {what} differs: {old} and {new}"
    if before.run.device != after.run.device:
        return f"the hardware differs: {before.run.device} and {after.run.device}"
    sizes = [_facts(run).get("parameters") for run in (before, after)]
    counted = sorted(size for size in sizes if isinstance(size, int) and size)
    if len(counted) == 2 and counted[1] > counted[0] * (1 + SAME_SIZE):
        return f"the model differs: {counted[0]:,} and {counted[1]:,} parameters"
    return None


def token_obstacle(before: Summary, after: Summary) -> str | None:
    """Why their tokens are not the same unit; `None` if they are."""
    old, new = before.run.notes.get("tokens"), after.run.notes.get("tokens")
    if old != new and None not in (old, new):
        return f"tokens are counted differently: by {old} and by {new}"
    return None


def _facts(summary: Summary) -> Mapping[str, Scalar]:
    run = summary.run
    versions: dict[str, Scalar] = dict(run.software)
    return {**run.hardware, **versions, "world_size": run.world_size, **run.config}
