"""Bench of `trainperf compare`: how often it claims a change that is none, and misses one.

    python -m scripts.bench.compare record DIRECTORY tune|"held out" [--clock wall|thread] …
    python -m scripts.bench.compare judge DIRECTORY tune|"held out" [--json FILE]

`record` trains real loops under a monitor, many runs that are identical and some with work added,
and keeps the wall time of every steady step: one session, some minutes.  `judge` compares the runs
of all sessions with the code that `trainperf compare` runs.  What the method was tuned on and what
it is judged by are different sessions and different kinds of loop.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from scripts.bench.compare_loops import KINDS
from scripts.bench.compare_record import CLOCKS, Plan, alone, read, session, write
from scripts.bench.compare_report import result, tables
from scripts.bench.compare_single import (
    NEIGHBOURS,
    judged,
    record_singles,
    single_result,
    single_tables,
)
from scripts.bench.compare_turns import session_by_turns
from scripts.bench.compare_verdicts import contests, estimated
from scripts.bench.harness import machine_line, write_json


def _record(given: argparse.Namespace) -> None:
    began = time.perf_counter()
    name = given.name or time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    plan = Plan(
        clock=given.clock,
        long=given.long,
        turns=given.turns,
        planted=given.planted,
        fresh=given.fresh,
        by_turns=given.by_turns,
        by_turns_planted=given.by_turns_planted,
    )
    runs = [
        *session(name, given.split, plan),
        *session_by_turns(name, given.split, plan),
    ]
    path = given.recordings / f"{name}.npz"
    write(path, runs)
    print(f"{machine_line()}\n{len(runs)} runs in {time.perf_counter() - began:.0f} s: {path}")


def _judge(given: argparse.Namespace) -> None:
    runs = read(given.recordings, given.split)
    compared = contests(estimated(runs))
    print(f"{machine_line()}\n\n{tables(compared)}")
    write_json(given.json, {**result(runs, compared, given.split), "notes": given.note})


def _record_single(given: argparse.Namespace) -> None:
    began = time.perf_counter()
    name = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    folder = given.recordings / f"{name}-{given.machine.replace(' ', '-')}"
    recorded = record_singles(folder, given.split, given.machine, given.rounds)
    seconds = time.perf_counter() - began
    print(f"{machine_line()}\n{len(recorded.runs)} runs in {seconds:.0f} s: {folder}")


def _judge_single(given: argparse.Namespace) -> None:
    cases = judged(given.recordings, given.split)
    print(f"{machine_line()}\n\n{single_tables(cases)}")
    write_json(given.json, {**single_result(cases, given.split), "notes": given.note})


def _add_single(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    single = verbs.add_parser("record-single", help="single runs of 400 steps")
    single.add_argument("recordings", type=Path)
    single.add_argument("split", choices=list(KINDS))
    single.add_argument(
        "--machine", choices=list(NEIGHBOURS), default="quiet", help="what else runs"
    )
    single.add_argument("--rounds", type=int, default=6, help="of four runs, of every kind")
    single.set_defaults(do=_record_single)
    judge = verbs.add_parser("judge-single", help="single runs of all sessions of a split")
    _add_judge_arguments(judge, _judge_single)


def _add_judge_arguments(
    judge: argparse.ArgumentParser, do: Callable[[argparse.Namespace], None]
) -> None:
    judge.add_argument("recordings", type=Path)
    judge.add_argument("split", choices=list(KINDS))
    judge.add_argument("--json", type=Path, default=None, help="also write the figures here")
    judge.add_argument("--note", action="append", default=[], help="a sentence for the JSON")
    judge.set_defaults(do=do)


def main() -> None:
    """Record, or judge what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(required=True)
    record = verbs.add_parser("record", help="one session")
    record.add_argument("recordings", type=Path)
    record.add_argument("split", choices=list(KINDS))
    record.add_argument("--name", default="", help="default: the time")
    record.add_argument("--clock", choices=list(CLOCKS), default=Plan().clock)
    record.add_argument("--long", type=int, default=Plan().long, help="runs of 500 steps")
    record.add_argument("--turns", type=int, default=Plan().turns, help="groups of short runs")
    record.add_argument("--planted", type=int, default=Plan().planted, help="with work added")
    record.add_argument("--by-turns", type=int, default=0, help="comparisons ten steps a turn")
    record.add_argument("--by-turns-planted", type=int, default=0, help="with work added")
    record.add_argument("--fresh", type=int, default=0, help="runs in processes of their own")
    record.set_defaults(do=_record)
    judge = verbs.add_parser("judge", help="of all sessions of a split")
    _add_judge_arguments(judge, _judge)
    _add_single(verbs)
    single = verbs.add_parser("alone", help="one run, its steps as JSON")
    single.add_argument("split", choices=list(KINDS))
    single.add_argument("kind")
    single.set_defaults(do=lambda given: alone(given.split, given.kind))
    given = parser.parse_args()
    given.do(given)


if __name__ == "__main__":
    main()
