"""Views of a run while it is written, as lines of text: its report, look after look."""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace
from rich.text import Text

from trainperf.analysis.live import EarlierAttempts, LiveLook
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.units import Scale, duration, plural, step_range
from trainperf.core.formatting.wrap import columns_of, words_of
from trainperf.core.steps.records import FINISHED, INTERRUPTED
from trainperf.reports.layout.terminal import flow
from trainperf.reports.run.machine_view import machine_line, of_machine
from trainperf.reports.run.ranks_view import late_lines, of_ranks
from trainperf.reports.run.rows import ending
from trainperf.reports.run.run_view import run_view
from trainperf.reports.run.tables import tables
from trainperf.reports.run.text import body, finding_lines, table_lines


_EIGHTHS = "▁▂▃▄▅▆▇█"
_STATES = {"running": "green", "finished": "cyan", "interrupted": "yellow"}
"""Of a run, to a colour; the others are red."""

_ENDS = {"": "ended without a word", FINISHED: "finished", INTERRUPTED: "was interrupted"}
"""How an attempt ended, by its end mark; the others are exceptions."""

ONE_RANK = "One rank: there is no other to wait for."
NO_MACHINE = "No machine was sampled in the latest minute."
NO_STEP = "There is no step yet that all ranks have written."
APART = "No step of the latest minute was written by every rank:"
NO_FINDING = "Nothing was found in the steps so far."

_MINUTES_S = 90.0
"""From here on how long ago it was is not told in seconds."""

_TALL = 30
"""Lines in which all of a report has room."""

_NOTHING = 0.0005
"""Share of the step that is shown as none."""

_ALL = 400
"""Lines of a view that is as long as it is."""

View = Callable[[LiveLook, int, int], list[Text]]
"""A look as lines of a width, about so many of them where it can be shortened."""


def status(look: LiveLook, width: int) -> list[Text]:
    """Which run it is, how far it came, and when it was last written to."""
    run, view = look.whole.run, run_view(look.whole)
    steps = plural(run.steps, "step")
    if run.state == "running":
        parts = [f"{ending(look.whole)}, {steps} so far", f"written {_ago(look.silent_s)}"]
    else:
        parts = [f"{ending(look.whole)} after {steps}, {_ago(look.silent_s)}"]
    if look.earlier.number:
        parts += _earlier(look.earlier)
    if run.window:
        parts.append(f"read {run.window}")
    style = f"bold {_STATES.get(run.state, 'red')}"
    return flow([view.name, view.about, *parts], width, " · ", style)


def _earlier(earlier: EarlierAttempts) -> list[str]:
    """Which attempt it is, and what there was before it; the report has what restarts cost."""
    number = earlier.number
    which = "attempt 1" if number == 1 else f"{number} attempts"
    how = _ENDS.get(earlier.reason, f"ended by {earlier.reason}")
    whose = "which" if number == 1 else "the last"
    before = f"before it {plural(earlier.steps, 'step')} in {which}, {whose} {how}"
    return list(map(plain, (f"attempt {number + 1}", before)))


def _ago(seconds: float) -> str:
    if seconds < _MINUTES_S:
        return "just now" if seconds < 1 else f"{seconds:.0f} s ago"
    return f"{duration(seconds)} ago"


def latest(look: LiveLook, width: int, most: int) -> list[Text]:
    """The latest minute: what to change first, where its steps go, ranks, the trend, machine."""
    if look.latest is None:
        return _without_latest(look, width, most)
    # Who is silent, and what is wrong with the files, is known of the whole run.
    summary = replace(look.latest, warnings=look.whole.warnings)
    machine = machine_line(summary)
    below = [*_trend(look, width), *(_paragraph(f"machine {machine}", width) if machine else ())]
    view = run_view(summary)
    if most < _TALL:
        # Who is late comes before phases that take nothing, and before what an audit would say.
        spent = [row for row in view.phases if row.fraction >= _NOTHING]
        view = replace(view, phases=spent, why=[])
    return [*body(summary, view, width, most - len(below)), *below]


