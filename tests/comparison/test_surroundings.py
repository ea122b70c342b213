"""What changed besides the code is named near the verdict; what nobody recorded is no change."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.runs import RankSpec, make_info, make_run_dir, make_steps

from trainperf.analysis.run.directory import Run
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
    return read_run(Run.open(make_run_dir(path, [RankSpec(steps=steps, info=info)])))


SAME = {"CUDA_LAUNCH_BLOCKING": "0", "LD_PRELOAD": "", "TORCH_DISTRIBUTED_DEBUG": "off"}
"""Set to what they are without it, or empty."""
GIVEN = {
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "NCCL_ALGO": "Ring",
    "MALLOC_ARENA_MAX": "1",
}
TWO, ONE, AS_MANY = (
    (BEFORE, {**COMMIT, **set_to}, {"threads": threads})
    for set_to, threads in (({}, 2), ({"OMP_NUM_THREADS": "1"}, 1), ({"OMP_NUM_THREADS": "2"}, 2))
)
CODE = "code: 1a2b3c4d5e → 9f8e7d6c5b with uncommitted changes"


@pytest.mark.parametrize(
    ("before", "after", "changes", "says"),
    [
        (
            (BEFORE, COMMIT, {"cpu_governor": "performance"}),
            (AFTER, {**COMMIT, "OMP_NUM_THREADS": "1"}, {"cpu_governor": "powersave"}),
            {"torch", "cpu_governor", "threads"},
            (
                "torch 2.8.0+cu128 → 2.9.0+cu130",
                "OMP_NUM_THREADS not set → 1",
                "cpu_governor performance → powersave",
            ),
        ),
        (TWO, ONE, {"threads"}, ()),
        (TWO, AS_MANY, set(), ()),
        (AS_MANY, TWO, set(), ()),
        ((BEFORE, COMMIT), (BEFORE, {**COMMIT, **SAME}), set(), ()),
        (
            (BEFORE, COMMIT),
            (BEFORE, {**COMMIT, **SAME, "CUDA_LAUNCH_BLOCKING": "1"}),
            {"CUDA_LAUNCH_BLOCKING"},
            (),
        ),
        *(
            ((BEFORE, COMMIT, {}, on), (BEFORE, {**COMMIT, **GIVEN}, {}, on), used, says)
            for on, used, says in (
                (("cpu", 1), {"MALLOC_ARENA_MAX"}, ()),
                (("cuda", 1), {"MALLOC_ARENA_MAX", "PYTORCH_CUDA_ALLOC_CONF"}, ("MALLOC_",)),
                (("cuda", 2), {*GIVEN}, ("NCCL_ALGO not set → Ring",)),
            )
        ),
        (
            (BEFORE, COMMIT),
            (BEFORE, {"git_commit": "9f8e7d6c5b4a", "git_dirty": True}),
            set(),
            (CODE,),
        ),
        (
            (BEFORE, {**COMMIT, "git_dirty": True}),
            (BEFORE, {**COMMIT, "git_dirty": True}),
            set(),
            ("code: 1a2b3c4d5e with uncommitted changes in both runs",),
        ),
        (
            ({"torch": "2.8.0+cu128", "python": "3.12.1"}, {}),
            ({**BEFORE, "driver": "550.54"}, {**COMMIT, "NCCL_DEBUG": "INFO"}),
            set(),
            (),
        ),
    ],
    ids=[
        "versions that go together, a variable and a clock",
        "threads and the variable that sets them",
        "a variable that sets as many threads as there are",
        "the same the other way round",
        "variables set to what they are without",
        "a variable that is set",
        "variables on a CPU",
        "of a GPU",
        "of several",
        "the code itself is no setting",
        "code that was changed in both need not be the same",
        "what an older run does not tell",
    ],
)
def test_what_changed_besides_the_code_is_one_sentence_near_the_verdict(
    before: tuple[Any, ...],
    after: tuple[Any, ...],
    changes: set[str],
    says: tuple[str, ...],
    tmp_path: Path,
) -> None:
    """What nobody recorded, or what a run does not use, is no change."""
    comparison = compare([run(tmp_path / "a", *before)], [run(tmp_path / "b", *after)])
    sentences = list(surroundings(comparison))

    assert set(comparison.changes) == changes
    assert [each for each in says if each not in "".join(sentences)] == []
    # What alone was changed is what a comparison is about.
    assert bool(sentences) == bool(says)
    assert [each for each in sentences if each not in notes(comparison)] == []
