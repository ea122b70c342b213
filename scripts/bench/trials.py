"""Trials of faulty scripts: is the right change the winner, and its gain that of the edited script?

    python -m scripts.bench.trials --seconds 150 --json FILE [--proofs]

Called again with the same file it goes on with the scripts that are not in it.  With `--proofs` it
has `trainperf prove` judge the winners of those that are, in scripts edited so.  `--ceilings`
measures what ceilings say of planted sleeps.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec
import torch


ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from faults.corpus import KINDS, scripts  # noqa: E402

from scripts.bench.edited import (  # noqa: E402
    AS_TWIN,
    can_edit,
    compared,
    edited,
    longer,
    mean_step_gain,
)
from scripts.bench.harness import arguments, installed, machine_line, quiet, table, write_json  # noqa: E402
from trainperf.core.artifacts import read_document  # noqa: E402
from trainperf.core.artifacts.trials import TrialResult, Trials  # noqa: E402
from trainperf.core.launch_environment import LaunchOptions, TrialLaunch  # noqa: E402
from trainperf.core.machine.limits import cpu_count  # noqa: E402


MINUTES = 0.4
"""For the trials of one script."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What must come of the trials of a script, written before they were run."""

    winner: str | tuple[str, ...] = ""
    """How the id of the best change begins, several where any is right; empty where no change of
    ours answers the fault: what wins then is not judged, for other changes may truly be faster."""

    def right(self, id_: str) -> bool:
        """Whether that change had to win."""
        return bool(self.winner) and id_.startswith(self.winner)


SHORTER_ROWS = ("trimmed_batches", "sorted_batches")

CASES = {
    "slow_collate": Case(winner="workers"),
    "one_parameter_at_a_time": Case(winner="optimizer"),
    "callback_sleeps": Case(),
    "padding_mixed": Case(winner="sorted_batches"),
    "slow_sample_plain": Case(winner="workers"),
    "plain_loop_with_foreach_off": Case(winner="optimizer"),
    "logging_many": Case(winner="logging_interval"),
    "unfused_gelu": Case(winner="compile"),
    "slow_sample": Case(winner="workers"),
    "slow_transform": Case(winner="workers"),
    "worker_too_few": Case(winner="workers"),
    "padding_short": Case(winner="trimmed_batches"),
    # In the style of real repositories, or with two faults; written before any was tried.
    "adam_for_loop": Case(winner="optimizer"),
    "hf_max_length": Case(winner=SHORTER_ROWS),
    "hf_tokenize_in_collate": Case(winner="workers"),
    "mingpt_attention": Case(winner="compile"),
    "mingpt_new_gelu": Case(winner="compile"),
    "vision_decode_every_time": Case(winner="workers"),
    "vision_python_augment": Case(winner="workers"),
    "detection_letterbox": Case(winner="workers"),
    "grouped_but_padded_to_context": Case(winner=SHORTER_ROWS),
    "token_classification_max_length": Case(winner=SHORTER_ROWS),
    "timm_attention_unfused": Case(winner="compile"),
    "chain_and_slow_samples": Case(winner=("workers", "compile")),
    "collate_and_callback": Case(winner="workers"),
    "attention_and_update": Case(winner=("optimizer", "compile")),
    "padding_slow_loader": Case(winner=("workers", "sorted_batches")),
    "samples_and_validation": Case(winner="workers"),
    "collate_and_epochs": Case(winner="workers"),
    "padding_to_one_long_row": Case(winner="sorted_batches"),
    "eager_attention": Case(winner="compile"),
}

PLANTED_S = {
    "slow_collate": ("free_loader", 0.010),
    "callback_sleeps": ("no_callback_After", 0.020),
}
"""Scripts that sleep so long in each step, and the ceiling that leaves the sleep out."""

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
    foretold: Interval | None = None
    """Of the change that had to win, where another did; as far as it was tried."""
    proven: Interval | None = None
    """Of the script edited as the winner's line says, by `prove`: its mean steady step."""
    proof_failed: str = ""
    measured: int = 0
    step_s: float = 0.0
    trials_s: float = 0.0
    """That the trials took, the sets included."""
    seconds: float = 0.0
    cores: int = 2
    """That the script might run on."""
    failure: str = ""


