"""Importer of verl's metrics: a line per step, by its `file` logger (JSON) or its `console` logger.

The driver times each part of a step with `marked_timer`, in seconds (`timing_s/gen`, …), and tells
lengths of the answers; the engine that generates (vLLM, SGLang) is seen through these alone.  Read
in verl's sources of 2025 and 2026 (`verl/trainer/ppo/metric_utils.py`, `verl/utils/tracking.py`)
and in logs that its users published.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

from trainperf.core.phases import Gap
from trainperf.core.post_training import (
    LOG_PROBABILITIES,
    REWARD,
    ROLLOUT,
    UPDATE,
    WEIGHT_TRANSFER,
)
from trainperf.core.steps.own_sums import PHASE, rollout_sums
from trainperf.importers.base import (
    SECOND,
    LogEvent,
    LogFormat,
    LoggedFit,
    LoggedGap,
    LoggedStart,
    LoggedSteps,
    lines_of,
)


_PHASES: Mapping[str, tuple[str, ...]] = {
    ROLLOUT: ("gen", "gen_max"),
    REWARD: ("reward",),
    LOG_PROBABILITIES: ("old_log_prob", "ref", "values"),
    UPDATE: ("update_critic", "update_actor"),
    WEIGHT_TRANSFER: ("update_weights",),
}
"""Phase to the timers of verl that are of it."""
_GAPS = {Gap.VALIDATION: "testing", Gap.CHECKPOINT: "save_checkpoint"}
_STEP = re.compile(rb'(?:\bstep|"step"): ?(\d+)')
_METRIC = re.compile(rb'([\w/]+)"?: ?(?:np\.\w+\()?(-?\d[\d.e+-]*)')


def read(file: Path, fit: LoggedFit) -> Iterator[LogEvent]:  # noqa: ARG001 no settings are in it
    """The steps and gaps of a training, in order."""
    last = None
    for line in lines_of(file):
        step = _STEP.search(line) if FORMAT.mark.search(line) else None
        if step is not None:
            if last is None or int(step[1]) <= last:
                yield LoggedStart()
            last = int(step[1])
            yield from _step(
                {name.decode(): float(number) for name, number in _METRIC.findall(line)}
            )


def _step(metrics: Mapping[str, float]) -> Iterator[LogEvent]:
    """A step, and the pauses behind it: in some releases its time holds these, in others not."""
    timers = chain(*_PHASES.values(), _GAPS.values())
    timed_s = {name: metrics.get(f"timing_s/{name}", 0.0) for name in timers}
    step_s, gaps_s = metrics["timing_s/step"], sum(timed_s[name] for name in _GAPS.values())
    inside = sum(timed_s.values()) <= step_s
    own = {
        f"{PHASE}{phase}": round(sum(timed_s[name] for name in names) * SECOND)
        for phase, names in _PHASES.items()
        if any(timed_s[name] for name in names)
    }
    longest, usual = metrics.get("response_length/max"), metrics.get("response_length/mean")
    if longest and usual:
        per_token_s = metrics.get("timing_per_token_ms/gen", 0.0) / 1e3
        tokens = timed_s["gen"] / per_token_s if per_token_s else 0.0
        answers = tokens / usual
        own |= rollout_sums(answers=answers, tokens=tokens, longest=longest, mean=usual)
    yield LoggedSteps(
        wall_ns=round((step_s - gaps_s if inside else step_s) * SECOND),
        facts={"tokens_effective": metrics.get("perf/total_num_tokens")},
        own=own,
    )
    for gap, name in _GAPS.items():
        if timed_s[name]:
            yield LoggedGap(gap=gap, duration_ns=round(timed_s[name] * SECOND))


FORMAT = LogFormat(
    name="verl",
    title="a verl log",
    marks='lines with "timing_s/step" (logger console or file)',
    mark=re.compile(rb'timing_s/step"?: ?'),
    read=read,
    clock="a step is `timing_s/step` on the driver's clock, without testing and checkpoints; "
    "between two steps nothing is timed; what the inference engine does inside of `timing_s/gen` "
    "is not in the log",
    holds={
        **{
            phase: ", ".join(f"`timing_s/{name}`" for name in names)
            for phase, names in _PHASES.items()
        },
        Gap.VALIDATION.label: "`timing_s/testing`",
        Gap.CHECKPOINT.label: "`timing_s/save_checkpoint`",
        "tokens_effective": "`perf/total_num_tokens`: prompts and answers of all ranks",
    },
    lacks=dict.fromkeys(
        ("forward", "backward", "optimizer"),
        "forward, backward and optimizer are one timer, `timing_s/update_actor`",
    ),
)
