"""The terminal application of `trainperf watch`: views of a run, refreshed as it is written.

Files are read in a thread, never more than a twentieth of its time.
"""

from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.widgets import Footer, Static
from textual.worker import get_current_worker

from trainperf.analysis.live import LiveLook, LiveRun
from trainperf.core.errors import TrainPerfError
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.reports.watch.views import VIEWS, status


_REST = 20
"""Times as long as a look took, before the next: at most 5 % of one core."""

_AFTER_END_S = 10.0
"""Between two looks at a run that has ended: it may be restarted."""

DARK, LIGHT = "textual-dark", "textual-light"


class WatchApp(App[None]):
    """Shows a run until the user quits.

    Args:
        run: The run.
        clock: Seconds since 1970.
        every_s: Between two looks, at least.
        light: Whether the terminal's background is light.
    """

    CSS = """
    Screen { layout: vertical; }
    #status { padding: 0 1; }
    #names { height: 1; padding: 0 1; background: $panel; }
    VerticalScroll { height: 1fr; }
    """
    TITLE = "trainperf watch"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("tab,right", "turn(1)", "next view", priority=True, key_display="tab →"),
        Binding("shift+tab,left", "turn(-1)", "back", priority=True, key_display="←"),
        Binding("space", "pause", "pause", priority=True),
        Binding("d", "background", "light/dark"),
        *(Binding(str(place), f"show({place})", show=False) for place in range(1, len(VIEWS) + 1)),
    ]

    def __init__(
        self,
        run: LiveRun,
        clock: Callable[[], float],
        *,
        every_s: float = 2.0,
        light: bool = False,
    ) -> None:
        super().__init__()
        self._run, self._clock, self._every_s = run, clock, every_s
        self._look: LiveLook | None = None
        self._problem = ""
        self._place, self._paused = 0, False
        self.theme = LIGHT if light else DARK

    def compose(self) -> ComposeResult:
        """Status, names of the views, the view, keys."""
        yield Static("reading …", id="status")
        yield Static(id="names")
        with VerticalScroll():
            yield Static(id="view")
        yield Footer()

    def on_mount(self) -> None:
        """Take the first look."""
        self.query_one(VerticalScroll).focus()
        self._draw()
        self.look()

    @work(thread=True, exclusive=True)
    def look(self) -> None:
        """Read the run as it is by now."""
        worker, begun = get_current_worker(), monotonic_ns()
        look, problem = self._look, ""
        try:
            look = self._run.look(self._clock())
        except (OSError, TrainPerfError) as error:
            problem = str(error)
        took_s = (monotonic_ns() - begun) / 1e9
        if not worker.is_cancelled:
            self.call_from_thread(self._looked, look, problem, took_s)

    def _looked(self, look: LiveLook | None, problem: str, took_s: float) -> None:
        self._look, self._problem = look, problem
        self._draw()
        ended = look is not None and look.whole.run.state != "running"
        self.set_timer(max(_AFTER_END_S if ended else self._every_s, _REST * took_s), self._again)

    def _again(self) -> None:
        if self._paused:
            self.set_timer(self._every_s, self._again)
        else:
            self.look()

    def on_resize(self, _: Resize) -> None:
        """Lay the view out anew, once the new size holds."""
        self.call_after_refresh(self._draw)

    def action_turn(self, by: int) -> None:
        """Go to the next view, or to the one before."""
        self.action_show((self._place + by) % len(VIEWS) + 1)

    def action_show(self, number: int) -> None:
        """Go to a view by its number."""
        self._place = number - 1
        self.query_one(VerticalScroll).scroll_home(animate=False)
        self._draw()

    def action_pause(self) -> None:
        """Stop reading, or go on."""
        self._paused = not self._paused
        self._draw()

    def action_background(self) -> None:
        """Light or dark."""
        self.theme = DARK if self.theme == LIGHT else LIGHT

    def _draw(self) -> None:
        names = Text()
        for place, name in enumerate(VIEWS):
            names.append(f" {name} ", "reverse bold" if place == self._place else "")
        names.append("  paused" if self._paused else "", "yellow")
        names.append(f"  {self._problem}" if self._problem else "", "red")
        self.query_one("#names", Static).update(names)
        if self._look is None:
            return
        width = max(self.size.width - 2, 40)
        lines = status(self._look, width)
        self.query_one("#status", Static).update(Text("\n").join(lines))
        # Status, names and keys have lines of their own; the bar of a long view takes two columns.
        room = self.size.height - len(lines) - 2
        view = list(VIEWS.values())[self._place](self._look, width, room)
        self.query_one("#view", Static).update(Text("\n", no_wrap=True).join(view))
