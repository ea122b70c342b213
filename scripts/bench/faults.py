"""Bench of the rules on the corpus in `tests/faults`: every faulty script, and its fixed twin.

`python -m scripts.bench.faults [--kind KIND] [--only NAME] [--json FILE]
[--gains FILE …]`.  Takes ten minutes or more.  `scripts.bench.fault_proofs` has the twins judged by
`trainperf prove`.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from math import inf
from pathlib import Path

import msgspec
import torch


ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from faults.corpus import KINDS, scripts  # noqa: E402
from faults.judge import NOISE, Judged, judge  # noqa: E402

from scripts.bench.harness import machine_line, quiet, table, write_json  # noqa: E402 after the path
from trainperf.analysis.rules.gains import ENOUGH, GainTable, Saved  # noqa: E402


def main() -> None:
    """Judge each once, print the table and how many were right."""
    given = _arguments()
    if given.gains:
        _write_gains(given.gains)
        return
    torch.set_num_threads(1)  # as the tests do: two threads on shared cores wait for each other
    judged = []
    for kind in given.kind or KINDS:
        for name, script in scripts(kind).items():
            if given.only and name not in given.only:
                continue
            with tempfile.TemporaryDirectory() as out, quiet():
                judged.append(judge(name, kind, script, Path(out), advice=True))
            print(f"{name}: {'right' if judged[-1].right else 'WRONG'}", file=sys.stderr)
    print(
        table(
            ("script", "planted", "found", "at most", "usually", "gained", "as advised", ""),
            list(map(_row, judged)),
        )
    )
    print(f"\n{_score(judged)}")
    print(machine_line())
    scripts_ = [asdict(script) for script in judged]
    write_json(given.json, {"score": _score(judged), "scripts": scripts_})


def _row(script: Judged) -> tuple[str, ...]:
    return (
        f"{script.kind}: {script.name}",
        ", ".join(script.expected) or "nothing",
        ", ".join(script.found[: max(1, len(script.expected))]) or "nothing",
        "" if script.bound is None else f"{script.bound:.2f}",
        "" if script.expected_gain is None else "{:.2f}–{:.2f}".format(*script.expected_gain),
        "" if script.gain is None else f"{script.gain:.2f}",
        "" if script.advised_gain is None else f"{script.advised_gain:.2f} ({script.advised})",
        ("" if script.right else "WRONG") + ("" if script.bounded is not False else " UNBOUNDED"),
    )


def _score(judged: Sequence[Judged]) -> str:
    right = sum(row.right for row in judged)
    # A twin that makes another change than is advised says nothing of what was said.
    gains = [
        (row.gain, row.bound or inf, row.expected_gain)
        for row in judged
        if row.gain and row.same_change
    ]
    # A finding without a bound is about memory or what is learned: its fix need not be faster.
    bounded = [row for row in gains if row[1] < inf]
    ranged = [(gain, usual) for gain, _, usual in bounded if usual]
    return (
        f"{right} of {len(judged)} right ({right / max(1, len(judged)):.1%}); of {len(bounded)} "
        f"twins {sum(gain > 1 for gain, _, _ in bounded)} are faster, "
        f"{sum(gain <= bound for gain, bound, _ in bounded)} by no more than was said "
        f"({sum(gain <= bound * NOISE for gain, bound, _ in bounded)} with {NOISE}× for noise); "
        f"{sum(low <= gain <= high for gain, (low, high) in ranged)} of {len(ranged)} as usual; "
        f"{_of_advice(judged)}"
    )


def _of_advice(judged: Sequence[Judged]) -> str:
    """How often the first advice of all scripts helps, the wrong and the healthy ones included."""
    faulty = [row for row in judged if row.expected]
    # The advice itself where it was trained; else the twin, which does what the right one says.
    gains = [row.advised_gain or row.gain for row in faulty]
    measured = [gain for gain in gains if gain is not None]
    trained = [row for row in judged if row.advised_gain]
    slowed = [row.name for row in trained if not row.expected and (row.advised_gain or 1) < 1]
    above = [row.name for row in trained if (row.advised_gain or 0) > (row.advised_bound or inf)]
    faster, missing = sum(gain > 1 for gain in measured), len(faulty) - len(measured)
    return (
        f"the first advice makes {faster} of {len(faulty)} faulty scripts faster "
        f"({missing} cannot be measured); healthy scripts that it slows: "
        f"{', '.join(slowed) or 'none'}; above its bound: {', '.join(above) or 'none'}"
    )


def _write_gains(figures: Sequence[Path]) -> None:
    """The table of the package, from earlier runs' figures; of pairs nobody can tell whose.

    A twin counts where it makes the change that the finding advises.
    """
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in figures]
    machines = {f"{run['machine']['processor']}, torch {run['machine']['torch']}" for run in runs}
    parts: dict[str, list[float]] = {}
    for row in (row for run in runs for row in run["scripts"]):
        if row["kind"] != "single" or not row["share"] or not row["right"]:
            continue
        gain = row["advised_gain"] or (row["gain"] if row["same_change"] else None)
        if gain and row["found"][0] == row["expected"][0]:
            parts.setdefault(row["advised"], []).append((1 - 1 / gain) / row["share"])
    table = GainTable(
        source="; ".join(sorted(machines)),
        rules={
            name: Saved(low=min(mine), high=max(mine), scripts=len(mine))
            for name, mine in sorted(parts.items())
            if len(mine) >= ENOUGH
        },
    )
    text = msgspec.json.format(msgspec.json.encode(table), indent=2)
    (ROOT / "trainperf/analysis/rules/gains.json").write_bytes(text + b"\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", action="append", choices=KINDS, help="may be repeated")
    parser.add_argument("--only", action="append", help="a script; may be repeated")
    parser.add_argument(
        "--gains", type=Path, nargs="+", help="only write the table of gains from these"
    )
    parser.add_argument("--json", type=Path, help="also write the figures here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
