"""Rule about models under `DataParallel`."""

from trainperf.analysis.rules.base import Evidence, setting
from trainperf.core.findings import Finding
from trainperf.core.formatting.units import plural


def data_parallel(evidence: Evidence) -> Finding | None:
    """One process drives all devices: it copies the module to each of them in every forward.

    How much that costs depends on the devices, so no bound is given.

    Wrong where: only one device is used: the wrapper then costs next to nothing.
    To confirm: `trainperf prove` with DistributedDataParallel on the same devices.
    """
    summary = evidence.summary
    if summary.run.config.get("wrapper") != "DataParallel":
        return None
    devices = round(setting(summary, "data_parallel_devices") or 0)
    if devices < 2:
        return Finding(
            id="data_parallel",
            title="DataParallel wraps the model and has no second device",
            advice="Take the wrapper off",
            evidence=("there is no second device: the wrapper only passes the batch on",),
            action="train the model itself",
            confidence="medium",
            severity="low",
            confirm="wrapper is gone from the run's configuration",
        )
    copies = "the model is copied to each of them in every forward, by one process"
    return Finding(
        id="data_parallel",
        title=f"DataParallel drives {plural(devices, 'device')} from one process",
        advice="Use DistributedDataParallel",
        evidence=(f"{plural(devices, 'device')}; {copies}",),
        action=summary.run.loop.data_parallel.format(devices=devices),
        confidence="medium",
        severity="high",
        effort="hours",
        confirm="trainperf compare BEFORE AFTER: the step is faster",
    )
