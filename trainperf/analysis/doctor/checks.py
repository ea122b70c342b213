"""Checks of a run: what should hold before anybody trusts a number or changes a line.

The table of all of them, with those of a run's results: its throughput, answers and losses.
"""

from trainperf.analysis.doctor.base import Case, Check, answer, imported, missing, reason, shown
from trainperf.analysis.doctor.batch_checks import BATCH_CHECKS
from trainperf.analysis.doctor.graph_checks import GRAPH_CHECKS
from trainperf.analysis.doctor.operator_checks import OPERATOR_CHECKS
from trainperf.analysis.doctor.precision_checks import PRECISION_CHECKS
from trainperf.analysis.doctor.step_checks import STEP_CHECKS
from trainperf.analysis.doctor.trace_checks import TRACE_CHECKS
from trainperf.analysis.summary.loss_parity import TOLERANCE
from trainperf.core.formatting.units import count, share
from trainperf.core.loop_kind import NO_INFERENCE
from trainperf.core.readings import (
    EFFECTIVE_TOKENS_PER_S,
    OPTIMIZER_STEPS_PER_S,
    PADDING_FRACTION,
    SAMPLES_PER_S,
)


def _verdict(case: Case) -> str:
    """Of the losses; empty without a baseline."""
    return "" if case.parity is None else case.parity.verdict


CHECKS: tuple[Check, ...] = (
    *STEP_CHECKS,
    *OPERATOR_CHECKS,
    *PRECISION_CHECKS,
    *BATCH_CHECKS,
    *TRACE_CHECKS,
    *GRAPH_CHECKS,
    Check(
        id="throughput_unit",
        about="""Throughput is effective tokens/s or the right unit.

        Fails for sequences without a mask, and when only updates are counted.  Unknown without
        steps.

        Wrong where: the mask is not the one that the loss uses.
        To confirm: `run.notes` of the summary names the mask that was counted.
        """,
        looks=[
            answer(
                "pass",
                shown(
                    EFFECTIVE_TOKENS_PER_S, "{} effective tokens/s", lambda rate: count(round(rate))
                ),
                lambda case: f"counted by {case.facts.run.notes.get('tokens', 'mask')}",
                shown(PADDING_FRACTION, "padding of {} is not counted", share),
                when=lambda case: not missing(EFFECTIVE_TOKENS_PER_S)(case),
            ),
            answer(
                "unknown",
                "the log does not tell which tokens count",
                action="{loop.tokens}",
                when=lambda case: (
                    imported(case)
                    and (case.facts.number("sequence_length") or missing(SAMPLES_PER_S)(case))
                ),
            ),
            answer(
                "fail",
                "sequences of {facts.settings[sequence_length]:,} tokens, but no mask: padding "
                "would count as work",
                action="{loop.tokens} says which tokens count",
                when=lambda case: case.facts.number("sequence_length"),
            ),
            answer(
                "pass",
                shown(SAMPLES_PER_S, "{} samples/s; the batch has no known tokens", count),
                when=lambda case: not missing(SAMPLES_PER_S)(case),
            ),
            answer(
                "unknown",
                lambda case: reason(case.facts, SAMPLES_PER_S),
                action="run past the warm-up",
                when=missing(OPTIMIZER_STEPS_PER_S),
            ),
            answer(
                "fail",
                shown(
                    OPTIMIZER_STEPS_PER_S,
                    "only updates are counted, {}/s: they grow when batches shrink",
                    count,
                ),
                action="make samples the batch's first dimension, or {loop.tokens}",
            ),
        ],
    ),
    Check(
        id="answers",
        about="""Answers come from eval mode, without an autograd graph.

        Fails on `train_mode`, `dropout_left_on` and `gradients_on`.  Unknown where no forward was
        looked at, as of a compiled model.

        Wrong where: a model changes its mode between the forwards that were looked at.
        To confirm: `trainperf.smoke.assert_inference(model, request)`.
        """,
        causes=("train_mode", "dropout_left_on", "gradients_on"),
        looks=[
            answer(
                "not_applicable",
                NO_INFERENCE.partition(": ")[2],
                when=lambda case: case.facts.loop.trains,
            ),
            answer(
                "unknown",
                "no forward was looked at: the model is compiled, the loop calls another method of "
                "it, or monitor.watch(model) is missing",
                action="trainperf.smoke.assert_inference(model, request) looks at one",
                when=lambda case: case.facts.number("answers_looked_at") is None,
            ),
            answer(
                "pass",
                "{facts.settings[answers_looked_at]} forwards looked at, in eval mode",
                "autograd: {facts.settings[grad_mode]}; no answer has a graph",
            ),
        ],
    ),
    Check(
        id="loss_parity",
        about="""Loss still matches the baseline.

        Fails when the losses at equal work are more than 2 % apart, and more than noise explains.
        Unknown without a baseline.

        Wrong where: seeds or the order of the data differ: equal work is then not the same work.
        To confirm: `trainperf compare` of repeats with several seeds.
        """,
        of_training=True,
        looks=[
            answer(
                "unknown",
                "no baseline was given",
                action="--baseline the run before the change",
                when=lambda case: not _verdict(case),
            ),
            answer(
                "unknown",
                "{case.parity.why}",
                action="train both runs further, on the same data",
                when=lambda case: _verdict(case) == "unknown",
            ),
            answer(
                "fail",
                "{case.parity.why}",
                f"tolerance {share(TOLERANCE)}",
                action="undo the change, or prove it right before you go on",
                when=lambda case: _verdict(case) == "differs",
            ),
            answer("pass", "{case.parity.why}", f"tolerance {share(TOLERANCE)}"),
        ],
    ),
)
"""In the order in which they are shown."""
