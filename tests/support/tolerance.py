"""Tolerances of arithmetic tests, from the dtype and from the length of the sums.

Two correct programs may add the same numbers in different orders: wider vector units, more
threads, fused multiply-adds, padding.  A tolerance typed by hand is a guess about one CPU.

A computed sum of n products differs from the exact one by at most γ(n) · Σ|x||y|.  In any order
γ(n) = n·u / (1 - n·u), with the unit roundoff u (Higham, *Accuracy and Stability of Numerical
Algorithms*, 2nd edition, SIAM 2002, section 3.1).  Rounding errors have either sign, so that in
practice γ(n) = λ·√n·u, exceeded with a probability of at most 2n·exp(-λ²/2) (Higham and Mary, *A
New Approach to Probabilistic Rounding Error Analysis*, SIAM J. Sci. Comput. 41(5), 2019).  With
λ = 7 that is 5·10⁻⁵ for a million terms.  Sums that feed sums add their lengths.
"""

import math

import torch
from torch import Tensor


LAMBDA = 7


def gamma(dtype: torch.dtype, terms: int) -> float:
    """Largest relative error of a sum of *terms* products: of float32 and 1000, 1.3e-5."""
    unit = torch.finfo(dtype).eps / 2
    return unit * min(terms, LAMBDA * math.sqrt(terms))


def reordering(dtype: torch.dtype, *, terms: int, scale: float | Tensor) -> float:
    """Largest distance of two correct evaluations of one sum, each in an order of its own.

    Args:
        dtype: What is summed in.
        terms: Length of the sum; of sums that feed sums, the lengths added up.
        scale: Σ|x||y|, the sum of the magnitudes; of a tensor of such sums, the largest counts.
    """
    return 2 * gamma(dtype, terms) * float(torch.as_tensor(scale).abs().max())


def assert_reordered(
    actual: Tensor, expected: Tensor, *, terms: int, scale: float | Tensor
) -> None:
    """Assert that two tensors differ by no more than the order of their sums explains."""
    tolerance = reordering(expected.dtype, terms=terms, scale=scale)
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0.0)


def terms_of_transformer(*, layers: int, width: int, heads: int, tokens: int) -> int:
    """Lengths of the sums between a token and its logits, added up, for rows of *tokens*.

    In each layer: queries and keys, their product, the weighted values, the projection, and the
    two matrices of an MLP four times as wide.  Then the head.
    """
    attention = width + width // heads + tokens + width
    return layers * (attention + width + 4 * width) + width
