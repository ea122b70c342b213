"""Changes of what is learned, or answered: gradients, schedules, modes."""

from trainperf.analysis.diagnosis.changes.change import Change


CHANGES: tuple[Change, ...] = (
    Change(
        id="zero_grad",
        of=("zero_grad",),
        advice="Zero the gradients",
        how="optimizer.zero_grad() once per update, before the first backward of the step",
        confirm="this finding is gone, and the loss falls as it should",
    ),
    Change(
        id="schedule_per_update",
        of=("scheduler_per_micro_batch",),
        advice="Step the scheduler once per update",
        how="call scheduler.step() only after optimizer.step(), not in every micro-batch",
        confirm="scheduler_steps and updates in the run's configuration are equal",
    ),
    Change(
        id="schedule_once",
        of=("scheduler_per_micro_batch",),
        advice="Step the scheduler less",
        how="call scheduler.step() once after each optimizer.step()",
        confirm="scheduler_steps and updates in the run's configuration are equal",
    ),
    Change(
        id="eval_mode",
        of=("train_mode",),
        advice="Put the model into eval mode",
        how="model.eval() before the first request",
        confirm="this finding is gone; trainperf.smoke.assert_inference(model, request) passes",
    ),
    Change(
        id="dropout_by_mode",
        of=("dropout_left_on",),
        advice="Tell dropout the mode",
        how="F.dropout(x, p, training=self.training), dropout_p=self.p if self.training else 0.0 "
        "in attention, or nn.Dropout",
        confirm="this finding is gone; trainperf.smoke.assert_inference(model, request) passes",
    ),
)
"""In the order in which they are listed."""
