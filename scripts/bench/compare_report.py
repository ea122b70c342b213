"""Tables and JSON of `scripts.bench.compare`."""

from collections.abc import Sequence
from dataclasses import asdict

from scripts.bench.compare_record import RecordedRun
from scripts.bench.compare_verdicts import (
    Contest,
    Planted,
    Share,
    VerdictCounts,
    planted,
    verdict_counts,
)
from scripts.bench.harness import table


METHOD = (
    "False verdicts: identical runs.  Power: the same runs with every step of one side longer by a "
    "factor.  Planted: real work added to every step of every other run, its size measured by "
    "steps with and without it in turns within one run.  Each run enters one comparison of a mode. "
    "The method was tuned on the sessions and kinds of loop of the split 'tune' alone."
)


def tables(contests: Sequence[Contest]) -> str:
    """How often a change is claimed and found, and what is said of real work."""
    head = ["runs", "clock", "pairs", "claim a change", "noise", "1 %", "2 %", "3 %", "5 %"]
    head += ["10 %", "30 %"]
    rows = [_row(counts) for counts in verdict_counts(contests)]
    quiet = [_quiet(counts) for counts in verdict_counts(contests) if counts.quiet.of]
    real = [_real(each) for each in planted(contests)]
    parts = [
        "Identical runs, and how often a change of so much is found in them",
        table([*head], rows),
        "Where the comparison printed a noise of at most 1 %",
        table(["runs", "clock", "pairs", "claim a change", "3 % found"], quiet),
        "Real work in every other run, in turns",
        table(["session and loop", "truth", "said", "95 % interval", "noise"], real),
    ]
    return "\n\n".join(parts)


def result(
    runs: Sequence[RecordedRun], contests: Sequence[Contest], split: str
) -> dict[str, object]:
    """What is kept."""
    names = sorted({run.session for run in runs})
    return {
        "split": split,
        "method": METHOD,
        "sessions": {
            name: _session([run for run in runs if run.session == name]) for name in names
        },
        "modes": [asdict(counts) for counts in verdict_counts(contests)],
        "planted": [asdict(each) for each in planted(contests)],
    }


def _session(runs: Sequence[RecordedRun]) -> dict[str, object]:
    return {
        "runs": len(runs),
        "kinds": sorted({run.kind for run in runs}),
        "clock": runs[0].clock,
        "process": runs[0].process,
        "steady_steps": sum(len(run.walls) for run in runs),
    }


def _row(counts: VerdictCounts) -> list[str]:
    power = [f"{100 * (part.rate or 0):.0f} %" for part in counts.power.values()]
    return [
        counts.mode,
        counts.clock,
        str(counts.false.of),
        _share(counts.false),
        _percent(counts.noise),
        *power,
    ]


def _quiet(counts: VerdictCounts) -> list[str]:
    return [
        counts.mode,
        counts.clock,
        str(counts.quiet.of),
        _share(counts.quiet_false),
        _share(counts.quiet),
    ]


def _real(case: Planted) -> list[str]:
    interval = f"{100 * case.low:+.1f} to {100 * case.high:+.1f} %"
    return [
        case.where,
        _percent(case.truth),
        _percent(case.estimate),
        interval,
        _percent(case.noise),
    ]


def _share(part: Share) -> str:
    if part.rate is None or part.low is None or part.high is None:
        return ""
    return f"{100 * part.rate:.1f} % [{100 * part.low:.1f}–{100 * part.high:.1f}]"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"
