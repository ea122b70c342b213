"""Operators of one call: their time, shapes, memory and lines, and three counts of its FLOPs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile

from recipes.inference.model import Size, batch_of, device, model_of
from trainperf.audit import audit_step
from trainperf.core.formatting.table import UNKNOWN, Table
from trainperf.core.formatting.units import count, duration, size


SHOWN = 8
CALLS = 3


def operator_tables(shape: Size) -> list[Table]:
    """By own time on the host, on a GPU also by own time on it; and the FLOPs."""
    model, batch = model_of(shape), batch_of(shape).to(device())
    activities = [ProfilerActivity.CPU]
    if device().type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with torch.inference_mode():
        model(batch)
        with profile(
            activities=activities,
            record_shapes=True,
            profile_memory=True,
            with_stack=True,
            with_flops=True,
            # Without it newer versions of torch record stacks and do not give them.
            experimental_config=_ExperimentalConfig(verbose=True),
        ) as profiler:
            for _ in range(CALLS):
                model(batch)
    averages = profiler.key_averages(group_by_input_shape=True)
    called = {
        (event.key, str(event.input_shapes)): _function(event.stack)
        for event in profiler.key_averages(group_by_input_shape=True, group_by_stack_n=20)
    }
    tables = [_operators(averages, called, "host")]
    if device().type == "cuda":
        tables.append(_operators(averages, called, "device"))
    profiled = sum(event.flops for event in averages) / CALLS
    return [*tables, _flops(shape, model, profiled)]


def _operators(averages: Sequence[Any], called: Mapping[tuple[str, str], str], where: str) -> Table:
    time = {"host": "self_cpu_time_total", "device": "self_device_time_total"}[where]
    memory = {"host": "self_cpu_memory_usage", "device": "self_device_memory_usage"}[where]
    named = [event for event in averages if event.key.startswith("aten::")]
    top = sorted(named, key=lambda event: -getattr(event, time))[:SHOWN]
    return Table(
        title=f"Operators by their own time on the {where}",
        head=("operator", "shapes", "calls", "own time", "MFLOP", "memory", "function at"),
        rows=tuple(
            (
                event.key.removeprefix("aten::")[:24],
                _shapes(event.input_shapes),
                str(event.count // CALLS),
                duration(getattr(event, time) / CALLS / 1e6),
                count(event.flops / CALLS / 1e6) if event.flops else UNKNOWN,
                size(max(0, getattr(event, memory)) / CALLS),
                called.get((event.key, str(event.input_shapes)), UNKNOWN),
            )
            for event in top
        ),
        words=2,
        end_words=1,
        notes=(
            (
                f"Per call of the model, mean of {CALLS} under `torch.profiler` with shapes, "
                "memory, stacks and FLOPs: each costs time, so these are shares, not speeds."
            ),
        ),
    )


def _shapes(shapes: Sequence[object]) -> str:
    kept = [each for each in shapes if isinstance(each, list) and each]
    return " · ".join("×".join(map(str, shape)) for shape in kept[:2])


def _function(stack: Sequence[str]) -> str:
    """Where the innermost function of the recipe itself begins, e.g. `model.py:81`."""
    own = f"{Path(__file__).parent.name}/"
    for frame in stack:
        path, _, rest = frame.partition("(")
        if own in path:
            return f"{Path(path).name}:{rest.partition(')')[0]}"
    return UNKNOWN


def _flops(shape: Size, model: nn.Module, profiled: float) -> Table:
    """Two per weight of a linear layer and token; the counters add attention's own products."""
    weights = sum(
        part.weight.numel()
        for name, part in model.named_modules()
        if isinstance(part, nn.Linear) and name != "scores"
    )
    batch = batch_of(shape).to(device())
    with torch.inference_mode():
        audit = audit_step(lambda: model(batch), model=model)
    rule = 2 * weights * shape.batch * shape.length
    rows = (
        ("2 · N per token, N the weights of linear layers", f"{count(rule / 1e6)} MFLOP"),
        ("torch.profiler, with_flops", f"{count(profiled / 1e6)} MFLOP"),
        ("trainperf.audit, products alone", f"{count(_products(audit.operators) / 1e6)} MFLOP"),
        ("trainperf.audit, all operators", f"{count(audit.model_flops / 1e6)} MFLOP"),
    )
    return Table(
        title="FLOPs of one batch",
        head=("counted by", "FLOPs"),
        rows=rows,
        notes=(
            (
                "An answer takes two per weight and token, where training takes six: forward "
                "alone.  The audit counts attention, too; torch's profiler no fused one."
            ),
        ),
    )


def _products(operators: Sequence[Any]) -> int:
    return sum(use.matmul_flops for use in operators)
