"""A comparison for programs."""

from collections.abc import Sequence

from trainperf.comparison.results import Comparison, encode_comparison


def render(comparisons: Sequence[Comparison]) -> str:
    """A list: one object for each run after the first."""
    return encode_comparison(tuple(comparisons)).decode()
