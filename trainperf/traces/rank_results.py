"""What is handed on of each rank, to be set beside the others?  Nothing here loads numpy."""

from collections.abc import Mapping
from dataclasses import dataclass

from trainperf.traces.results import RankTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How each trace is to be analysed."""

    lanes: bool = True
    """Whether to make the lanes for drawing."""
    hta: bool = False
    """Whether to add the figures by HTA's definitions."""


Key = tuple[int, str, str, int]
"""Step number, process group, kind, and how many of these came before it in the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCollectives:
    """What one rank spent in each collective, to be set beside the others."""

    seconds: Mapping[Key, float]
    backward: frozenset[Key]
    """Those that were asked for once backward had begun."""
    first: Key | None
    """The first of the recording."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysed:
    """What the analysis of one file gives."""

    trace: RankTrace
    collectives: RankCollectives
