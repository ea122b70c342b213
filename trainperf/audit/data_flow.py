"""Flow of data between the calls of a step: what goes nowhere, and what does not follow each other.

Calls are in their order; what they read and wrote is known by storages, whose places are taken
again by other tensors once they are free.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence

from trainperf.audit.operator_call import Call


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
