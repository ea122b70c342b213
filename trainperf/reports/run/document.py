"""The document of a run: the answer, what to do, and section by section what it stands on."""

from collections.abc import Mapping, Sequence

from trainperf.analysis.summary.captures import steps_of
from trainperf.analysis.summary.schema import Summary
from trainperf.core.formatting.html.markup import Markup
from trainperf.core.formatting.html.palette import COLOURS
from trainperf.core.formatting.table import Table
from trainperf.core.formatting.units import Scale, duration, words
from trainperf.core.formatting.wrap import PLUS
from trainperf.core.loop_kind import NO_INFERENCE, NO_TRAINING, imported_from
from trainperf.meters.fold import Reading
from trainperf.reports.layout.document import (
    Heading,
    Part,
    Pictured,
    Sentence,
    items,
    missing,
    not_measured,
    parts_of,
    section,
)
from trainperf.reports.layout.finding_view import NEXT, finding_view, first_rows
from trainperf.reports.run.headline import headline, nothing_found
from trainperf.reports.run.machine import of_machine
from trainperf.reports.run.ranks import ranks_section
from trainperf.reports.run.rows import (
    about,
    amount,
    facts,
    fit_sum,
    phase_rows,
    phases_of,
    progress,
    remarks,
    script_sum,
)
from trainperf.reports.run.tables import (
    light_line,
    of_compilation,
    of_lines,
    of_memory,
    of_step,
    split_line,
)
from trainperf.reports.trials import tried


_BAR = 16
_EIGHTHS = " ▏▎▍▌▋▊▉"


def run_document(
    summary: Summary, charts: Mapping[str, Sequence[Part]] | None = None
) -> list[Part]:
    """Everything that is told of a run; with *charts* by section every reading and setting, too."""
    drawn, run = charts or {}, summary.run
    # Seconds and the zone, which is UTC, say nothing to a reader.
    when = run.started_at[:16].replace("T", " ")
    title = ("trainperf", run.name, when, about(summary), progress(summary))
    findings = [finding_view(finding) for finding in summary.findings]
    trials = [] if summary.trials is None else tried(summary.trials, running=run.state == "running")
    reasons = summary.memory.reasons.items() if charts and summary.memory else ()
    unknown = missing([(words(name.removesuffix("_bytes")), why) for name, why in reasons])
    whole = items(map(PLUS.join, (script_sum(summary), fit_sum(summary))), "")
    log = "the run was imported from a log" if imported_from(run.config) else ""
    needs = not_measured(log or f"needs an audit of one step: {run.loop.audit}")
    unaudited = [] if charts is None else items([needs], "soft")
    filled = parts_of(summary.memory, of_memory) or unaudited
    return [
        Heading(" · ".join(filter(None, title)), 1),
        Sentence(text=headline(summary), kind="answer"),
        *first(summary),
        *items(summary.warnings, "warn", "note"),
        *items([" · ".join(facts(summary))], "facts"),
        *items(remarks(summary), "soft", "note"),
        *section("Where a step goes", phases(summary), why(summary)),
        *section("Your code and your loader", of_lines(summary)),
        *section("What to change", findings or items([nothing_found(summary)], "soft")),
        *section("What was tried", trials),
        *section("How long the steps took", drawn.get("steps", ())),
        *section(f"Other measurements over the {run.loop.run_noun}", drawn.get("others", ())),
        *section("Ranks", ranks_section(summary), drawn.get("ranks", ())),
        *section("Memory", filled, unknown, drawn.get("memory", ())),
        *section("The machine", parts_of(summary.machine, of_machine), drawn.get("machine", ())),
        *section("Speed of light", of_step(summary) or unaudited),
        *section("torch.compile", parts_of(summary.compilation, of_compilation)),
        *section("Captures", _captures(summary), drawn.get("captures", ())),
        *section(f"The whole {run.loop.run_noun}", whole),
        *(_everything(summary) if charts else []),
    ]


def first(summary: Summary) -> list[Part]:
    """What to do first, and where."""
    return [
        Sentence(text=row.text, label=row.label, kind="first" if row.label == NEXT else "")
        for row in first_rows(summary.findings)
    ]


def why(summary: Summary) -> list[Sentence]:
    """What the step is spent on, and how far that is from what the chip allows."""
    lines = (split_line(summary), light_line(summary))
    return [Sentence(text=line, joint=" · ") for line in lines if line]


def phases(summary: Summary) -> list[Part]:
    """The mean step, phase by phase, as rows with their bars."""
    rows = phase_rows(summary)
    if not rows:
        return []
    step_s, longest = sum(row.seconds for row in rows), max(row.fraction for row in rows)
    cells = tuple(
        (row.label, "", " " * _BAR, "", row.absent)
        if row.absent
        else (row.label, row.time, _blocks(row.fraction), row.share, row.note)
        for row in rows
    )
    table = Table(
        head=("phase", "time per step", "", "share", ""),
        rows=cells,
        end_words=1,
        notes=(f"step {Scale.fine(step_s).say(step_s)}, {phases_of(summary)}",),
    )
    meters = tuple(meter(row.fraction / longest, f"b{row.phase % COLOURS} aside") for row in rows)
    return [Pictured(table=table, place=2, head=meter(0.0, "aside"), cells=meters, instead=1)]


def meter(share: float, kind: str) -> Markup:
    """A bar in a cell of a table, a share of the cell's width."""
    wide = min(1.0, max(0.0, share)) * 100
    return Markup(f'<span class="meter {kind}" style="width:{wide:.2f}%"></span>')


def _blocks(fraction: float) -> str:
    eighths = round(min(max(fraction, 0.0), 1.0) * _BAR * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(_BAR)


def _captures(summary: Summary) -> list[Part]:
    """Whether the records agree with the traces."""
    return [
        Sentence(
            text=f"{steps_of(each)}, rank {each.rank}: {duration(each.recorded_s)} per step in the "
            f"records, {duration(each.traced_s)} in the trace: "
            f"they {'agree' if each.agree else 'disagree'}"
        )
        for each in summary.traces
        if each.recorded_s and each.traced_s
    ]


def _everything(summary: Summary) -> list[Part]:
    """All readings with their intervals, and the settings."""
    applying = {
        name: reading
        for name, reading in summary.readings.items()
        if reading.reason not in (NO_TRAINING, NO_INFERENCE)
    }
    rows = tuple(
        (name, amount(reading.value, reading.unit, name), _interval(name, reading), str(reading.n))
        for name, reading in applying.items()
        if reading.value is not None
    )
    reasons = [(name, each.reason or "") for name, each in applying.items() if each.value is None]
    table = Table(head=("reading", "value", "95 % CI", "steps"), rows=rows)
    run = summary.run
    groups = (run.config, run.hardware, run.software, run.environment)
    settings = tuple(
        (name, "not known" if value is None else str(value))
        for group in groups
        for name, value in group.items()
    )
    grid = [Table(head=("setting", "value"), rows=settings, words=2)] if settings else []
    return [
        *section("All readings", [table] if rows else [], missing(reasons)),
        *section("The run", items([run.path], "soft"), grid),
    ]


def _interval(name: str, reading: Reading) -> str:
    if reading.low is None or reading.high is None:
        return ""
    low, high = (amount(end, reading.unit, name) for end in (reading.low, reading.high))
    return f"{low} – {high}"
