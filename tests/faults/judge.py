"""What do the rules say of a script, and is it right?"""

from dataclasses import dataclass
from pathlib import Path

import torch

from faults.base import Kind, Script, evidence_of, measured_gain
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import Finding


NOISE = 1.15
"""A measured gain may be so many times the bound: two fits on a machine that others use."""

ACCUSES = 0.10
"""Share of the step or the fit from which a finding accuses."""

LEAST_GAIN = 1.05
"""From here on a change was worth its advice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One script and what was said of its run."""

    name: str
    kind: Kind
    expected: tuple[str, ...]
    found: tuple[str, ...]
    """Ids of all findings in their order."""
    right: bool
    """The planted ones come first; of a healthy script nothing is said that accuses it."""
    bound: float | None = None
    """How many times faster the script was said to get at most."""
    share: float | None = None
    """Share of its scope that the first finding's cause takes."""
    expected_gain: tuple[float, float] | None = None
    """What the first finding's change usually gains."""
    gain: float | None = None
    """How many times faster its twin is."""

    @property
    def bounded(self) -> bool | None:
        """Whether the twin is no faster than was promised; `None` where that is not known."""
        if self.bound is None or self.gain is None:
            return None
        return self.gain <= self.bound * NOISE


def judge(name: str, kind: Kind, script: Script, out: Path, *, twin: bool = True) -> Judged:
    """Train it below *out*, and its *twin* too if the two do the same work."""
    script.train(out / "broken", fixed=False)
    broken = evidence_of(out / "broken").summary
    findings = broken.findings
    if "matmul_precision" not in script.expected and _faster_in_bf16(script, broken, out):
        # On a CPU with fast bf16 every script in fp32 has this fault too: the advice is right.
        findings = tuple(finding for finding in findings if finding.id != "matmul_precision")
    first = findings[: len(script.expected)]
    sound = not script.expected
    right = {finding.id for finding in first} == set(script.expected)
    judged = Judged(
        name=name,
        kind=kind,
        expected=script.expected,
        found=tuple(finding.id for finding in broken.findings),
        right=not any(map(accuses, findings)) if sound else right,
    )
    if sound or not right or not twin or not script.same_work:
        return judged
    script.train(out / "fixed", fixed=True)
    fixed = evidence_of(out / "fixed").summary
    return Judged(
        name=name,
        kind=kind,
        expected=judged.expected,
        found=judged.found,
        right=True,
        bound=bound_of(first),
        share=first[0].fraction,
        expected_gain=first[0].expected_gain if len(first) == 1 else None,
        gain=measured_gain(broken, fixed, first[0]),
    )


def _faster_in_bf16(script: Script, broken: Summary, out: Path) -> bool:
    """Whether it was advised to multiply in bf16, and that helps by no more than was said."""
    advised = [finding for finding in broken.findings if finding.id == "matmul_precision"]
    if not advised:
        return False
    # Weights change: what was converted in one step is no use in the next.
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
        script.train(out / "bf16", fixed=False)
    gain = measured_gain(broken, evidence_of(out / "bf16").summary, advised[0])
    bound = advised[0].gain_upper_bound
    return gain is not None and bound is not None and LEAST_GAIN <= gain <= bound * NOISE


def accuses(finding: Finding) -> bool:
    """Whether a finding says that something is to be done about it."""
    return finding.urgent or (finding.fraction or 0.0) > ACCUSES


def bound_of(findings: tuple[Finding, ...]) -> float | None:
    """How many times faster all of them together can make it; `None` without a bound of any."""
    bounds = [one.gain_upper_bound for one in findings]
    known = [bound for bound in bounds if bound is not None]
    if not known:
        return None
    return 1 / (1 - min(0.999, sum(1 - 1 / bound for bound in known)))
