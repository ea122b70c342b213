"""One screen of a run while it is written: its answer, steps, phases, readings and pauses."""

from collections.abc import Callable, Iterator

from msgspec.structs import replace
from rich.console import Console, ConsoleOptions
from rich.live import Live
from rich.text import Text

from trainperf.analysis.live import LiveLook, look_at
from trainperf.core.choice import texts_of
from trainperf.core.errors import TrainPerfError
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.units import duration, plural
from trainperf.core.formatting.wrap import words_of
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.paths import AnyPath
from trainperf.core.steps.records import FINISHED, INTERRUPTED
from trainperf.reports.layout.text import flow
from trainperf.reports.run.headline import headline
from trainperf.reports.run.machine import machine_line
from trainperf.reports.run.rows import about, ending
from trainperf.reports.run.text import body


NO_STEP = "There is no step yet that all ranks have written."
APART = "No step of the latest minute was written by every rank: below is the whole run."
KEYS = "Ctrl+C ends it; trainperf report has the tables and every finding"

_REST = 20
"""Times as long as a look took, before the next: at most 5 % of one core."""

_AFTER_END_S = 10.0
"""Between two looks at a run that has ended: it may be restarted."""

_REDRAWS_PER_S = 2
"""A terminal that was resized is filled anew within half a second."""

_STATES = {"running": "green", "finished": "cyan", "interrupted": "yellow"}
"""Of a run, to a colour; the others are red."""

_ENDS = {"": "ended without a word", FINISHED: "finished", INTERRUPTED: "was interrupted"}
"""How an attempt ended, by its end mark; the others are exceptions."""


class Screen:
    """The latest look, laid out for whatever size the terminal has when it is drawn."""

    look: LiveLook | None = None
    problem = ""

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Text]:
        width = max(options.max_width - 1, 40)
        most, look = (options.height or options.size.height) - 2, self.look
        lines = [Text("reading …")] if look is None else screen(look, width, most)
        if self.problem:
            lines += flow(words_of(self.problem), width, style="red")
        yield from [*lines, *flow(words_of(KEYS), width, style="dim")]


def watch(
    run: AnyPath,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
    *,
    every_s: float = 2.0,
    console: Console | None = None,
) -> None:
    """Show a run until the user interrupts it, or *sleep* does.

    Files are read at most a twentieth of the time.

    Args:
        run: Its directory.
        clock: Seconds since 1970.
        sleep: Waits so many seconds.
        every_s: Between two looks, at least.
        console: Where to; standard output without one.
    """
    shown = Screen()
    with Live(shown, console=console, screen=True, refresh_per_second=_REDRAWS_PER_S) as live:
        while True:
            begun_ns, shown.problem = monotonic_ns(), ""
            try:
                shown.look = look_at(run, clock())
            except (OSError, TrainPerfError) as error:
                shown.problem = str(error)
            took_s = (monotonic_ns() - begun_ns) / 1e9
            live.refresh()
            ended = shown.look is not None and shown.look.whole.run.state != "running"
            sleep(max(_AFTER_END_S if ended else every_s, _REST * took_s))


def screen(look: LiveLook, width: int, most: int) -> list[Text]:
    """How far the run came, and the report of its latest minute, in *most* lines at most."""
    above = _status(look, width)
    if not look.whole.run.steps:
        text = NO_STEP if look.whole.hang is None else headline(look.whole)
        return [*above, Text(), *flow(words_of(text), width)]
    if look.latest is None:
        above += flow(words_of(APART), width, style="yellow")
        return [*above, *body(look.whole, width, most - len(above))]
    # Who is silent, and what is wrong with the files, is known of the whole run.
    summary = replace(look.latest, warnings=look.whole.warnings, hang=look.whole.hang)
    machine = machine_line(summary)
    below = flow(words_of(f"machine {plain(machine)}"), width) if machine else []
    latest = plural(summary.run.steps, "step")
    below += [Text(f"above: the latest {latest}, {duration(summary.run.fit_s)}", style="dim")]
    return [*above, *body(summary, width, most - len(above) - len(below)), *below][:most]


def _status(look: LiveLook, width: int) -> list[Text]:
    """Which run it is, how far it came, when it was last written to, and what was before it."""
    run, before = look.whole.run, look.attempts_before
    ago = "just now" if look.silent_s < 1 else f"{duration(look.silent_s)} ago"
    number, goes_on = plural(run.steps, "step"), run.state == "running"
    reached = f", {number} so far · written {ago}" if goes_on else f" after {number}, {ago}"
    how = _ENDS.get(look.ended_before, f"ended by {look.ended_before}")
    parts = texts_of(
        plain(run.name),
        about(look.whole),
        f"{ending(look.whole)}{reached}",
        before
        and f"attempt {before + 1} · before it {plural(look.steps_before, 'step')} in "
        f"{plural(before, 'attempt')}; the last {how}",
        run.window and f"read {run.window}",
    )
    style = f"bold {_STATES.get(run.state, 'red')}"
    return flow(plain(" · ".join(parts)).split(" · "), width, " · ", style)
