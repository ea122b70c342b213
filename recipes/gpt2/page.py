"""The walkthrough as one HTML file: the ladder first, then measurements and evidence.

It ends with the step times that others have published for this model, never mixed with ours.
"""

from collections.abc import Sequence

from recipes.gpt2 import ladder, progress
from recipes.gpt2.outcomes import AFTER, StageOutcome
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
    runs = [stage for stage in outcomes if stage.status != "skipped"]
    return page(
        f"GPT-2 {preset.name}: the walkthrough",
        tag("header", tag("h1", text(headline(outcomes))), paragraph(what)),
        section("The ladder", ladder.ladder(outcomes)),
        *_before_and_after(outcomes, work),
        section("Verdicts", _grid(PROOF, outcomes), paragraph(KEY)),
        section("Measurements", _grid(RUNS, runs)),
        section("Stage by stage", *map(_stage, outcomes)),
        section("A published ladder, as published", *_published()),
        section("Check the verdicts yourself", *_check(outcomes, work)),
    )


def _before_and_after(outcomes: Sequence[StageOutcome], work: Recipe) -> list[Markup]:
    """The first step and the last, where something was kept."""
    kept = [stage for stage in outcomes if stage.status in ("baseline", "kept")]
    if len(kept) < 2:
        return []
    before, after = work.out / kept[0].runs[0], work.out / AFTER / "trainperf"
    if not after.exists():  # the walkthrough is still under way
        return []
    return [
        section("Where the step goes, before and after", ladder.steps(before, after)),
        section("A step before and after, as traced", ladder.timelines(before, after)),
    ]


def _grid(columns: Sequence[Column], outcomes: Sequence[StageOutcome]) -> Markup:
    left = [place for place, column in enumerate(columns) if column.words]
    rows = [[column.cell(stage) for column in columns] for stage in outcomes]
    return table([column.name for column in columns], rows, words=left)


def _stage(outcome: StageOutcome) -> Markup:
    prediction = outcome.prediction
    rows: list[tuple[str, str]] = []
    if prediction is not None:
        rows.append(("report", prediction.report))
        rows.append(("advice", progress.advice(prediction)))
        rows.append(("prediction", progress.expectation(prediction)))
    if outcome.runs and outcome.changed:
        rows.append(("change", ", ".join(outcome.changed)))
    rows.append(("skipped" if outcome.status == "skipped" else "measured", outcome.why))
    rows += [("", note) for note in outcome.notes]
    if outcome.status in ("kept", "rejected"):
        rows.append(("verdict", progress.verdict(outcome)))
    heading = tag("h3", text(f"{outcome.stage}: {outcome.change}"))
    return Markup(heading + table(("", ""), rows, words=(0, 1)))


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
    """The commands that reach the same verdicts from the same runs."""
    lines = [
        f"trainperf compare {_paths(stage.before, work)} {_paths(stage.runs, work)}"
        for stage in outcomes
        if stage.before
    ]
    return [tag("div", tag("pre", text("\n".join(lines))), kind="scroll")] if lines else []


def _paths(runs: Sequence[str], work: Recipe) -> str:
    return ",".join(f"{work.out}/{run}" for run in runs)
