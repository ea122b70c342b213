"""Rule about debugging switches left on, and threads left unused."""

from trainperf.analysis.rules.base import Evidence, leaves_cold_caches, setting
from trainperf.analysis.rules.input.workers import cpus_of_rank
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.audit import StepAudit
from trainperf.core.findings import LIMITS, Finding, amdahl
from trainperf.core.formatting.units import plural
from trainperf.core.readings import STEP_MEAN_S


@leaves_cold_caches
def debug_modes(evidence: Evidence) -> Finding | None:
    """Switches of torch that slow a step down, by what was recorded when the fit began.

    What anomaly detection costs is bounded where the audit has timed the operators on a CPU: all
    that they do not explain.  For the others nothing is known but that they cost.

    Wrong where: determinism or a single thread is meant: it is a price, not a fault.
    To confirm: `trainperf prove` with the switch off.
    """
    summary = evidence.summary
    on = _switched_on(summary)
    if not on or summary.run.steady_steps < LIMITS.steps:
        return None
    lost = _beyond_operators(evidence) if "detect_anomaly" in on else None
    first = next(iter(on))
    return Finding(
        id="debug_modes",
        title=f"{' and '.join(on)} {'is' if len(on) == 1 else 'are'} on in training",
        advice="Switch it off" if len(on) == 1 else "Switch them off",
        evidence=tuple(on.values()),
        action=_ACTIONS[first].format(loop=summary.run.loop, cores=cpus_of_rank(summary)),
        fraction=lost,
        gain_upper_bound=amdahl(lost) if lost is not None else None,
        confidence="medium",
        severity="high" if first == "detect_anomaly" else "low",
        confirm="phase_backward_s falls; trainperf compare BEFORE AFTER",
    )


_ACTIONS = {
    "detect_anomaly": "{loop.no_anomaly}, and no torch.autograd.detect_anomaly() around the step",
    "the autograd profiler": "no torch.autograd.profiler around the loop; {loop.capture} "
    "records a few steps",
    "one thread": "torch.set_num_threads({cores}), or OMP_NUM_THREADS={cores} (torchrun sets 1)",
    "deterministic": "torch.use_deterministic_algorithms(False) unless the runs must be equal bit "
    "by bit",
}


def _switched_on(summary: Summary) -> dict[str, str]:
    """Name to what it does, the most expensive first."""
    config = summary.run.config
    modes: dict[str, str] = {}
    if config.get("detect_anomaly"):
        modes["detect_anomaly"] = "every operator keeps its Python stack, every gradient is read"
    if config.get("autograd_profiler"):
        modes["the autograd profiler"] = "every operator of every step is recorded"
    threads, cores = setting(summary, "threads"), cpus_of_rank(summary)
    # Workers need CPUs too: `data_wait` advises fewer threads for the model in return.
    workers = setting(summary, "num_workers") or 0.0
    computes = summary.run.device == "cpu"
    # On a machine with fewer cores the loader and the system have use for the others.
    if computes and threads == 1 and cores is not None and cores >= max(4.0, 2 * (1 + workers)):
        others = (
            f"{plural(int(workers), 'worker')} load" if workers else "nothing else uses the others"
        )
        of = "" if summary.run.world_size == 1 else " of each rank"
        modes["one thread"] = f"1 of {cores} CPUs{of} computes; {others}"
    if config.get("deterministic"):
        modes["deterministic"] = "kernels that sum in a fixed order instead of the fastest ones"
    return modes


def _beyond_operators(evidence: Evidence) -> float | None:
    """Share of the step in forward and backward that even the operators' floors do not explain.

    Where a loop does not tell these apart, of all that it may do there.
    """
    summary, audit, light = evidence.summary, evidence.documents.audit, evidence.typical
    step_s = summary.value(STEP_MEAN_S)
    if not isinstance(audit, StepAudit) or light is None or audit.device != "cpu" or not step_s:
        return None
    phases_s = summary.phases_s()
    names: tuple[str, ...] = ("forward", "backward")
    floor_s = light.phases["forward"].floor_s + light.phases["backward"].floor_s
    if not all(name in phases_s for name in names):
        # What a loop of one's own does not bracket is outside every phase.
        names, floor_s = (*names, "optimizer", "other"), light.step.floor_s
    work_s = sum(phases_s.get(name, 0.0) for name in names)
    return min(max(0.0, work_s - floor_s) / step_s, 0.99)
