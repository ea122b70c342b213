"""Logs in the formats that are imported, printed with a known truth.

The formats were read in the sources of the frameworks; nothing of those is here.  Times are
milliseconds, and each step takes what its *times* say.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone

import numpy as np


BEGAN = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)

Times = Mapping[str, float]


def steady(
    steps: int, times: Times, *, noise: float = 0.02, seed: int = 1
) -> list[dict[str, float]]:
    """Times of so many steps: the same with a little noise, and a first step of ten times that."""
    rng = np.random.default_rng(seed)
    factors = np.concatenate(([10.0], 1 + noise * rng.standard_normal(steps - 1)))
    return [{name: ms * factor for name, ms in times.items()} for factor in factors.tolist()]


TITAN: Times = {"fetching_batch": 20.0, "fwd_bwd": 60.0, "optim": 15.0, "rest": 5.0}


def torchtitan(
    times: Sequence[Times],
    *,
    rank: int = 0,
    passes: int = 1,
    tokens: int = 4096,
    every: Mapping[str, tuple[int, float]] | None = None,
) -> str:
    """A rank's structured log; *every* has spans at the end of each n-th step, e.g. `eval`."""
    clock = _Titan(rank)
    clock.event("structured_logger_started")
    clock.pass_ms(1500.0)
    clock.event("training_start")
    for number, step in enumerate(times, start=1):
        clock.step = number
        with_spans = {name: ms for name, (n, ms) in (every or {}).items() if number % n == 0}
        whole = sum(step.values()) + sum(with_spans.values())
        clock.event("step_start")
        for _ in range(passes):
            clock.span("fetching_batch", step["fetching_batch"] / passes)
        clock.event("metric_value", event_name="local_valid_tokens", value=float(tokens))
        for _ in range(passes):
            clock.event("fwd_bwd_start")
            clock.span("post_dataloading_process", 1.0 / passes)
            clock.pass_ms((step["fwd_bwd"] - 1.0) / passes)
            clock.event("fwd_bwd_end", value=step["fwd_bwd"] / passes)
        clock.span("optim", step["optim"])
        clock.pass_ms(step["rest"])
        for name, ms in with_spans.items():
            clock.event(f"{name}_start")
            if name == "eval":
                clock.span("optim", 0.0)  # nothing inside of it is the step's
            clock.pass_ms(ms)
            clock.event(f"{name}_end", value=ms)
        clock.event("step_end", value=whole)
    return "".join(clock.lines)


class _Titan:
    def __init__(self, rank: int) -> None:
        self.rank, self.step = rank, 0
        self.lines: list[str] = []
        self._us = BEGAN.timestamp() * 1e6

    def pass_ms(self, ms: float) -> None:
        self._us += ms * 1000

    def span(self, name: str, ms: float) -> None:
        self.event(f"{name}_start")
        self.pass_ms(ms)
        self.event(f"{name}_end", value=ms)

    def event(self, name: str, **more: object) -> None:
        event = {
            "delta_ms": 0.1,
            "tid": 7,
            "rank": self.rank,
            "source": "training",
            "step": self.step,
            "time_us": int(self._us),
            "log_type": "event",
            "log_type_name": name,
            "event_name": None,
            **more,
            "caller": "torchtitan/trainer.py:1033:train",
            "message": f"[step {self.step}] {name}",
        }
        self.lines.append(json.dumps(event) + "\n")


DEEPSPEED: Times = {"fwd": 30.0, "bwd_inner": 50.0, "bwd_allreduce": 10.0, "step": 10.0}


def deepspeed(
    times: Sequence[Times],
    *,
    passes: int = 1,
    outside_ms: float | None = None,
    skipped_every: int = 0,
    checkpoint: tuple[int, float] = (0, 0.0),
) -> str:
    """A log of rank 0; with *outside_ms* between two updates it has times of day."""
    out = ["[INFO] [config.py:1003:print]   train_batch_size ............. 32\n"]
    at, skipped = BEGAN, 0
    for number, step in enumerate(times, start=1):
        at += timedelta(milliseconds=sum(step.values()) + (outside_ms or 0.0))
        stamp = "" if outside_ms is None else _stamp(at)
        if skipped_every and number % 10 == 0:
            skipped = number // skipped_every
            out.append(f"{stamp}[Rank 0] step={number}, skipped={skipped}, lr=[0.001], mom=[]\n")
        backward = step["bwd_inner"] + step["bwd_allreduce"]
        whole = {"fwd": step["fwd"], "bwd": backward, **step}
        micro = {f"{name}_microstep": ms / passes for name, ms in whole.items()}
        out += [f"{stamp}[Rank 0] {_timers(micro)}"] * passes
        out.append(f"{stamp}[Rank 0] {_timers(whole)}")
        every, ms = checkpoint
        if every and number % every == 0:
            name = f"[Torch] Checkpoint global_step{number}"
            out.append(f"{stamp}[Rank 0] {name} is about to be saved!\n")
            at += timedelta(milliseconds=ms)
            out.append(f"{_stamp(at)}{name} is ready now!\n")
    return "".join(out)


def _stamp(at: datetime) -> str:
    return f"[{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}] [INFO] [logging.py:96:log_dist] "


def _timers(times: Times) -> str:
    return " | ".join(["time (ms)", *(f"{name}: {ms:.2f}" for name, ms in times.items())]) + "\n"


