"""Ranks of a run whose steps do not end: what holds them up, as each has written of itself.

A rank that only lasts, because it computes or goes on from line to line, hangs nothing: it is told
where another stands still meanwhile.  Ranks look at themselves one after the other, as they come to
stand and as they go on: until all have had the time to, nothing is told.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import get_args

from trainperf.analysis.run.replay import Replay
from trainperf.analysis.run.window import start_time
from trainperf.analysis.summary.rank_schema import At, Hang, RanksAt
from trainperf.analysis.summary.run_facts import SILENT_S, rank_ends
from trainperf.analysis.summary.schema import RankEnd
from trainperf.core.artifacts.lines import Place
from trainperf.core.artifacts.standstill import ENDED, Standstill
from trainperf.core.choice import first_that_holds
from trainperf.core.groups import grouped
from trainperf.core.phases import Gap


_OPEN = ("running", "silent", "killed")
"""States of ranks that have not said how they ended."""
_SAVE = ("torch/serialization.py", "save", "_save", "_legacy_save")
_DISTRIBUTED = "torch/distributed/"
_LOADER = "torch/utils/data/dataloader.py"
_ANSWERS = ("socket.py", "ssl.py")


def hang_of(replay: Replay, standstills: Sequence[Standstill], now_s: float | None) -> Hang | None:
    """What holds the ranks of the latest attempt up; `None` while all go on.

    Args:
        replay: Of the run, read.
        standstills: What its ranks have written.
        now_s: Seconds since 1970; without it what was written last counts as of now.
    """
    files = replay.run.attempts[-1]
    starts = {file.rank: start_time(file.info.started_at) for file in files}
    ages_s = {
        each.rank: now_s - start.timestamp() - each.at_s
        for each in standstills
        if now_s is not None and (start := starts.get(each.rank))
    }
    return held_up(standstills, rank_ends(files, replay.journals, now_s, SILENT_S), ages_s)


def held_up(
    standstills: Sequence[Standstill], ends: Sequence[RankEnd], ages_s: Mapping[int, float]
) -> Hang | None:
    """The same, of how each rank ended or that it has not, and seconds since each was looked at."""
    by_rank = {end.rank: end for end in ends}
    lasting = {each.rank: each for each in standstills if not each.over and each.rank in by_rank}
    if not any(each.still for each in lasting.values()):
        return None
    fresh = {
        rank
        for rank in lasting
        if by_rank[rank].state in _OPEN and ages_s.get(rank, 0.0) < SILENT_S
    }
    lasts_s = max(
        each.at_s - each.since_s + (ages_s.get(rank, 0.0) if fresh else 0.0)
        for rank, each in lasting.items()
        if each.still
    )
    settled_s, several = max(each.settled_s for each in lasting.values()), len(ends) > 1
    states = {
        end.rank: _at(lasting[end.rank], several=several)
        if end.rank in (fresh or lasting)
        else (_silent(end, lasting.values()), "", "", end.reason or "")
        for end in ends
    }
    silent = any(what == "silent" for what, *_ in states.values())
    went_on = (abs(ages_s.get(each.rank, inf)) for each in standstills if each.over)
    if fresh and ((silent and lasts_s < settled_s) or min(went_on, default=inf) < settled_s):
        return None
    alike = grouped((state, rank) for rank, state in states.items())
    at = [
        RanksAt(ranks=tuple(ranks), at=what, where=where, function=function, error=error)
        for (what, where, function, error), ranks in alike.items()
    ]
    return Hang(
        lasts_s=lasts_s,
        step=max(each.step for each in lasting.values()),
        over=not fresh,
        at=tuple(sorted(at, key=lambda each: get_args(At).index(each.at))),
        sequences=_unlike(lasting.values()),
        # A page from a disk takes some milliseconds: twenty are a good part of a second.
        paged_bytes_per_s={
            rank: each.paged_bytes_per_s
            for rank, each in lasting.items()
            if each.paged_bytes_per_s >= 80_000
        },
        starved=max(each.starved * ("gone" in each.peers.values()) for each in lasting.values()),
    )


def _silent(end: RankEnd, others: Iterable[Standstill]) -> At:
    """What is known of a rank that has written nothing of itself."""
    states = {each.peers[end.rank] for each in others if end.rank in each.peers}
    return first_that_holds(
        ("ended", end.state not in _OPEN),
        ("stopped", "stopped" in states),
        ("gone", states or end.state == "killed"),
        ("silent", True),
    )


def _at(standstill: Standstill, *, several: bool) -> tuple[At, str, str, str]:
    """What a rank is at, at which of the user's lines, in which function, and what it handles."""
    own = standstill.stack[standstill.own] if standstill.own >= 0 else None
    inside = standstill.stack[standstill.own + 1 :]
    collective = next(
        (
            each.function
            for each in inside
            if each.file.startswith(_DISTRIBUTED) and each.function != "wrapper"
        ),
        "",
    )
    saves = standstill.phase == Gap.CHECKPOINT.label or _passes(standstill.stack, *_SAVE)
    at: At = first_that_holds(
        ("ended", standstill.phase == ENDED),
        ("saving", saves),
        ("works", not standstill.still),
        ("collective", several and collective),
        ("backward", several and inside and inside[-1].function == "_engine_run_backward"),
        ("loader", _passes(standstill.stack, _LOADER)),
        ("answer", any(each.file.endswith(_ANSWERS) for each in inside)),
        ("stands", True),
    )
    where, function = (f"{own.file}:{own.line}", own.function) if own else ("", "")
    named = {"collective": collective, "works": function, "answer": function, "stands": function}
    return at, where, named.get(at, ""), standstill.handles


def _passes(stack: Sequence[Place], file: str, *functions: str) -> bool:
    return any(
        each.file == file and (not functions or each.function in functions) for each in stack
    )


def _unlike(standstills: Iterable[Standstill]) -> dict[str, dict[int, tuple[int, ...]]]:
    """Process groups in which ranks have begun unlike numbers of collectives."""
    begun = grouped(
        (group, (number, each.rank))
        for each in standstills
        for group, number in each.sequences.items()
    )
    groups = {group: grouped(pairs) for group, pairs in begun.items()}
    return {
        group: {number: tuple(ranks) for number, ranks in numbers.items()}
        for group, numbers in groups.items()
        if len(numbers) > 1
    }
