"""What is said of a script, and is it right?"""

import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.utils.data import DataLoader

from faults.base import Kind, Script, evidence_of, measured_gain
from trainperf.analysis.diagnosis.changes import BY_ID
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import ChangeGain, Finding


NOISE = 1.15
"""A measured gain may be so many times the bound: two fits on a machine that others use."""

NEAR = 1.25
"""A gain is as was said from the probable one over this to the probable one times this."""

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
    about: float | None = None
    """How many times faster it was said to get probably; `None` of several findings together."""
    gain: float | None = None
    """How many times faster its twin is."""
    same_change: bool = True
    """Whether the twin makes the changes that the first findings advise."""
    advised: str = ""
    """The first finding with a gain, and the change that it advises."""
    advised_about: float | None = None
    """How many times faster that was said to get it probably."""
    advised_bound: float | None = None
    """How many times faster that was said to get it at most."""
    advised_gain: float | None = None
    """How many times faster it gets by that; `None` where `trained_as_advised` cannot tell."""

    @property
    def bounded(self) -> bool | None:
        """Whether what was advised gains no more than was promised; `None` if that is not known.

        The twin tells where it makes the change that is advised.
        """
        if self.advised_gain is not None and self.advised_bound is not None:
            return self.advised_gain <= self.advised_bound * NOISE
        if self.bound is None or self.gain is None or not self.same_change:
            return None
        return self.gain <= self.bound * NOISE


def judge(
    name: str, kind: Kind, script: Script, out: Path, *, twin: bool = True, advice: bool = False
) -> Judged:
    """Train it below *out*, its *twin* if the two do the same work, and what it first advises.

    With *advice* the first advice of every script is trained, of wrong and healthy ones too, where
    it can be made without an edit.
    """
    script.train(out / "broken", fixed=False)
    broken = evidence_of(out / "broken").summary
    findings, gains = broken.findings, dict[str, float | None]()
    bf16 = next((finding for finding in findings if finding.id == "matmul_precision"), None)
    if bf16 is not None and "matmul_precision" not in script.expected:
        gains[bf16.id] = trained_as_advised(script, broken, bf16, out)
        if _as_promised(gains[bf16.id], bf16):
            # On a CPU with fast bf16 every script in fp32 has this fault too: the advice is right.
            findings = tuple(finding for finding in findings if finding is not bf16)
    first = findings[: len(script.expected)]
    made = [change_made(script, finding) for finding in first]
    sound = not script.expected
    right = {finding.id for finding in first} == set(script.expected)
    judged = Judged(
        name=name,
        kind=kind,
        expected=script.expected,
        found=tuple(finding.id for finding in broken.findings),
        right=not any(map(accuses, findings)) if sound else right,
        same_change=None not in made,
    )
    acting = next((finding for finding in broken.findings if finding.fraction), None)
    if advice and acting is not None:
        if acting.id not in gains:
            gains[acting.id] = trained_as_advised(script, broken, acting, out)
        judged = replace(
            judged,
            advised=f"{acting.id}: {acting.changes[0].id}",
            advised_about=acting.gain,
            advised_bound=acting.gain_upper_bound,
            advised_gain=gains[acting.id],
        )
    if sound or not right or not twin or not script.same_work:
        return judged
    script.train(out / "fixed", fixed=True)
    fixed = evidence_of(out / "fixed").summary
    return replace(
        judged,
        bound=bound_of(made),
        share=first[0].fraction,
        about=made[0].about if len(made) == 1 and made[0] is not None else None,
        gain=measured_gain(broken, fixed, first[0]),
    )


def trained_as_advised(
    script: Script, broken: Summary, finding: Finding, out: Path
) -> float | None:
    """How many times faster it gets as advised; `None` unless that is bf16 or workers.

    Both can be had without an edit of the script, in this process.
    """
    if script.own_process:
        return None
    change = finding.changes[0].id
    number = re.search(r"num_workers=(\d+)", finding.action)
    if change == "bf16_products":
        # Weights change: what was converted in one step is no use in the next.
        how: AbstractContextManager[object] = torch.autocast(
            "cpu", dtype=torch.bfloat16, cache_enabled=False
        )
    elif change == "more_workers" and number is not None:
        how = _workers(int(number[1]))
    else:
        return None
    with how:
        script.train(out / finding.id, fixed=False)
    return measured_gain(broken, evidence_of(out / finding.id).summary, finding)


@contextmanager
def _workers(number: int) -> Iterator[None]:
    """Every loader gets so many workers."""
    init = DataLoader.__init__

    def with_workers(self: "DataLoader[Any]", *args: Any, **options: Any) -> None:
        options |= {"num_workers": number, "persistent_workers": number > 0}
        init(self, *args, **options)

    with patch.object(DataLoader, "__init__", with_workers):
        yield


def _as_promised(gain: float | None, finding: Finding) -> bool:
    """Whether the advice helps, and by no more than was said."""
    bound = finding.gain_upper_bound
    return gain is not None and bound is not None and LEAST_GAIN <= gain <= bound * NOISE


def accuses(finding: Finding) -> bool:
    """Whether a finding says that something is to be done about it."""
    return finding.urgent or (finding.fraction or 0.0) > ACCUSES


def change_made(script: Script, finding: Finding) -> ChangeGain | None:
    """The change of a finding that the twin makes; `None` where that is none which it lists."""
    named = [name for name in script.changes if finding.id in BY_ID[name].of]
    listed = (change for change in finding.changes if not named or change.id in named)
    return next(listed, None)


def bound_of(changes: Iterable[ChangeGain | None]) -> float | None:
    """How many times faster all of them together can make it; `None` without a bound of any."""
    bounds = [change.at_most for change in changes if change is not None]
    known = [bound for bound in bounds if bound is not None]
    if not known:
        return None
    return 1 / (1 - min(0.999, sum(1 - 1 / bound for bound in known)))
