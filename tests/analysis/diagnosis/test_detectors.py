"""Each cause with its seconds and its first change, and neighbours that only look like it."""

import pytest
from support.accounts import removed_s, seen, step
from support.causes.case import CauseCase
from support.causes.table import CASES

from trainperf.analysis.diagnosis import DETECTORS
from trainperf.analysis.diagnosis.cause import Detector
from trainperf.analysis.diagnosis.changes import BY_ID


EACH = pytest.mark.parametrize("detector", DETECTORS, ids=lambda each: each.__name__)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.skip] if case.open else []) for case in CASES],
    ids=lambda case: f"{case.cause}: {case.says}",
)
def test_a_cause_is_found_with_its_seconds_and_what_to_do_first(case: CauseCase) -> None:
    """And says so in numbers, and in the words of its loop."""
    cause = case.found()

    first = cause.changes[0]
    loop = case.sees.facts.loop
    said = "\n".join(
        [cause.title, *cause.evidence, *BY_ID[first.change].worded(loop, first.values)]
    )
    assert (cause.id, first.change) == (case.cause, case.change)
    assert removed_s(cause) == (None if case.removes_s is None else pytest.approx(case.removes_s))
    assert [words for words in case.words if words not in said] == [], said
    assert {name: getattr(cause, name) for name in case.shows} == case.shows


@pytest.mark.parametrize(
    ("case", "place"),
    [(case, place) for case in CASES for place in range(len(case.healthy))],
    ids=lambda it: it if isinstance(it, int) else f"{it.cause}: {it.says}",
)
def test_a_healthy_neighbour_gives_no_cause(case: CauseCase, place: int) -> None:
    """Too small, too rare, hidden, or of another kind."""
    assert case.detect(case.healthy[place]) is None


@EACH
def test_every_detector_has_a_case_and_a_healthy_neighbour(detector: Detector) -> None:
    """A new one without them is no promise."""
    own = [case for case in CASES if case.cause == detector.__name__]

    assert own
    assert any(case.healthy for case in own)


@EACH
def test_a_detector_says_when_it_is_wrong_and_how_to_confirm_it(detector: Detector) -> None:
    """The reference is made from it."""
    documented = detector.__doc__ or ""

    assert "Wrong where: " in documented
    assert "To confirm: " in documented


@EACH
def test_without_steps_or_facts_there_is_no_cause(detector: Detector) -> None:
    """What is not known is no reason."""
    assert detector(*seen(step(fit_s=0.0), steps=0, steady_steps=0)) is None
    assert detector(*seen(step(forward=20, backward=30, fit_s=10.0))) is None
