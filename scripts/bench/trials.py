"""Trials of faulty scripts: is the right change the winner, and is the gain that of the twin?

    python -m scripts.bench.trials --seconds 150 --json FILE [--proofs]

Called again with the same file it goes on with the scripts that are not in it.  With `--proofs` it
has `trainperf prove` judge the twins of those that are.  `--restored` trains a model with trials
and without, and compares the weights.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from faults.corpus import scripts  # noqa: E402

from scripts.bench.fault_proofs import proven  # noqa: E402
from scripts.bench.harness import installed, machine_line, quiet, table, write_json  # noqa: E402
from trainperf.core.artifacts import read_document  # noqa: E402
from trainperf.core.artifacts.trials import TrialResult, Trials  # noqa: E402
from trainperf.core.launch_environment import LaunchOptions, TrialLaunch  # noqa: E402
from trainperf.loop import LoopMonitor  # noqa: E402


MINUTES = 0.4
"""For the trials of one script."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What must come of the trials of a script, written before they were run."""

    winner: str = ""
    """How the id of the best change begins; empty where no change of ours answers the fault: what
    wins then is not judged, for other changes may truly be faster."""
    twin: str = ""
    """The trial that does what the twin does, whose gain `prove` measures; empty if none does."""


CASES = {
    "slow_collate": Case(winner="workers", twin="free_loader"),
    "one_parameter_at_a_time": Case(winner="optimizer", twin="optimizer_fused"),
    "callback_sleeps": Case(twin="no_callback"),
    "padding_mixed": Case(winner="sorted_batches", twin="sorted_batches"),
    "slow_sample_plain": Case(winner="workers", twin="free_loader"),
    "plain_loop_with_foreach_off": Case(winner="optimizer", twin="optimizer_fused"),
    "logging_many": Case(winner="logging_interval", twin="logging_interval"),
    "unfused_gelu": Case(winner="compile"),
    "slow_sample": Case(winner="workers", twin="free_loader"),
    "sgd_one_tensor_at_a_time": Case(winner="optimizer", twin="optimizer_fused"),
    "slow_transform": Case(winner="workers", twin="free_loader"),
    "worker_too_few": Case(winner="workers"),
    "padding_short": Case(winner="trimmed_batches"),
}

Interval = tuple[float, float, float]
"""A speed-up and the ends of its interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What the trials of one script came to."""

    name: str
    winner: str
    """The best single change that is faster; empty if none is."""
    winner_gain: Interval | None = None
    right: bool | None
    """`None` where it is not judged."""
    best: str = ""
    """The best set, or change."""
    best_gain: Interval | None = None
    twin: Interval | None = None
    """Of the trial that does what the twin does."""
    proven: Interval | None = None
    """Of the twin, by `prove`: what the script's finding is about."""
    measured: int = 0
    step_s: float = 0.0
    trials_s: float = 0.0
    """That the trials took, the sets included."""
    seconds: float = 0.0
    failure: str = ""


def tried(name: str, case: Case) -> Tried:
    """The trials of one script, in a process of its own."""
    begun_s = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        options = LaunchOptions(dirpath=str(run), trials=TrialLaunch(minutes=MINUTES, script=name))
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = {**installed(), "PYTHONPATH": paths, **options.variable()}
        command = [sys.executable, "-m", "scripts.bench.trials", "--train", name]
        ended = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - begun_s
        (place,) = [*Path(folder).rglob(Trials.file), None][:1]
        document = None if place is None else read_document(Trials, place.parent)
    if document is None or ended.returncode:
        why = (ended.stderr.strip().splitlines() or ["it wrote nothing"])[-1]
        return Tried(name=name, winner="", right=False, failure=why, seconds=seconds)
    return _tried(name, case, document, seconds)


def _tried(name: str, case: Case, document: Trials, seconds: float) -> Tried:
    single = [each for each in document.trials if not each.parts]
    faster = [each for each in single if each.kind == "change" and each.verdict == "faster"]
    winner = faster[0] if faster else None
    twin = next((each for each in single if case.twin and each.id.startswith(case.twin)), None)
    best = document.best
    right = bool(winner and winner.id.startswith(case.winner)) if case.winner else None
    return Tried(
        name=name,
        winner="" if winner is None else winner.id,
        winner_gain=_ends(winner),
        right=right,
        best="" if best is None else best.id,
        best_gain=_ends(best),
        twin=_ends(twin),
        measured=sum(each.counts for each in document.trials),
        step_s=document.baseline.step_s if document.baseline else 0.0,
        trials_s=document.took_s,
        seconds=seconds,
    )


def _ends(result: TrialResult | None) -> Interval | None:
    if result is None or result.speedup is None or result.low is None or result.high is None:
        return None
    return result.speedup, result.low, result.high


