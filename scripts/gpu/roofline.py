"""Roofline of the GPT-2 step on this device, and the rates that the device really reaches.

    python -m scripts.gpu.roofline --size small|toy --device cuda|cpu --json FILE

The ceilings of large products and copies are measured and compared with the table's.  The file is
written after each measurement: what comes before a failure is kept.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import msgspec
import torch

from scripts.bench.harness import write_json
from scripts.gpu.model import SIZES, VARIANTS, Size, Step, Variant, drain
from trainperf.analysis.roofline.roofline import Roofline, roofline
from trainperf.analysis.roofline.speed_of_light import speed_of_light
from trainperf.audit import audit_step
from trainperf.audit.chip_benchmark import device_name, probe
from trainperf.core.artifacts.audit import StepAudit
from trainperf.core.machine.chips import Chip, chip_of


WARM_UP, TIMED = 3, 8
"""Steps before and in the measured time of a normal step."""

LINK_BYTES = {"small": 1 << 28, "toy": 1 << 22}


def ceilings(device: str, name: str) -> dict[str, object]:
    """The table's row of the device and what a probe of it reached."""
    row = chip_of(device_name(torch.device(device)))
    measured = probe(torch.device(device), budget_s=8.0 if name == "small" else 0.5)
    return {
        "table": None if row is None else msgspec.to_builtins(row),
        "measured": msgspec.to_builtins(measured),
        "reached": {} if row is None else _reached(row, measured),
        "link_bytes_per_s": _link(LINK_BYTES[name]) if device == "cuda" else None,
    }


def audited(size: Size, variant: Variant, device: str, chips: dict[str, Chip]) -> dict[str, object]:
    """A normal step, the same step under audit, and its floors on each chip."""
    step = Step(size, variant, device)
    step_s = _normal(step, device)
    audit = audit_step(step, model=step.model)
    drain(device)
    return {
        "variant": variant.name,
        "tokens": size.tokens,
        "step_s": step_s,
        "tokens_per_s": size.tokens / step_s,
        "audited_s": audit.audited_s,
        "audit_times": audit.audited_s / step_s,
        "model_flops": audit.model_flops,
        "textbook_flops": size.textbook_flops,
        "flops_ratio": audit.model_flops / size.textbook_flops,
        "uncounted": list(audit.uncounted),
        "precision": audit.precision,
        "peak_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else None,
        "floors": {name: _floors(audit, roofline(audit, chip)) for name, chip in chips.items()},
        "speed": {
            name: _speed(audit, roofline(audit, chip), step_s) for name, chip in chips.items()
        },
    }


def _floors(audit: StepAudit, light: Roofline) -> dict[str, object]:
    bounds = dict.fromkeys(sorted({floor.bound for floor in light.operators}), 0.0)
    for floor in light.operators:
        bounds[floor.bound] += max(floor.floor_s, floor.launch_s)
    return {
        "step_s": light.step.floor_s,
        "fused_step_s": light.step.fused_floor_s,
        "phases_s": {name: floor.floor_s for name, floor in light.phases.items()},
        "bound_s": bounds,
        "calls": audit.calls,
        "unknown_precisions": list(light.unknown_precisions),
    }


def _speed(audit: StepAudit, light: Roofline, step_s: float) -> dict[str, object]:
    speed, peak = (
        speed_of_light(light, audit, {"step": step_s}),
        light.chip.flops_per_s.get(audit.precision or ""),
    )
    return {
        "over_floor": speed.phases[0].over,
        "mfu": None if peak is None else audit.model_flops / step_s / peak,
        "hfu": None if peak is None else audit.hardware_flops / step_s / peak,
        "operators": [
            {**msgspec.to_builtins(each), "line": _place(each.floor.use.line)}
            for each in speed.operators
        ],
    }


def _place(line: str | None) -> str | None:
    """Within its package: where that is installed says nothing about the step."""
    return None if line is None else line.rpartition("site-packages/")[2]


def _normal(step: Step, device: str) -> float:
    """Seconds of a step, the median of some that were each waited for."""
    for _ in range(WARM_UP):
        step()
    return median(_seconds(step, device) for _ in range(TIMED))


def _seconds(act: Callable[[], object], device: str) -> float:
    drain(device)
    begun = perf_counter()
    act()
    drain(device)
    return perf_counter() - begun


def _reached(row: Chip, measured: Chip) -> dict[str, float]:
    """Measured over the table's, where both have a figure."""
    shares = {
        name: measured.flops_per_s[name] / peak
        for name, peak in row.flops_per_s.items()
        if name in measured.flops_per_s
    }
    return {**shares, "memory": measured.memory_bytes_per_s / row.memory_bytes_per_s}


def _link(size: int) -> dict[str, float]:
    """Bytes per second of a large pinned copy, each way; the best of five."""
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(size, dtype=torch.uint8, device="cuda")
    down = [_seconds(lambda: device.copy_(host, non_blocking=True), "cuda") for _ in range(5)]
    up = [_seconds(lambda: host.copy_(device, non_blocking=True), "cuda") for _ in range(5)]
    return {"to_device": size / min(down), "to_host": size / min(up)}


def main() -> None:
    """Measure the device, then audit each variant of the step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=Path, required=True, help="the file to write")
    given = parser.parse_args()
    limits = ceilings(given.device, given.size)
    written: dict[str, object] = {"size": given.size, "ceilings": limits, "steps": []}
    write_json(given.json, written)
    chips = {
        name: msgspec.convert(limits[name], Chip) for name in ("table", "measured") if limits[name]
    }
    steps: list[dict[str, object]] = []
    for variant in VARIANTS:
        if given.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        steps.append(audited(SIZES[given.size], variant, given.device, chips))
        write_json(given.json, {**written, "steps": steps})


if __name__ == "__main__":
    main()
