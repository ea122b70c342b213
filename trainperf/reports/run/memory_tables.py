"""What fills the memory, beside the textbook, and what would need less?  Tables from the ledger."""

from collections.abc import Iterator

from trainperf.analysis.roofline.memory_savings import TEXTBOOK_BYTES, bytes_per_parameter, savings
from trainperf.core.artifacts.memory import Holder, MemoryLedger
from trainperf.core.formatting.table import UNKNOWN, Table
from trainperf.core.formatting.units import count, plural, size


_MODULES = 3
"""Largest modules whose activations are listed."""

_HELD = 3
"""Containers that are named."""


def memory_tables(ledger: MemoryLedger) -> list[Table]:
    """What there is, and what would save some of it where anything would."""
    saved = _savings(ledger)
    return [_ledger(ledger), *([saved] if saved.rows else [])]


def _ledger(ledger: MemoryLedger) -> Table:
    rows = [
        (name, size(amount), _each(amount, ledger.parameters))
        for name, amount in _static(ledger)
        if amount
    ]
    rows += [(name, size(amount), UNKNOWN) for name, amount in _moving(ledger) if amount]
    return Table(
        title="What fills the memory",
        head=("", "size", "bytes a parameter"),
        rows=tuple(rows),
        notes=tuple(_notes(ledger)),
    )


def _static(ledger: MemoryLedger) -> Iterator[tuple[str, int]]:
    """What is there whatever the batch."""
    yield "parameters", ledger.parameters_bytes
    yield "gradients", ledger.gradients_bytes
    yield "master weights", ledger.master_bytes
    for kind, amount in ledger.optimizer_state_bytes.items():
        yield f"optimizer: {kind}", amount
    yield "buffers", ledger.buffers_bytes


def _moving(ledger: MemoryLedger) -> Iterator[tuple[str, int | None]]:
    """What comes and goes with a step."""
    yield "activations", ledger.activations_bytes
    for one in ledger.activations[:_MODULES]:
        yield f"  in {one.module or 'no module'}", one.size_bytes
    yield "workspace", ledger.workspace_bytes
    yield "reserved, not used", ledger.fragmentation_bytes


def _each(amount: int, parameters: int) -> str:
    return f"{amount / parameters:.1f}" if parameters else UNKNOWN


def _notes(ledger: MemoryLedger) -> Iterator[str]:
    each = bytes_per_parameter(ledger)
    if each is not None:
        yield (
            f"{each:.1f} bytes a parameter for the model and its update; the textbook has "
            f"{TEXTBOOK_BYTES} for half precision with Adam{_fp32(ledger)}"
        )
    if ledger.peak_bytes is not None:
        parts = sorted(ledger.at_peak_bytes.items(), key=lambda item: -item[1])
        made = ", ".join(f"{name} {size(amount)}" for name, amount in parts if amount)
        yield f"peak of the audited step {size(ledger.peak_bytes)}: {made}"
    if ledger.capacity_bytes is not None:
        yield f"there is room for {size(ledger.capacity_bytes)}"
    yield from map(_held, ledger.held[:_HELD])


def _fp32(ledger: MemoryLedger) -> str:
    """Lightning's `16-mixed` keeps everything in fp32: the same sum of other parts."""
    if ledger.precision not in ("16-mixed", "bf16-mixed") or ledger.master_bytes:
        return ""
    return (
        f"; under {ledger.precision} the parameters stay in fp32, so it is 4 + 4 + 4 + 4 without "
        "a master copy"
    )


def _held(one: Holder) -> str:
    where = f" ({one.where})" if one.where else ""
    graphs = f", {count(one.graphs)} with a graph" if one.graphs else ""
    return (
        f"{one.name}{where} gathered {plural(one.count, 'tensor')}, {size(one.size_bytes)}{graphs}"
    )


def _savings(ledger: MemoryLedger) -> Table:
    known = savings(ledger)
    return Table(
        title="What would need less memory",
        head=("", "saves at most"),
        rows=tuple((one.what, size(one.size_bytes)) for one in known),
        notes=(
            *(f"{one.what}: {one.how}; {one.costs}" for one in known),
            "reckoned from the ledger: nothing was measured with the change made",
        ),
    )
