"""Which of five things does the step spend its time on?  Shares that with the rest sum to one.

What stands between the step's phases and the dimensions is written in `docs/audit.md`.
"""

from collections.abc import Iterable, Mapping

import msgspec

from trainperf.roofline import OperatorFloor, Roofline


NAMES = ("compute", "memory", "launch", "transfer", "synchronisation", "other")

MODELLED = ("compute", "memory", "launch")
"""Dimensions between which the work of operators is divided by what binds each of them."""

WORK = ("phase_forward_s", "phase_backward_s", "phase_optimizer_s")


class Dimensions(msgspec.Struct, frozen=True, kw_only=True):
    """Exclusive shares of a steady step; they sum to one."""

    compute: float
    memory: float
    launch: float
    transfer: float
    synchronisation: float
    other: float
    """Data wait, callbacks, the loop, and everything that is not the work of operators."""
    leading: tuple[OperatorFloor, ...] = ()
    """The operators that weigh most in the dominant one, if it is one of the first three."""

    @property
    def dominant(self) -> str:
        """The largest of the five; `other` is none of them."""
        return max(NAMES[:-1], key=self.shares.__getitem__)

    @property
    def shares(self) -> dict[str, float]:
        """By name, in the order of the documentation."""
        return {
            "compute": self.compute,
            "memory": self.memory,
            "launch": self.launch,
            "transfer": self.transfer,
            "synchronisation": self.synchronisation,
            "other": self.other,
        }


def dimensions(
    light: Roofline, readings: Mapping[str, float | None], *, loop_wait_s: float = 0.0
) -> Dimensions | None:
    """The five shares; `None` when the readings lack the phases, or the audit all operators.

    Args:
        light: The audited step against its chip.
        readings: Values of `phase_*_s` and `allreduce_tail_s`, as in `summary.json`.
        loop_wait_s: Mean wait for other ranks between two steps, as in its `synchronisation`.
    """
    step_s = sum(value or 0.0 for name, value in readings.items() if _is_phase(name))
    works = [readings.get(name) for name in WORK]
    weights = {bound: _weight_s(light.operators, bound) for bound in MODELLED}
    weight_s = sum(weights.values())
    if step_s <= 0 or weight_s <= 0 or None in works:
        return None
    busy_s = sum(value or 0.0 for value in works)
    tail_s = min(readings.get("allreduce_tail_s") or 0.0, readings.get(WORK[1]) or 0.0)
    loop_s = min(loop_wait_s, readings.get("phase_loop_s") or 0.0)
    transfer_s = readings.get("phase_h2d_s") or 0.0
    working = (busy_s - tail_s) / step_s
    shares = {bound: working * weight / weight_s for bound, weight in weights.items()}
    found = Dimensions(
        compute=shares["compute"],
        memory=shares["memory"],
        launch=shares["launch"],
        transfer=transfer_s / step_s,
        synchronisation=(tail_s + loop_s) / step_s,
        other=(step_s - busy_s - transfer_s - loop_s) / step_s,
    )
    return msgspec.structs.replace(found, leading=_leading(light.operators, found.dominant))


def _is_phase(name: str) -> bool:
    return name.startswith("phase_") and name.endswith("_s")


def _weight_s(operators: Iterable[OperatorFloor], bound: str) -> float:
    return sum(_least_s(floor) for floor in operators if _is(floor, bound))


def _leading(operators: Iterable[OperatorFloor], bound: str) -> tuple[OperatorFloor, ...]:
    bounded = (floor for floor in operators if _is(floor, bound))
    return tuple(sorted(bounded, key=lambda floor: -_least_s(floor))[:3])


def _is(floor: OperatorFloor, bound: str) -> bool:
    return floor.bound == bound and floor.use.place == "device"


def _least_s(floor: OperatorFloor) -> float:
    """What the operator takes at least when nobody hides its launches."""
    return max(floor.floor_s, floor.launch_s)
