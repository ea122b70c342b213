"""Explanations of what reports name: findings, readings, checks, phases, gaps and trials.

The text is that of the reference pages: the docstring of the rule, meter or check, where it is
written once.
"""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Literal

import msgspec

from trainperf.analysis.diagnosis import DETECTORS
from trainperf.analysis.diagnosis.changes import Change, changes_of
from trainperf.analysis.diagnosis.offers import OFFERS, trials_of_finding
from trainperf.analysis.diagnosis.tried import measured_change
from trainperf.analysis.doctor import CHECKS
from trainperf.analysis.summary.schema import Summary
from trainperf.core.docstrings import CONFIRM, WRONG, documented
from trainperf.core.errors import ConfigError
from trainperf.core.findings import Finding
from trainperf.core.formatting.units import share
from trainperf.core.phases import GAPS, PHASES, Gap, Phase
from trainperf.core.readings import ALLREDUCE_SKEW_S, FLOPS_PER_S, HFU, MFU
from trainperf.core.steps.records import FACTS
from trainperf.meters import METERS, Meter
from trainperf.meters.phases import PhaseTime
from trainperf.reports.layout.document import Heading, Part, Sentence, labelled, section
from trainperf.reports.layout.finding_view import FindingRow
from trainperf.reports.run.effort import answers


Subject = Literal["finding", "reading", "check", "phase", "gap", "trial"]

_HEADINGS: dict[Subject, str] = {
    "finding": "a finding",
    "reading": "a reading",
    "check": "a check of the doctor",
    "phase": "a phase of a step",
    "gap": "a gap between steps",
    "trial": "a trial of trainperf try",
}

_TRIAL = documented(
    """A change is switched on and off in blocks of steps of one training, in turns.

    Wrong where: it acts only over an epoch, at a loader's start or in validation, which the blocks
    do not contain.
    To confirm: make the change; `trainperf prove` with the training before it and after it.
    """
)

_CEILING = documented(
    """A cause is taken away and given back in blocks of steps of one training, in turns.

    Wrong where: what the cause costs falls outside of the blocks: at an epoch's end, in validation.
    To confirm: a change that removes a part of the cause, and gains no more than this; `trainperf
    prove` with the training before it and after it.
    """
)

_DERIVED: dict[str, tuple[str, str, str]] = {
    ALLREDUCE_SKEW_S: (
        "s",
        "lower",
        """Median over steady steps of the largest skew at the all-reduce, in seconds.

        The skew of a rank is what it waits there beyond the rank that comes last.

        Wrong where: the ranks meet elsewhere first, e.g. in a reduced metric: the skew is there.
        To confirm: `synchronisation` of the summary, point by point; `trainperf trace` of all.
        """,
    ),
    FLOPS_PER_S: (
        "1/s",
        "higher",
        """FLOPs of the audited step's contractions over the mean wall time of steady steps.

        Of one device; what repeats forward work is not counted.  Needs an audited step
        (`TrainPerf(audit_at=20)`) whose batch is within 10 % of the average size.

        Wrong where: lengths differ: attention's FLOPs grow with their square; one step is counted.
        To confirm: a formula of the model, e.g. 6 × parameters × tokens.
        """,
    ),
    MFU: (
        "1",
        "higher",
        """FLOPs per second over the chip's dense peak in the precision of the products.

        The peak is from the table of chips, or measured where the table has no such chip.

        Wrong where: the device clocks lower than its data sheet: the peak is out of reach then.
        To confirm: the same step on its own, `trainperf.benchmark`; the formula of the model.
        """,
    ),
    HFU: (
        "1",
        "higher",
        """FLOPs per second over the chip's dense peak, those that repeat forward work included.

        Activation checkpointing repeats it.  `hfu` says what the device does, `mfu` what of it
        trains.

        Wrong where: as `mfu`; higher is no better where the extra work could be left out.
        To confirm: `trainperf try --only no_checkpointing SCRIPT`.
        """,
    ),
}
"""Readings that stand on several records, which no meter makes: unit, what is better, meaning."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What one name means."""

    kind: Subject
    id: str
    means: str
    """When a finding is made, what a reading or a phase is, what a check promises."""
    measured: str = ""
    """How it is measured or judged, and what it is not; of a finding also what bounds its gain."""
    wrong: str = ""
    """When not to believe it."""
    confirm: str = ""
    """What shows it by other means."""
    unit: str = ""
    """Of a reading, in SI; `1` is a pure number."""
    better: str = ""
    """Of a reading: `lower` or `higher`; empty where neither is."""
    trials: tuple[str, ...] = ()
    """Of a finding: built-in trials that measure its change or its bound, for `trainperf try
    --only`; what is in capitals stands for a name or a number."""
    changes: tuple[str, ...] = ()
    """Of a finding: the changes that remove it, and the share of its seconds that each realises."""
    answers: tuple[FindingRow, ...] = ()
    """Of a finding of a given run, label and text: how much, how long, what return, what is better,
    where the ceiling is and how far."""
    rules: tuple[str, ...] = ()
    """Of a trial: findings whose advice it is, or whose bound it measures."""
    page: str
    """Of the documentation, below `docs/`."""

    @property
    def prose(self) -> str:
        """Meaning, method and limits as one text."""
        limits = ((WRONG, self.wrong), (CONFIRM, self.confirm))
        marked = [f"*{name}:* {text}" for name, text in limits if text]
        return " ".join(filter(None, (self.means, self.measured, *marked)))


