"""Flow of data between the calls of a step: what goes nowhere, and what does not follow each other.

Calls are in their order; what they read and wrote is known by storages, whose places are taken
again by other tensors once they are free.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from trainperf.audit.operator_call import Call, names
from trainperf.core.artifacts.audit import short_name


FEWEST = 4
"""So many equal modules are a loop."""


def dead_ends(calls: Sequence[Call], gradients: Collection[int]) -> set[int]:
    """Calls of backward, by identity, whose results go into these gradients and nowhere else.

    Args:
        calls: In their order.
        gradients: Storages.
    """
    dead: set[int] = set()
    ends, needed = set(gradients), set[int]()
    for call in reversed(calls):
        if call.part != "backward":
            continue
        written = {access.storage for access in call.accesses if access.writes}
        read = {access.storage for access in call.accesses if not access.writes}
        if written and written <= ends:
            dead.add(id(call))
            ends |= read - needed
        else:
            needed |= read
            ends -= read
        # Before it was allocated its place was another tensor's.
        fresh = {access.storage for access in call.accesses if access.new}
        ends -= fresh
        needed -= fresh
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
    holds: dict[int, frozenset[str]] = {}
    for field, storage in fields.items():
        holds[storage] = holds.get(storage, frozenset()) | {field}
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


def siblings(calls: Sequence[Call]) -> set[str]:
    """Containers of equal modules none of which is given what another one has computed.

    Experts, heads, branches, and not layers.  They do the same with inputs and weights of the same
    width, so that one operator could do it for all of them.

    Args:
        calls: In their order.
    """
    makers: dict[int, set[tuple[str, str]]] = {}
    does: dict[str, dict[str, list[object]]] = defaultdict(lambda: defaultdict(list))
    chained: set[str] = set()
    for call in calls:
        mine = members_of(call.site.module) if call.part == "forward" else {}
        read = (makers.get(access.storage, set()) for access in call.accesses if not access.writes)
        given = set[tuple[str, str]]().union(*read)
        chained |= {at for at, number in given if mine.get(at, number) != number}
        for at, number in mine.items():
            widths = [shape[-1:] for shape in call.like.shapes]
            does[at][number].append((call.like.name, widths))
        written = (access.storage for access in call.accesses if access.writes)
        makers.update(dict.fromkeys(written, given | set(mine.items())))
    works = {at: [*each.values()] for at, each in does.items() if len(each) >= FEWEST}
    return {at for at, each in works.items() if each.count(each[0]) == len(each)} - chained


def members_of(module: str | None) -> dict[str, str]:
    """Containers that a module is in by a number, as paths, to its number in each."""
    parts = (module or "").split(".")
    return {".".join(parts[:at]): part for at, part in enumerate(parts) if part.isdecimal()}
