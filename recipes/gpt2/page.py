"""The walkthrough as one HTML file: what was proved first, then how."""

from collections.abc import Sequence

from recipes.gpt2 import told
from recipes.gpt2.outcomes import StageOutcome
from recipes.gpt2.published import DIFFERS, LADDER, SUM
from recipes.gpt2.table import KEY, PROOF, RUNS, Column, headline
from recipes.gpt2.train import Recipe
from trainperf.core.formatting.html.markup import (
    Markup,
    bullets,
    page,
    paragraph,
    section,
    table,
    tag,
    text,
)


def page_of(outcomes: Sequence[StageOutcome], work: Recipe) -> str:
    """The whole file."""
    preset = work.preset
    what = (
        f"GPT-2 {preset.name}: {preset.layers} layers × {preset.width} wide, "
        f"{preset.documents} documents per update, {work.steps} updates per run, seed {work.seed}"
    )
    runs = [one for one in outcomes if one.status != "skipped"]
    return page(
        f"GPT-2 {preset.name}: the walkthrough",
        tag("header", tag("h1", text(headline(outcomes))), paragraph(what)),
        section("What was proved", _grid(PROOF, outcomes), paragraph(KEY)),
        section("What was measured", _grid(RUNS, runs)),
        section("Stage by stage", *(_stage(one) for one in outcomes)),
        section("A published ladder, as published", *_published()),
        section("Check it", *_check(outcomes, work)),
    )


def _grid(columns: Sequence[Column], outcomes: Sequence[StageOutcome]) -> Markup:
    left = [place for place, column in enumerate(columns) if column.words]
    rows = [[column.cell(one) for column in columns] for one in outcomes]
    return table([column.name for column in columns], rows, words=left)


def _stage(one: StageOutcome) -> Markup:
    predicted = one.prediction
    rows = [] if predicted is None else [("the report said", told.said(predicted))]
    rows += [] if predicted is None else [("the prediction was", told.predicted(predicted))]
    rows += [("one thing changed", ", ".join(one.changed))] if one.runs and one.changed else []
    rows += [("skipped" if one.status == "skipped" else "now", one.why)]
    rows += [("", note) for note in one.notes]
    if one.status in ("kept", "rejected"):
        rows.append(("so", told.decision(one)))
    return Markup(
        tag("h3", text(f"{one.stage}: {one.change}")) + table(("", ""), rows, words=(0, 1))
    )


def _published() -> list[Markup]:
    rows = [(f"{rung.step_ms:.0f} ms", rung.batch, rung.remark) for rung in LADDER]
    return [
        paragraph("GPT-2 on an A100-40GB, by others.  None of these figures is ours."),
        table(("step", "batch", "remark"), rows, words=(2,)),
        paragraph(SUM),
        paragraph("What differs:"),
        bullets(DIFFERS),
    ]


def _check(outcomes: Sequence[StageOutcome], work: Recipe) -> list[Markup]:
    """The commands that say the same from the same runs."""
    lines = [
        f"trainperf compare {_paths(one.before, work)} {_paths(one.runs, work)}"
        for one in outcomes
        if one.before
    ]
    return [tag("div", tag("pre", text("\n".join(lines))), kind="scroll")] if lines else []


def _paths(runs: Sequence[str], work: Recipe) -> str:
    return ",".join(f"{work.out}/{run}" for run in runs)
