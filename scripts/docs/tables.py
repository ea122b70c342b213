"""Tables of the reference pages, one function per table, each read from the family it lists.

A new member of a family (meter, rule, check, command, callback) has its row without an edit here.
"""

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from trainperf.analysis.diagnosis import DETECTORS
from trainperf.analysis.diagnosis.cause import Detector
from trainperf.analysis.diagnosis.changes import CHANGES
from trainperf.analysis.diagnosis.offers import OFFERS
from trainperf.analysis.diagnosis.tried import measured_change
from trainperf.analysis.doctor import CHECKS
from trainperf.commands import COMMANDS
from trainperf.commands.cli import Command, load, parser_of
from trainperf.core.docstrings import CONFIRM, WRONG, DocumentedText, documented
from trainperf.core.phases import DISQUALIFYING, GAPS, PHASES, TAGS, Gap, Phase
from trainperf.core.steps.records import FACTS
from trainperf.importers import FORMATS, LogFormat
from trainperf.meters import METERS, Measure, Meter
from trainperf.meters.phases import METERS as PHASE_METERS
from trainperf.reports.explanations import Explanation, derived_readings


BETTER = {"lower": "↓", "higher": "↑", "": "", None: ""}


def readings() -> str:
    """One row per meter, in display order; the phases have a table of their own."""
    rows = [_reading_row(meter) for meter in METERS if meter not in PHASE_METERS]
    return table(("reading", "unit", "better", "steps", "definition"), rows)


def phases() -> str:
    """One row per phase reading: its first sentence, for the second is the same for all."""
    rows = [
        (f"`{meter.name}`", _cell(documented(meter.__doc__).means))
        for meter in METERS
        if meter in PHASE_METERS
    ]
    return table(("reading (s, steady steps, lower is better)", "mean host time per step"), rows)


def derived() -> str:
    """One row per reading that no meter makes."""
    rows = [
        (f"`{entry.id}`", entry.unit, BETTER[entry.better], "steady", _limited(entry))
        for entry in derived_readings()
    ]
    return table(("reading", "unit", "better", "steps", "definition"), rows)


def slots() -> str:
    """One row per phase, then per gap: what happens in it, and when its time misleads."""
    listed: tuple[Phase | Gap, ...] = (*PHASES, *GAPS)
    rows = [
        (f"`{slot.label}`", "phase" if slot in PHASES else "gap", _of_slot(slot)) for slot in listed
    ]
    return table(("phase or gap", "", "the host is, or what happens"), rows)


def facts() -> str:
    """One row per fact that a probe can record."""
    rows = [(f"`{name}`", fact.unit, _sentence(fact.meaning)) for name, fact in FACTS.items()]
    return table(("fact of a step", "unit", "meaning"), rows)


def _of_slot(slot: Phase | Gap) -> str:
    return _limited(replace(slot.about, means=f"{slot.about.means}."))


def tags() -> str:
    """One row per tag: whether it takes a step out of the steady statistics."""
    rows = [(f"`{tag.label}`", "yes" if tag & DISQUALIFYING else "no") for tag in TAGS]
    return table(("tag", "excluded from steady statistics"), rows)


def findings() -> str:
    """A table of detectors per subject, then the finding that trials make."""
    subjects = groupby(sorted(DETECTORS, key=_subject), key=_subject)
    tried = (f"`{measured_change.__name__}`", _prose(measured_change.__doc__ or ""))
    of_trials = table(_FINDING, [tried])
    return "\n\n".join(
        [*(_of_subject(list(own)) for _, own in subjects), f"### Trials\n\n{of_trials}"]
    )


def changes() -> str:
    """One row per change of the catalogue, in its order."""
    rows = [
        (
            f"`{change.id}`",
            _cell(_spaced(change.advice)),
            _code(change.of),
            "" if change.realises in (None, 1.0) else f"{change.realises:.0%}".replace("%", " %"),
            _cell(change.source) if change.realises != 1.0 else "",
            _code(change.trials),
        )
        for change in CHANGES
    ]
    head = ("change", "what", "removes", "realises", "by", "measured by the trials")
    return table(head, rows)


def checks() -> str:
    """One row per check of the doctor, in their order."""
    rows = [
        (
            f"`{check.id}`",
            check.title,
            _limited(documented(check.about), promise=False),
        )
        for check in CHECKS
    ]
    return table(("check", "what it promises", "note"), rows)


def trials() -> str:
    """One row per built-in trial, changes before ceilings."""
    rows = [(f"`{offer.id}`", offer.kind, offer.does) for offer in OFFERS]
    return table(("trial", "kind", "what it does"), rows)


def commands() -> str:
    """A section per command: usage, what it does, its arguments."""
    listed = load("trainperf.commands", COMMANDS)
    return "\n\n".join(_command(command) for command in listed)


