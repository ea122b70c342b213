"""Check that a batch is few, large tensors."""

from trainperf.analysis.doctor.base import Case, Outcome, not_applicable, passed, unknown
from trainperf.analysis.rules.base import value
from trainperf.core.formatting.units import count, size


FAILS_ON = ("many_small_tensors",)


def batch_tensors(case: Case) -> Outcome:
    """The batch is not many small tensors.

    Fails on `many_small_tensors`.  Unknown without a GPU or a look into the loader.
    """
    summary, anatomy = case.summary, case.evidence.documents.loader
    tensors, copied = value(summary, "h2d_tensors"), value(summary, "h2d_bytes")
    if tensors is None and anatomy is not None:
        tensors, copied = anatomy.tensors, anatomy.batch_bytes
    if tensors is not None:
        each = f" of {size(copied / tensors)} each" if copied and tensors else ""
        return passed(f"{count(tensors)} tensors per step{each}")
    if summary.run.device == "cpu":
        return not_applicable("the batch is copied to no device (CPU)")
    return unknown("the batch's tensors were not counted", case.loop.measures["h2d"])
