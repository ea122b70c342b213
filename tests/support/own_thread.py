"""A call in a thread of its own: a browser of other tests keeps an event loop running in ours."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar


T = TypeVar("T")


def in_own_thread(call: Callable[[], T]) -> T:
    """What *call* returns or raises there, where no loop runs yet."""
    with ThreadPoolExecutor(1) as other:
        return other.submit(call).result()
