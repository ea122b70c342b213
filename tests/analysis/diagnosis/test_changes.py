"""The catalogue of changes: whole, sourced, and joined to causes and trials by name alone."""

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from support.causes.case import CauseCase
from support.causes.table import CASES

from trainperf.analysis import diagnosis
from trainperf.analysis.diagnosis import DETECTORS
from trainperf.analysis.diagnosis.changes import BY_ID, CHANGES, Change, changes_of
from trainperf.analysis.diagnosis.offers import OFFERS, trials_of_finding
from trainperf.core.findings import DAYS
from trainperf.core.loop_kind import LOOPS, PLAIN
from trainperf.core.machine.backends import CUDA, MPS, ROCM, Backend, backend_of


EACH = pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.id)
LAW = next(field.default for field in fields(Change) if field.name == "source")
"""What a share is from where a change says nothing else."""
NESTED = {"distributed"}
"""Changes whose words take a value inside words of the loop."""


@cache
def uses() -> Mapping[str, set[str]]:
    """The causes for which the table of cases uses each change."""
    used = defaultdict(set)
    for case in CASES:
        cause = case.found()
        for use in () if cause is None else cause.changes:
            used[use.change].add(case.cause)
    return used


@EACH
def test_a_share_without_a_source_is_no_number(change: Change) -> None:
    """It is between nothing and all of what the cause removes; without one it says why."""
    assert change.realises is None or 0.0 < change.realises <= 1.0
    assert change.source
    assert change.realises is not None or change.source != LAW
    assert change.effort in DAYS


@EACH
def test_what_it_is_of_is_a_detector_and_what_measures_it_a_trial(change: Change) -> None:
    """By their ids."""
    assert set(change.of) <= {detector.__name__ for detector in DETECTORS}
    assert set(change.trials) <= {offer.id for offer in OFFERS}


@EACH
def test_it_is_used_for_every_cause_that_it_names(change: Change) -> None:
    """What no detector uses is not advised by anybody."""
    used = uses()[change.id]

    assert used
    assert used <= set(change.of)


@EACH
def test_its_advice_is_an_imperative_of_a_few_words(change: Change) -> None:
    """And it says how to see that it helped."""
    assert change.advice[0].isupper()
    assert not change.advice.endswith(".")
    assert len(change.advice.split()) <= 10
    assert change.confirm


def test_no_two_are_alike() -> None:
    """An id is a name."""
    assert len(BY_ID) == len(CHANGES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.cause}: {case.says}")
def test_its_words_fit_every_kind_of_loop(case: CauseCase) -> None:
    """With the values that its detector gives, and no place left open."""
    cause = case.found()
    for use, loop, device in product(cause.changes, LOOPS, (CUDA, MPS)):
        change = BY_ID[use.change]
        words = change.worded(loop, use.values, device)
        own = (change.advice, change.how_in.get(loop.name, change.how), change.confirm)
        assert all(words)
        assert " ".join(words).count("None") == " ".join(own).count("None")
        if use.change not in NESTED:
            assert not re.search(r"\{[a-z_.]+\}", " ".join(words))


CUDA_ONLY = ("CUDA", "cuda", "CUBLAS", "reduce-overhead", "cuDNN")
OF_NVIDIA = {"device_shared", "device_throttled", "cuda_graphs"}
"""Causes that only a machine with NVIDIA's tools can have."""


@EACH
def test_what_only_cuda_has_is_not_said_elsewhere(change: Change) -> None:
    """Neither in what to do nor in how to confirm it."""
    texts = (change.how, *change.how_in.values(), change.confirm)
    said = re.sub(r"\{device\.(\w+)\}", lambda place: getattr(MPS, place[1]), " ".join(texts))
    if not OF_NVIDIA & {*change.of}:
        assert [name for name in CUDA_ONLY if name in said] == []


def test_a_device_of_amd_is_one_of_torchs_cuda_and_none_of_nvidias() -> None:
    """By the version that is written with a run; an unknown device has no words but its own."""
    assert backend_of("cuda", {"rocm": "7.2"}) is ROCM
    assert backend_of("cuda", {"cuda": "13.0"}) is CUDA
    assert backend_of("cpu", {}).growing == CUDA.growing
    assert backend_of("mps", {}).unified
    assert backend_of("threaded", {}) == Backend(name="threaded")
    assert not ROCM.growing


def test_the_host_waits_for_a_copy_to_memory_that_is_its_own() -> None:
    """On MPS one that does not wait reads what may have been freed by then."""
    for device, unblocked in ((CUDA, True), (MPS, False)):
        _, how, _ = BY_ID["send_smaller"].worded(PLAIN, {}, device)
        assert ("non_blocking" in how) is unblocked


def test_a_loaders_options_are_those_of_the_loop() -> None:
    """A Trainer of Hugging Face makes its loader itself."""
    how = BY_ID["persistent_workers"]
    plain, trainer = (
        how.worded(next(loop for loop in LOOPS if loop.name == name), {})[1]
        for name in ("plain", "huggingface")
    )

    assert plain.startswith("DataLoader(persistent_workers=True)")
    assert trainer.startswith("TrainingArguments(dataloader_persistent_workers=True)")


def test_the_changes_of_a_cause_are_known_without_a_run() -> None:
    """For `explain` and the doctor."""
    assert [change.id for change in changes_of("transfer")] == [
        "pin_memory",
        "send_smaller",
        "hooks_of_transfer",
    ]
    assert trials_of_finding("optimizer_not_fused") == (
        "optimizer_fused",
        "optimizer_foreach",
        "no_update",
    )


FOLDER = Path(diagnosis.__file__).parent


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.name)
def test_nothing_looks_for_words_in_an_advice(path: Path) -> None:
    """What a finding is joined by is an id: `advice`, `action` and `title` are for people."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            names = {
                part.attr
                for side in (node.left, *node.comparators)
                for part in ast.walk(side)
                if isinstance(part, ast.Attribute)
            }
            assert not names & {"advice", "action", "title", "how", "confirm"}, ast.unparse(node)
