"""What did each stage change?  The end of the walkthrough, as text and as markdown."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import fill, wrap

from recipes.gpt2.outcomes import StageOutcome
from trainperf.core.formatting.units import duration, fine_share, size, times


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: its heading, and what it shows of a stage; a dash is *not measured*."""

    name: str
    cell: Callable[[StageOutcome], str]
    words: bool = False
    """Set to the left, and may be broken."""


def predicted(outcome: StageOutcome) -> str:
    """The bound, written before the stage ran."""
    if outcome.prediction is None or outcome.prediction.at_most is None:
        return "–"
    return f"≤ {times(outcome.prediction.at_most)}"


def measured(outcome: StageOutcome) -> str:
    """How many times as fast as what was kept before, with its 95 % interval."""
    gain = outcome.speedup
    if gain is None:
        return "–"
    return f"{times(gain.value)} [{_short(gain.low)}–{_short(gain.high)}]"


def _short(factor: float) -> str:
    return times(factor).removesuffix("×")


def error(outcome: StageOutcome) -> str:
    """Measured gain over bound; above 0 the bound did not hold."""
    return "–" if outcome.error is None else f"{outcome.error * 100:+.0f} %".replace("-", "−")


def verdict(outcome: StageOutcome) -> str:
    """Whether it was kept, and the comparison's own word where that says more."""
    if outcome.status != "rejected":
        return outcome.status
    told = {"faster": "loss not proved equal", None: "failed"}
    return f"rejected: {told.get(outcome.verdict, outcome.verdict)}"


_HARD = "\N{NO-BREAK SPACE}"

STAGE = Column(name="stage", cell=lambda one: one.stage, words=True)

PROOF = (
    STAGE,
    Column(name="change", cell=lambda one: one.change, words=True),
    Column(name="predicted", cell=predicted),
    Column(name="measured [95 %]", cell=measured),
    Column(name="error", cell=error),
    Column(
        name="cumulative",
        cell=lambda one: _cell(None if one.status == "skipped" else one.cumulative, times),
    ),
    Column(name="verdict", cell=verdict, words=True),
)
"""What each change was thought to gain and what it gained."""

RUNS = (
    STAGE,
    Column(name="step", cell=lambda one: _cell(one.measured.step_s, duration)),
    Column(
        name="effective tokens/s",
        cell=lambda one: _cell(one.measured.effective_tokens_per_s, "{:,.0f}".format),
    ),
    Column(
        name="padded tokens/s",
        cell=lambda one: _cell(one.measured.padded_tokens_per_s, "{:,.0f}".format),
    ),
    Column(name="padding", cell=lambda one: _cell(one.measured.padding_fraction, fine_share)),
    Column(name="data wait", cell=lambda one: _cell(one.measured.data_wait_fraction, fine_share)),
    Column(name="peak memory", cell=lambda one: _cell(one.measured.peak_bytes, size)),
    Column(name="MFU", cell=lambda one: _cell(one.measured.mfu, fine_share)),
    Column(name="loss", cell=lambda one: _cell(one.measured.loss, "{:.4f}".format)),
)
"""What the runs of a stage showed, whether it was kept or not."""

ALL = (*PROOF[:6], *RUNS[1:], PROOF[6])


def headline(outcomes: Sequence[StageOutcome]) -> str:
    """The result in one sentence."""
    kept = [one for one in outcomes if one.status == "kept"]
    tried = [one for one in outcomes if one.status in ("kept", "rejected")]
    gain = next((one.cumulative for one in reversed(outcomes) if one.cumulative), 1.0)
    if not kept:
        return f"None of {len(tried)} changes was proved to be faster."
    names = ", ".join(one.stage for one in kept)
    return (
        f"{gain:.2f}× the baseline's speed at equal loss: {len(kept)} of {len(tried)} changes "
        f"were kept ({names})."
    )


def text(outcomes: Sequence[StageOutcome], width: int) -> str:
    """Two tables, since one does not fit: what was proved, and what was measured."""
    runs = [one for one in outcomes if one.status != "skipped"]
    proof, measures = _grid(PROOF, outcomes, width), _grid(RUNS, runs, width)
    return f"{fill(headline(outcomes), width)}\n\n{proof}\n{measures}\n{fill(KEY, width)}\n"


KEY = (
    "Measured: times as fast as the settings kept last, in runs that took turns, with the 95 % "
    "interval. Error: measured over the bound that was predicted. Cumulative: product of what was "
    "kept. Peak memory: of the tensors of one step on a CPU, else the allocator's. Loss: mean over "
    "the last fifth of a run. –: not measured."
)
"""How the tables are to be read."""


def markdown(outcomes: Sequence[StageOutcome]) -> str:
    """One table of all columns, and the reason of what was not kept."""
    heads = [column.name for column in ALL]
    sides = ["---" if column.words else "--:" for column in ALL]
    lines = [heads, sides, *([column.cell(one) for column in ALL] for one in outcomes)]
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    why = "".join(f"* **{one.stage}** {one.status}: {one.why}\n" for one in outcomes)
    return f"{headline(outcomes)}\n\n{table}\n{why}"


def _grid(columns: Sequence[Column], outcomes: Sequence[StageOutcome], width: int) -> str:
    rows = [[column.name for column in columns]]
    rows += [[_unbroken(column, one) for column in columns] for one in outcomes]
    widths, gap = _widths(rows, width)
    lines = []
    for row in rows:
        cells = [_wrapped(cell, wide) for cell, wide in zip(row, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            placed = zip(columns, parts, widths, strict=True)
            aligned = (f"{part:<{n}}" if one.words else f"{part:>{n}}" for one, part, n in placed)
            lines.append(gap.join(aligned).replace(_HARD, " ").rstrip())
    return "\n".join(lines) + "\n"


def _widths(rows: Sequence[Sequence[str]], width: int) -> tuple[list[int], str]:
    """Those of the columns, the widest made narrower until all fit, and what is between them."""
    columns = list(zip(*rows, strict=True))
    wide = [max(map(len, cells)) for cells in columns]
    least = [max(len(word) for cell in cells for word in cell.split(" ")) for cells in columns]
    gap = "  " if sum(least) + 2 * (len(least) - 1) <= width else " "
    while sum(wide) + len(gap) * (len(wide) - 1) > width and wide != least:
        place = max(range(len(wide)), key=lambda one: (wide[one] > least[one], wide[one]))
        wide[place] -= 1
    return wide, gap


def _wrapped(cell: str, width: int) -> list[str]:
    return wrap(cell, width, break_long_words=False, break_on_hyphens=False) or [""]


def _unbroken(column: Column, outcome: StageOutcome) -> str:
    """Numbers stay with their units; an interval may go to a line of its own."""
    cell = column.cell(outcome)
    return cell if column.words else cell.replace(" ", _HARD).replace(f"{_HARD}[", " [")


def _cell(number: float | None, form: Callable[[float], str]) -> str:
    return "–" if number is None else form(number)