def with_proof(row: Tried) -> Tried:
    """The same with what `prove` says of the twin."""
    proof = proven("single", row.name, scripts("single")[row.name])
    return replace(row, proven=proof.scope_gain or proof.gain)


def agrees(row: Tried) -> bool | None:
    """Whether the trial and the proof are within 5 %, or their intervals meet."""
    if row.twin is None or row.proven is None:
        return None
    near = abs(row.twin[0] / row.proven[0] - 1) <= 0.05
    return near or (row.twin[1] <= row.proven[2] and row.proven[1] <= row.twin[2])


def score(rows: Sequence[Tried]) -> str:
    """How many winners and gains are right."""
    judged = [verdict for verdict in map(agrees, rows) if verdict is not None]
    winners = [row.right for row in rows if row.right is not None]
    return (
        f"the right winner in {sum(winners)} of {len(winners)}; the gain of the "
        f"twin in {sum(judged)} of {len(judged)} (within 5 %, or the intervals meet)"
    )


def train(name: str) -> None:
    """Train one script, with the trials that its environment asks for."""
    torch.set_num_threads(1)  # as `fault_proofs` does
    with tempfile.TemporaryDirectory() as folder, quiet():
        scripts("single")[name].train(Path(folder) / "run", fixed=False)


def is_restored() -> bool:
    """Whether a fit with trials ends with the weights, bit by bit, of a fit without them."""
    with tempfile.TemporaryDirectory() as folder, quiet():
        ends = [_small_fit(Path(folder) / str(minutes), minutes) for minutes in (0.0, 0.5)]
    return all(torch.equal(first, second) for first, second in zip(*ends, strict=True))


def _small_fit(out: Path, minutes: float) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(0.1), nn.Flatten(), nn.Linear(8 * 36, 10)
    )
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    samples = TensorDataset(torch.randn(4096, 3, 8, 8), torch.randint(0, 10, (4096,)))
    monitor = LoopMonitor(out, report=False).watch(model, optimizer)
    if minutes:
        monitor.trials(minutes=minutes)
    with monitor:
        for images, labels in monitor.batches(DataLoader(samples, 32, shuffle=True)):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            monitor.end_step(loss)
    return [each.detach() for each in model.state_dict().values()]


def _row(row: Tried) -> tuple[str, ...]:
    agreed = agrees(row)
    return (
        row.name,
        row.failure or row.winner or "none",
        _text(row.winner_gain),
        _text(row.twin),
        _text(row.proven),
        f"{row.measured}, {row.trials_s:.0f} s",
        ("WRONG" if row.right is False else "") + ("" if agreed is not False else " OTHER GAIN"),
    )


def _text(gain: Interval | None) -> str:
    return "" if gain is None else f"{gain[0]:.2f} [{gain[1]:.2f}–{gain[2]:.2f}]"


def _go_on(given: argparse.Namespace) -> list[Tried]:
    """What is missing, as long as there is time; kept after each."""
    kept = json.loads(given.json.read_text()) if given.json.exists() else {}
    rows = [msgspec.convert(row, Tried) for row in kept.get("scripts", ())]
    begun_s = time.perf_counter()

    def note(name: str, make: Callable[[], Tried]) -> None:
        if time.perf_counter() - begun_s > given.seconds:
            return
        row = make()
        rows[:] = [other for other in rows if other.name != name] + [row]
        print(f"{name}: {_row(row)}", file=sys.stderr)
        result = {"score": score(rows), "cases": {n: asdict(c) for n, c in CASES.items()}}
        write_json(given.json, {**result, "scripts": [asdict(each) for each in rows]})

    if given.proofs:
        for row in [row for row in rows if row.twin and not row.proven]:
            note(row.name, lambda row=row: with_proof(row))  # type: ignore[misc] # bound at once
        return rows
    done = {row.name for row in rows}
    for name in [name for name in CASES if name not in done]:
        note(name, lambda name=name: tried(name, CASES[name]))  # type: ignore[misc] # as above
    return rows


def main() -> None:
    """Try what was not tried yet, print the table, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=150, help="nothing begins later")
    parser.add_argument("--json", type=Path, help="figures so far, and where they are kept")
    parser.add_argument("--proofs", action="store_true", help="prove the twins of those there")
    parser.add_argument("--restored", action="store_true", help="compare weights, and nothing else")
    parser.add_argument("--train", metavar="NAME", help="only train this script")
    given = parser.parse_args()
    if given.train:
        train(given.train)
    elif given.restored:
        print("weights are the same" if is_restored() else "weights DIFFER")
    elif given.json is None:
        parser.error("--json FILE is needed")
    else:
        rows = _go_on(given)
        head = ("script", "winner", "gain", "twin's trial", "twin proven", "trials", "")
        print(table(head, list(map(_row, rows))))
        print(f"\n{score(rows)}\n{machine_line()}")


if __name__ == "__main__":
    main()
