"""Quantiles of Student's t distribution, for intervals of means of few values."""

import math
from functools import lru_cache

import numpy as np


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_REACH = 12.0
"""Standard deviations beyond which nothing is left to add up."""


@lru_cache(4096)
def student_quantile(freedom: float, probability: float) -> float:
    """The value that t exceeds with probability 1 - *probability*, to five digits at least.

    With t = √v · tan θ the density is cos^(v-1) θ: a smooth function, whose integral from θ on is
    taken by Gauss and Legendre's rule, and θ found by halving.

    Args:
        freedom: Degrees of freedom, v, 1 or more; need not be whole.
        probability: From 0.5 on, below 1.
    """
    gammas = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    scale = math.exp(gammas) / math.sqrt(math.pi)
    low, high = 0.0, math.pi / 2
    for _ in range(50):
        angle = (low + high) / 2
        half = min(math.pi / 2 - angle, _REACH / math.sqrt(freedom)) / 2
        density = np.cos(angle + half * (_NODES + 1)) ** (freedom - 1)
        beyond = scale * half * float(_WEIGHTS @ density)
        low, high = (angle, high) if beyond > 1 - probability else (low, angle)
    return math.sqrt(freedom) * math.tan(low)
