"""What fills the memory?  The ledger as a bar and as tables, and how memory developed."""

from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.memory import MemoryLedger
from trainperf.core.formatting.html.markup import Markup
from trainperf.core.formatting.html.svg import bar, keys
from trainperf.core.formatting.units import size
from trainperf.reports.html.components import missing, shown
from trainperf.reports.run.memory_tables import memory_tables


def memory(summary: Summary) -> Markup:
    """The ledger of the run, or why there is none."""
    ledger = summary.memory
    if ledger is None:
        return missing([("What fills it", f"{summary.run.loop.audit} counts it")])
    parts = _parts(ledger)
    drawn = [
        (float(amount), place, f"{name}: {size(amount)}")
        for place, (name, amount) in enumerate(parts)
    ]
    named = keys(
        (f"{name} {size(amount)}", f"b{place}") for place, (name, amount) in enumerate(parts)
    )
    tables = "".join(map(shown, memory_tables(ledger)))
    absent = missing(
        [
            (name.removesuffix("_bytes").replace("_", " "), why)
            for name, why in ledger.reasons.items()
        ]
    )
    return Markup(bar(drawn, "what fills the memory") + named + tables + absent)


def _parts(ledger: MemoryLedger) -> list[tuple[str, int]]:
    """What was known, in the order of the colours."""
    every = (
        ("parameters", ledger.parameters_bytes),
        ("gradients", ledger.gradients_bytes),
        ("optimizer", ledger.optimizer_bytes),
        ("buffers", ledger.buffers_bytes),
        ("activations", ledger.activations_bytes),
        ("workspace", ledger.workspace_bytes),
        ("reserved, not used", ledger.fragmentation_bytes),
    )
    return [(name, amount) for name, amount in every if amount]
