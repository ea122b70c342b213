"""The table at the end says what was foretold, what was measured, and how sure that is."""

import pytest

from recipes.gpt2.outcomes import Measured, Prediction, StageOutcome
from recipes.gpt2.stages import Settings
from recipes.gpt2.table import ALL, headline, markdown, text
from trainperf.comparison.results import Speedup


BASELINE = StageOutcome(
    stage="baseline",
    change="fp32, eager, padded",
    status="baseline",
    why="what the others are compared with",
    settings=Settings(),
    cumulative=1.0,
    measured=Measured(step_s=0.0621, effective_tokens_per_s=20934.2, padding_fraction=0.0),
)
KEPT = StageOutcome(
    stage="vocabulary",
    change="vocabulary a multiple of 64",
    status="kept",
    why="faster",
    settings=Settings(packed=True),
    verdict="faster",
    prediction=Prediction(
        stage="packed",
        change="documents packed",
        written_at="",
        from_run="",
        report="",
        finding="",
        low=1.1,
        high=1.6,
        source="report",
    ),
    speedup=Speedup(value=1.28, low=1.2, high=1.36, per_rank=False),
    cumulative=1.28,
    measured=Measured(
        step_s=0.0485,
        effective_tokens_per_s=126_795.0,
        padded_tokens_per_s=130_000.0,
        padding_fraction=0.107,
        data_wait_fraction=0.052,
        peak_bytes=113_246_208,
        mfu=0.312,
        loss=2.4738,
    ),
)
REJECTED = StageOutcome(
    stage="sdpa",
    change="fused attention",
    status="rejected",
    why="slower: 0.90×",
    settings=Settings(),
    verdict="slower",
    speedup=Speedup(value=0.9, low=0.85, high=0.95, per_rank=False),
    cumulative=1.28,
)
SKIPPED = StageOutcome(
    stage="tf32", change="TF32", status="skipped", why="no tensor cores", settings=Settings()
)
OUTCOMES = (BASELINE, KEPT, REJECTED, SKIPPED)


def cells(outcome: StageOutcome) -> dict[str, str]:
    """A stage's row, by column."""
    return {column.name: column.cell(outcome) for column in ALL}


def test_the_columns_are_those_the_walkthrough_promises() -> None:
    """From the change to the verdict, in the order in which they are read."""
    assert list(cells(KEPT).values()) == [
        "vocabulary",
        "vocabulary a multiple of 64",
        "1.10–1.60×",
        "1.28× [1.20–1.36]",
        "inside",
        "1.28×",
        "48.5 ms",
        "126,795",
        "130,000",
        "10.7 %",
        "5.2 %",
        "108 MiB",
        "31.2 %",
        "2.4738",
        "kept",
    ]


def test_what_was_measured_to_be_nothing_is_no_dash() -> None:
    """0 is a measurement; a dash is *not measured*."""
    assert cells(BASELINE)["padding"] == "0.0 %"
    assert cells(BASELINE)["data wait"] == "–"


def test_the_headline_is_the_last_cumulative_gain() -> None:
    """What a rejected stage measured is in no product."""
    assert headline(OUTCOMES) == (
        "1.28× the baseline's speed at equal loss: 1 of 2 changes were kept (vocabulary)."
    )
    assert headline([BASELINE, REJECTED]) == "None of 1 changes was proved to be faster."


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_of_this_width_cuts_no_number(width: int) -> None:
    """Words are broken, numbers and their units are not, and no line is too long."""
    lines = text(OUTCOMES, width).splitlines()

    assert max(map(len, lines)) <= width
    shown = "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")
    assert "…" not in shown
    wanted = cells(KEPT)
    for name in ("predicted", "range", "step", "effective tokens/s", "peak memory", "MFU", "loss"):
        assert wanted[name] in shown, name
    assert "[1.20–1.36]" in shown


def test_markdown_has_a_row_per_stage_and_the_reason_of_each() -> None:
    """One table of all columns."""
    lines = markdown(OUTCOMES).splitlines()

    rows = [line for line in lines if line.startswith("|")]
    assert [row.split(" | ")[0] for row in rows[2:]] == [f"| {one.stage}" for one in OUTCOMES]
    assert {row.count("|") for row in rows} == {len(ALL) + 1}
    assert "* **tf32** skipped: no tensor cores" in lines
