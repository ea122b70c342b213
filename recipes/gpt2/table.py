"""Tables of all stages at the end of the walkthrough, as text and as markdown."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import fill, wrap

from recipes.gpt2.outcomes import StageOutcome
from recipes.gpt2.progress import expected
from trainperf.core.formatting.units import duration, fine_share, size, times


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: its heading, and a stage's cell; a dash is *not measured*."""

    name: str
    cell: Callable[[StageOutcome], str]
    words: bool = False
    """Left-aligned, and may wrap."""


def predicted(outcome: StageOutcome) -> str:
    """The expected range, written before the stage ran."""
    return "–" if outcome.prediction is None else expected(outcome.prediction)


def measured(outcome: StageOutcome) -> str:
    """Speed relative to the settings kept last, with its 95 % interval."""
    gain = outcome.speedup
    if gain is None:
        return "–"
    return f"{times(gain.value)} [{_short(gain.low)}–{_short(gain.high)}]"


def _short(factor: float) -> str:
    return times(factor).removesuffix("×")


def inside(outcome: StageOutcome) -> str:
    """Whether the measured gain is in the range predicted."""
    return {None: "–", True: "inside", False: "outside"}[outcome.inside]


def verdict(outcome: StageOutcome) -> str:
    """Whether the change was kept, and the comparison's verdict where that says more."""
    if outcome.status != "rejected":
        return outcome.status
    reasons = {"faster": "loss not shown equal", None: "failed"}
    return f"rejected: {reasons.get(outcome.verdict, outcome.verdict)}"


_HARD = "\N{NO-BREAK SPACE}"

STAGE = Column(name="stage", cell=lambda stage: stage.stage, words=True)

PROOF = (
    STAGE,
    Column(name="change", cell=lambda stage: stage.change, words=True),
    Column(name="predicted", cell=predicted),
    Column(name="measured [95 %]", cell=measured),
    Column(name="range", cell=inside, words=True),
    Column(
        name="cumulative",
        cell=lambda stage: _cell(None if stage.status == "skipped" else stage.cumulative, times),
    ),
    Column(name="verdict", cell=verdict, words=True),
)
"""Predicted and measured gain of each change."""

RUNS = (
    STAGE,
    Column(name="step", cell=lambda stage: _cell(stage.measured.step_s, duration)),
    Column(
        name="effective tokens/s",
        cell=lambda stage: _cell(stage.measured.effective_tokens_per_s, "{:,.0f}".format),
    ),
    Column(
        name="padded tokens/s",
        cell=lambda stage: _cell(stage.measured.padded_tokens_per_s, "{:,.0f}".format),
    ),
    Column(name="padding", cell=lambda stage: _cell(stage.measured.padding_fraction, fine_share)),
    Column(
        name="data wait", cell=lambda stage: _cell(stage.measured.data_wait_fraction, fine_share)
    ),
    Column(name="peak memory", cell=lambda stage: _cell(stage.measured.peak_bytes, size)),
    Column(name="MFU", cell=lambda stage: _cell(stage.measured.mfu, fine_share)),
    Column(name="loss", cell=lambda stage: _cell(stage.measured.loss, "{:.4f}".format)),
)
"""Measurements of each stage, kept or not."""

ALL = (*PROOF[:6], *RUNS[1:], PROOF[6])


def headline(outcomes: Sequence[StageOutcome]) -> str:
    """The result in one sentence."""
    kept = [stage for stage in outcomes if stage.status == "kept"]
    tried = [stage for stage in outcomes if stage.status in ("kept", "rejected")]
    gain = next((stage.cumulative for stage in reversed(outcomes) if stage.cumulative), 1.0)
    if not kept:
        return f"None of {len(tried)} changes was proved to be faster."
    names = ", ".join(stage.stage for stage in kept)
    return (
        f"{gain:.2f}× the baseline's speed at equal loss: {len(kept)} of {len(tried)} changes "
        f"were kept ({names})."
    )


def text(outcomes: Sequence[StageOutcome], width: int) -> str:
    """Two tables, because one does not fit: the proof, and the measurements."""
    runs = [stage for stage in outcomes if stage.status != "skipped"]
    proof, measures = _grid(PROOF, runs, width), _grid(RUNS, runs, width)
    rest = "".join(f"{fill(line, width)}\n" for line in not_tried(outcomes))
    return f"{fill(headline(outcomes), width)}\n\n{proof}\n{measures}\n{rest}{fill(KEY, width)}\n"


def not_tried(outcomes: Sequence[StageOutcome]) -> list[str]:
    """The stages that were skipped, by the reason."""
    reasons: dict[str, list[str]] = {}
    for stage in outcomes:
        if stage.status == "skipped":
            reasons.setdefault(stage.why, []).append(stage.stage)
    return [f"Not tried, {why}: {', '.join(names)}." for why, names in reasons.items()]


KEY = (
    "Measured: speed relative to the settings kept last, from runs in turns, with the 95 % "
    "interval. Range: whether that is in the range predicted before. Cumulative: product of the "
    "gains kept. Peak memory: the allocator's; on a CPU that of one step's tensors. Loss: mean "
    "over the last fifth of a run. –: not measured."
)
"""Legend of the tables."""


def markdown(outcomes: Sequence[StageOutcome]) -> str:
    """One table of all columns, and the reason for each status."""
    heads = [column.name for column in ALL]
    sides = ["---" if column.words else "--:" for column in ALL]
    lines = [heads, sides, *([column.cell(stage) for column in ALL] for stage in outcomes)]
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    why = "".join(f"* **{stage.stage}** {stage.status}: {stage.why}\n" for stage in outcomes)
    return f"{headline(outcomes)}\n\n{table}\n{why}"


def _grid(columns: Sequence[Column], outcomes: Sequence[StageOutcome], width: int) -> str:
    rows = [[column.name for column in columns]]
    rows += [[_unbroken(column, stage) for column in columns] for stage in outcomes]
    widths, gap = _widths(rows, width)
    lines = []
    for row in rows:
        cells = [_wrapped(cell, wide) for cell, wide in zip(row, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            placed = zip(columns, parts, widths, strict=True)
            aligned = (f"{part:<{n}}" if col.words else f"{part:>{n}}" for col, part, n in placed)
            lines.append(gap.join(aligned).replace(_HARD, " ").rstrip())
    return "\n".join(lines) + "\n"


def _widths(rows: Sequence[Sequence[str]], width: int) -> tuple[list[int], str]:
    """Column widths, the widest narrowed until all fit, and the gap between columns."""
    columns = list(zip(*rows, strict=True))
    wide = [max(map(len, cells)) for cells in columns]
    least = [max(len(word) for cell in cells for word in cell.split(" ")) for cells in columns]
    gap = "  " if sum(least) + 2 * (len(least) - 1) <= width else " "
    while sum(wide) + len(gap) * (len(wide) - 1) > width and wide != least:
        widest = max(range(len(wide)), key=lambda at: (wide[at] > least[at], wide[at]))
        wide[widest] -= 1
    return wide, gap


def _wrapped(cell: str, width: int) -> list[str]:
    return wrap(cell, width, break_long_words=False, break_on_hyphens=False) or [""]


def _unbroken(column: Column, outcome: StageOutcome) -> str:
    """Numbers stay with their units; an interval may go to a line of its own."""
    cell = column.cell(outcome)
    return cell if column.words else cell.replace(" ", _HARD).replace(f"{_HARD}[", " [")


def _cell(number: float | None, form: Callable[[float], str]) -> str:
    return "–" if number is None else form(number)
