"""What changed besides the code is named near the verdict; what nobody recorded is no change."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from support.runs import RankSpec, make_info, make_run_dir, make_steps

from trainperf.comparison.compare import compare
from trainperf.comparison.compared_run import ComparedRun, read_run
from trainperf.comparison.slow_versions import SLOW_VERSIONS, SlowVersion, slow_versions
from trainperf.core.steps.records import Scalar
from trainperf.reports.comparison import notes
from trainperf.reports.surroundings import surroundings


BEFORE = {"torch": "2.8.0+cu128", "cuda": "12.8", "python": "3.12.1"}
AFTER = {"torch": "2.9.0+cu130", "cuda": "13.0", "python": "3.12.1"}
COMMIT = {"git_commit": "1a2b3c4d5e6f", "git_dirty": False}


def run(
    path: Path,
    software: Mapping[str, str],
    environment: Mapping[str, Scalar],
    hardware: Mapping[str, Scalar] | None = None,
) -> ComparedRun:
    """A run of equal steps with these surroundings."""
    info = msgspec.structs.replace(
        make_info(config={"model": "Net"}, hardware=hardware),
        software=dict(software),
        environment=dict(environment),
    )
    steps = make_steps(200, forward=10, backward=20)
    return read_run(make_run_dir(path, [RankSpec(steps=steps, info=info)]))


def test_what_changed_besides_the_code_is_one_sentence_near_the_verdict(tmp_path: Path) -> None:
    """Versions that go together are one change; the variables and the clock are others."""
    before = run(tmp_path / "a", BEFORE, COMMIT, {"cpu_governor": "performance"})
    environment = {**COMMIT, "OMP_NUM_THREADS": "1"}
    after = run(tmp_path / "b", AFTER, environment, {"cpu_governor": "powersave"})
    comparison = compare([before], [after])

    assert set(comparison.changes) == {"torch", "cpu_governor", "OMP_NUM_THREADS"}
    (sentence,) = surroundings(comparison)
    assert "torch 2.8.0+cu128 → 2.9.0+cu130" in sentence
    assert "OMP_NUM_THREADS not set → 1" in sentence
    assert "cpu_governor performance → powersave" in sentence
    assert sentence in notes(comparison)


def test_a_setting_of_the_code_is_not_besides_it(tmp_path: Path) -> None:
    """The number of workers is what one meant to change."""
    before, after = (run(tmp_path / name, BEFORE, COMMIT) for name in "ab")

    assert surroundings(compare([before], [after])) == []


def test_the_code_itself_is_named_and_is_no_setting(tmp_path: Path) -> None:
    """It is what a comparison is about; uncommitted changes are said."""
    before = run(tmp_path / "a", BEFORE, COMMIT)
    after = run(tmp_path / "b", BEFORE, {"git_commit": "9f8e7d6c5b4a", "git_dirty": True})
    comparison = compare([before], [after])

    assert comparison.changes == ()
    assert surroundings(comparison) == ["code: 1a2b3c4d5e → 9f8e7d6c5b with uncommitted changes"]


def test_what_an_older_run_does_not_tell_is_no_change(tmp_path: Path) -> None:
    """It has no variables, no driver and no governor."""
    older = run(tmp_path / "a", {"torch": "2.8.0+cu128", "python": "3.12.1"}, {})
    newer = run(tmp_path / "b", {**BEFORE, "driver": "550.54"}, {**COMMIT, "NCCL_DEBUG": "INFO"})

    assert compare([older], [newer]).changes == ()


def test_a_version_is_slow_only_where_the_table_has_it_measured() -> None:
    """The table is empty; a row counts from its first version to the one that is fast again."""
    row = SlowVersion(
        library="torch", since="2.8", until="2.8.1", what="f is 2× slower", measured="a script"
    )

    assert SLOW_VERSIONS == ()
    assert slow_versions({"torch": "2.8.0+cu128"}, [row]) == [
        "torch 2.8.0+cu128: f is 2× slower (measured: a script)"
    ]
    assert slow_versions({"torch": "2.8.1"}, [row]) == []
    assert slow_versions({"torch": "2.7.9"}, [row]) == []
    assert slow_versions({"numpy": "2.8.0"}, [row]) == []
