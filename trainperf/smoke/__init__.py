"""Smoke tests of a training step: assertions for the tests of your own project.

    from trainperf.smoke import assert_no_sync

    def test_the_step_never_waits_for_the_device():
        assert_no_sync(train_step, batch)

A failure names the evidence and the remedy; see `docs/reference/smoke-tests.md`.
"""

from trainperf.core.errors import SmokeFailure
from trainperf.smoke.compiled import assert_no_recompile
from trainperf.smoke.graphs import assert_no_graph_held
from trainperf.smoke.inference import assert_inference
from trainperf.smoke.limits import DataShare, assert_data_fraction_under, assert_peak_memory_under
from trainperf.smoke.loss import assert_close_loss
from trainperf.smoke.syncs import assert_no_sync, no_sync


__all__ = [
    "DataShare",
    "SmokeFailure",
    "assert_close_loss",
    "assert_data_fraction_under",
    "assert_inference",
    "assert_no_graph_held",
    "assert_no_recompile",
    "assert_no_sync",
    "assert_peak_memory_under",
    "no_sync",
]