def callbacks() -> str:
    """One row per callback for a Lightning `Trainer`: what it measures, and its readings."""
    from trainperf import lightning

    rows = []
    for name in sorted(lightning.__all__, key=lambda name: (name != "TrainPerf", name)):
        callback = getattr(lightning, name)
        names = [meter.name for meter in METERS if meter.measure in callback.measures]
        everything = callback.measures == frozenset(Measure)
        listed = "every reading that applies" if everything else _code(names)
        rows.append((f"`{name}`", _first_sentence(callback.__doc__ or ""), listed))
    return table(("callback", "what it does", "its readings"), rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _reading_row(meter: Meter) -> tuple[str, ...]:
    needs = _code(meter.needs)
    meaning = _prose(meter.__doc__ or "") + (f" Needs {needs}." if needs else "")
    return (f"`{meter.name}`", meter.unit, BETTER[meter.better], meter.scope.value, meaning)


_FINDING = ("finding", "when, and what it removes")


def _subject(detect: Detector) -> str:
    return detect.__module__


def _of_subject(detectors: Sequence[Detector]) -> str:
    module = sys.modules[_subject(detectors[0])]
    about = (module.__doc__ or "").strip().splitlines()[0]
    rows = [(f"`{detect.__name__}`", _prose(detect.__doc__ or "")) for detect in detectors]
    heading = module.__name__.rpartition(".")[2].capitalize().replace("_", "-")
    return f"### {heading}\n\n{about}\n\n{table(_FINDING, rows)}"


def _spaced(advice: str) -> str:
    """Words whose places are the detector's: `{workers}` is `N`, a name is `NAME`."""
    return re.sub(r"\{(\w+)[^}]*\}", lambda place: place[1].upper(), advice)


def _command(command: Command) -> str:
    rows = [(_spelled(action), _cell(action.help or "")) for action in _actions(parser_of(command))]
    arguments = table(("argument", "what it is"), rows)
    examples = "\n".join(f"* `trainperf {command.name} {typed}`" for typed in command.examples)
    parts = (f"## trainperf {command.name}", command.about, examples, arguments)
    return "\n\n".join(filter(None, parts))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Positional arguments first, without `--help`; argparse has no public way to list them."""
    listed = [action for action in parser._actions if action.dest != "help"]  # noqa: SLF001
    return iter(sorted(listed, key=lambda action: bool(action.option_strings)))


def _spelled(action: argparse.Action) -> str:
    """E.g. `--format {text,json}`, as it is typed."""
    if action.choices is not None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    else:
        metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
        value = "" if action.nargs == 0 else metavar
    if not action.option_strings and action.nargs in {"+", "*"}:
        value += " …"
    return f"`{' '.join(filter(None, (', '.join(action.option_strings), value)))}`"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("%%", "%").strip()


def _prose(docstring: str) -> str:
    """A docstring on one line, fit for a cell: without sections such as `Args:`."""
    return _limited(documented(docstring))


def _limited(text: DocumentedText | Explanation, *, promise: bool = True) -> str:
    """What it means and how it is measured, when not to believe it, and what confirms it."""
    about = f"{text.means} {text.measured}".strip() if promise else text.measured
    limits = ((WRONG, text.wrong), (CONFIRM, text.confirm))
    return _cell(" ".join([about, *(f"*{name}:* {what}" for name, what in limits if what)]))


def _first_sentence(docstring: str) -> str:
    return _cell(re.split(r"(?<=\.)\s", inspect.cleandoc(docstring), maxsplit=1)[0])


def _code(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."


def logs() -> str:
    """A heading and a table for each format of logs: phase by phase, then gaps and facts."""
    return "\n\n".join(map(_log, FORMATS.values()))


def _log(kind: LogFormat) -> str:
    held = [name for name in kind.holds if name not in {phase.label for phase in PHASES}]
    named = [*(phase.label for phase in PHASES if phase is not Phase.OTHER), *held]
    named += [name for name in kind.lacks if name not in named]
    rows = [
        (f"`{name}`", _cell(kind.holds.get(name) or f"not covered: {kind.lacks[name]}"))
        for name in named
        if name in kind.holds or name in kind.lacks
    ]
    rows.append(("all other facts", "not covered"))
    about = f"## {kind.name}\n\nRecognised by {kind.marks}. {_sentence(kind.clock)}"
    return f"{about}\n\n{table(('phase, gap or fact', 'in the log'), rows)}"


TABLES: Mapping[str, Callable[[], str]] = {
    "readings": readings,
    "phases": phases,
    "derived": derived,
    "slots": slots,
    "facts": facts,
    "tags": tags,
    "findings": findings,
    "changes": changes,
    "checks": checks,
    "trials": trials,
    "commands": commands,
    "callbacks": callbacks,
    "logs": logs,
}
"""Name in a page's markers, and what makes the table."""