def tried(name: str, case: Case) -> Tried:
    """The trials of one script, in a process of its own."""
    begun_s = time.perf_counter()
    document, failure = _trials_of(name)
    seconds = time.perf_counter() - begun_s
    if document is None:
        return Tried(name=name, winner="", right=False, failure=failure, seconds=seconds)
    return _tried(name, case, document, seconds)


def _trials_of(name: str, *options: str, only: tuple[str, ...] = ()) -> tuple[Trials | None, str]:
    """What was tried in a script, and why nothing was."""
    with tempfile.TemporaryDirectory() as folder:
        trials = TrialLaunch(minutes=MINUTES, script=name, only=only)
        launch = LaunchOptions(dirpath=str(Path(folder) / "run"), trials=trials)
        paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = launch.environment({**installed(), "PYTHONPATH": paths})
        command = [sys.executable, "-m", "scripts.bench.trials", "--train", name, *options]
        ended = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        (place,) = [*Path(folder).rglob(Trials.file), None][:1]
        document = None if place is None else read_document(Trials, place.parent)
    if document is None or ended.returncode:
        return None, (ended.stderr.strip().splitlines() or ["it wrote nothing"])[-1]
    return document, ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingError:
    """What a ceiling says that a planted sleep costs."""

    name: str
    planted_s: float
    left_out_s: float | None
    """By the ceiling, per step: the sleep, and what else it leaves out."""
    twin_s: float | None
    """The same in the script without the sleep; `None` where nothing is left there."""

    @property
    def error(self) -> float | None:
        """Relative, of the difference between the two."""
        if self.left_out_s is None:
            return None
        return (self.left_out_s - (self.twin_s or 0.0)) / self.planted_s - 1


def ceilings() -> list[CeilingError]:
    """Of each planted sleep, and of the same script without it."""
    return [
        CeilingError(
            name=name,
            planted_s=planted_s,
            left_out_s=_left_out_s(name, id_),
            twin_s=_left_out_s(name, id_, "--fixed"),
        )
        for name, (id_, planted_s) in PLANTED_S.items()
    ]


def _left_out_s(name: str, id_: str, *options: str) -> float | None:
    document, _ = _trials_of(name, *options, only=(id_,))
    result = next((each for each in document.trials if each.speedup), None) if document else None
    if document is None or document.baseline is None or result is None or not result.speedup:
        return None
    return document.baseline.step_s * (1 - 1 / result.speedup)


def _tried(name: str, case: Case, document: Trials, seconds: float) -> Tried:
    single = [each for each in document.trials if not each.parts]
    faster = [each for each in single if each.kind == "change" and each.verdict == "faster"]
    winner = faster[0] if faster else None
    foretold = [each for each in single if case.right(each.id)]
    best = document.best
    right = bool(winner and case.right(winner.id)) if case.winner else None
    return Tried(
        name=name,
        winner="" if winner is None else winner.id,
        winner_gain=_ends(winner),
        right=right,
        best="" if best is None else best.id,
        best_gain=_ends(best),
        foretold=None if right or not foretold else _ends(foretold[0]),
        measured=sum(each.counts for each in document.trials),
        step_s=document.baseline.step_s if document.baseline else 0.0,
        trials_s=document.took_s,
        seconds=seconds,
        cores=cpu_count() or 0,
    )


def _ends(result: TrialResult | None) -> Interval | None:
    if result is None or result.speedup is None or result.low is None or result.high is None:
        return None
    return result.speedup, result.low, result.high


def with_proof(row: Tried) -> Tried:
    """The same with what `prove` says of the script with the winner's change."""
    training = f"{sys.executable} -m scripts.bench.trials --train {row.name} --longer"
    with tempfile.TemporaryDirectory() as folder:
        proof = compared(training, f"{training} --edit {row.winner}", Path(folder) / "runs")
    if isinstance(proof, str):
        return replace(row, proof_failed=proof)
    return replace(row, proven=mean_step_gain(proof))


def agrees(row: Tried) -> bool | None:
    """Whether the trial is within 5 % of the proof, or inside its interval."""
    if row.winner_gain is None or row.proven is None:
        return None
    near = abs(row.winner_gain[0] / row.proven[0] - 1) <= 0.05
    return near or row.proven[1] <= row.winner_gain[0] <= row.proven[2]


