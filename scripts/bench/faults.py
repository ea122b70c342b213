"""Bench of the rules on the corpus in `tests/faults`: every faulty script, and its fixed twin.

`python -m scripts.bench.faults [--kind KIND] [--only NAME] [--json FILE]
[--gains FILE]`.  Takes ten minutes or
more.
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
                judged.append(judge(name, kind, script, Path(out)))
            print(f"{name}: {'right' if judged[-1].right else 'WRONG'}", file=sys.stderr)
    print(
        table(
            ("script", "planted", "found", "at most", "usually", "gained", ""),
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
        ("" if script.right else "WRONG") + ("" if script.bounded is not False else " UNBOUNDED"),
    )


def _score(judged: Sequence[Judged]) -> str:
    right = sum(row.right for row in judged)
    gains = [(row.gain, row.bound or inf, row.expected_gain) for row in judged if row.gain]
    # A finding without a bound is about memory or what is learned: its fix need not be faster.
    bounded = [row for row in gains if row[1] < inf]
    ranged = [(gain, usual) for gain, _, usual in bounded if usual]
    return (
        f"{right} of {len(judged)} right ({right / max(1, len(judged)):.1%}); of {len(bounded)} "
        f"twins {sum(gain > 1 for gain, _, _ in bounded)} are faster, "
        f"{sum(gain <= bound for gain, bound, _ in bounded)} by no more than was said "
        f"({sum(gain <= bound * NOISE for gain, bound, _ in bounded)} with {NOISE}× for noise); "
        f"{sum(low <= gain <= high for gain, (low, high) in ranged)} of {len(ranged)} as usual"
    )


def _write_gains(figures: Path) -> None:
    """The table of the package, from an earlier run's figures; of pairs nobody can tell whose."""
    measured = json.loads(figures.read_text(encoding="utf-8"))
    parts: dict[str, list[float]] = {}
    for row in measured["scripts"]:
        if row["kind"] == "single" and row["share"] and row["gain"]:
            part = (1 - 1 / row["gain"]) / row["share"]
            parts.setdefault(row["expected"][0], []).append(part)
    every = sorted(part for mine in parts.values() for part in mine)
    tenth = len(every) // 10
    table = GainTable(
        source=f"{measured['machine']['processor']}, torch {measured['machine']['torch']}",
        every=Saved(low=every[tenth], high=every[-1 - tenth], scripts=len(every)),
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
    parser.add_argument("--gains", type=Path, help="only write the table of gains from these")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
