"""Ends of the ranks: by end marks, by processes where these can be seen, else by silence."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainperf.analysis.run.journal import Journal
from trainperf.analysis.run.record_file import RecordFile
from trainperf.analysis.summary.schema import RankEnd, RankState, State
from trainperf.core.formatting.units import duration, plural
from trainperf.core.machine.processes import has_died
from trainperf.core.steps.records import NOT_CLOSED, EndMark


_ENDINGS: dict[str, State] = {
    "finished": "finished",
    "interrupted": "interrupted",
    NOT_CLOSED: "interrupted",
}

_CLOSED: dict[RankState, State] = {
    "finished": "finished",
    "interrupted": "interrupted",
    "failed": "failed",
}
"""States of a rank with an end mark."""

_LISTED = 8
"""Ranks named in a sentence; of more the first ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """When a rank without an end mark counts as silent."""

    now_s: float | None
    """Seconds since 1970; `None` where that is not known: then nobody is."""
    longest_s: float
    """Without a line from a rank that writes them."""

    def since(self, written_s: float) -> float:
        """Seconds of silence, if that is longer than the longest; else 0."""
        silent_s = 0.0 if self.now_s is None else self.now_s - written_s
        return silent_s if silent_s > self.longest_s else 0.0


def rank_ends(
    files: Sequence[RecordFile], journals: Mapping[int, Journal], silence: Silence
) -> tuple[RankEnd, ...]:
    """How each rank of an attempt ended, in the order of ranks.

    A rank whose process is seen to be gone was killed.  Where it cannot be seen, on another host,
    it was killed if no rank has written for long; one that alone is silent may be waiting.
    """
    nobody_writes = silence.since(max(file.modified_s for file in files)) > 0
    return tuple(
        _rank_end(file, journals[file.rank], silence, nobody_writes=nobody_writes) for file in files
    )


def state_of_run(ends: Sequence[RankEnd]) -> State:
    """The lowest rank's, but a run goes on as long as one rank of it does."""
    lowest = ends[0].state
    if lowest in _CLOSED:
        return _CLOSED[lowest]
    alive = any(end.state in ("running", "silent") for end in ends)
    return "running" if alive else "killed"


def unlike(ends: Sequence[RankEnd], state: State) -> tuple[RankEnd, ...]:
    """Ranks that ended otherwise than the run, or with fewer steps though they were closed."""
    most = max(end.steps for end in ends)
    return tuple(
        end
        for end in ends
        if end.state != state or (end.state not in ("running", "killed") and end.steps < most)
    )


def sentences(ends: Sequence[RankEnd], most: int) -> list[str]:
    """One for each way in which ranks ended otherwise than the run.

    Args:
        ends: Of those ranks.
        most: Steps of the rank that came farthest.
    """
    alike: dict[str, list[RankEnd]] = defaultdict(list)
    for end in ends:
        alike[_how(end)].append(end)
    return [f"{_named(same)} {how}{_after(same, most)}" for how, same in alike.items()]


def _rank_end(
    file: RecordFile, journal: Journal, silence: Silence, *, nobody_writes: bool
) -> RankEnd:
    silent_s = silence.since(file.modified_s)
    state: RankState
    if journal.end is not None:
        state, silent_s = ended_as(journal.end), 0.0
    else:
        died = has_died(file.info.process)
        gone = nobody_writes if died is None else died
        state = "killed" if gone else "silent" if silent_s else "running"
    reason = journal.end.reason if journal.end and state == "failed" else None
    return RankEnd(
        rank=file.rank,
        host=str(file.info.hardware.get("host") or ""),
        state=state,
        reason=reason,
        steps=journal.steps,
        silent_s=silent_s if state == "silent" else None,
    )


def ended_as(end: EndMark) -> State:
    """What an end mark says."""
    return _ENDINGS.get(end.reason, "failed")


def _how(end: RankEnd) -> str:
    return {
        "finished": "ended",
        "interrupted": "interrupted",
        "failed": f"ended by {end.reason}",
        "killed": "gone without an end (killed?)",
        "running": "still running",
        "silent": "silent",
    }[end.state]


def _named(ends: Sequence[RankEnd]) -> str:
    ranks = ", ".join(str(end.rank) for end in ends[:_LISTED])
    more = ", …" if len(ends) > _LISTED else ""
    hosts = {end.host for end in ends}
    where = f" (on {hosts.pop()})" if len(hosts) == 1 and "" not in hosts else ""
    several = f"{len(ends)} ranks, {ranks}{more}" if len(ends) > 1 else f"rank {ranks}"
    return f"{several}{where}:"


def _after(ends: Sequence[RankEnd], most: int) -> str:
    fewest = min(end.steps for end in ends)
    silent_s = max((end.silent_s or 0.0 for end in ends), default=0.0)
    since = f" for {duration(silent_s)}, waiting or stopped" if silent_s else ""
    first = "the first " if len(ends) > 1 else ""
    return f"{since}, {first}after {fewest:,} of {plural(most, 'step')}"