@cache
def explanations() -> tuple[Explanation, ...]:
    """All of them; names are unique within a kind."""
    return (
        *(_finding(detect.__name__, detect.__doc__) for detect in (*DETECTORS, measured_change)),
        *map(_reading, METERS),
        *derived_readings(),
        *_checks(),
        *_slots(),
        *_trials(),
    )


def explained(name: str) -> tuple[Explanation, ...]:
    """All that bears a name.

    Raises:
        ConfigError: Nothing does; the nearest names are in the message.
    """
    entries = tuple(entry for entry in explanations() if entry.id == name) or _family(name)
    if entries:
        return entries
    names = sorted({entry.id for entry in explanations()})
    near = get_close_matches(name.lower().replace("-", "_").replace(" ", "_"), names, cutoff=0.5)
    parts = [each for each in names if name in each and each not in near] if len(name) > 2 else []
    nearest = ", ".join([*near, *parts][:5])
    hint = f"did you mean {nearest}?" if nearest else "`trainperf explain` lists all names"
    raise ConfigError(f"{name}: nothing is named so; {hint}")


def _family(name: str) -> tuple[Explanation, ...]:
    """The trial that a name such as `workers_2` is one of."""
    ids = [offer.id for offer in OFFERS if offer.covers(name)]
    return tuple(entry for entry in explanations() if entry.kind == "trial" and entry.id in ids)


def derived_readings() -> Iterator[Explanation]:
    """Those of several records."""
    for name, (unit, better, docstring) in _DERIVED.items():
        text = documented(docstring)
        yield Explanation(
            kind="reading",
            id=name,
            means=text.means,
            measured=text.measured,
            wrong=text.wrong,
            confirm=text.confirm,
            unit=unit,
            better=better,
            page="reference/readings.md",
        )


def _finding(name: str, docstring: str | None) -> Explanation:
    text = documented(docstring)
    return Explanation(
        kind="finding",
        id=name,
        means=text.means,
        measured=text.measured,
        wrong=text.wrong,
        confirm=text.confirm,
        trials=trials_of_finding(name),
        changes=tuple(_change(change) for change in changes_of(name)),
        page="reference/findings.md",
    )


def _change(change: Change) -> str:
    """E.g. `Load without workers: saves all of it (the law of the step)`."""
    if change.realises is None:
        return f"{change.advice}: saves at most all of it ({change.source})"
    saves = "all" if change.realises == 1 else share(change.realises)
    return f"{change.advice}: saves {saves} of it ({change.source})"


def explained_in_run(names: Sequence[str], summary: Summary) -> list[Explanation]:
    """The findings of those names, with the answers for a run; without names all that it has.

    Raises:
        ConfigError: None of the names is a finding's.
    """
    findings = {finding.id: finding for finding in summary.findings}
    named = [entry for name in names or findings for entry in explained(name)]
    entries = [entry for entry in named if entry.kind == "finding"]
    if names and not entries:
        raise ConfigError(f"{', '.join(names)}: no finding; `trainperf explain` lists all names")
    return [
        msgspec.structs.replace(entry, answers=_answers(findings.get(entry.id), summary))
        for entry in entries
    ]