def _without_latest(look: LiveLook, width: int, most: int) -> list[Text]:
    """A rank is so far behind that no latest step is on all of them; or there is none at all."""
    if not look.whole.run.steps:
        return _paragraph(NO_STEP, width)
    above = _paragraph(f"{APART} below: the whole run", width, "yellow")
    return [*above, *body(look.whole, run_view(look.whole), width, most - len(above))]


def whole(look: LiveLook, width: int, most: int) -> list[Text]:
    """The whole run: its report, with all tables."""
    summary = look.whole
    shown = [each for each in tables(summary) if each.rows or each.notes]
    report = body(summary, run_view(summary), width, max(most, _ALL))
    return [*report, *table_lines(shown, width)]


def ranks(look: LiveLook, width: int, most: int) -> list[Text]:  # noqa: ARG001 as long as it is
    """The ranks that matter, what the others wait for, and who is late how often."""
    summary = look.latest or look.whole
    if len(summary.run.ranks) < 2:
        return _paragraph(ONE_RANK, width)
    late = [Text(f"  {line}") for line in late_lines(look.whole)]
    lost = [line for text in run_view(summary).ranks_lost for line in _paragraph(text, width)]
    warnings = [line for text in look.whole.warnings for line in _paragraph(text, width, "yellow")]
    named = [line for text in run_view(summary).late for line in _paragraph(text, width, "red")]
    return [
        *warnings,
        *named,
        *late,
        *lost,
        *table_lines(of_ranks(summary), width),
    ]


def machine(look: LiveLook, width: int, most: int) -> list[Text]:  # noqa: ARG001 as long as it is
    """What the machines did in the latest minute."""
    summary = look.latest or look.whole
    shown = of_machine(summary)
    if not shown:
        return _paragraph(NO_MACHINE, width)
    return table_lines(shown, width)


def findings(look: LiveLook, width: int, most: int) -> list[Text]:  # noqa: ARG001 as long as it is
    """Everything that was found in the whole run, with what is known of it."""
    return finding_lines(look.whole, width) or _paragraph(NO_FINDING, width)


VIEWS: Mapping[str, View] = {
    "Latest": latest,
    "Run": whole,
    "Ranks": ranks,
    "Machine": machine,
    "Findings": findings,
}
"""By name, in their order."""


def _trend(look: LiveLook, width: int) -> list[Text]:
    """The step time over all steps that were read, and of how many steps the rest is."""
    summary = look.latest
    times_s = look.step_times_s
    if summary is None or not times_s:
        return []
    scale = Scale.of(max(times_s))
    reach = f"{scale.number(min(times_s))}–{scale.say(max(times_s))}"
    about = f"{reach}, {step_range(look.first_step, look.last_step)}"
    room = width - len("  step time  ") - columns_of(about) - 2
    line = Text("  step time ").append(_spark(times_s, max(8, room)), "green")
    of = f"above: the latest {plural(summary.run.steps, 'step')}, {duration(summary.run.fit_s)}"
    return [Text(), line.append(f" {about}"), *_paragraph(of, width, "dim")]


def _spark(values: Sequence[float], most: int) -> str:
    """Means of neighbours, from the least to the most of all."""
    each = -(-len(values) // most)
    parts = [values[begin : begin + each] for begin in range(0, len(values), each)]
    means = [sum(part) / len(part) for part in parts]
    least, span = min(means), max(means) - min(means)
    places = [int((mean - least) / span * len(_EIGHTHS)) if span else 0 for mean in means]
    return "".join(_EIGHTHS[min(place, len(_EIGHTHS) - 1)] for place in places)


def _paragraph(text: str, width: int, style: str = "") -> list[Text]:
    lines = flow(words_of(plain(text)), width - 2, style=style)
    return [Text("  ").append_text(line) for line in lines]
