"""Bench of the rules on the corpus in `tests/faults`: every faulty script, and its fixed twin.

`python -m scripts.bench.faults [--kind KIND] [--only NAME] [--json FILE]`.  Takes ten minutes or
more.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch


ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from faults.corpus import KINDS, scripts  # noqa: E402
from faults.judge import Judged, judge  # noqa: E402

from scripts.bench.harness import machine_line, quiet, table, write_json  # noqa: E402 after the path


def main() -> None:
    """Judge each once, print the table and how many were right."""
    asked = _arguments()
    torch.set_num_threads(1)  # as the tests do: two threads on shared cores wait for each other
    judged = []
    for kind in asked.kind or KINDS:
        for name, script in scripts(kind).items():
            if asked.only and name not in asked.only:
                continue
            with tempfile.TemporaryDirectory() as out, quiet():
                judged.append(judge(name, kind, script, Path(out)))
            print(f"{name}: {'right' if judged[-1].right else 'WRONG'}", file=sys.stderr)
    print(table(("script", "planted", "found", "at most", "gained", ""), list(map(_row, judged))))
    print(f"\n{_score(judged)}")
    print(machine_line())
    scripts_ = [asdict(one) for one in judged]
    write_json(asked.json, {"score": _score(judged), "scripts": scripts_})


def _row(one: Judged) -> tuple[str, ...]:
    return (
        f"{one.kind}: {one.name}",
        ", ".join(one.expected) or "nothing",
        ", ".join(one.found[: max(1, len(one.expected))]) or "nothing",
        "" if one.bound is None else f"{one.bound:.2f}",
        "" if one.gain is None else f"{one.gain:.2f}",
        ("" if one.right else "WRONG") + ("" if one.bounded is not False else " UNBOUNDED"),
    )


def _score(judged: Sequence[Judged]) -> str:
    right = sum(one.right for one in judged)
    known = [one.bounded for one in judged if one.bounded is not None]
    return (
        f"{right} of {len(judged)} right ({right / max(1, len(judged)):.1%}); "
        f"{sum(known)} of {len(known)} twins gain no more than was said"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", action="append", choices=KINDS, help="may be repeated")
    parser.add_argument("--only", action="append", help="a script; may be repeated")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
