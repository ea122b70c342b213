"""The page of a run, `report.html`: the answer first, then every figure behind it."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainperf.analysis.diagnosis.of_run import Evidence
from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.replay import Replay
from trainperf.analysis.summarize import examine
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.memory import MemoryLedger
from trainperf.core.formatting.html.figures import bar, keys
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
from trainperf.core.formatting.html.palette import FIT_PARTS
from trainperf.core.formatting.table import Table
from trainperf.core.formatting.units import Scale, fine_share, size
from trainperf.core.loop_kind import imported_from
from trainperf.core.places import AnyPath
from trainperf.core.readings import STEP_S
from trainperf.core.run_directory import REPORT, write_atomically
from trainperf.meters.fold import not_covered
from trainperf.reports.html.captures import captures
from trainperf.reports.html.components import (
    facts,
    finding_card,
    heading,
    labelled,
    meter,
    missing,
    not_measured,
    shown,
)
from trainperf.reports.html.over_time import absent, drawable, drawn, over_time
from trainperf.reports.html.ranks import ranks
from trainperf.reports.html.step_times import WallsFold, histogram
from trainperf.reports.html.tried import tried
from trainperf.reports.run.effort_view import of_effort
from trainperf.reports.run.machine_view import of_machine
from trainperf.reports.run.rows import PhaseRow, excluded
from trainperf.reports.run.run_view import RunView, run_view
from trainperf.reports.run.tables import (
    light_line,
    of_compilation,
    of_lines,
    of_loader,
    of_memory,
    of_step,
)
from trainperf.reports.series.columns import SeriesFold
from trainperf.reports.series.machine import MACHINE_KEYS, MachineTracks
from trainperf.reports.series.steps import Series, series


MOST_GROUPS = 256
"""One in three pixels: the page of a run of any length has less than a megabyte."""

_OF_RANKS = frozenset({"tail", "skew"})
_OF_MEMORY = frozenset({"memory"})
_ELSEWHERE = _OF_RANKS | _OF_MEMORY | MACHINE_KEYS


@dataclass(frozen=True, slots=True, kw_only=True)
class PageData:
    """A run that was read once, for its page."""

    evidence: Evidence
    series: Series
    walls: WallsFold


def load_page_data(
    run: Run,
    *,
    now_s: float | None = None,
) -> PageData:
    """Read a run once, in constant memory; *now_s* as for `examine`."""
    replay, walls = Replay(run), WallsFold()
    fold = SeriesFold(most=MOST_GROUPS, beside=MachineTracks(replay).columns)
    evidence = examine(run, now_s=now_s, replay=replay, observers=(fold, walls))
    charts = series(fold.groups, evidence.summary, None)
    return PageData(evidence=evidence, series=charts, walls=walls)


def render(data: PageData) -> str:
    """The whole page.  Every name that came from a user is escaped."""
    summary = data.evidence.summary
    view = run_view(summary)
    rest = frozenset(chart.key for chart in data.series.charts) - _ELSEWHERE
    return page(
        f"{summary.run.name} · trainperf",
        first(view),
        section(
            "Where a step goes", breakdown(view), _tables([*of_lines(summary), *of_loader(summary)])
        ),
        section("What to change", _tables(of_effort(summary)), findings(view)),
        section("What was tried", tried(summary.trials, running=summary.run.state == "running")),
        section("How long the steps took", _steps(data)),
        section(f"Other measurements over the {view.whole}", _curves(data, rest)),
        section("Ranks", ranks(summary, view), _of_ranks(data)),
        section("Memory", _memory(summary), _curves(data, _OF_MEMORY)),
        section("The machine", _tables(of_machine(summary))),
        section("Speed of light", _light(data)),
        section("torch.compile", _tables(of_compilation(summary))),
        section("Captures", captures(summary, data.evidence.captures)),
        section(f"The whole {view.whole}", fit(view)),
        section("All readings", _readings(view)),
        section("The run", _settings(summary)),
        tag("footer", text(f"trainperf · {summary.run.path}")),
    )


def save(data: PageData, run: AnyPath) -> None:
    """Write the page into the directory *run*, whole or not at all.

    Raises:
        OSError: The file cannot be written.
    """
    write_atomically(run / REPORT, render(data).encode("utf-8"))


def _steps(data: PageData) -> Markup:
    steps = data.series.steps
    if steps is None:
        return not_measured("no step was recorded")
    why = excluded(data.evidence.summary)
    above = paragraph(f"The rows above the bars are {why}." if why else "", "soft small")
    single = data.evidence.summary.reading(STEP_S)
    if single is not None and not_covered(single):
        above = not_measured(single.reason or "")
    return Markup(
        heading(f"Phases over the {data.evidence.summary.run.loop.run_noun}")
        + over_time(steps)
        + _curves(data, MACHINE_KEYS)
        + heading("Distribution")
        + histogram(data.walls)
        + above
    )


def _curves(data: PageData, shown_keys: frozenset[str]) -> Markup:
    """The small pictures, and beneath them what was not measured."""
    steps = data.series.steps
    charts = [chart for chart in data.series.charts if chart.key in shown_keys]
    if steps is None:
        return Markup("")
    pictures = [drawn(chart, steps.begins) for chart in drawable(charts)]
    grid = tag("div", *pictures, kind="grid") if pictures else Markup("")
    return Markup(grid + missing(absent(charts)))


def _of_ranks(data: PageData) -> Markup:
    alone = data.evidence.summary.run.world_size == 1
    return Markup("") if alone else _curves(data, _OF_RANKS)


def _tables(tables: Sequence[Table]) -> Markup:
    return Markup("".join(map(shown, tables)))


def _light(data: PageData) -> Markup:
    """How far the step is from its floor, and what it is spent on."""
    summary = data.evidence.summary
    grids = _tables(of_step(summary))
    if data.evidence.light is None:
        return Markup(not_measured(_audit(summary)) + grids)
    return Markup(paragraph(light_line(summary)) + grids)


def _audit(summary: Summary) -> str:
    if imported_from(summary.run.config):
        return "the run was imported from a log"
    return f"needs an audit of one step: {summary.run.loop.audit}"


def _memory(summary: Summary) -> Markup:
    """The ledger as a bar and as tables, or why there is none."""
    ledger = summary.memory
    if ledger is None:
        return missing([("What fills the memory", _audit(summary))])
    parts = _parts(ledger)
    drawn_parts = [
        (float(amount), place, f"{name}: {size(amount)}")
        for place, (name, amount) in enumerate(parts)
    ]
    named = keys(
        (f"{name} {size(amount)}", f"b{place}") for place, (name, amount) in enumerate(parts)
    )
    reasons = [
        (name.removesuffix("_bytes").replace("_", " "), why) for name, why in ledger.reasons.items()
    ]
    picture = bar(drawn_parts, "what fills the memory")
    return Markup(picture + named + _tables(of_memory(summary)) + missing(reasons))


def _parts(ledger: MemoryLedger) -> list[tuple[str, int]]:
    """What is known, in the order of the colours."""
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


def _readings(view: RunView) -> Markup:
    rows = [
        (tag("code", text(row.name)), row.value, row.interval, f"{row.steps:,}")
        for row in view.readings
        if row.value
    ]
    reasons = [(row.name, row.reason) for row in view.readings if not row.value]
    return Markup(table(("reading", "value", "95 % CI", "steps"), rows) + missing(reasons))


def _settings(summary: Summary) -> Markup:
    run = summary.run
    groups = (
        ("Settings", run.config),
        ("Hardware", run.hardware),
        ("Software", run.software),
        ("Environment", run.environment),
    )
    grids = []
    for name, entries in groups:
        rows = [
            (fact, "not known" if value is None else str(value)) for fact, value in entries.items()
        ]
        if rows:
            grid = table(("\u00a0", "\u00a0"), rows, words=(0, 1))
            grids.append(tag("div", heading(name), grid))
    return tag("div", *grids, kind="grid") if grids else Markup("")


def first(view: RunView) -> Markup:
    """Name, answer, what to do first, how far the run came, single numbers, and notes."""
    # Seconds and the zone, which is UTC, say nothing to a reader.
    when = f" · {view.started_at[:16].replace('T', ' ')}" if view.started_at else ""
    return tag(
        "header",
        paragraph(f"trainperf · {view.name}{when}", "soft small"),
        tag("h1", text(view.headline)),
        labelled(view.first),
        paragraph(f"{view.about} · {view.progress}", "soft"),
        *(paragraph(f"Note: {warning}", "warn") for warning in view.warnings),
        facts((fact.name, fact.value) for fact in view.facts),
        bullets(view.remarks),
    )


def findings(view: RunView) -> Markup:
    """What to change, by expected gain."""
    if not view.findings:
        return paragraph(view.no_finding, "soft")
    return Markup("".join(map(finding_card, view.findings)))


def breakdown(view: RunView) -> Markup:
    """The mean step, phase by phase, as a bar and as rows."""
    rows = view.phases
    if not rows:
        return paragraph("No step was recorded.", "absent")
    step_s = sum(row.seconds for row in rows)
    timed = [row for row in rows if not row.absent]
    parts = [(row.seconds, row.phase, f"{row.label}: {row.time}") for row in timed]
    head = ("phase", "time per step", "share", meter(0.0, "aside"), "note")
    longest = max(row.fraction for row in rows)
    cells = [_phase(row, longest) for row in rows]
    step = Scale.fine(step_s).say(step_s)
    whole = ("step", step, fine_share(1.0), meter(0.0, "aside"), view.phases_of)
    return Markup(bar(parts, "the mean step") + table(head, [*cells, whole], words=(0, 3, 4)))


def fit(view: RunView) -> Markup:
    """Where the time of the whole fit went."""
    if not view.fit:
        return Markup("")
    parts = [
        (part.fraction or 0.0, FIT_PARTS[place % len(FIT_PARTS)], f"{part.name}: {part.value}")
        for place, part in enumerate(view.fit)
    ]
    rows = [
        (Markup(_key(colour) + text(part.name)), part.value, fine_share(fraction))
        for part, (fraction, colour, _) in zip(view.fit, parts, strict=True)
    ]
    whole = (view.whole, view.fit_time, "")
    return Markup(
        bar(parts, f"the time of the {view.whole}") + table(("", "time", "share"), [*rows, whole])
    )


def _phase(row: PhaseRow, longest: float) -> tuple[str | Markup, ...]:
    name = Markup(_key(row.phase) + text(row.label))
    if row.absent:
        return (name, "", "", meter(0.0, "aside"), row.absent)
    share = meter(row.fraction / longest, f"b{row.phase} aside")
    return (name, row.time, row.share, share, row.note)


def _key(colour: int) -> Markup:
    return Markup(f'<span class="key b{colour}"></span>')
