"""Work for executors, which other processes can import."""

import os
import signal
import time
from pathlib import Path

from trainperf.core.errors import ConfigError


def squared(number: int) -> int:
    """Some work."""
    return number * number


def killed_once(task: tuple[int, str]) -> int:
    """Work during which the system ends the process, the first time that it is tried."""
    number, flag = task
    if number == 5 and not Path(flag).exists():
        Path(flag).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return squared(number)


def refused(number: int) -> int:
    """Work that fails at 3 and, sooner, at 7."""
    if number in (3, 7):
        time.sleep(0.2 * (number == 3))
        raise ConfigError(str(number))
    return number
