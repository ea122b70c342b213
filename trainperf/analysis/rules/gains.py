"""Gains that changes had in the scripts of the corpus: the evidence for what a finding may bring.

`gains.json` has, for each rule and kind of change, between which parts of the lost share its
scripts saved when that change was made.  `python -m scripts.bench.faults --gains` writes it from
the bench's figures.
"""

from functools import cache
from importlib.resources import files

import msgspec

from trainperf.analysis.rules.input.workers import crowded_out
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import Finding


ENOUGH = 3
"""Scripts of one rule and kind of change; with fewer no range is given."""

CHANGES = {
    "num_workers=0": "no workers",
    "dispatch_batches": "a loader of each rank",
    "prefetch_factor=8": "prefetching",
    "set_num_threads": "workers, fewer threads",
    "num_workers": "workers",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "batches(loader)": "measuring more",
    "frees the thread": "with a thread",
    "batch_sampler": "similar length",
    "group_by_length": "similar length",
    "one row": "packing",
    "longest": "shorter rows",
}
"""What tells kinds of changes apart that one rule may advise, by their code; the first counts.
E.g. a cheaper dataset says nothing of workers, nor fp64 of bf16; to measure more gains nothing."""


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """Saved over lost share, over some scripts."""

    low: float
    high: float
    scripts: int


class GainTable(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of `gains.json`."""

    source: str
    """Machine and versions that the scripts ran on."""
    rules: dict[str, Saved]
    """From the least to the most, by `key`, where there are `ENOUGH` scripts."""


def with_expected_gain(finding: Finding, summary: Summary, table: GainTable) -> Finding:
    """The finding with the range that its gain is expected in, where its bound contains that.

    The scripts ran on CPUs: of other devices they say nothing.  Nor do they of changes that are
    not about time, nor of a training whose bound excludes what they gained: it is unlike them; nor
    of workers where other processes have the CPUs.
    """
    bound, lost, change = finding.gain_upper_bound, finding.fraction, change_of(finding)
    saved = table.rules.get(key(finding.id, change))
    # Each worker of the scripts had a CPU.
    if "workers" in change and crowded_out(summary) is not None:
        return finding
    if summary.run.device != "cpu" or not lost or finding.urgent or bound is None or saved is None:
        return finding
    low, high = (1 / (1 - min(lost * part, 0.99)) for part in (saved.low, saved.high))
    if high > bound:
        return finding
    return msgspec.structs.replace(
        finding, expected_gain=(max(1.0, low), high), expected_from=saved.scripts
    )


def change_of(finding: Finding) -> str:
    """Kind of the change that it advises; empty for the usual one of its rule."""
    return kind_of(finding.action)


def kind_of(action: str) -> str:
    """Kind of the change that a line of code makes; empty for the usual one of its rule."""
    return next((change for code, change in CHANGES.items() if code in action), "")


def key(rule: str, change: str) -> str:
    """Of a rule's change in the table, e.g. `data_wait: workers`."""
    return f"{rule}: {change}" if change else rule


@cache
def gain_table() -> GainTable:
    """The table that the package carries."""
    text = (files(__package__) / "gains.json").read_bytes()
    return msgspec.json.decode(text, type=GainTable)
