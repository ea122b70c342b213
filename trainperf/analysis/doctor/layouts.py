"""Check that the step does not copy tensors to reorder them."""

from trainperf.analysis.doctor.base import Case, Outcome, not_judged, passed, to_audit, unknown
from trainperf.core.formatting.units import plural, share


FAILS_ON = ("layout_copies", "channels_last")


def layouts(case: Case) -> Outcome:
    """Layouts do not cause repeated `contiguous()`.

    Fails on `layout_copies` and `channels_last`.  Unknown without an audit.
    """
    audit = case.evidence.documents.audit
    why = not_judged(case)
    if audit is None or why:
        return unknown(why, to_audit(case))
    copies = [use for use in audit.operators if use.kind == "copy" and use.place == "device"]
    moved = sum(use.moved_bytes for use in audit.operators)
    copied = sum(use.moved_bytes for use in copies)
    much = f", {share(copied / moved)} of the bytes that operators move" if moved else ""
    return passed(f"{plural(sum(use.calls for use in copies), 'copy call')} per step{much}")
