"""Tables of the reference pages, one function per table, each read from the family it lists.

A new member of a family (meter, rule, check, command, callback) has its row without an edit here.
"""

import argparse
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module

from trainperf.analysis.doctor import CHECKS
from trainperf.analysis.doctor import title_of as title_of_check
from trainperf.analysis.rules import RULES, Rule
from trainperf.commands import COMMANDS
from trainperf.commands.cli import Command, load, parser_of
from trainperf.core.phases import DISQUALIFYING, TAGS
from trainperf.core.steps.records import FACTS
from trainperf.meters import METERS, Measure, Meter
from trainperf.meters.phases import PhaseTime


BETTER = {"lower": "↓", "higher": "↑", None: ""}


def readings() -> str:
    """One row per meter, in display order; the phases have a table of their own."""
    rows = [_reading_row(meter) for meter in METERS if not isinstance(meter, PhaseTime)]
    return table(("reading", "unit", "better", "steps", "definition"), rows)


def phases() -> str:
    """One row per phase reading: its first sentence, for the second is the same for all."""
    rows = [
        (f"`{meter.name}`", _first_sentence(meter.__doc__ or ""))
        for meter in METERS
        if isinstance(meter, PhaseTime)
    ]
    return table(("reading (s, steady steps, lower is better)", "mean host time per step"), rows)


def facts() -> str:
    """One row per fact that a probe can record."""
    rows = [(f"`{fact.name}`", fact.unit, _sentence(fact.meaning)) for fact in FACTS.values()]
    return table(("fact of a step", "unit", "meaning"), rows)


def tags() -> str:
    """One row per tag: whether it takes a step out of the steady statistics."""
    rows = [(f"`{tag.label}`", "yes" if tag & DISQUALIFYING else "no") for tag in TAGS]
    return table(("tag", "excluded from steady statistics"), rows)


def findings() -> str:
    """A table of rules per family, families in the order of their folders."""
    families: dict[str, list[Rule]] = {}
    for rule in RULES:
        families.setdefault(inspect.getmodule(rule).__name__.rpartition(".")[0], []).append(rule)  # type: ignore[union-attr]  # a rule is a function of a module
    return "\n\n".join(_family(package, rules) for package, rules in sorted(families.items()))


def checks() -> str:
    """One row per check of the doctor, in their order."""
    rows = [
        (f"`{check.__name__}`", title_of_check(check), _prose(_details(check.__doc__ or "")))
        for check in CHECKS
    ]
    return table(("check", "what it promises", "note"), rows)


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


def _family(package: str, rules: Sequence[Rule]) -> str:
    about = (import_module(package).__doc__ or "").strip().splitlines()[0]
    rows = [(f"`{rule.__name__}`", _prose(rule.__doc__ or "")) for rule in rules]
    heading = package.rpartition(".")[2].capitalize()
    return (
        f"### {heading}\n\n{about}\n\n{table(('finding', 'when, and what bounds its gain'), rows)}"
    )


def _command(command: Command) -> str:
    rows = [
        (_spelled(action), _cell(action.help or ""), _default(action))
        for action in _actions(parser_of(command))
    ]
    arguments = table(("argument", "what it is", "default"), rows)
    return f"## trainperf {command.name}\n\n{command.about}\n\n{arguments}"


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


def _default(action: argparse.Action) -> str:
    if not action.option_strings or action.default in (None, False, argparse.SUPPRESS):
        return ""
    return f"`{action.default}`"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("%%", "%").strip()


def _prose(docstring: str) -> str:
    """A docstring on one line, fit for a cell: without sections such as `Args:`."""
    paragraphs = inspect.cleandoc(docstring).split("\n\n")
    kept = [text for text in paragraphs if not re.match(r"(Args|Returns|Raises):", text)]
    return _cell(" ".join(kept))


def _details(docstring: str) -> str:
    """All but the first line."""
    return "\n\n".join(inspect.cleandoc(docstring).split("\n\n")[1:])


def _first_sentence(docstring: str) -> str:
    return _cell(re.split(r"(?<=\.)\s", inspect.cleandoc(docstring), maxsplit=1)[0])


def _code(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."


TABLES: Mapping[str, Callable[[], str]] = {
    "readings": readings,
    "phases": phases,
    "facts": facts,
    "tags": tags,
    "findings": findings,
    "checks": checks,
    "commands": commands,
    "callbacks": callbacks,
}
"""Name in a page's markers, and what makes the table."""
