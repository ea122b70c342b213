"""Flow of data between the calls of a step: what goes nowhere, what does not follow each other.

Calls are in their order; what they read and wrote is known by storages, whose places are taken
again by other tensors once they are free.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

from trainperf.audit.operator_call import Call, names
from trainperf.core.artifacts.audit import short_name
from trainperf.core.groups import grouped


FEWEST = 4
"""So many equal modules are a loop."""


Ends = Mapping[int, tuple[Collection[int], str]]
"""Number of calls before which values were made that nobody reads, to the storages that they are in
then, and a line that it is about."""


def dead_ends(
    calls: Sequence[Call], ends_at: Ends, reads_at: Mapping[int, Collection[int]]
) -> dict[int, str]:
    """Calls of backward, by identity, whose results go nowhere else, with the line of that.

    Args:
        calls: In their order.
        ends_at: Where that is.
        reads_at: Number of calls to the storages that others than calls read then.
    """
    dead: dict[int, str] = {}
    needed: dict[int, bool] = {}
    """Storage to whether what it holds is read later; none of which nothing is known."""
    line = ""
    for at in range(len(calls), 0, -1):
        needed |= dict.fromkeys(reads_at.get(at, ()), True)
        if at in ends_at:
            gone, line = ends_at[at]
            needed |= dict.fromkeys(gone, False)
        call = calls[at - 1]
        written = {access.storage for access in call.accesses if access.writes}
        read = {access.storage for access in call.accesses if not access.writes}
        useless = not any(needed.get(storage, True) for storage in written)
        if call.part == "backward" and written and useless:
            dead[id(call)] = line
            needed |= dict.fromkeys(read - needed.keys(), False)
        else:
            needed |= dict.fromkeys(read, True)
        for access in call.accesses:
            if access.new:  # before it was allocated its place was another tensor's
                needed.pop(access.storage, None)
    return dead


_COPIES = names("_to_copy copy_ clone _pin_memory")
"""What they read is not used yet: the copy may be."""


def unread(calls: Sequence[Call], fields: Mapping[str, int]) -> frozenset[str]:
    """Fields of a batch of which no call reads a value, nor of a view or a copy of them.

    None where nothing of it was read: what the calls work on was made of it in another way.

    Args:
        calls: Those of the batch, in their order.
        fields: Each with its storage, which nobody has let go meanwhile.
    """
    read = set[str]()
    shared = grouped((storage, field) for field, storage in fields.items())
    holds = {storage: frozenset(alike) for storage, alike in shared.items()}
    for call in calls:
        copies = short_name(call.like.name) in _COPIES
        own = (holds.get(access.storage) for access in call.accesses if not access.writes)
        given = frozenset[str]().union(*filter(None, own))
        if not copies:
            read |= given
        for access in call.accesses:
            if access.writes and (copies or access.new):
                holds[access.storage] = given if copies else frozenset()
    return frozenset(fields.keys() - read) if read else frozenset()


Origin = dict[str, Hashable]
"""Path of a loop to its member."""

_SEVERAL = object()
"""In place of a member: what several of them have made is put together."""


@dataclass(frozen=True, slots=True)
class Loops:
    """Loops of a step whose members need nothing of each other.

    Members are equal modules in a container, such as experts, heads or branches, and not layers:
    they do the same with inputs and weights of the same width, so that one operator could do it for
    all of them.  Or they are the calls of one module, with tensors of the same shapes: samples or
    frames one by one, and not time steps that need what was before them.
    """

    numbers: dict[str, int]
    """Path of a container, or of a module with `()` after it, to how many members it has."""
    origins: dict[int, Origin]
    """Call, by identity, to the members that it is part of or given a result of."""

    def container(self, call: Call) -> str:
        """Of the modules that a call is in; empty without one."""
        return next((at for at in members_of(call.site.module) if at in self.numbers), "")

    def repeated(self, call: Call) -> str:
        """Module in one of whose calls a call is, or of just one of which it is given a result."""
        origin = self.origins[id(call)]
        after = (at for at in sorted(origin, key=len) if origin[at] is not _SEVERAL)
        places = (*_calls_around(call.site.module), *after)
        loops = (at for at in places if at in self.numbers and at.endswith("()"))
        return next(loops, "").removesuffix("()")


def loops_in(calls: Sequence[Call]) -> Loops:
    """The loops of a step.

    Args:
        calls: In their order.
    """
    makers: dict[int, Origin] = {}
    does: dict[str, dict[Hashable, list[object]]] = defaultdict(lambda: defaultdict(list))
    origins: dict[int, Origin] = {}
    chained: set[str] = set()
    for call in calls:
        mine = _members(call) if call.part == "forward" else {}
        given: Origin = {}
        for access in call.accesses:
            read = {} if access.writes else makers.get(access.storage, {})
            unlike = {at for at in read if given.get(at, read[at]) != read[at]}
            given |= read | dict.fromkeys(unlike, _SEVERAL)
        chained |= {at for at, member in given.items() if mine.get(at, member) != member}
        for at, member in mine.items():
            shapes = [shape if at.endswith("()") else shape[-1:] for shape in call.like.shapes]
            does[at][member].append((call.like.name, shapes))
        origins[id(call)] = given | mine
        written = (access.storage for access in call.accesses if access.writes)
        makers.update(dict.fromkeys(written, given | mine))
    works = {at: [*each.values()] for at, each in does.items() if len(each) >= FEWEST}
    equal = {
        at: len(each)
        for at, each in works.items()
        # The first call of a module may have begun before anybody looked.
        if each.count(each[-1]) >= len(each) - at.endswith("()")
    }
    free = (at for at in equal if chained.isdisjoint({at, *_outer_calls(at)}))
    return Loops({at: equal[at] for at in free}, origins)


def _outer_calls(loop: str) -> list[str]:
    """Of a loop of calls those of modules around it: where one of these is chained, it is, too."""
    return _calls_around(loop.removesuffix("()")) if loop.endswith("()") else []


def _members(call: Call) -> Origin:
    """What a call is part of: calls of modules, and modules in containers."""
    unseen = dict.fromkeys(_calls_around(call.site.module), 0)
    passes = {f"{path}()": number for path, number in call.passes.items()}
    return {**unseen, **passes, **members_of(call.site.module)}


def _calls_around(module: str | None) -> list[str]:
    """Loops that a module may be in by calls of it or of what it is in, the outermost first."""
    parts = module.split(".") if module else []
    return [".".join(parts[: at + 1]) + "()" for at in range(len(parts))]


def members_of(module: str | None) -> dict[str, str]:
    """Containers that a module is in by a number, as paths, to its number in each."""
    parts = (module or "").split(".")
    return {".".join(parts[:at]): part for at, part in enumerate(parts) if part.isdecimal()}
