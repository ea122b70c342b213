"""Rule about models under `DataParallel`."""

from trainperf.analysis.rules.base import Evidence, setting
from trainperf.core.findings import Finding
from trainperf.core.formatting.units import plural
from trainperf.core.loop_kind import LIGHTNING


def data_parallel(evidence: Evidence) -> Finding | None:
    """One process drives all devices: it copies the module to each of them in every forward.

    How much that costs depends on the devices, so no bound is given.
    """
    summary = evidence.summary
    if summary.run.config.get("wrapper") != "DataParallel":
        return None
    devices = round(setting(summary, "data_parallel_devices") or 0)
    several = devices > 1
    copies = "the model is copied to each of them in every forward, by one process"
    idle = "there is no second device: the wrapper only passes the batch on"
    lightning = summary.run.loop is LIGHTNING
    return Finding(
        id="data_parallel",
        title=f"DataParallel drives {plural(devices, 'device')} from one process"
        if several
        else "DataParallel wraps the model and has no second device",
        advice="Use DistributedDataParallel" if several else "Take the wrapper off",
        evidence=(f"{plural(devices, 'device')}; {copies}" if several else idle,),
        action=_distributed(devices, lightning=lightning) if several else "train the model itself",
        confidence="medium",
        severity="high" if several else "low",
        effort="hours" if several else "minutes",
        confirm="trainperf compare BEFORE AFTER: the step is faster"
        if several
        else "wrapper is gone from the run's configuration",
    )


def _distributed(devices: int, *, lightning: bool) -> str:
    if lightning:
        return f'Trainer(strategy="ddp", devices={devices}), and no wrapper in the module'
    return f"torchrun --nproc-per-node={devices}, DistributedDataParallel(model) in each process"
