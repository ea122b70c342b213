"""MFU and HFU of a run: FLOPs of an audited step over the time of steady steps.

One step is counted and many are timed.  Where their batches differ a little in size the count is
scaled; where they differ much nothing is reported.
"""

from collections.abc import Sequence

import numpy as np

from trainperf.core.artifacts.audit import StepAudit
from trainperf.core.artifacts.folder import Documents
from trainperf.core.machine.chips import chip_of
from trainperf.core.readings import FLOPS_PER_S, HFU, MFU
from trainperf.core.steps.block import StepBlock
from trainperf.meters.fold import NO_STEADY_STATE, Reading


NOT_AUDITED = "no FLOP count was made of this model"

ALIKE = 0.10
"""Relative difference in size up to which the audited step stands for a typical one."""

_SIZES = ("tokens_padded", "samples")
"""Facts that give the size of a step's batches; the first one that was measured counts."""


class UtilisationFold:
    """Sums for `flops_per_s`, `mfu` and `hfu`, over the steps of the rank that audited.

    Args:
        documents: Those of the run.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._audit = documents.audit
        self._steps = 0
        self._wall_s = 0.0
        self._steady = {name: np.zeros(2) for name in _SIZES}
        """Sum over the steady steps that have it, and how many they are."""
        self._audited = {name: np.zeros(2) for name in _SIZES}

    def observe(self, blocks: Sequence[StepBlock]) -> None:
        """Take the next steps: one block a rank; the first rank audits."""
        block = blocks[0]
        if self._audit is None or not len(block):
            return
        steady = block.steady()
        self._steps += len(steady)
        self._wall_s += float(steady.wall_ns.sum()) / 1e9
        audited = block.select(block.index == self._audit.step)
        for name in _SIZES:
            for rows, sums in ((steady, self._steady), (audited, self._audited)):
                sized = rows.having(name)
                if sized is not None:
                    sums[name] += (sized.total(name), len(sized))

    def typical(self) -> StepAudit | None:
        """The audit, scaled to a step as large as the steady ones; `None` if that is not possible.

        Layers do work in proportion to their tokens or samples.  Attention scores do not: their
        share is off by as much as the mean square of the lengths is from that of the audited step.
        """
        if self._audit is None or self._obstacle() is not None:
            return None
        sizes = self._compared()
        return self._audit if sizes is None else self._audit.resized(sizes[1] / sizes[2])

    def readings(self) -> dict[str, Reading]:
        """`flops_per_s`, `mfu` and `hfu`, or why there are none."""
        audit = self.typical()
        if audit is None:
            reason = self._obstacle()
            return {
                name: Reading(value=None, unit=unit, reason=reason)
                for name, unit in ((FLOPS_PER_S, "FLOP/s"), (MFU, "1"), (HFU, "1"))
            }
        rate = self._steps / self._wall_s
        return {
            FLOPS_PER_S: Reading(value=audit.model_flops * rate, unit="FLOP/s", n=self._steps),
            MFU: self._share(audit, audit.model_flops * rate),
            HFU: self._share(audit, audit.hardware_flops * rate),
        }

    def _obstacle(self) -> str | None:
        if self._audit is None:
            return self._documents.problems.get(StepAudit.file, NOT_AUDITED)
        if not self._steps or self._wall_s <= 0:
            return NO_STEADY_STATE
        sizes = self._compared()
        if sizes is None:
            return None
        name, typical, audited = sizes
        if abs(typical / audited - 1) <= ALIKE:
            return None
        return (
            f"the audited step differs from the others: {audited:,.0f} {_WORDS[name]}, a steady "
            f"step has {typical:,.0f} on average"
        )

    def _compared(self) -> tuple[str, float, float] | None:
        """Name of the size, in a mean steady step and in the audited one; `None` if not counted."""
        for name in _SIZES:
            total, steps = self._steady[name].tolist()
            audited = float(self._audited[name][0])
            if audited and steps:
                return name, total / steps, audited
        return None

    def _share(self, audit: StepAudit, flops_per_s: float) -> Reading:
        """Of the peak in the chip table; of a chip that is not in it, of the measured one."""
        listed = chip_of(audit.device_name)
        measured = self._documents.chip
        chip = measured.chip if listed is None and measured is not None else listed
        if chip is None:
            reason = f"the peak of {audit.device_name} is not in the chip table"
            return Reading(value=None, unit="1", reason=reason)
        peak = chip.flops_per_s.get(audit.precision or "")
        if peak is None:
            reason = f"the peak of {chip.name} in {audit.precision} is not known"
            return Reading(value=None, unit="1", reason=reason)
        # Others used the machine when its peak was measured, if its steps are faster.
        most = peak if listed is not None else max(peak, flops_per_s)
        return Reading(value=flops_per_s / most, unit="1", n=self._steps)


_WORDS = {"tokens_padded": "tokens with padding", "samples": "samples"}