def score(rows: Sequence[Tried]) -> str:
    """How many winners and gains are right."""
    judged = [verdict for verdict in map(agrees, rows) if verdict is not None]
    winners = [row.right for row in rows if row.right is not None]
    return (
        f"the right winner in {sum(winners)} of {len(winners)}; the gain of the edited script in "
        f"{sum(judged)} of {len(judged)} (within 5 % of what prove says, or inside its interval)"
    )


def train(name: str, *, fixed: bool = False, edit: str = "", long: bool = False) -> None:
    """Train one script, with the trials that its environment asks for, or edited for a proof."""
    torch.set_num_threads(1)  # as the tests do: two threads on shared cores wait for each other
    with ExitStack() as stack:
        if long:
            stack.enter_context(longer())
        stack.enter_context(edited(edit))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(quiet())
        script = next(of[name] for of in map(scripts, KINDS) if name in of)
        script.train(Path(folder) / "run", fixed=fixed or edit == AS_TWIN.get(name))


def _row(row: Tried) -> tuple[str, ...]:
    agreed = agrees(row)
    return (
        row.name,
        row.failure or row.winner or "none",
        _text(row.winner_gain),
        _text(row.foretold),
        row.proof_failed or _text(row.proven),
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
        result: dict[str, object] = {name: kept[name] for name in kept if name != "machine"}
        result |= {"score": score(rows), "cases": {n: asdict(c) for n, c in CASES.items()}}
        write_json(given.json, {**result, "scripts": [asdict(each) for each in rows]})

    if given.proofs:
        chosen = [row for row in rows if not given.names or row.name in given.names]
        for row in [row for row in chosen if can_edit(row.name, row.winner) and not row.proven]:
            note(row.name, lambda row=row: with_proof(row))  # type: ignore[misc] # bound at once
        return rows
    done = {row.name for row in rows}
    for name in [name for name in given.names or CASES if name not in done]:
        note(name, lambda name=name: tried(name, CASES[name]))  # type: ignore[misc] # as above
    return rows


def _keep_ceilings(file: Path | None) -> None:
    """Add them to the figures so far."""
    rows = ceilings()
    head = ("script", "planted", "left out", "of its twin", "off by")
    cells = [
        (
            row.name,
            f"{row.planted_s * 1e3:.1f} ms",
            *("" if s is None else f"{s * 1e3:.2f} ms" for s in (row.left_out_s, row.twin_s)),
            "" if row.error is None else f"{row.error:+.1%}",
        )
        for row in rows
    ]
    print(f"{table(head, cells)}\n{machine_line()}")
    kept: dict[str, object] = (
        json.loads(file.read_text()) if file is not None and file.exists() else {}
    )
    kept.pop("machine", None)
    write_json(file, {**kept, "ceilings": [{**asdict(row), "error": row.error} for row in rows]})


def main() -> None:
    """Try what was not tried yet, print the table, and keep it."""
    parser = arguments(__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *CASES], help="scripts; default: all")
    parser.add_argument("--seconds", type=float, default=150, help="nothing begins later")
    parser.add_argument("--proofs", action="store_true", help="prove the winners of those there")
    parser.add_argument("--ceilings", action="store_true", help="of planted sleeps")
    parser.add_argument("--fixed", action="store_true", help="with --train: without its fault")
    parser.add_argument("--train", metavar="NAME", help="only train this script")
    parser.add_argument("--longer", action="store_true", help="with --train: long enough to prove")
    parser.add_argument("--edit", default="", metavar="TRIAL", help="with --train: with its change")
    given = parser.parse_args()
    if given.train:
        train(given.train, fixed=given.fixed, edit=given.edit, long=given.longer)
    elif given.ceilings:
        _keep_ceilings(given.json)
    elif given.json is None:
        parser.error("--json FILE is needed")
    else:
        rows = _go_on(given)
        head = ("script", "winner", "gain", "foretold", "proven", "trials", "")
        print(table(head, list(map(_row, rows))))
        print(f"\n{score(rows)}\n{machine_line()}")


if __name__ == "__main__":
    main()
