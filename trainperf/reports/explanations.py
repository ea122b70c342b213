"""Explanations of what reports name: findings, readings, checks, phases, gaps and trials.

The text is that of the reference pages: the docstring of the rule, meter or check, where it is
written once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from difflib import get_close_matches
from functools import cache
from itertools import chain
from typing import Literal

import msgspec

from trainperf.analysis.diagnosis import DETECTORS
from trainperf.analysis.diagnosis.changes import Change, changes_of
from trainperf.analysis.diagnosis.offers import OFFERS, OfferedTrial, trials_of_finding
from trainperf.analysis.diagnosis.tried import measured_change
from trainperf.analysis.doctor import CHECKS
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.trials import TrialKind
from trainperf.core.docstrings import CONFIRM, WRONG, DocumentedText, documented
from trainperf.core.errors import ConfigError
from trainperf.core.formatting.units import share
from trainperf.core.phases import GAPS, PHASES, Gap, Phase
from trainperf.core.readings import ALLREDUCE_SKEW_S, FLOPS_PER_S, HFU, MFU
from trainperf.core.steps.records import FACTS
from trainperf.meters import METERS, Meter
from trainperf.meters.phases import METERS as PHASE_METERS
from trainperf.reports.layout.document import Heading, Part, Sentence, items, section
from trainperf.reports.layout.finding_view import FindingRow
from trainperf.reports.run.effort import answers


Subject = Literal["finding", "reading", "check", "phase", "gap", "trial"]

_KINDS: dict[Subject, tuple[str, str]] = {
    "finding": ("a finding", "reference/findings.md"),
    "reading": ("a reading", "reference/readings.md"),
    "check": ("a check of the doctor", "reference/checks.md"),
    "phase": ("a phase of a step", "concepts/steps.md"),
    "gap": ("a gap between steps", "concepts/steps.md"),
    "trial": ("a trial of trainperf try", "concepts/trials.md"),
}
"""What is explained, and the page of the documentation that has it."""

_SLOTS = {
    True: ("Host time", "Exclusive: what is nested in it pauses it; phases add up to the step."),
    False: ("Wall time of no step:", "Cut out of the steps; steps and gaps add up to the fit."),
}
"""What a phase is, and what a gap is; and how either is measured."""

_TRIALS: dict[TrialKind, tuple[str, DocumentedText]] = {
    "change": (
        "A change",
        documented(
            """A change is switched on and off in blocks of steps of one training, in turns.

    Wrong where: it acts only over an epoch, at a loader's start or in validation, which the blocks
    do not contain.
    To confirm: make the change; `trainperf prove` with the training before it and after it.
    """
        ),
    ),
    "ceiling": (
        "A ceiling, no change to keep",
        documented(
            """A cause is taken away and given back in blocks of steps of one training, in turns.

    Wrong where: what the cause costs falls outside of the blocks: at an epoch's end, in validation.
    To confirm: a change that removes a part of the cause, and gains no more than this; `trainperf
    prove` with the training before it and after it.
    """
        ),
    ),
}
"""What kind of trial it is, and what is measured."""

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


@cache
def explanations() -> tuple[Explanation, ...]:
    """All of them; names are unique within a kind."""
    findings = (
        _entry(
            "finding",
            detect.__name__,
            documented(detect.__doc__),
            trials=trials_of_finding(detect.__name__),
            changes=tuple(map(_change, changes_of(detect.__name__))),
        )
        for detect in (*DETECTORS, measured_change)
    )
    checks = (
        _entry("check", check.id, replace(documented(check.about), means=f"{check.title}."))
        for check in CHECKS
    )
    slots: tuple[Phase | Gap, ...] = (*PHASES, *GAPS)
    readings = (*map(_reading, METERS), *derived_readings())
    return (*findings, *readings, *checks, *map(_slot, slots), *map(_trial, OFFERS))


def _entry(kind: Subject, name: str, text: DocumentedText, **more: object) -> Explanation:
    """The parts of a docstring under their names, and what else is known."""
    parts = {"kind": kind, "id": name, "page": _KINDS[kind][1], **asdict(text), **more}
    return msgspec.convert(parts, Explanation)


def explained(name: str) -> tuple[Explanation, ...]:
    """All that bears a name, or the trial that a name such as `workers_2` is one of.

    Raises:
        ConfigError: Nothing does; the nearest names are in the message.
    """
    families = [offer.id for offer in OFFERS if offer.covers(name)]
    every = explanations()
    entries = tuple(entry for entry in every if entry.id == name) or tuple(
        entry for entry in every if entry.kind == "trial" and entry.id in families
    )
    if not entries:
        near = get_close_matches(name.lower(), {entry.id for entry in every}, 5, 0.5)
        hint = f"did you mean {', '.join(near)}?" if near else "`trainperf explain` lists all names"
        raise ConfigError(f"{name}: nothing is named so; {hint}")
    return entries


def derived_readings() -> Iterator[Explanation]:
    """Those of several records."""
    for name, (unit, better, docstring) in _DERIVED.items():
        yield _entry("reading", name, documented(docstring), unit=unit, better=better)


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
        msgspec.structs.replace(
            entry, answers=tuple(answers(findings.get(entry.id), summary.findings))
        )
        for entry in entries
    ]


def _reading(meter: Meter) -> Explanation:
    text = documented(meter.__doc__)
    needs = [FACTS[fact].meaning.rstrip(".") for fact in meter.needs if fact in FACTS]
    computed = f"From: {'; '.join(needs)}." if needs else ""
    measured = " ".join(filter(None, (text.measured, f"Over {meter.scope.value} steps.", computed)))
    page = _KINDS["phase" if meter in PHASE_METERS else "reading"][1]
    parts = {"unit": meter.unit, "better": meter.better or "", "page": page}
    return _entry("reading", meter.name, replace(text, measured=measured), **parts)


def _slot(slot: Phase | Gap) -> Explanation:
    where, method = _SLOTS[slot in PHASES]
    text = replace(slot.about, means=f"{where} {slot.about.means}.", measured=method)
    return _entry("phase" if slot in PHASES else "gap", slot.label, text)


def _trial(offer: OfferedTrial) -> Explanation:
    kind, text = _TRIALS[offer.kind]
    text = replace(text, means=f"{kind}: {offer.does}.", measured=text.means)
    return _entry("trial", offer.id, text, rules=offer.rules)


def explanations_document(entries: Sequence[Explanation]) -> list[Part]:
    """Each name with what is known of it, line by line."""
    parts: list[Part] = []
    for entry in entries:
        better = f"; {entry.better} is better" if entry.better else ""
        tries = " ".join(f"--only {trial}" for trial in entry.trials)
        rows = (
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
        )
        title = Heading(f"{entry.id} · {_KINDS[entry.kind][0]}", 1)
        parts += [title, *(Sentence(text=text, label=label) for label, text in rows if text)]
    return parts


def index_document() -> list[Part]:
    """All names, by kind."""
    names = {kind: [e.id for e in explanations() if e.kind == kind] for kind in _KINDS}
    parts = [section(_KINDS[kind][0], items([", ".join(names[kind])], "")) for kind in _KINDS]
    return [Heading("trainperf explain · names", 1), *chain.from_iterable(parts)]
