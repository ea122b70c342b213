"""Views of a run while it is written: the words of its report, in the lines that there are."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from support.growing import even_ranks
from support.machines import plant_machine
from support.runs import RankSpec, make_info, make_run_dir, make_steps

from trainperf.analysis.live import EarlierAttempts, LiveLook, LiveRun
from trainperf.reports.run.run_view import headline
from trainperf.reports.watch.views import (
    APART,
    NO_FINDING,
    NO_MACHINE,
    NO_STEP,
    ONE_RANK,
    VIEWS,
    status,
)


def looked(tmp_path: Path, *ranks: RankSpec) -> LiveLook:
    """A look at what these ranks have written."""
    return LiveRun(make_run_dir(tmp_path / "gpt2" / "trainperf", ranks)).look(1.0e9)


def words(look: LiveLook, view: str, width: int = 78, most: int = 20) -> str:
    """A view as text."""
    return "\n".join(line.plain for line in VIEWS[view](look, width, most))


def status_of(look: LiveLook, width: int = 78) -> str:
    """The first lines."""
    return " ".join(line.plain for line in status(look, width))


def test_a_running_run_says_when_it_was_written_to(tmp_path: Path) -> None:
    """And how far it came."""
    look = looked(tmp_path, *even_ranks(2, 300, end=None))
    look = replace(look, silent_s=14.2)
    shown = status_of(look)

    assert shown.startswith("gpt2 · 2 ranks · CPU · ")
    assert "300 steps" in shown
    assert shown.endswith("14 s ago")


def test_a_run_that_ended_says_how(tmp_path: Path) -> None:
    """Finished, or by which exception."""
    failed = RankSpec(steps=make_steps(100, forward=10), end="OutOfMemoryError")

    assert "finished after 300 steps" in status_of(looked(tmp_path / "a", *even_ranks(2, 300)))
    assert "ended by OutOfMemoryError after 100 steps" in status_of(looked(tmp_path / "b", failed))


def test_the_trend_names_the_steps_that_it_shows(tmp_path: Path) -> None:
    """From the end of the warm-up to the last step; not as many steps again from there."""
    look = looked(tmp_path, RankSpec(steps=make_steps(200, forward=10), end=None))

    first = 16  # the first piece of sixteen steps after the warm-up's twelve begins there
    shown = words(look, "Latest").splitlines()
    (trend,) = (line for line in shown if line.startswith("  step time"))
    assert trend.endswith(f"steps {look.first_step}–199")
    # The answer comes first.
    assert shown[1].startswith("  Step time")
    assert look.first_step <= first


def test_a_restart_says_what_there_was_before(tmp_path: Path) -> None:
    """Which attempt is shown, how far the others came, and what the restarts cost."""
    before = EarlierAttempts(number=1, steps=12_000, reason="OutOfMemoryError")
    look = looked(tmp_path, RankSpec(steps=make_steps(100, forward=10), end=None))
    once = status_of(replace(look, earlier=before), 400)
    several = EarlierAttempts(number=2, steps=12_500, reason="")
    twice = status_of(replace(look, earlier=several), 400)

    assert "attempt 2 · before it 12,000 steps in attempt 1" in once
    assert "which ended by OutOfMemoryError" in once
    assert "attempt 3 · before it 12,500 steps in 2 attempts" in twice
    assert "the last ended without a word" in twice
    assert "attempt" not in status_of(look)


def test_the_latest_view_has_the_words_of_a_report(tmp_path: Path) -> None:
    """Step time, phases, tokens, tail, memory, who is late: within 21 lines of 78 columns."""
    facts = {
        "tokens_effective": 900,
        "tokens_padded": 1000,
        "resident_bytes": 2_000_000_000,
        "attempts": 1,
        "overflows": 0,
        "loss_scale": 65536,
    }
    ranks = [
        RankSpec(
            steps=make_steps(
                300,
                data_wait=5 + 9 * rank,
                backward=30 - 9 * rank,
                facts={**facts, "tail_ns": tail},
            ),
            info=make_info(rank=rank, world_size=2),
        )
        for rank, tail in enumerate((10_000_000, 1_000_000))
    ]
    look = looked(tmp_path, *ranks)
    assert look.latest is not None
    lines = VIEWS["Latest"](look, 78, 21)
    text = " ".join(line.plain.strip() for line in lines)

    assert headline(look.latest) in text
    assert "step time ▁" in text
    for expected in ("data wait", "effective tokens/s", "overflow 0", "all-reduce tail", "memory"):
        assert expected in text
    assert "rank 1 late by 9.00 ms at backward" in text
    assert "first step" not in text
    assert len(lines) <= 23
    assert max(line.cell_len for line in lines) <= 78


def test_what_takes_nothing_has_a_line_where_there_is_room(tmp_path: Path) -> None:
    """Eight phases on a tall terminal."""
    look = looked(tmp_path, RankSpec(steps=make_steps(100, forward=10)))

    assert "callbacks" not in words(look, "Latest", most=20)
    assert "callbacks" in words(look, "Latest", most=40)


def test_the_machine_has_a_line_and_a_view(tmp_path: Path) -> None:
    """Clock, power, temperature, and who else is there."""
    run = tmp_path / "gpt2" / "trainperf"
    plant_machine(run, 60)
    look = looked(tmp_path, RankSpec(steps=make_steps(1_200, forward=50)))

    assert "machine CPUs busy 2.10 · with others 0.10" in words(look, "Latest", width=120)
    assert "GPU clock 1,980 MHz · power 600 W" in words(look, "Latest", width=120)
    assert "The machine beside the loop" in words(look, "Machine")


def test_views_without_anything_to_show_say_so(tmp_path: Path) -> None:
    """One rank, no machine, nothing found, no step."""
    look = looked(tmp_path, RankSpec(steps=make_steps(100, forward=10)))

    assert ONE_RANK in words(look, "Ranks")
    assert NO_MACHINE in words(look, "Machine")
    nothing = replace(look, whole=msgspec.structs.replace(look.whole, findings=()), latest=None)
    assert NO_FINDING in words(nothing, "Findings")
    begins = looked(tmp_path / "begins", RankSpec(steps=[], end=None))
    assert NO_STEP in words(begins, "Latest")


def test_a_rank_that_is_far_behind_leaves_the_whole_run(tmp_path: Path) -> None:
    """No latest step is on all of them: the report of the steps that are, and who is behind."""
    look = replace(looked(tmp_path, *even_ranks(2, 100)), latest=None)
    behind = msgspec.structs.replace(look.whole, warnings=("rank 1: silent for 16.7 min",))
    shown = words(replace(look, whole=behind), "Latest", most=30)

    assert shown.strip().startswith(APART)
    assert headline(look.whole)[:40] in " ".join(shown.split())
    assert "rank 1: silent" in shown


def test_many_ranks_are_shown_by_those_that_matter(tmp_path: Path) -> None:
    """Aggregates first; of forty ranks the ones that differ."""
    ranks = even_ranks(40, 60)
    shown = words(looked(tmp_path, *ranks), "Ranks", width=110)

    assert "of 40 ranks" in shown
    assert "typical" in shown


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("width", [60, 78, 138])
def test_no_line_is_wider_than_the_terminal(tmp_path: Path, view: str, width: int) -> None:
    """Whatever is shown."""
    plant_machine(tmp_path / "gpt2" / "trainperf", 60)
    look = looked(tmp_path, *even_ranks(3, 200))

    assert max(line.cell_len for line in VIEWS[view](look, width, 20)) <= width
