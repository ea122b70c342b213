"""Bench of the diagnosis on the corpus in `tests/faults`: every faulty script, and its fixed twin.

`python -m scripts.bench.faults [--kind KIND] [--only NAME] [--json FILE]`.  Takes ten minutes
or more.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from math import inf
from pathlib import Path

import torch


ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from faults.corpus import KINDS, scripts  # noqa: E402
from faults.judge import NEAR, NOISE, Judged, judge  # noqa: E402

from scripts.bench.harness import arguments, machine_line, quiet, table, write_json  # noqa: E402 after the path


def main() -> None:
    """Judge each once, print the table and how many were right."""
    given = _arguments()
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
            ("script", "planted", "found", "about", "at most", "gained", "as advised", ""),
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
        "" if script.about is None else f"{script.about:.2f}",
        "" if script.bound is None else f"{script.bound:.2f}",
        "" if script.gain is None else f"{script.gain:.2f}",
        ""
        if script.advised_gain is None
        else f"{script.advised_gain:.2f}{_of(script.advised_about)} ({script.advised})",
        ("" if script.right else "WRONG") + ("" if script.bounded is not False else " UNBOUNDED"),
    )


def _of(about: float | None) -> str:
    return "" if about is None else f" of {about:.2f}"


def _score(judged: Sequence[Judged]) -> str:
    right = sum(row.right for row in judged)
    # A twin that makes another change than is advised says nothing of what was said.
    gains = [
        (row.gain, row.bound or inf, row.about) for row in judged if row.gain and row.same_change
    ]
    # A finding without a bound is about memory or what is learned: its fix need not be faster.
    bounded = [row for row in gains if row[1] < inf]
    ratios = [gain / about for gain, _, about in bounded if about]
    return (
        f"{right} of {len(judged)} right ({right / max(1, len(judged)):.1%}); of {len(bounded)} "
        f"twins {sum(gain > 1 for gain, _, _ in bounded)} are faster, "
        f"{sum(gain <= bound for gain, bound, _ in bounded)} by no more than was said "
        f"({sum(gain <= bound * NOISE for gain, bound, _ in bounded)} with {NOISE}× for noise); "
        f"{sum(1 / NEAR <= ratio <= NEAR for ratio in ratios)} of {len(ratios)} within {NEAR}× of "
        "what was said to be probable; "
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


def _arguments() -> argparse.Namespace:
    parser = arguments(__doc__)
    parser.add_argument("--kind", action="append", choices=KINDS, help="may be repeated")
    parser.add_argument("--only", action="append", help="a script; may be repeated")
    return parser.parse_args()


if __name__ == "__main__":
    main()
