"""What may a diagnosis stand on?  The summary of a run, and what was looked at once beside it."""

from dataclasses import dataclass, field

from trainperf.analysis.roofline.roofline import Roofline, faster, roofline
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.folder import Documents
from trainperf.core.machine.chips import Chip, chip_of
from trainperf.traces.capture_files import CaptureReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Recorded facts of one run; a rule that needs one that is missing abstains."""

    summary: Summary
    documents: Documents = field(default_factory=Documents)
    light: Roofline | None = None
    """The audited step against its chip; `None` without an audit, or where the chip is unknown."""
    typical: Roofline | None = None
    """The same of a step as large as the steady ones are on average: what may stand beside their
    times.  `None` where none is steady, or the audited step is too unlike them."""
    captures: tuple[CaptureReport, ...] = ()
    """Traces that were read, in the order of their steps."""


def light_of(documents: Documents, step_s: float | None = None) -> Roofline | None:
    """Floors of the audited step on the chip it ran on: the measured one, else the table's.

    Args:
        documents: Those of the run.
        step_s: What a steady step takes.  A chip that was measured cannot be slower than that:
            where its floor says so, others used the machine meanwhile, and its rates are raised.
    """
    audit, chip = documents.audit, chip_used(documents)
    if audit is None or chip is None:
        return None
    light = roofline(audit, chip)
    if not step_s or light.step.floor_s <= step_s or chip_of(audit.device_name) is not None:
        return light
    return roofline(audit, faster(chip, light.step.floor_s / step_s))


def chip_used(documents: Documents) -> Chip | None:
    """The chip that the audited step ran on, as far as its limits are known."""
    if documents.chip is not None:
        return documents.chip.chip
    return None if documents.audit is None else chip_of(documents.audit.device_name)
