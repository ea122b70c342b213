"""What the routes answer: new when something changed, the same when nothing did."""

import json
from pathlib import Path

import pytest
from support.cases import CASES
from support.runs import RankSpec, encode_rank, make_info, make_run_dir
from support.tab import a_run, steps_of
from support.tried import trial, tried

from trainperf.core.artifacts import write_document
from trainperf.tensorboard.data import MOST_RUNS, NotFoundError, Store, View


RUN = "first/trainperf"


class Clock:
    """Seconds since 1970, as the test says."""

    def __init__(self) -> None:
        self.now_s = 1_000_000_000.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


def html_of(store: Store, view: View | None = None) -> str:
    """The parts of the page of the run."""
    return json.loads(store.run(RUN, view or View()))["html"]


def test_the_page_compares_two_runs_as_the_command_does(tmp_path: Path) -> None:
    """Before and after, with the verdict first; anew when one of them changes."""
    runs = {
        name: a_run(tmp_path, name, steps_of(100, data_wait=ms))
        for name, ms in (("before", 60.0), ("after", 20.0))
    }
    clock = Clock()
    store = Store([tmp_path], clock)
    ids = [f"{name}/trainperf" for name in runs]
    first = store.compare(*ids)
    a_run(tmp_path, "before", steps_of(100, data_wait=20.0))
    clock.now_s += 100
    again = store.compare(*ids)

    assert "after against before: faster" in json.loads(first)["html"]
    assert "after against before: undecided" in json.loads(again)["html"]
    with pytest.raises(NotFoundError):
        store.compare("other", ids[1])


def test_a_part_of_the_steps_and_one_rank_can_be_looked_at(tmp_path: Path) -> None:
    """Both ends included; the words stay those of the whole run."""
    a_run(tmp_path, steps=steps_of(5000))
    store = Store([tmp_path], Clock())
    part = html_of(store, View(first=2000, last=2099, rank=0))

    assert 'data-first="2000" data-last="2100"' in part
    assert "Each column is one step" in part
    assert 'data-first="0" data-last="5024"' in html_of(store)
    assert part.partition("</h1>")[0] == html_of(store).partition("</h1>")[0]
    assert "no step was recorded" in html_of(store, View(first=9000))


def test_what_is_new_on_the_disk_is_in_the_next_answer(tmp_path: Path) -> None:
    """Steps that were added, and each trial; as long as nothing is new the answer is the same."""
    spec = RankSpec(steps=steps_of(30), info=make_info(), end=None)
    run = make_run_dir(tmp_path / RUN, [spec])
    clock, file = Clock(), run / "steps-rank0.jsonl"
    store = Store([tmp_path], clock)
    before = html_of(store)
    assert html_of(store) == before == html_of(Store([tmp_path], Clock()))

    with file.open("ab") as stream:
        whole = encode_rank(RankSpec(steps=steps_of(50), info=make_info(), end=None))
        stream.write(whole[file.stat().st_size :])
    clock.now_s += 100
    assert 'data-last="50"' in html_of(store)

    for number in range(3):
        assert html_of(store).count("▲ faster") == number
        results = [trial(f"a{place}", "faster", 1.3) for place in range(number + 1)]
        write_document(tried(*results), run)
        clock.now_s += 1000


def test_a_run_is_not_read_again_at_once_when_reading_took_long(tmp_path: Path) -> None:
    """At most a twentieth of one core: a training job may run beside it."""
    clock = Clock()
    a_run(tmp_path)

    def slow() -> float:
        clock.now_s += 1.0
        return clock.now_s

    store = Store([tmp_path], slow)
    before = store.run(RUN, View())
    a_run(tmp_path, steps=steps_of(60))
    soon = store.run(RUN, View())
    clock.now_s += 30
    later = store.run(RUN, View())

    assert soon == before
    assert later != before


def test_a_run_that_falls_silent_is_said_to_be_cut_off(tmp_path: Path) -> None:
    """Nothing on disk changes when a process is killed."""
    spec = RankSpec(steps=steps_of(30), info=make_info(), end=None)
    file = make_run_dir(tmp_path / RUN, [spec]) / "steps-rank0.jsonl"
    clock = Clock()
    clock.now_s = file.stat().st_mtime + 1
    store = Store([tmp_path], clock)
    before = html_of(store)

    clock.now_s += 1000

    assert "still running" in before
    assert "ended without saying so (killed?)" in html_of(store)


@pytest.mark.parametrize("run", ["", ".", "..", "/", "/etc", "../first/trainperf", "first"])
def test_only_runs_that_were_found_are_answered(tmp_path: Path, run: str) -> None:
    """An id is never used as a path."""
    a_run(tmp_path)

    with pytest.raises(NotFoundError, match="no such run"):
        Store([tmp_path], Clock()).run(run, View())


def test_names_carry_no_control_characters(tmp_path: Path) -> None:
    """Nor marks that make text read backwards; the page shows the rest as text."""
    make_run_dir(tmp_path / RUN, CASES["hostile"]().ranks)

    body = json.loads(Store([tmp_path], Clock()).run(RUN, View()))
    said = json.dumps(body, ensure_ascii=False)

    assert "&lt;b&gt;" in said
    assert "<b>[bold]" not in said
    assert not {"\x1b", "\u202e", "\n", "\x07"} & set(said)


def test_runs_that_were_not_looked_at_for_long_are_forgotten_first(tmp_path: Path) -> None:
    """Memory is bounded."""
    names = [f"run{n}" for n in range(MOST_RUNS + 1)]
    for name in names:
        a_run(tmp_path, name, steps_of(30))
    store = Store([tmp_path], Clock())

    for name in (*names[:-1], names[0], names[-1]):
        store.run(f"{name}/trainperf", View())

    kept = [*names[2:-1], names[0], names[-1]]
    assert list(store._cache) == [f"{name}/trainperf" for name in kept]
