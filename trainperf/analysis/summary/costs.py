"""Costs of a run, at the prices of whoever reads its report, in their currency, which nobody asks.

Time is that of the fit, for everything it used; energy is that of the sampled devices alone.
"""

from dataclasses import dataclass

from trainperf.analysis.summary.schema import Prices, Summary
from trainperf.core.readings import EFFECTIVE_TOKENS_PER_S, STEP_MEAN_S


JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What something cost; `None` where it is not known."""

    fit: float
    steps: float | None
    """Of a thousand mean steady steps."""
    tokens: float | None
    """Of a million effective tokens in them."""


def prices_of(per_hour: float | None, per_kwh: float | None) -> Prices | None:
    """Those that were given; `None` where none was."""
    given = per_hour is not None or per_kwh is not None
    return Prices(per_hour=per_hour, per_kwh=per_kwh) if given else None


def cost_of_time(summary: Summary) -> Cost | None:
    """At the price of an hour; `None` without one."""
    prices = summary.prices or Prices()
    if prices.per_hour is None:
        return None
    step_s, rate = summary.value(STEP_MEAN_S), summary.value(EFFECTIVE_TOKENS_PER_S)
    return _cost(prices.per_hour / 3600, summary.run.fit_s, step_s, 1 / rate if rate else None)


def cost_of_energy(summary: Summary) -> Cost | None:
    """At the price of a kilowatt hour; `None` without one, and without a device's energy."""
    prices = summary.prices or Prices()
    energy = None if summary.machine is None else summary.machine.energy
    if prices.per_kwh is None or energy is None:
        return None
    price = prices.per_kwh / JOULES_PER_KWH
    return _cost(price, energy.joules, energy.step_j, energy.token_j)


def _cost(price: float, fit: float, step: float | None, token: float | None) -> Cost:
    """Of amounts at a price each."""
    return Cost(
        fit=price * fit,
        steps=None if step is None else 1e3 * price * step,
        tokens=None if token is None else 1e6 * price * token,
    )
