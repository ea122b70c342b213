"""How much of the step do rules about Python code explain by line?  What others must not claim."""

from trainperf.analysis.evidence import Evidence
from trainperf.analysis.rules.host.hidden_syncs import hidden_syncs
from trainperf.analysis.rules.host.host_code import host_code
from trainperf.analysis.rules.host.logging import logging
from trainperf.analysis.rules.host.metrics_every_batch import metrics_every_batch


def named_fraction(evidence: Evidence) -> float:
    """Share of the step that a line of the user's code has been named for."""
    found = [rule(evidence) for rule in (hidden_syncs, host_code, logging, metrics_every_batch)]
    return min(1.0, sum(one.fraction or 0.0 for one in found if one is not None))
