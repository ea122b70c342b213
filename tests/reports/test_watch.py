"""The screen of `trainperf watch`: a run as it is on the disk, and where nobody can see it."""

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from support.growing import GrowingRun, even_ranks
from support.machines import plant_machine
from support.runs import RankSpec, make_run_dir, make_steps

from trainperf.analysis.live import LiveLook, look_at
from trainperf.reports.run.headline import headline
from trainperf.reports.watch import APART, NO_STEP, screen, watch


def looked(tmp_path: Path, *ranks: RankSpec) -> LiveLook:
    """A look at what these ranks have written."""
    return look_at(make_run_dir(tmp_path / "gpt2" / "trainperf", ranks), 1.0e9)


def words(look: LiveLook, width: int = 78, most: int = 24) -> str:
    """The screen as text."""
    return " ".join(line.plain.strip() for line in screen(look, width, most))


def watched(run: GrowingRun, *between: Callable[[], object], width: int = 100) -> str:
    """All that was written to the terminal, with something done after each look."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=width, height=40)
    events = iter(between)

    def sleep(_: float) -> None:
        try:
            next(events)()
        except StopIteration:
            raise KeyboardInterrupt from None

    with pytest.raises(KeyboardInterrupt):
        watch(run.path, lambda: 1.0e9, sleep, console=console)
    return written.getvalue()


@pytest.fixture
def growing(tmp_path: Path) -> GrowingRun:
    """Two ranks, with a hundred lines on the disk."""
    run = GrowingRun(tmp_path / "gpt2" / "trainperf", even_ranks(2, 300))
    run.grow(100)
    return run


def test_it_shows_what_is_appended(growing: GrowingRun) -> None:
    """A hundred steps, then all, and that it ended."""
    shown = watched(growing, growing.finish)

    assert "100 steps" in shown
    assert "finished after 300 steps" in shown
    assert "Step time 3" in shown


def test_a_run_that_is_taken_away_is_named(growing: GrowingRun) -> None:
    """What was read stays on the screen.  Its path may be long: so is the line here."""

    def take_away() -> None:
        for file in growing.files:
            file.unlink()
        growing.path.rmdir()

    shown = watched(growing, take_away, width=400)
    _, _, last = shown.partition("no such file")[0].rpartition("reading …")
    assert "no such file" in shown
    assert "100 steps" in last


def test_the_first_line_says_how_far_it_came(tmp_path: Path) -> None:
    """Running, finished, ended by an exception; and what there was before a restart."""
    running = looked(tmp_path / "a", *even_ranks(2, 300, end=None))
    failed = RankSpec(steps=make_steps(100, forward=10), end="OutOfMemoryError")
    once = replace(running, attempts_before=1, steps_before=12_000, ended_before="OutOfMemoryError")
    several = replace(running, attempts_before=2, steps_before=12_500, ended_before="")
    cases = {
        "gpt2 · 2 ranks · CPU · ": running,
        "300 steps": running,
        "14.2 s ago": replace(running, silent_s=14.2),
        "finished after 300 steps": looked(tmp_path / "b", *even_ranks(2, 300)),
        "ended by OutOfMemoryError after 100 steps": looked(tmp_path / "c", failed),
        "attempt 2 · before it 12,000 steps in 1 attempt; the last": once,
        "in 2 attempts; the last ended without a word": several,
    }
    for text, look in cases.items():
        assert text in words(look, 400)


def test_the_screen_has_the_words_of_a_report(tmp_path: Path) -> None:
    """The answer, phases, pauses, the machine; within the lines there are."""
    plant_machine(tmp_path / "gpt2" / "trainperf", 60)
    look = looked(tmp_path, RankSpec(steps=make_steps(1_200, forward=50)))
    assert look.latest is not None
    shown = words(look, 120, 40)

    assert headline(look.latest) in shown
    for expected in ("50.0 ms  █", "fit 60", "above: the latest", "machine CPUs busy 2.10"):
        assert expected in shown
    assert len(screen(look, 78, 22)) <= 22


def test_without_a_latest_minute_it_says_why(tmp_path: Path) -> None:
    """No step yet; or a rank so far behind that no latest step is on all, which is named."""
    assert NO_STEP in words(looked(tmp_path / "begins", RankSpec(steps=[], end=None)))
    look = replace(looked(tmp_path, *even_ranks(2, 100)), latest=None)
    silent = msgspec.structs.replace(look.whole, warnings=("rank 1: silent for 16.7 min",))
    shown = words(replace(look, whole=silent), most=30)

    assert APART in shown
    assert headline(look.whole)[:40] in shown
    assert "rank 1: silent" in shown
