"""Checks of the precision that a run computes in: whether it pays, and overflows."""

from collections.abc import Callable, Mapping

from trainperf.analysis.diagnosis.tried import sentence
from trainperf.analysis.doctor.base import Case, Check, answer, imported, measured, shown
from trainperf.core.artifacts.trials import TrialResult
from trainperf.core.formatting.units import share, size
from trainperf.core.readings import LOSS_SCALE, OVERFLOW_RATE


_NOT_TRIED = TrialResult(id="", kind="change", title="", verdict="not applicable")


def _half(config: Mapping[str, object]) -> str:
    """The lower precision that a run computes in; empty for fp32 or more."""
    named = (str(config.get(name) or "") for name in ("autocast", "precision"))
    return next((name for name in named if "16" in name or "transformer-engine" in name), "")


def _autocast(case: Case) -> TrialResult:
    """The trial of autocast that came to something, in the run in fp32: the baseline, if any."""
    used, trials = _half(case.facts.settings), (case.baseline or case.facts).summary.trials
    own = [
        trial
        for trial in (() if trials is None else trials.trials)
        if trial.id.startswith("autocast_") and (trial.counts or trial.verdict == "loss differs")
    ]
    alike = (trial for trial in own if not used or ("bf16" in trial.id) == ("bf" in used))
    return next(alike, _NOT_TRIED)


def _pays(case: Case) -> bool:
    """Whether autocast was faster, and took no more memory where that was measured."""
    trial = _autocast(case)
    most = trial.memory_before or trial.memory_after or 0
    return trial.verdict == "faster" and (trial.memory_after or 0) <= most


_TRIED = (
    lambda case: sentence(_autocast(case)),
    lambda case: (
        "loss "
        + _without_and_with(
            _autocast(case).loss_before, _autocast(case).loss_after, "{:.4g}".format
        )
    ),
    lambda case: (
        "peak memory "
        + _without_and_with(_autocast(case).memory_before, _autocast(case).memory_after, size)
    ),
)


def _without_and_with(
    before: float | None, after: float | None, unit: Callable[[float], str]
) -> str:
    """E.g. `3.00 GiB without and 2.00 GiB with it`."""
    if before is None or after is None:
        return "not measured"
    return f"{unit(before)} without and {unit(after)} with it"


PRECISION_CHECKS: tuple[Check, ...] = (
    Check(
        id="mixed_precision",
        about="""AMP/bf16 really reduces step time and memory.

        Fails on `autocast_casts` and `half_sensitive`, and where autocast was tried in the same
        training in fp32 (`--baseline`) and was not faster, or took more memory.  A run in fp32
        passes where such a trial of its own was faster and took no more memory.  Unknown without a
        trial: two runs are compared by `trainperf compare`.

        Wrong where: the baseline differs in more than its precision.
        To confirm: `trainperf try --only autocast_bf16 SCRIPT` in the run in fp32.
        """,
        causes=("autocast_casts", "half_sensitive"),
        of_training=True,
        first=[
            answer(
                "unknown",
                "the log does not tell the precision",
                action="{loop.everything}",
                when=lambda case: imported(case) and not _half(case.facts.settings),
            ),
            answer(
                "pass",
                *_TRIED,
                lambda case: f"to keep it: {_autocast(case).apply}",
                when=lambda case: not _half(case.facts.settings) and _pays(case),
            ),
            answer(
                "unknown",
                *_TRIED,
                action="trainperf try --only autocast_bf16 --minutes 5 SCRIPT",
                when=lambda case: (
                    not _half(case.facts.settings) and _autocast(case).verdict == "undecided"
                ),
            ),
            answer(
                "not_applicable",
                "the run computes in fp32",
                *_TRIED,
                when=lambda case: not _half(case.facts.settings) and _autocast(case).id,
            ),
            answer(
                "not_applicable",
                "the run computes in fp32",
                when=lambda case: not _half(case.facts.settings),
            ),
        ],
        looks=[
            answer("pass", *_TRIED, when=_pays),
            answer(
                "fail",
                *_TRIED,
                action="stay in fp32, or find out what is converted: lower precision does not pay "
                "here",
                when=lambda case: _autocast(case).verdict not in ("undecided", "not applicable"),
            ),
            answer(
                "unknown",
                "what it saves was not tried",
                action="trainperf prove: the training with it and without it",
            ),
        ],
    ),
    Check(
        id="overflows",
        about="""GradScaler does not overflow often.

        Fails on `overflow`.  Unknown without a GradScaler's counts.

        Wrong where: the scaler is custom, and its skips are counted elsewhere.
        To confirm: the readings `overflow_rate` and `loss_scale`.
        """,
        causes=("overflow",),
        of_training=True,
        looks=[
            *measured(OVERFLOW_RATE, "{loop.measures[scaler]}"),
            answer(
                "pass",
                shown(OVERFLOW_RATE, "{} of the updates overflowed", share),
                shown(LOSS_SCALE, "loss scale {}", "{:,.6g}".format),
            ),
        ],
    ),
)
"""In the order in which they are shown."""
