"""Check that a batch is few, large tensors."""

from trainperf.analysis.doctor.base import Case, Outcome, not_applicable, passed, unknown
from trainperf.core.formatting.units import count, size
from trainperf.core.readings import H2D_BYTES, H2D_TENSORS


FAILS_ON = ("many_small_tensors",)


def batch_tensors(case: Case) -> Outcome:
    """The batch is not many small tensors.

    Fails on `many_small_tensors`.  Unknown without a GPU or a look into the loader.
    """
    summary, anatomy = case.summary, case.evidence.documents.loader
    tensors, copied = summary.value(H2D_TENSORS), summary.value(H2D_BYTES)
    if tensors is None and anatomy is not None:
        tensors, copied = anatomy.tensors, anatomy.batch_bytes
    if tensors is not None:
        each = f" of {size(copied / tensors)} each" if copied and tensors else ""
        return passed(f"{count(tensors)} tensors per step{each}")
    if summary.run.device == "cpu":
        return not_applicable("the batch is copied to no device (CPU)")
    return unknown("the batch's tensors were not counted", case.loop.measures["h2d"])
