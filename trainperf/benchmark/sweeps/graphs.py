"""How many graphs has `torch.compile` built in this process?

Counted by torch's own statistics, which are not a public interface: where they are missing nothing
is known.  Does not import the compiler.
"""

import sys


_UTILITIES = "torch._dynamo.utils"


def graphs_built() -> int | None:
    """Graphs so far; 0 before the compiler was first used, `None` where torch does not count."""
    loaded = sys.modules.get(_UTILITIES)
    if loaded is None:
        return 0
    counters = getattr(loaded, "counters", None)
    return None if counters is None else int(counters["stats"].get("unique_graphs", 0))
