"""MFU and HFU of a run: FLOPs of an audited step over the time of steady steps.

One step is counted and many are timed: the latest ones that are kept of the rank that audited.
Where their batches differ a little in size the count is scaled; where they differ much nothing is
reported.
"""

import numpy as np

from trainperf.core.artifacts.audit import StepAudit
from trainperf.core.artifacts.folder import Documents
from trainperf.core.machine.chips import chip_of
from trainperf.core.phases import DISQUALIFYING
from trainperf.core.readings import FLOPS_PER_S, HFU, MFU
from trainperf.meters.fold import NO_STEADY_STATE, Reading
from trainperf.meters.lead_steps import HOST, INDEX, SAMPLES, TOKENS, LeadSteps


NOT_AUDITED = "no FLOP count was made of this model"

ALIKE = 0.10
"""Relative difference in size up to which the audited step stands for a typical one."""

_SIZES = {TOKENS: "tokens with padding", SAMPLES: "samples"}
"""What gives the size of a step's batches; the first one that was measured counts."""


def utilisation(steps: LeadSteps, documents: Documents) -> dict[str, Reading]:
    """`flops_per_s`, `mfu` and `hfu`, or why there are none."""
    audit = typical_audit(steps, documents)
    if isinstance(audit, str):
        return {
            name: Reading(value=None, unit=unit, reason=audit)
            for name, unit in ((FLOPS_PER_S, "FLOP/s"), (MFU, "1"), (HFU, "1"))
        }
    steady = steps.latest(DISQUALIFYING)
    rate, number = len(steady) / float(steady[:, HOST:].sum()), len(steady)
    return {
        FLOPS_PER_S: Reading(value=audit.model_flops * rate, unit="FLOP/s", n=number),
        MFU: _share(documents, audit, audit.model_flops * rate, number),
        HFU: _share(documents, audit, audit.hardware_flops * rate, number),
    }


def typical_audit(steps: LeadSteps, documents: Documents) -> StepAudit | str:
    """The audit, scaled to a step as large as the steady ones; or why that is not possible.

    Layers do work in proportion to their tokens or samples.  Attention scores do not: their share
    is off by as much as the mean square of the lengths is from that of the audited step.
    """
    audit = documents.audit
    if audit is None:
        return documents.problems.get(StepAudit.file, NOT_AUDITED)
    rows, steady = steps.rows(), steps.latest(DISQUALIFYING)
    if not steady[:, HOST:].any():
        return NO_STEADY_STATE
    for column, name in _SIZES.items():
        audited = rows[rows[:, INDEX] == audit.step, column]
        counted = steady[~np.isnan(steady[:, column]), column]
        if len(counted) and (audited > 0).any():
            typical = float(counted.mean())
            if abs(typical / float(audited[0]) - 1) <= ALIKE:
                return audit.resized(typical / float(audited[0]))
            return (
                f"the audited step differs from the others: {audited[0]:,.0f} {name}, a steady "
                f"step has {typical:,.0f} on average"
            )
    return audit


def _share(documents: Documents, audit: StepAudit, flops_per_s: float, number: int) -> Reading:
    """Of the peak in the chip table; of a chip that is not in it, of the measured one."""
    listed, measured = chip_of(audit.device_name), documents.chip
    chip = measured.chip if listed is None and measured is not None else listed
    peak = None if chip is None else chip.flops_per_s.get(audit.precision or "")
    if peak is None:
        return Reading(
            value=None,
            unit="1",
            reason=f"the peak of {audit.device_name} is not in the chip table"
            if chip is None
            else f"the peak of {chip.name} in {audit.precision} is not known",
        )
    # Others used the machine when its peak was measured, if its steps are faster.
    most = peak if listed is not None else max(peak, flops_per_s)
    return Reading(value=flops_per_s / most, unit="1", n=number)
