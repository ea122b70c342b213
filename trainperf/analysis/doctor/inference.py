"""Check of how an inference loop answers."""

from trainperf.analysis.doctor.base import (
    Case,
    Outcome,
    fails_on,
    not_applicable,
    passed,
    unknown,
)
from trainperf.core.formatting.units import plural
from trainperf.core.loop_kind import NO_INFERENCE


@fails_on("train_mode", "dropout_left_on", "gradients_on")
def answers(case: Case) -> Outcome:
    """Answers come from eval mode, without an autograd graph.

    Fails on `train_mode`, `dropout_left_on` and `gradients_on`.  Unknown where no forward was
    looked at, as of a compiled model.

    Wrong where: a model changes its mode between the forwards that were looked at.
    To confirm: `trainperf.smoke.assert_inference(model, request)`.
    """
    config = case.summary.run.config
    if case.loop.trains:
        return not_applicable(NO_INFERENCE.partition(": ")[2])
    looked_at = config.get("answers_looked_at")
    if not isinstance(looked_at, int):
        why = (
            "no forward was looked at: the model is compiled, the loop calls another method of it, "
            "or monitor.watch(model) is missing"
        )
        return unknown(why, "trainperf.smoke.assert_inference(model, request) looks at one")
    return passed(
        f"{plural(looked_at, 'forward')} looked at, in eval mode",
        f"autograd: {config.get('grad_mode')}; no answer has a graph",
    )
