"""Gains that changes had in the scripts of the corpus: the evidence for what a finding may bring.

`gains.json` has, for each rule, between which parts of the lost share its scripts saved when their
fault was mended.  `python -m scripts.bench.faults --gains` writes it from the bench's figures.
"""

from functools import cache
from importlib.resources import files

import msgspec

from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import Finding


ENOUGH = 3
"""Scripts of one rule; with fewer the spread of all rules stands for it."""


UNLIKE = frozenset({"matmul_precision"})
"""Rules whose scripts say nothing of most findings: that one's is about fp64, they about bf16."""


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """Saved over lost share, over some scripts."""

    low: float
    high: float
    scripts: int


class GainTable(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of `gains.json`."""

    source: str
    """Machine and versions that the scripts ran on."""
    every: Saved
    """Of all rules: between the tenth and the ninetieth percentile."""
    rules: dict[str, Saved]
    """From the least to the most, of rules that have `ENOUGH` scripts."""


def with_expected_gain(finding: Finding, summary: Summary) -> Finding:
    """The finding with the range that its gain is expected in, never above its bound.

    The scripts ran on CPUs: of other devices they say nothing.  Nor do they of changes that are
    not about time.
    """
    bound, lost = finding.gain_upper_bound, finding.fraction
    if summary.run.device != "cpu" or not lost or finding.urgent or bound is None:
        return finding
    if finding.id in UNLIKE or "set_num_threads" in finding.action:  # they ran with one thread
        return finding
    table = gain_table()
    saved = table.rules.get(finding.id, table.every)
    low, high = (1 / (1 - min(lost * part, 0.99)) for part in (saved.low, saved.high))
    expected = (max(1.0, min(low, bound)), max(1.0, min(high, bound)))
    return msgspec.structs.replace(finding, expected_gain=expected)


@cache
def gain_table() -> GainTable:
    """The table that the package carries."""
    text = (files(__package__) / "gains.json").read_bytes()
    return msgspec.json.decode(text, type=GainTable)
