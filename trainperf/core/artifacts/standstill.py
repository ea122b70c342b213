"""Contents of `standstill-rank0.json`: a rank in which no step has ended for long, as it stands.

Written anew once a minute while it lasts, by a thread beside the training, and once more when the
training goes on.  The latest one of a rank is kept.
"""

from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatch

import msgspec

from trainperf.core.artifacts.lines import Place
from trainperf.core.paths import AnyPath, listed, reread
from trainperf.core.run_directory import STANDSTILL


ENDED = "ended"
"""In place of the label of a phase: the training thread is gone, and the process is not."""


class Standstill(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank is at, seconds counted from the start of its fit."""

    rank: int
    step: int
    """Number of the step that is not ending; -1 before the first."""
    phase: str
    """Label of the phase or gap that it is in."""
    since_s: float
    """When the step before it ended."""
    at_s: float
    """When the rank was looked at."""
    over: bool = False
    """Whether a step has ended since, or the fit."""
    settled_s: float = 0.0
    """For how long no step has ended before every rank that stands still has written so: they look
    one after the other."""
    still: bool
    """Whether the training thread is at the same place in every look, and nothing computes."""
    busy: float
    """CPU seconds a second, of this process and its children, since it is at that place."""
    paged_bytes_per_s: float = 0.0
    """Of its memory, at least, what comes from a disk meanwhile: of swap or of mapped files."""
    handles: str = ""
    """Type of the exception that the training thread handles; empty without one."""
    stack: tuple[Place, ...] = ()
    """Of the training thread, the outermost first, torch's and packages' frames included."""
    own: int = -1
    """Place in it of the innermost frame of the user's code; -1 without one."""
    sequences: dict[str, int] = {}
    """Process group to how many collectives this rank has begun in it."""
    peers: dict[int, str] = {}
    """Other ranks on this host whose process is `gone` or `stopped`."""
    starved: int = 0
    """Processes that the system of this host has ended for lack of memory since the fit began."""


def read_standstills(run: AnyPath) -> Iterator[Standstill]:
    """Those of all ranks; a file that cannot be read is left out: the next minute writes it anew.

    Raises:
        OSError: The directory cannot be listed.
    """
    for file in listed(run):
        if fnmatch(file.path.name, STANDSTILL.format("*")):
            with suppress(OSError, msgspec.DecodeError):
                yield msgspec.json.decode(reread(file.path.read_bytes), type=Standstill)
