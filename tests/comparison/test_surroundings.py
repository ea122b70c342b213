"""What changed besides the code is named near the verdict; what nobody recorded is no change."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from support.runs import RankSpec, make_info, make_run_dir, make_steps

from trainperf.comparison.compare import compare
from trainperf.comparison.compared_run import ComparedRun, read_run
from trainperf.core.steps.records import Scalar
from trainperf.reports.comparison import notes, surroundings


BEFORE = {"torch": "2.8.0+cu128", "cuda": "12.8", "python": "3.12.1"}
AFTER = {"torch": "2.9.0+cu130", "cuda": "13.0", "python": "3.12.1"}
COMMIT = {"git_commit": "1a2b3c4d5e6f", "git_dirty": False}


def run(
    path: Path,
    software: Mapping[str, str],
    environment: Mapping[str, Scalar],
    hardware: Mapping[str, Scalar] | None = None,
    on: tuple[str, int] = ("cuda", 1),
) -> ComparedRun:
    """A run of equal steps with these surroundings, on a device and so many ranks."""
    device, world_size = on
    info = msgspec.structs.replace(
        make_info(config={"model": "Net"}, hardware=hardware, device=device, world_size=world_size),
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

    assert set(comparison.changes) == {"torch", "cpu_governor", "threads"}
    (sentence,) = surroundings(comparison)
    assert "torch 2.8.0+cu128 → 2.9.0+cu130" in sentence
    assert "OMP_NUM_THREADS not set → 1" in sentence
    assert "cpu_governor performance → powersave" in sentence
    assert sentence in notes(comparison)


def test_threads_and_the_variable_that_sets_them_are_one_change(tmp_path: Path) -> None:
    """And none where it sets as many as there are without it."""
    two = run(tmp_path / "a", BEFORE, COMMIT, {"threads": 2})
    one = run(tmp_path / "b", BEFORE, {**COMMIT, "OMP_NUM_THREADS": "1"}, {"threads": 1})
    same = run(tmp_path / "c", BEFORE, {**COMMIT, "OMP_NUM_THREADS": "2"}, {"threads": 2})

    changed = compare([two], [one])
    assert changed.changes == ("threads",)
    assert {each.name for each in changed.differences} == {"threads", "OMP_NUM_THREADS"}
    assert compare([two], [same]).differences == ()
    assert compare([same], [two]).differences == ()


def test_a_variable_that_is_set_to_what_it_is_without_is_no_change(tmp_path: Path) -> None:
    """Nor is one that is empty."""
    without = run(tmp_path / "a", BEFORE, COMMIT)
    same = {"CUDA_LAUNCH_BLOCKING": "0", "LD_PRELOAD": "", "TORCH_DISTRIBUTED_DEBUG": "off"}

    assert compare([without], [run(tmp_path / "b", BEFORE, {**COMMIT, **same})]).changes == ()
    other = run(tmp_path / "c", BEFORE, {**COMMIT, **same, "CUDA_LAUNCH_BLOCKING": "1"})
    assert compare([without], [other]).changes == ("CUDA_LAUNCH_BLOCKING",)


def test_variables_of_what_a_run_does_not_use_are_no_change(tmp_path: Path) -> None:
    """Those of a GPU on a CPU, and those of collectives on a single rank."""
    given = {
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "NCCL_ALGO": "Ring",
        "MALLOC_ARENA_MAX": "1",
    }

    def changes(name: str, device: str, world_size: int) -> set[str]:
        runs = [
            run(tmp_path / f"{name}{side}", BEFORE, {**COMMIT, **extra}, on=(device, world_size))
            for side, extra in enumerate(({}, given))
        ]
        return set(compare([runs[0]], [runs[1]]).changes)

    assert changes("a", "cpu", 1) == {"MALLOC_ARENA_MAX"}
    assert changes("b", "cuda", 1) == {"MALLOC_ARENA_MAX", "PYTORCH_CUDA_ALLOC_CONF"}
    assert changes("c", "cuda", 2) == set(given)


def test_a_setting_of_the_code_is_not_besides_it(tmp_path: Path) -> None:
    """The number of workers is what one meant to change."""
    before, after = (run(tmp_path / name, BEFORE, COMMIT) for name in "ab")

    assert list(surroundings(compare([before], [after]))) == []


def test_the_code_itself_is_named_and_is_no_setting(tmp_path: Path) -> None:
    """It is what a comparison is about; uncommitted changes are said."""
    before = run(tmp_path / "a", BEFORE, COMMIT)
    after = run(tmp_path / "b", BEFORE, {"git_commit": "9f8e7d6c5b4a", "git_dirty": True})
    comparison = compare([before], [after])

    assert comparison.changes == ()
    assert list(surroundings(comparison)) == [
        "code: 1a2b3c4d5e → 9f8e7d6c5b with uncommitted changes"
    ]


def test_code_that_was_changed_in_both_runs_need_not_be_the_same(tmp_path: Path) -> None:
    """The commit says nothing of changes that were not committed."""
    changed = {**COMMIT, "git_dirty": True}
    before, after = (run(tmp_path / name, BEFORE, changed) for name in "ab")

    (sentence,) = surroundings(compare([before], [after]))
    assert sentence.startswith("code: 1a2b3c4d5e with uncommitted changes in both runs")


def test_what_an_older_run_does_not_tell_is_no_change(tmp_path: Path) -> None:
    """It has no variables, no driver and no governor."""
    older = run(tmp_path / "a", {"torch": "2.8.0+cu128", "python": "3.12.1"}, {})
    newer = run(tmp_path / "b", {**BEFORE, "driver": "550.54"}, {**COMMIT, "NCCL_DEBUG": "INFO"})

    assert compare([older], [newer]).changes == ()
