"""SIGTERM, which a scheduler or `kill` sends: a fit that a command has launched is closed first."""

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from threading import current_thread, main_thread


def end_before_sigterm(end: Callable[[], object], undo: ExitStack) -> None:
    """Have *end* called as this process is sent SIGTERM; then it is ended by that, as without us.

    Does nothing where somebody else hears the signal, as Lightning does, or in another thread than
    the main one, which Python refuses.

    Args:
        end: Closes the fit, and does nothing in a process that is forked from this one.
        undo: Takes it back.
    """

    def ended(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        end()
        os.kill(os.getpid(), number)

    def forget() -> None:
        if signal.getsignal(signal.SIGTERM) is ended:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    alone = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if alone and current_thread() is main_thread():
        signal.signal(signal.SIGTERM, ended)
        undo.callback(forget)
