"""Proofs of the corpus' fixes: every faulty script against its fixed twin, by `trainperf prove`.

    python -m scripts.bench.fault_proofs --kind unseen --seconds 150 --json FILE

Called again with the same file it goes on with the scripts that are not in it.  What is compared
with a gain was said of the faulty run of the first pair; with `--predicted FILE` of the faulty run
that `--predict FILE` made before any twin ran.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import chain, repeat
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

import lightning.pytorch as pl
import msgspec
import torch


ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from faults.base import Script, evidence_of  # noqa: E402
from faults.corpus import KINDS, scripts  # noqa: E402
from faults.judge import NEAR, bound_of, change_made  # noqa: E402

from scripts.bench.harness import installed, machine_line, quiet, table, write_json  # noqa: E402
from trainperf.comparison.results import Comparison, Speedup  # noqa: E402
from trainperf.core.findings import Finding  # noqa: E402
from trainperf.loop import LoopMonitor  # noqa: E402


T = TypeVar("T")

TIMES = 4
"""A fit is so many times as long as its script says: most have 40 to 60 steps."""

PAIRS = 3
"""At most."""

LONGEST_S = 90
"""Of one proof: after so long it is interrupted, and says what it knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What was said of one script, and what `prove` says of its twin."""

    name: str
    expected: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    """Ids of all findings in their order."""
    right: bool = False
    same_change: bool = False
    """Whether the twin makes the change that the first findings advise."""
    change: str = ""
    """Of the first finding, the one that the twin makes."""
    share: float | None = None
    about: float | None = None
    bound: float | None = None
    verdict: str = "failed"
    clock: str = ""
    gain: tuple[float, float, float] | None = None
    """How many times faster by the clock that decides, and the ends of its interval."""
    scope_gain: tuple[float, float, float] | None = None
    """The same of what the first finding is about: its mean step, its tokens, or the fit."""
    pairs: int = 0
    seconds: float = 0.0
    failure: str = ""


def predicted(kind: str, name: str, script: Script) -> Proof:
    """What is said of one script before its twin runs."""
    begun_s = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "scripts.bench.fault_proofs", "--train", f"{kind}/{name}"]
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        subprocess.run(
            [*command, "--keep", folder],
            cwd=ROOT,
            env={**installed(), "PYTHONPATH": paths},
            check=True,
            timeout=LONGEST_S,
            stdout=subprocess.DEVNULL,
        )
        findings = evidence_of(Path(folder)).summary.findings
    return replace(_prediction(name, script, findings), seconds=time.perf_counter() - begun_s)


def proven(kind: str, name: str, script: Script, before: Proof | None = None) -> Proof:
    """One script against its twin, and against what was said *before*, if it was."""
    training = f"{sys.executable} -m scripts.bench.fault_proofs --train {kind}/{name}"
    begun_s = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "runs"
        ended = compared(training, f"{training} --fixed", out)
        seconds = time.perf_counter() - begun_s
        if isinstance(ended, str):
            return replace(before or Proof(name=name), seconds=seconds, failure=ended)
        findings = evidence_of(out / "before-1").summary.findings
    stated = before or _prediction(name, script, findings)
    about = findings[0] if findings and stated.right else None
    return replace(_judged(stated, about, ended), seconds=seconds)


def compared(before: str, after: str, out: Path) -> Comparison | str:
    """What `prove` says of two commands, below *out*; else why it says nothing."""
    command = [sys.executable, "-m", "trainperf", "prove", before, after]
    command += ["--pairs", str(PAIRS), "--format", "json", "--out", str(out)]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return _ended(command, {**installed(), "PYTHONPATH": paths})


def _ended(command: Sequence[str], environment: Mapping[str, str]) -> Comparison | str:
    """What `prove` says, after `LONGEST_S` by the pairs there are; else why it says nothing."""
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            out, err = process.communicate(timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            out, err = process.communicate()
    if process.returncode:
        return (err.decode().strip().splitlines() or ["nothing"])[-1]
    (comparison,) = msgspec.json.decode(out, type=tuple[Comparison])
    return comparison


def _prediction(name: str, script: Script, findings: tuple[Finding, ...]) -> Proof:
    first = findings[: len(script.expected)]
    right = {finding.id for finding in first} == set(script.expected)
    changes = [change_made(script, finding) for finding in first]
    only = changes[0] if len(changes) == 1 else None
    return Proof(
        name=name,
        expected=script.expected,
        findings=tuple(finding.id for finding in findings),
        right=right,
        same_change=right and None not in changes,
        change=changes[0].id if changes and changes[0] is not None else "",
        share=first[0].fraction if first else None,
        about=only.about if right and only is not None else None,
        bound=bound_of(changes) if right else None,
        verdict="not proven yet",
    )


def _judged(prediction: Proof, about: Finding | None, comparison: Comparison) -> Proof:
    clock = comparison.headline
    return replace(
        prediction,
        # Weights and data are drawn anew by every process: that the loss differs shows nothing.
        verdict=clock.verdict if clock else comparison.verdict,
        clock=clock.clock if clock else "",
        gain=_ends(comparison.speedup),
        scope_gain=_scope_gain(comparison, about) if about else None,
        pairs=len(comparison.before.paths),
    )


def _scope_gain(comparison: Comparison, finding: Finding) -> tuple[float, float, float] | None:
    """As `faults.base.measured_gain`, with its interval."""
    gains = {clock.clock: _ends(clock.speedup) for clock in comparison.clocks}
    if finding.scope == "fit":
        return gains.get("fit")
    if finding.id == "padding":
        return gains.get("steady step")
    return mean_step_gain(comparison)


def mean_step_gain(comparison: Comparison) -> tuple[float, float, float] | None:
    """Of the mean steady step, with its interval."""
    mean = next((each for each in comparison.readings if each.name == "step_mean_s"), None)
    if mean is None or not mean.ratio or not mean.low or not mean.high:
        return None
    return 1 / mean.ratio, 1 / mean.high, 1 / mean.low


def _ends(gain: Speedup | None) -> tuple[float, float, float] | None:
    return None if gain is None else (gain.value, gain.low, gain.high)


def train(place: str, *, fixed: bool, keep: Path | None) -> None:
    """Train one of the two, longer than its script says; *keep* is where its run stays."""
    kind, name = place.split("/")
    (choice,) = (each for each in KINDS if each == kind)
    with ExitStack() as stack:
        stack.enter_context(longer())
        out = keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(quiet())
        scripts(choice)[name].train(out / "run", fixed=fixed)


@contextmanager
def longer() -> Iterator[None]:
    """Fits are `TIMES` as long, on one thread."""
    init, batches = pl.Trainer.__init__, LoopMonitor.batches

    def more(self: pl.Trainer, *, max_epochs: int = 1, **options: object) -> None:
        init(self, max_epochs=TIMES * max_epochs, **options)  # type: ignore[arg-type]

    def again(self: LoopMonitor, loader: Iterable[T]) -> Iterator[T]:
        return batches(self, chain.from_iterable(repeat(loader, TIMES)))

    torch.set_num_threads(1)  # as the tests do: two threads on shared cores wait for each other
    with ExitStack() as stack:
        stack.enter_context(patch.object(pl.Trainer, "__init__", more))
        stack.enter_context(patch.object(LoopMonitor, "batches", again))
        yield


def _row(proof: Proof) -> tuple[str, ...]:
    gain, about = proof.gain, proof.scope_gain
    return (
        proof.name,
        ", ".join(proof.findings[:2]) or "nothing",
        proof.failure or proof.verdict,
        "" if gain is None else f"{gain[0]:.2f} [{gain[1]:.2f}–{gain[2]:.2f}]",
        proof.clock,
        "" if about is None else f"{about[0]:.2f} [{about[1]:.2f}–{about[2]:.2f}]",
        "" if proof.about is None else f"{proof.about:.2f}",
        "" if proof.bound is None else f"{proof.bound:.2f}",
        f"{proof.pairs}, {proof.seconds:.0f} s",
        ("" if proof.right else "WRONG") + ("" if proof.same_change else " other change"),
    )


def score(proofs: list[Proof]) -> str:
    """How many fixes are shown to be faster, and how many gains are as was said."""
    verdicts = [proof.verdict for proof in proofs]
    pairs = [(p.scope_gain, p.bound) for p in proofs if p.same_change]
    bounded = [(gain, bound) for gain, bound in pairs if gain and bound]
    ratios = [
        p.scope_gain[0] / p.about for p in proofs if p.same_change and p.scope_gain and p.about
    ]
    counts = ", ".join(f"{verdicts.count(name)} {name}" for name in dict.fromkeys(sorted(verdicts)))
    return (
        f"of {len(proofs)} fixes {counts}; of {len(bounded)} with a bound "
        f"{sum(gain[0] <= bound for gain, bound in bounded)} gain no more than was said "
        f"({sum(gain[1] > bound for gain, bound in bounded)} more by their whole interval); "
        f"{sum(1 / NEAR <= ratio <= NEAR for ratio in ratios)} of {len(ratios)} within {NEAR}× of "
        "what was said to be probable"
    )


def main() -> None:
    """Prove what is not proven yet, print the table, and keep it."""
    given = _arguments()
    if given.train:
        train(given.train, fixed=given.fixed, keep=given.keep)
        return
    target = given.predict or given.json
    earlier = {proof.name: proof for proof in _kept(given.predicted)}
    proofs = _kept(target)
    begun_s = time.perf_counter()
    for name, script in scripts(given.kind).items():
        done = {proof.name for proof in proofs}
        if not script.expected or name in done or (given.only and name not in given.only):
            continue
        if time.perf_counter() - begun_s > given.seconds:
            break
        if given.predict:
            proofs.append(predicted(given.kind, name, script))
        else:
            proofs.append(proven(given.kind, name, script, earlier.get(name)))
        print(f"{name}: {proofs[-1].verdict}, {proofs[-1].seconds:.0f} s", file=sys.stderr)
        rows = [asdict(proof) for proof in proofs]
        write_json(target, {"score": score(proofs), "proofs": rows})
    head = (
        "script",
        "found",
        "fix",
        "gain",
        "by",
        "of its scope",
        "about",
        "at most",
        "pairs",
        "",
    )
    print(table(head, list(map(_row, proofs))))
    print(f"\n{score(proofs)}\n{machine_line()}")


def _kept(file: Path | None) -> list[Proof]:
    if file is None or not file.exists():
        return []
    return [msgspec.convert(row, Proof) for row in json.loads(file.read_text())["proofs"]]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=KINDS, default="unseen")
    parser.add_argument("--only", action="append", help="a script; may be repeated")
    parser.add_argument("--seconds", type=float, default=150, help="no proof begins later")
    parser.add_argument("--json", type=Path, help="figures so far, and where they are kept")
    parser.add_argument("--predict", type=Path, help="only train the faulty ones, and write here")
    parser.add_argument("--predicted", type=Path, help="what is compared with the gains")
    parser.add_argument("--keep", type=Path, help="with --train: where its run stays")
    parser.add_argument("--train", metavar="KIND/NAME", help="only train this script")
    parser.add_argument("--fixed", action="store_true", help="train its twin")
    given = parser.parse_args()
    if not (given.train or given.json or given.predict):
        parser.error("--json FILE or --predict FILE is needed")
    return given


if __name__ == "__main__":
    main()
