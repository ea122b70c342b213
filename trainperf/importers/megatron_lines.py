"""Lines of Megatron-LM's log: what is in a line `iteration …`, and what belongs to it."""

import re
from collections.abc import Sequence
from datetime import datetime

import msgspec

from trainperf.core.phases import Gap, Phase


ENOUGH = 3
"""Lines that show the interval."""
MARK = b"elapsed time per iteration"
"""In each line that has a time."""
ACROSS_RANKS = b" across ranks (ms):"
_DOTS = b" ."
"""Between the name of a timer or an argument and what it is."""
_TIME = re.compile(rb"elapsed time per iteration \((m?)s\): *(\d+\.?\d*)")
STAMPED = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(\.\d+)?\]\s*$")
ITERATION = b"iteration "
ELAPSED = b"elapsed time per iteration (ms):"
SAMPLES = b" consumed samples:"
LOSS = b" lm loss:"
SCALE = b" loss scale:"
SKIPPED = b" number of skipped iterations:"
STAMP = b"["
"""What stands before a number of a line, or the time of day."""
_ANY_LOSS = re.compile(rb"\| [\w ]*loss: *([-+\w.]+)")

TIMERS = re.compile(rb"([a-z][\w/-]*) \.+: \(?(?:\d+\.?\d*, )?(\d+\.?\d*)\)?\s*$", re.MULTILINE)
GAPS = {
    b"evaluate": Gap.VALIDATION,
    b"save-checkpoint": Gap.CHECKPOINT,
    b"save-checkpoint-non-persistent": Gap.CHECKPOINT,
    b"model-and-optimizer-setup": Gap.STARTUP,
    b"train/valid/test-data-iterators-setup": Gap.STARTUP,
}
"""Timers of what is no part of a step."""
PHASES = (
    (b"batch-generator", Phase.DATA_WAIT),
    (b"forward-compute", Phase.FORWARD),
    (b"backward-compute", Phase.BACKWARD),
    (b"optimizer", Phase.OPTIMIZER),
)
SYNC = b"all-grads-sync"
"""Timer of what all ranks wait for gradients."""


class MegatronLine(msgspec.Struct):
    """What belongs to one line `iteration …`."""

    iteration: int
    elapsed_ms: float
    text: bytes
    """From the first bar on."""
    stamp: datetime | None
    exact: bool
    """Whether the stamp has fractions of a second, as in recent releases."""
    timers_ms: dict[bytes, float] = {}
    memory: dict[str, float] = {}


def in_table(line: bytes) -> bool:
    """Whether a line is one of a table of timers, or of arguments."""
    return _DOTS in line and b"|" not in line


def is_read(line: bytes) -> bool:
    """Whether a line may hold anything, which is none of a table nor one with a time."""
    return (b": " in line or b":\n" in line) and ACROSS_RANKS not in line


def line_of(line: bytes) -> MegatronLine | None:
    """What a line `iteration …` says; `None` for any other."""
    at = line.find(ITERATION)
    bar = line.find(b"|", at)
    elapsed = _TIME.search(line)
    number = line[at + len(ITERATION) : bar].partition(b"/")[0].strip()
    if elapsed is None or at < 0 or not number.isdigit():
        return None
    stamp = STAMPED.search(line, 0, at)
    return MegatronLine(
        iteration=int(number),
        # Megatron-DeepSpeed's forks print seconds.
        elapsed_ms=float(elapsed[2]) * (1 if elapsed[1] else 1000),
        text=line[bar:],
        stamp=None if stamp is None else _moment(stamp[1], stamp[2]),
        exact=stamp is not None and stamp[2] is not None,
    )


def _moment(seconds: bytes, fraction: bytes | None) -> datetime:
    moment = seconds.decode()
    return datetime.fromisoformat(f"{moment}{fraction.decode():0<7.7}" if fraction else moment)


def value_of(text: bytes, name: bytes) -> bytes:
    """What stands behind a name of a line, up to the next bar; empty without it."""
    begin = text.find(name)
    if begin < 0:
        return b""
    begin += len(name)
    end = text.find(b"|", begin)
    return (text[begin:end] if end >= 0 else text[begin:]).strip()


def loss_in(text: bytes) -> bytes:
    """The loss of a line; empty without."""
    loss = value_of(text, LOSS)
    if not loss and (named := _ANY_LOSS.search(text)) is not None:
        loss = named[1]
    return loss


def loss_place(text: bytes) -> int | None:
    """Where the loss of a line is; `None` without."""
    begin = text.find(LOSS) + len(LOSS)
    if value_of(text, LOSS):
        return len(text) - len(text[begin:].lstrip())
    named = _ANY_LOSS.search(text)
    return None if named is None else named.start(1)


def interval_of(first: Sequence[MegatronLine]) -> int:
    """Iterations between two lines; the first distance may be a shorter one."""
    numbers = [line.iteration for line in first]
    if len(numbers) == ENOUGH and numbers[2] > numbers[1]:
        return numbers[2] - numbers[1]
    if len(numbers) == 2 and numbers[1] > numbers[0]:
        return numbers[1] if numbers[0] == 1 else numbers[1] - numbers[0]
    return 1
