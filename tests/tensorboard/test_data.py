"""What the routes answer: new when something changed, the same when nothing did."""

import json
from pathlib import Path

import pytest
from support.cases import CASES
from support.runs import RankSpec, encode_rank, make_info, make_run_dir
from support.tab import a_run, steps_of
from support.tried import trial, tried

from trainperf.core.artifacts import write_document
from trainperf.core.errors import RunError
from trainperf.tensorboard import data
from trainperf.tensorboard.data import NotFoundError, Store, View


RUN = "first/trainperf"


class Clock:
    """Seconds since 1970, as the test says."""

    def __init__(self) -> None:
        self.now_s = 1_000_000_000.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


def test_the_page_says_what_the_report_says(tmp_path: Path) -> None:
    """The first sentence, the phases, the findings in their order."""
    make_run_dir(tmp_path / RUN, CASES["loader_bound"]().ranks)

    words = json.loads(Store([tmp_path], Clock()).run(RUN, View()).body)["words"]

    assert words["headline"].startswith(
        "Step time 55.2 ms; 37 % of it is data wait. First: "
        "load in 1 worker — about 1.54×, at most 1.67×."
    )
    assert words["phases"][0] == {
        "key": "data_wait",
        "label": "data wait",
        "phase": 0,
        "seconds": pytest.approx(0.0203, abs=1e-4),
        "time": "20.3 ms",
        "share": "36.7 %",
        "fraction": pytest.approx(0.367, abs=1e-3),
        "note": "num_workers=0",
        "absent": "",
    }
    assert words["phases"][1]["absent"] == "not applicable (CPU)"
    assert [finding["id"] for finding in words["findings"]] == ["data_wait", "overflow", "padding"]
    assert words["findings"][0]["gain"] == "about 1.54×, at most 1.67×"


def test_nothing_new_has_the_same_mark(tmp_path: Path) -> None:
    """The browser is told so, and draws nothing."""
    a_run(tmp_path)
    store = Store([tmp_path], Clock())

    assert store.run(RUN, View()) == store.run(RUN, View())
    assert store.run(RUN, View()) == Store([tmp_path], Clock()).run(RUN, View())


def test_a_run_that_grows_is_new(tmp_path: Path) -> None:
    """The steps added are in the next answer."""
    spec = RankSpec(steps=steps_of(30), info=make_info(), end=None)
    file = make_run_dir(tmp_path / RUN, [spec]) / "steps-rank0.jsonl"
    clock = Clock()
    store = Store([tmp_path], clock)
    before = store.run(RUN, View())

    with file.open("ab") as stream:
        whole = encode_rank(RankSpec(steps=steps_of(50), info=make_info(), end=None))
        stream.write(whole[file.stat().st_size :])
    clock.now_s += 100
    after = store.run(RUN, View())

    assert before.etag != after.etag
    assert len(json.loads(after.body)["series"]["steps"]["begins"]) == 50


def test_what_was_tried_is_there_as_soon_as_it_is_on_disk(tmp_path: Path) -> None:
    """And again after each trial."""
    run = a_run(tmp_path)
    clock = Clock()
    store = Store([tmp_path], clock)
    assert json.loads(store.run(RUN, View()).body)["trials"] is None

    for number in (1, 2):
        results = [trial(f"a{place}", "faster", 1.3) for place in range(number)]
        write_document(tried(*results), run)
        clock.now_s += 1000
        shown = json.loads(store.run(RUN, View()).body)["trials"]
        assert [(row["value"], row["mark"]) for row in shown["changes"]] == [(1.3, "▲")] * number


def test_a_value_that_changes_on_disk_changes_in_the_answer(tmp_path: Path) -> None:
    """The words and the charts alike."""
    a_run(tmp_path)
    clock = Clock()
    store = Store([tmp_path], clock)
    before = json.loads(store.run(RUN, View()).body)

    a_run(tmp_path, steps=steps_of(100, data_wait=40.0))
    clock.now_s += 100
    after = json.loads(store.run(RUN, View()).body)

    assert before["words"]["phases"][0]["time"] == "20.0 ms"
    assert after["words"]["phases"][0]["time"] == "40.0 ms"
    assert after["series"]["steps"]["phases"][0]["mean_s"] == [0.04] * 100


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

    assert soon.etag == before.etag
    assert later.etag != before.etag


def test_a_run_that_falls_silent_is_said_to_be_cut_off(tmp_path: Path) -> None:
    """Nothing on disk changes when a process is killed."""
    spec = RankSpec(steps=steps_of(30), info=make_info(), end=None)
    file = make_run_dir(tmp_path / RUN, [spec]) / "steps-rank0.jsonl"
    clock = Clock()
    clock.now_s = file.stat().st_mtime + 1
    store = Store([tmp_path], clock)
    before = json.loads(store.run(RUN, View()).body)

    clock.now_s += 1000
    after = json.loads(store.run(RUN, View()).body)

    assert (before["words"]["state"], after["words"]["state"]) == ("running", "killed")


@pytest.mark.parametrize("run", ["", ".", "..", "/", "/etc", "../first/trainperf", "first"])
def test_only_runs_that_were_found_are_answered(tmp_path: Path, run: str) -> None:
    """An id is never used as a path."""
    a_run(tmp_path)

    with pytest.raises(NotFoundError, match="no such run"):
        Store([tmp_path], Clock()).run(run, View())


def test_a_run_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    """In the sentence of the report."""
    directory = a_run(tmp_path)
    (directory / "steps-rank0.jsonl").write_bytes(b'{"kind": "run", "schema": 99}\n')

    with pytest.raises(RunError, match="schema version 99"):
        Store([tmp_path], Clock()).run(RUN, View())


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_kind_of_run_can_be_shown(tmp_path: Path, name: str) -> None:
    """Without steps, without an end, with names that are markup: valid JSON, no NaN."""
    make_run_dir(tmp_path / RUN, CASES[name]().ranks)

    body = Store([tmp_path], Clock()).run(RUN, View()).body

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert json.loads(body, parse_constant=refuse)["words"]["headline"]


def test_names_carry_no_control_characters(tmp_path: Path) -> None:
    """Nor marks that make text read backwards; the page shows the rest as text."""
    make_run_dir(tmp_path / RUN, CASES["hostile"]().ranks)

    body = json.loads(Store([tmp_path], Clock()).run(RUN, View()).body)
    said = json.dumps(body, ensure_ascii=False)

    assert "<b>" in said
    assert not {"\x1b", "\u202e", "\n", "\x07"} & set(said)


def test_runs_that_were_not_looked_at_for_long_are_forgotten_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded: of three runs there is room for two."""
    monkeypatch.setattr(data, "MOST_HELD_BYTES", 70_000)
    for name in ("first", "second", "third"):
        a_run(tmp_path, name, steps_of(200))
    store = Store([tmp_path], Clock())

    for name in ("first", "second", "first", "third"):
        store.run(f"{name}/trainperf", View())

    assert list(store._cache) == ["first/trainperf", "third/trainperf"]
