"""Is much of the work done on padding?"""

from trainperf.evidence import Evidence
from trainperf.results import Finding
from trainperf.rules.base import LIMITS, at_most, severity, value
from trainperf.units import count, share


def padding(evidence: Evidence) -> Finding | None:
    """Many of the tokens that are computed are padding.

    The bound is on effective tokens per second: full sequences spread the whole step, its data
    wait excepted, over more of them.
    """
    summary = evidence.summary
    wasted = value(summary, "padding_fraction")
    waited = value(summary, "data_wait_fraction") or 0.0
    if wasted is None or wasted < LIMITS.padding or summary.run.steady_steps < LIMITS.steps:
        return None
    useful, every = (value(summary, f"{kind}_tokens_per_s") for kind in ("effective", "padded"))
    return Finding(
        id="padding",
        title=f"{share(wasted)} of the tokens are padding",
        advice="Pack the sequences",
        evidence=(f"{count(round(useful))} of {count(round(every))} tokens/s are effective",)
        if useful is not None and every is not None
        else (),
        action="pack documents into full sequences, or batch those of similar length together",
        fraction=wasted * (1 - waited),
        gain_upper_bound=at_most(wasted * (1 - waited)),
        confidence="medium",
        severity=severity(wasted),
    )