MEGATRON: Times = {
    "forward-backward": 70.0,
    "batch-generator": 8.0,
    "forward-compute": 30.0,
    "backward-compute": 38.0,
    "optimizer": 20.0,
}


def megatron(
    times: Sequence[Times],
    *,
    interval: int = 10,
    first_too: bool = False,
    other_ms: float = 10.0,
    skipped: int = 0,
    every: Mapping[str, tuple[int, float]] | None = None,
    level: int = 2,
) -> str:
    """A log with tables of timers; *first_too* is the form of recent releases."""
    levels = {0: (), 1: ("forward-backward", "optimizer"), 2: tuple(MEGATRON)}
    out = ["  seq_length ...................................... 1024\n"]
    at = BEGAN
    since: list[Times] = []
    for number, step in enumerate(times, start=1):
        since.append(step)
        at += timedelta(milliseconds=_whole(step, other_ms))
        if number % interval == 0 or (first_too and number == 1):
            mean = sum(_whole(each, other_ms) for each in since) / len(since)
            out.append(_iteration(at, number, len(times), mean, skipped, exact=first_too))
            table = {name: sum(each[name] for each in since) / interval for name in levels[level]}
            if table:
                out += _table(table)
            if not (first_too and number == 1):
                since = []
        for name, (n, ms) in (every or {}).items():
            if number % n == 0:
                at += timedelta(milliseconds=ms)
                out += _table({name: ms})
    return "".join(out)


def _whole(step: Times, other_ms: float) -> float:
    return step["forward-backward"] + step["optimizer"] + other_ms


def _iteration(
    at: datetime, number: int, steps: int, mean: float, skipped: int, *, exact: bool
) -> str:
    stamp = f"{at:%Y-%m-%d %H:%M:%S.%f}" if exact else f"{at:%Y-%m-%d %H:%M:%S}"
    return (
        f" [{stamp}] iteration {number:8d}/{steps:8d} | consumed samples: {number * 16:12d} | "
        f"elapsed time per iteration (ms): {mean:.1f} | learning rate: 1.500000E-06 | global batch "
        f"size:    16 | lm loss: {3 - number / 1e4:.6E} | "
        f"loss scale: {65536.0 if skipped else 1.0} | grad norm: 5.960 | "
        f"number of skipped iterations: {skipped:3d} | number of nan iterations:   0 |\n"
    )


def _table(times: Times) -> list[str]:
    head = "(min, max) time across ranks (ms):\n"
    rows = [
        f"    {f'{name} '.ljust(48, '.')}: ({ms * 0.9:.2f}, {ms:.2f})\n"
        for name, ms in times.items()
    ]
    return [head, *rows]


def trainer_state(
    steps: int,
    every: int,
    step_s: float,
    *,
    tokens: int = 0,
    evaluation: tuple[int, float] = (0, 0.0),
) -> str:
    """A `trainer_state.json`; with *tokens* per step each entry has its time."""
    history: list[dict[str, object]] = []
    now_s = 0.0
    for step in range(1, steps + 1):
        now_s += step_s
        if step % every == 0:
            entry: dict[str, object] = {"epoch": step / 100, "loss": 3 - step / 1e4, "step": step}
            if tokens:
                entry |= {"num_input_tokens_seen": tokens * step, "train_runtime": now_s}
            history.append(entry)
        after, seconds = evaluation
        if after and step % after == 0:
            now_s += seconds
            history.append({"eval_loss": 3.0, "eval_runtime": seconds, "step": step})
    history.append(
        {
            "step": steps,
            "train_runtime": now_s,
            "train_samples_per_second": round(steps * 8 / now_s, 3),
            "train_steps_per_second": round(steps / now_s, 3),
            "train_loss": 2.9,
        }
    )
    state = {
        "global_step": steps,
        "log_history": history,
        "logging_steps": every,
        "max_steps": steps,
    }
    return json.dumps(state, indent=2, sort_keys=True) + "\n"


def verl(steps: int, *, console: bool = False, inside: bool = False) -> str:
    """Metrics of a driver, as its loggers `file` or `console` write them.

    Steps of 100 s, of which 40 are for answers whose longest has twice the tokens of the mean; at
    every tenth 30 s of testing, *inside* of the step's time as in earlier releases.
    """
    timers = {"gen": 40.0, "reward": 5.0, "old_log_prob": 12.0, "ref": 8.0, "adv": 0.5}
    timers |= {"update_actor": 25.0, "update_weights": 6.0}
    out = []
    for number in range(1, steps + 1):
        tests = {"testing": 30.0} if number % 10 == 0 else {}
        whole_s = 100.0 + (30.0 if tests and inside else 0.0)
        timed = {f"timing_s/{name}": s for name, s in {**timers, **tests, "step": whole_s}.items()}
        metrics = {
            "actor/lr": 1e-6,
            "response_length/mean": 512.0,
            "response_length/max": 1024.0,
            "response/aborted_ratio": 0.25,
            **timed,
            "timing_per_token_ms/gen": 40.0 / 65_536 * 1e3,
            "perf/total_num_tokens": 98_304,
        }
        if console:
            shown = " - ".join(f"{name}:{value!r}" for name, value in metrics.items())
            out.append(f"(TaskRunner pid=3165) step:{number} - {shown}\n")
        else:
            out.append(json.dumps({"step": number, "data": metrics}) + "\n")
    return "".join(out)
