"""What a frame does that is no tensor operation, instruction by instruction."""

import contextlib
import functools
import gc
import json
import math
import operator
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
import torch

from trainperf.recording.probes.garbage_collector import GarbageProbe
from trainperf.recording.probes.host_work import DEVICE_CALLS, OBJECT_CALLS, host_work
from trainperf.recording.probes.user_stacks import UserStacks
from trainperf.recording.recorder import Recorder
from trainperf.recording.stacks import stack_of
from trainperf.testing import FakeClock


needs_positions = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="instructions have no place in the source"
)


def by_line(path: Path, body: str) -> dict[str, set[str]]:
    """Line of a function's source to what it was seen doing, at any of its instructions."""
    file = path / "train.py"
    file.write_text(f"def work(x, w, words):\n{body}")
    space = {"torch": torch, "time": time, "json": json, "re": re, "np": np, "sleep": time.sleep}
    space |= {"functools": functools, "operator": operator, "math": math}
    exec(compile(file.read_text(), str(file), "exec"), space)  # noqa: S102 code with a file
    seen_at: dict[str, set[str]] = {}
    lines = file.read_text().splitlines()

    def watch(frame: FrameType, event: str, _: object) -> Callable | None:
        if frame.f_code.co_filename != str(file):
            return None
        frame.f_trace_opcodes = True
        work = host_work(frame, None)
        if event == "opcode" and work:
            seen_at.setdefault(lines[frame.f_lineno - 1].strip(), set()).add(work)
        return watch

    # Python 3.12 heeds only a wish for opcodes that some frame had before tracing begins.
    sys._getframe().f_trace_opcodes = True
    sys.settrace(watch)
    try:
        space["work"](torch.ones(4, 4), torch.ones(4, 4), ["a b"])  # type: ignore[operator]
    finally:
        sys.settrace(None)
    seen_at.pop("def work(x, w, words):", None)
    return seen_at


@needs_positions
@pytest.mark.parametrize(
    ("line", "work"),
    [
        ("time.sleep(0)", "time.sleep"),
        ("sleep(0)", "sleep"),
        ("np.dot(np.ones(3), np.ones(3))", "np.dot"),
        ("print(end='')", "print"),
        ("torch.tensor([1.0, 2.0])", "torch.tensor"),
        ("words.append('c')", "append"),
        ("[time.sleep(\n    0\n), 1]", "time.sleep"),
    ],
)
def test_a_call_that_cannot_be_an_operator_is_named(tmp_path: Path, line: str, work: str) -> None:
    """A function of the standard library or numpy, or a method that no tensor has."""
    indented = "\n".join(f"    {part}" for part in line.splitlines())
    assert work in set().union(*by_line(tmp_path, f"{indented}\n").values())


@needs_positions
def test_a_python_loop_is_seen_at_its_jump(tmp_path: Path) -> None:
    """Where the interpreter lets other threads in."""
    body = "    total = 0\n    for i in range(3):\n        total += i * i\n    return total\n"
    assert {"Python"} in by_line(tmp_path, body).values()


@needs_positions
@pytest.mark.parametrize(
    "line",
    [
        "x = x @ w",
        "x = torch.mm(x, w)",
        "x = torch.zeros(3)",
        "x = x.matmul(w).relu()",
        "a, b = x.split(2)",
        "x = x[0] * w + 1 > 2",
        "x = sum([x, w])",
        "x = float(x.sum())",
        "x = max(x.flatten())",
        "x = torch.nn.functional.relu(x)",
        "x = (lambda f: f(x))(torch.sigmoid)",
        "x = list(map(torch.sigmoid, [x]))",
        "x += w; x.clamp_(0)",
        "x = functools.reduce(torch.add, [x, w])",
        "x = operator.matmul(x, w)",
        "x = math.prod([x, w])",
    ],
)
def test_what_may_be_an_operator_is_one(tmp_path: Path, line: str) -> None:
    """Also where a built-in function calls it."""
    assert by_line(tmp_path, f"    {line}\n") == {}


def test_frames_of_the_standard_library_count_unless_torch_runs_them() -> None:
    """`json` under the user's line; `json` under torch under the user's line."""
    stacks = UserStacks()

    def hook(_: object) -> None:
        frame = sys._getframe().f_back
        while frame is not None and "json" not in frame.f_code.co_filename:
            frame = frame.f_back
        numbers.append(stacks.number("loop", stack_of(frame), frame))

    numbers: list[int] = []
    json.loads("{}", object_hook=hook)
    inside = f"{Path(torch.__file__).parent}/hub.py"
    space: dict[str, Callable] = {}
    exec(compile("def load(call): call()", inside, "exec"), space)  # noqa: S102 as above
    space["load"](lambda: None)
    calls = {"json": json, "hook": hook}
    exec(  # noqa: S102
        compile("def load(): json.loads('{}', object_hook=hook)", inside, "exec"), calls
    )
    calls["load"]()  # type: ignore[operator]

    work = [[*stacks.stacks][number].host_work for number in numbers]
    assert work == ["json", ""]


@needs_positions
def test_calls_that_stall_a_step_and_garbage_by_hand_are_named() -> None:
    """Under torch's own frames; and where our callback runs as the collector ends.

    What torch itself calls, as it measures kernels say, is no call of the user's or a framework's.
    """
    stacks, numbers = UserStacks(), []

    def look(frame: FrameType | None) -> None:
        numbers.append(stacks.number("other", stack_of(frame), frame))

    def watch(frame: FrameType, event: str, _: object) -> None:
        looked_at = frame.f_code in (*DEVICE_CALLS, *OBJECT_CALLS, GarbageProbe.callback)
        if event == "call" and looked_at:
            look(frame)

    torch_calls: dict[str, object] = {"torch": torch}
    benchmarks = f"{Path(torch.__file__).parent}/_inductor/runtime/benchmarking.py"
    exec(compile("def f(): torch.cuda.empty_cache()", benchmarks, "exec"), torch_calls)  # noqa: S102
    framework = f"{Path(torch.__file__).parents[1]}/transformers/trainer.py"
    exec(compile("def g(): torch.cuda.empty_cache()", framework, "exec"), torch_calls)  # noqa: S102
    probe = GarbageProbe()
    probe.recorder = Recorder(FakeClock())
    gc.callbacks.append(probe._listen)
    sys.setprofile(watch)
    try:
        gc.collect()
        torch.cuda.empty_cache()
        torch_calls["f"]()  # type: ignore[operator]
        torch_calls["g"]()  # type: ignore[operator]
        with contextlib.suppress(ValueError):  # there are no ranks
            torch.distributed.all_gather_object([], None)
    finally:
        sys.setprofile(None)
        gc.callbacks.remove(probe._listen)

    work = [[*stacks.stacks][number].host_work for number in numbers]
    sends = "torch.distributed.all_gather_object"
    emptied = "torch.cuda.empty_cache"
    assert work == ["gc.collect", "gc.collect", emptied, "", emptied, sends]