def _answers(finding: Finding | None, summary: Summary) -> tuple[FindingRow, ...]:
    rows = [] if finding is None else answers(summary, finding)
    nothing = "not found" if finding is None else "nothing to change"
    return tuple(rows) or (FindingRow("in this run", nothing),)


def _reading(meter: Meter) -> Explanation:
    text = documented(meter.__doc__)
    page = "concepts/steps.md" if isinstance(meter, PhaseTime) else "reference/readings.md"
    needs = [FACTS[fact].meaning.rstrip(".") for fact in meter.needs if fact in FACTS]
    steps = f"Over {meter.scope.value} steps."
    computed = f"From: {'; '.join(needs)}." if needs else ""
    return Explanation(
        kind="reading",
        id=meter.name,
        means=text.means,
        measured=" ".join(filter(None, (text.measured, steps, computed))),
        wrong=text.wrong,
        confirm=text.confirm,
        unit=meter.unit,
        better=meter.better or "",
        page=page,
    )


def _checks() -> Iterator[Explanation]:
    for check in CHECKS:
        text = documented(check.about)
        yield Explanation(
            kind="check",
            id=check.id,
            means=f"{check.title}.",
            measured=text.measured,
            wrong=text.wrong,
            confirm=text.confirm,
            page="reference/checks.md",
        )


def _slots() -> Iterator[Explanation]:
    slots: tuple[Phase | Gap, ...] = (*PHASES, *GAPS)
    for slot in slots:
        is_phase = slot in PHASES
        text = slot.about
        yield Explanation(
            kind="phase" if is_phase else "gap",
            id=slot.label,
            means=f"{'Host time' if is_phase else 'Wall time of no step:'} {text.means}.",
            measured="Exclusive: what is nested in it pauses it; phases add up to the step."
            if is_phase
            else "Cut out of the steps; steps and gaps add up to the fit.",
            wrong=text.wrong,
            confirm=text.confirm,
            page="concepts/steps.md",
        )


def _trials() -> Iterator[Explanation]:
    for offer in OFFERS:
        is_change = offer.kind == "change"
        kind = "A change" if is_change else "A ceiling, no change to keep"
        text = _TRIAL if is_change else _CEILING
        yield Explanation(
            kind="trial",
            id=offer.id,
            means=f"{kind}: {offer.does}.",
            measured=text.means,
            wrong=text.wrong,
            confirm=text.confirm,
            rules=offer.rules,
            page="concepts/trials.md",
        )


def explanations_document(entries: Sequence[Explanation]) -> list[Part]:
    """Each name with what is known of it, line by line."""
    parts: list[Part] = []
    for entry in entries:
        parts.append(Heading(f"{entry.id} · {_HEADINGS[entry.kind]}", 1))
        parts += [part for label, text in _rows(entry) for part in labelled(label, [text])]
    return parts


def _rows(entry: Explanation) -> list[tuple[str, str]]:
    better = f"; {entry.better} is better" if entry.better else ""
    tries = " ".join(f"--only {trial}" for trial in entry.trials)
    return [
        ("means", entry.means),
        ("unit", f"{entry.unit}{better}" if entry.unit else ""),
        ("measured", entry.measured),
        (WRONG.lower(), entry.wrong),
        (CONFIRM.lower(), entry.confirm),
        ("changes", "; ".join(entry.changes)),
        *((row.label, row.text) for row in entry.answers),
        ("try", f"trainperf try {tries} SCRIPT" if tries else ""),
        ("findings", ", ".join(entry.rules)),
        ("page", f"docs/{entry.page}"),
    ]


def index_document() -> list[Part]:
    """All names, by kind."""
    parts: list[Part] = [Heading("trainperf explain · names", 1)]
    for kind, heading in _HEADINGS.items():
        names = [entry.id for entry in explanations() if entry.kind == kind]
        parts += section(heading, [Sentence(text=", ".join(names))])
    return parts
