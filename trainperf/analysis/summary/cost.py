"""Cost of a run at the prices of whoever reads its report; in their currency, which nobody asks.

Time is that of the fit, for everything it used; energy is that of the sampled devices alone.
"""

from dataclasses import dataclass

from trainperf.analysis.summary.machine_facts import Prices
from trainperf.analysis.summary.schema import Summary
from trainperf.core.readings import EFFECTIVE_TOKENS_PER_S, STEP_MEAN_S


JOULES_PER_KWH = 3.6e6
STEPS, TOKENS = 1_000, 1_000_000
"""Numbers that a cost is given for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What something cost; `None` where it is not known."""

    fit: float | None
    steps: float | None
    """Of a thousand mean steady steps."""
    tokens: float | None
    """Of a million effective tokens in them."""


def prices_of(per_hour: float | None, per_kwh: float | None) -> Prices | None:
    """Those that were given; `None` where none was."""
    if per_hour is None and per_kwh is None:
        return None
    return Prices(per_hour=per_hour, per_kwh=per_kwh)


def cost_of_time(summary: Summary) -> Cost | None:
    """At the price of an hour; `None` without one."""
    prices = summary.prices
    if prices is None or prices.per_hour is None:
        return None
    per_s = prices.per_hour / 3600
    step_s = summary.value(STEP_MEAN_S)
    rate = summary.value(EFFECTIVE_TOKENS_PER_S)
    return Cost(
        fit=per_s * summary.run.fit_s,
        steps=None if step_s is None else STEPS * per_s * step_s,
        tokens=TOKENS * per_s / rate if rate else None,
    )


def cost_of_energy(summary: Summary) -> Cost | None:
    """At the price of a kilowatt hour; `None` without one, and without a device's energy."""
    prices = summary.prices
    energy = None if summary.machine is None else summary.machine.energy
    if prices is None or prices.per_kwh is None or energy is None:
        return None
    per_j = prices.per_kwh / JOULES_PER_KWH
    return Cost(
        fit=per_j * energy.joules,
        steps=None if energy.step_j is None else STEPS * per_j * energy.step_j,
        tokens=None if energy.token_j is None else TOKENS * per_j * energy.token_j,
    )
