"""Rule about logging that takes much of the step."""

from trainperf.analysis.rules.base import Evidence, phase_fraction, setting
from trainperf.analysis.rules.host.base import hands_to_threads, heaviest, host_lines
from trainperf.core.findings import LIMITS, Finding, costs
from trainperf.core.formatting.units import duration, plural, share
from trainperf.core.phases import Phase


@hands_to_threads
def logging(evidence: Evidence) -> Finding | None:
    """`self.log` in the step, and what the framework does with the values after it.

    Needs an audit on a CPU: elsewhere, and without one, the loop's share has a finding of its own.

    Wrong where: a logger's thread does the work later: then silence gains more than the share.
    To confirm: `trainperf try --only no_logging SCRIPT` and `--only logging_interval`.
    """
    summary = evidence.summary
    host = host_lines(evidence)
    rows = [] if host is None else [row for row in host.rows if row.logs]
    if host is None or not rows:
        return None
    inside, after = host.share(rows), phase_fraction(summary, Phase.LOOP) or 0.0
    every = setting(summary, "log_every_n_steps")
    lost = min(inside + after, 0.99)
    # With few steps between two writes the framework's part of the loop is logging, too.
    logs = inside >= LIMITS.notable / 2 or (every is not None and every < 10)
    if lost < LIMITS.notable or not logs:
        return None
    operators = plural(sum(row.calls for row in rows), "operator")
    return Finding(
        id="logging",
        title=f"logging takes {share(lost)} of the step",
        advice="Log fewer values, less often",
        evidence=(
            f"{duration(inside * host.step_s)} per step in the {operators} that it calls",
            f"{duration(after * host.step_s)} after the last hook"
            + (f", log_every_n_steps={every:.0f}" if every is not None else ""),
        ),
        action="if batch_idx % 50 == 0: self.log_dict(values), and Trainer(log_every_n_steps=50)",
        **costs(lost, confidence="medium"),
        where=next((line for line, _ in heaviest(host, rows)), ""),
        confirm="phase_forward_s and phase_loop_s fall; trainperf compare BEFORE AFTER",
    )
