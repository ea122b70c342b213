"""A compiler that takes seconds, for a fit that is over before it has paid."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from faults.base import ready, script, train
from faults.compiled import Compiled
from faults.models import WIDTH


COMPILE_S = 2.0


def _slow(graph: torch.fx.GraphModule, given: list[Any]) -> Callable[..., Any]:
    time.sleep(COMPILE_S)
    return graph.forward


@script("first_step")
def _train(out: Path, *, fixed: bool) -> None:
    model = Compiled(pause_s=0.015, backend=None if fixed else _slow)
    train(out, model, ready(60, WIDTH, 128))
