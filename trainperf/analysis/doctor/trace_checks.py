"""Checks of the first finding against what a trace shows of it."""

from trainperf.analysis.diagnosis.of_capture import account_of as account_of_trace
from trainperf.analysis.doctor.base import Case, Check, answer
from trainperf.analysis.summary.captures import disagreements
from trainperf.core.findings import LIMITS, Finding
from trainperf.core.formatting.units import share
from trainperf.traces.results import RankTrace


_NO_CHANGE = Finding(
    id="", title="no change is suggested", advice="", evidence=(), action="", fraction=0.0
)


def _first(case: Case) -> Finding:
    """The first that gains something, or an unknown amount that matters."""
    unknown = (None, "high"), (None, "medium")
    asking = (
        f for f in case.facts.summary.findings if f.fraction or (f.fraction, f.severity) in unknown
    )
    return next(asking, _NO_CHANGE)


def _resource(case: Case) -> str:
    """Of the first; empty where it is about no operators in particular: padding looks like work."""
    first = _first(case)
    return "" if first.resource == "operators" and not first.where else first.resource


def _traced_share(case: Case) -> float | None:
    """The largest share of a step that any rank's latest trace has of what the first is about."""
    shares = [_traced(rank, _resource(case)) for rank in case.facts.captures[-1].ranks]
    return max((part for part in shares if part is not None), default=None)


def _traced(rank: RankTrace, resource: str) -> float | None:
    """Share of a traced step; `None` where the trace cannot tell."""
    account, totals = account_of_trace(rank), rank.totals
    device, exposed_s = account.device, totals.comm_exposed_s
    seconds = {
        "loader": account.spent("data_wait") if device is None else device.data_s or 0.0,
        "communication": (totals.comm_s if exposed_s is None else exposed_s) or 0.0,
        "operators": account.spent("forward") or None,
        "host": None if device is None else (device.host_s or 0.0) + (device.value_s or 0.0),
    }.get(resource)
    return None if seconds is None else account.share(seconds)


_DIRECTION = (
    lambda case: (
        f"{_first(case).title}; "
        f"the trace shows {share(_traced_share(case) or 0.0)} of the step there"
    ),
    lambda case: case.facts.captures[-1].answer,
)


TRACE_CHECKS: tuple[Check, ...] = (
    Check(
        id="profiler_evidence",
        about="""Profiler evidence supports the current direction.

        Fails when records and trace disagree, or the trace shows less than half of what the first
        finding claims in the resource that it is about.  Unknown without a trace.

        Wrong where: the trace is of steps that are unlike the steady ones.
        To confirm: a second capture of other steps.
        """,
        looks=[
            answer(
                "fail",
                lambda case: "; ".join(disagreements(case.facts.summary.traces)),
                action="find out which of the two is wrong before you act on either",
                when=lambda case: disagreements(case.facts.summary.traces),
            ),
            # An audit is a profile of the operators, and of nothing else.
            answer(
                "pass",
                lambda case: f"{_first(case).title}; the audited step names the operators",
                when=lambda case: (
                    not case.facts.captures
                    and case.facts.documents.audit
                    and _resource(case) == "operators"
                ),
            ),
            answer(
                "unknown",
                "no trace was recorded",
                action="{loop.capture} records a trace",
                when=lambda case: not case.facts.captures,
            ),
            answer(
                "pass",
                "no change is suggested",
                _DIRECTION[1],
                when=lambda case: not _first(case).id,
            ),
            answer(
                "not_applicable",
                lambda case: f"{_first(case).title}: a trace has no share to hold against that",
                when=lambda case: _traced_share(case) is None,
            ),
            # A trace of a few steps supports a share that it sees at least half of.
            answer(
                "fail",
                *_DIRECTION,
                action="look at the trace before you act: trainperf trace",
                when=lambda case: (
                    (_traced_share(case) or 0.0) < (_first(case).fraction or LIMITS.notable) / 2
                ),
            ),
            answer("pass", *_DIRECTION),
        ],
    ),
)
"""In the order in which they are shown."""
