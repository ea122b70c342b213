"""Run directories for tests: written with the codec, as a training process would."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from itertools import accumulate
from pathlib import Path
from typing import ParamSpec

import msgspec
from support.blocks import row_of

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.schema import Summary
from trainperf.core.phases import PHASES, Gap, Tag
from trainperf.core.steps.block import StepSchema
from trainperf.core.steps.codec import Entry, encode_entry, encode_rows
from trainperf.core.steps.records import (
    FACTS,
    EndMark,
    GapRecord,
    RunInfo,
    Scalar,
    StepRecord,
    Totals,
)


MS = 1_000_000
WARMUP_STEPS = 12
LABELS = [phase.label for phase in PHASES]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSpec:
    """What one rank wrote."""

    steps: Sequence[StepRecord]
    info: RunInfo = field(default_factory=RunInfo)
    gaps: Sequence[GapRecord] = ()
    totals: Totals | None = None
    end: str | None = "finished"
    fit_ns: int | None = None
    attempt: int = 0


def make_step(
    index: int,
    *,
    tags: int = 0,
    start_ns: int = 0,
    micro_batches: int = 1,
    facts: Mapping[str, int | float | None] | None = None,
    **phases_ms: float,
) -> StepRecord:
    """A step whose phases are given by label in milliseconds."""
    host = [round(phases_ms.get(label, 0.0) * MS) for label in LABELS]
    assert not phases_ms.keys() - set(LABELS)
    return StepRecord(
        index=index,
        start_ns=start_ns,
        tags=tags,
        micro_batches=micro_batches,
        host_ns=tuple(host),
        facts=dict(facts or {}),
    )


Laid = ParamSpec("Laid")


def end_to_end(steps: Callable[Laid, Iterable[StepRecord]]) -> Callable[Laid, list[StepRecord]]:
    """The steps that a function makes, each from where the one before it ends."""

    @wraps(steps)
    def laid(*args: Laid.args, **options: Laid.kwargs) -> list[StepRecord]:
        made = list(steps(*args, **options))
        starts = accumulate((step.wall_ns for step in made), initial=0)
        return [msgspec.structs.replace(step, start_ns=next(starts)) for step in made]

    return laid


@end_to_end
def make_steps(
    number: int,
    *,
    warmup: int = WARMUP_STEPS,
    facts: Mapping[str, int | float | None] | None = None,
    **phases_ms: float,
) -> Iterator[StepRecord]:
    """Equal steps one after the other, of which the first *warmup* are warm-up."""
    for index in range(number):
        tags = int(Tag.WARMUP) if index < warmup else 0
        yield make_step(index, tags=tags, facts=facts, **phases_ms)


def make_gap(
    gap: Gap, milliseconds: float, *, start_ns: int = 0, after_step: int = -1
) -> GapRecord:
    """A gap of so many milliseconds."""
    return GapRecord(
        gap=gap.label,
        start_ns=start_ns,
        duration_ns=round(milliseconds * MS),
        after_step=after_step,
    )


def make_info(
    *,
    rank: int = 0,
    world_size: int = 1,
    device: str = "cpu",
    config: Mapping[str, Scalar] | None = None,
    hardware: Mapping[str, Scalar] | None = None,
    reasons: Mapping[str, str] | None = None,
) -> RunInfo:
    """A header of a fit under Lightning; the columns are filled in from the steps."""
    return RunInfo(
        started_at="2026-11-01T12:00:00+00:00",
        rank=rank,
        world_size=world_size,
        device=device,
        config={"loop": "lightning", **(config or {})},
        hardware=dict(hardware or {}),
        reasons=dict(reasons or {}),
    )


def encode_rank(spec: RankSpec) -> bytes:
    """The bytes of one rank's record file."""
    present = {name for step in spec.steps for name in step.facts}
    columns = tuple(name for name in FACTS if name in present)
    schema = StepSchema(columns, spec.info.device)
    info = RunInfo(**{**_fields(spec.info), "columns": columns})
    parts = [encode_entry(info), encode_rows([row_of(step, schema) for step in spec.steps])]
    parts += [encode_entry(entry) for entry in _entries(spec)]
    return b"".join(parts)


def make_run_dir(path: Path, ranks: Iterable[RankSpec]) -> Path:
    """Write a run directory and return it."""
    path.mkdir(parents=True, exist_ok=True)
    for spec in ranks:
        suffix = f".attempt{spec.attempt}" if spec.attempt else ""
        target = path / f"steps-rank{spec.info.rank}{suffix}.jsonl"
        target.write_bytes(encode_rank(spec))
    return path


def make_run(
    path: Path,
    number: int = 200,
    *,
    config: Mapping[str, Scalar] | None = None,
    hardware: Mapping[str, Scalar] | None = None,
    facts: Mapping[str, int | float | None] | None = None,
    **phases_ms: float,
) -> Path:
    """Write the run of one rank on a CPU whose steps are all equal, and return its directory."""
    steps = make_steps(number, facts=facts, **phases_ms)
    return make_run_dir(
        path, [RankSpec(steps=steps, info=make_info(config=config, hardware=hardware))]
    )


def _entries(spec: RankSpec) -> list[Entry]:
    entries: list[Entry] = list(spec.gaps)
    if spec.totals is not None:
        entries.append(spec.totals)
    if spec.end is not None:
        spent = sum(step.wall_ns for step in spec.steps) + sum(g.duration_ns for g in spec.gaps)
        fit_ns = spent if spec.fit_ns is None else spec.fit_ns
        entries.append(
            EndMark(
                reason=spec.end,
                fit_ns=fit_ns,
                steps=len(spec.steps),
            )
        )
    return entries


def _fields(info: RunInfo) -> dict[str, object]:
    return {name: getattr(info, name) for name in info.__struct_fields__}


def summary_of(path: Path, ranks: Iterable[RankSpec], *, now_s: float | None = None) -> Summary:
    """The summary of a run directory made for it."""
    return summarize(Run.open(make_run_dir(path / "gpt2" / "trainperf", ranks)), now_s=now_s)


def rounded(summary: Summary, digits: int) -> object:
    """A summary to so many digits: blocks of another size sum floats in another order."""

    def of(value: object) -> object:
        if isinstance(value, dict):
            return {key: of(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [of(each) for each in value]
        return float(f"{value:.{digits}g}") if isinstance(value, float) else value

    return of(msgspec.to_builtins(summary))
