"""Versions of the same answers: what each is worth next to the model as it was written."""

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from recipes.cases.case import Case, MeasuredRow, PublishedFigure
from recipes.cases.measuring import rows, turns
from recipes.cases.reports import BENCHMARK, Before, before, benchmark_lines, failure_lines
from recipes.cases.verdicts import Expectation, verdict
from recipes.inference import published
from recipes.inference.clocks import first_calls
from recipes.inference.loops import Loop, measured
from recipes.inference.model import Size, batch_of, device, model_of
from trainperf.benchmark import BenchmarkComparison, StepBenchmark
from trainperf.core.formatting.table import UNKNOWN, Table
from trainperf.core.formatting.units import duration, size
from trainperf.smoke import assert_inference


TOLERANCE = 0.05
"""Of the scores, relative to the largest: half precision and int8 round."""

BASELINE, GRADIENTS = "inference_mode", "gradients on"
"""What the versions relate to, and the model as most people call it first."""

AS_WRITTEN = "as-written"
"""Run directory of the loop whose report is asked about them."""

Answer = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One change and what is claimed of it."""

    name: str
    """Of its row."""
    case: str
    """Name of its case."""
    title: str
    """Of its case, as readers see it."""
    claim: str
    change: tuple[str, ...]
    expected: Expectation = "faster"
    why: str
    """Why it would not hold, said only then."""
    published: PublishedFigure


GRADIENTS_ON = Version(
    name=GRADIENTS,
    case="inference_mode",
    title="Inference mode",
    claim="With gradients on answers come later than under inference_mode.",
    change=("with torch.inference_mode():", "    scores = model(batch)"),
    expected="slower",
    why="the operators take nearly all of the time; what autograd adds to each is little next to "
    "them, and the memory that its graph keeps fits",
    published=published.INFERENCE_MODE,
)
AUTOCAST = Version(
    name="autocast in bf16",
    case="autocast_bf16",
    title="Autocast in bf16",
    claim="Autocast in bf16 is faster than fp32.",
    change=(
        "with torch.inference_mode(), torch.autocast(device, torch.bfloat16):",
        "    scores = model(batch)",
    ),
    why="",
    published=published.AUTOCAST,
)
COMPILED = Version(
    name="compiled",
    case="compiled",
    title="torch.compile",
    claim="torch.compile is faster than eager.",
    change=("model = torch.compile(model)",),
    why="the products take most of the time and are the same library's calls in both",
    published=published.COMPILED,
)
QUANTISED = Version(
    name="linear layers in int8",
    case="quantised_linear",
    title="Linear layers in int8",
    claim="Linear layers quantised to int8 are faster than fp32 on a CPU.",
    change=("model = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, torch.qint8)",),
    why="quantising the input of every layer takes what the products save",
    published=published.QUANTISED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What came out."""

    comparison: BenchmarkComparison
    cases: tuple[Case, ...]
    first_calls: tuple[tuple[str, Sequence[float]], ...]


def compared(shape: Size, out: Path) -> Compared:
    """All versions in turns; what each relates to is the model under inference_mode.

    Args:
        shape: Of the model.
        out: Folder for the run directory of a loop, whose report is asked first.
    """
    model, batch = model_of(shape), batch_of(shape).to(device())
    bf16 = torch.autocast(device().type, torch.bfloat16)
    calls: list[tuple[str, Sequence[float]]] = []
    versions: dict[str, Answer] = {
        BASELINE: _under(model),
        GRADIENTS_ON.name: model,
        AUTOCAST.name: _under(model, bf16),
    }
    if shape.compiles:
        compiled = torch.compile(model_of(shape))
        calls.append((COMPILED.name, first_calls(compiled, batch)))
        versions[COMPILED.name] = _under(compiled)
    if device().type == "cpu":
        versions[QUANTISED.name] = _under(quantised(model))
    comparison = turns(
        versions, batch, seconds=shape.seconds * len(versions), tolerance=TOLERANCE, warmup=3
    )
    answers = _before(shape, out, comparison.steps[0])
    cases = tuple(_cases(rows(comparison), answers))
    return Compared(comparison=comparison, cases=cases, first_calls=tuple(calls))


def _before(shape: Size, out: Path, eager: StepBenchmark) -> Mapping[str, Before]:
    """What trainperf says of the model as it is, by version."""
    model = model_of(shape)
    run = measured(shape, out, Loop(name=AS_WRITTEN, model=model))
    timed = benchmark_lines(eager)
    return {
        GRADIENTS_ON.name: Before(
            before=failure_lines(assert_inference, model, batch_of(shape).to(device())),
            before_note="`trainperf.smoke.assert_inference` fails:",
        ),
        AUTOCAST.name: before(run, "matmul_precision"),
        COMPILED.name: Before(
            before=timed,
            before_note="no finding is about a model that nobody meant to compile; "
            "`trainperf.benchmark` decides it:",
        ),
        QUANTISED.name: Before(before=timed, before_note=BENCHMARK),
    }


def _under(model: Answer, *contexts: AbstractContextManager[object]) -> Answer:
    context = contexts[0] if contexts else nullcontext()

    def answer(batch: Tensor) -> Tensor:
        with torch.inference_mode(), context:
            return model(batch)

    return answer


def quantised(model: nn.Module) -> nn.Module:
    """A copy whose linear layers have int8 weights, and quantise their inputs as they come."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch means to move it to another package
        small: nn.Module = torch.ao.quantization.quantize_dynamic(  # type: ignore[no-untyped-call]
            copy.deepcopy(model), {nn.Linear}, dtype=torch.qint8
        )
    return small


def _cases(timed: Sequence[MeasuredRow], answers: Mapping[str, Before]) -> Iterator[Case]:
    baseline, *others = timed
    named = {row.what: row for row in others}
    for version in (GRADIENTS_ON, AUTOCAST, COMPILED, QUANTISED):
        row = named.get(version.name)
        if row is None:
            continue
        why = _no_bf16() if version is AUTOCAST else version.why
        yield Case(
            name=version.case,
            title=version.title,
            claim=version.claim,
            change=version.change,
            measured=(baseline, row),
            published=version.published,
            files=(AS_WRITTEN,) if version is AUTOCAST else (),
            **answers[version.name],
            **verdict(row, version.expected, why),
        )


def _no_bf16() -> str:
    """Why bf16 would not be faster here."""
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        flags = ""
    has = [name for name in ("avx512_bf16", "amx_bf16") if name in flags]
    if not has:
        return "this processor has no instruction that multiplies bf16"
    return f"this processor has {' and '.join(has)}, but conversions take what they save here"


def versions_table(comparison: BenchmarkComparison) -> Table:
    """All versions with their memory and how far their answers are from those of the first."""
    apart = {each.name: each.difference for each in comparison.versus}
    table_rows = []
    for step in comparison.steps:
        difference = apart.get(step.name)
        table_rows.append(
            (
                step.name,
                duration(step.median_s),
                duration(step.iqr_s),
                str(len(step.steady_s)),
                UNKNOWN if step.memory.peak_bytes is None else size(step.memory.peak_bytes),
                UNKNOWN if difference is None else f"{difference:.2g}",
            )
        )
    return Table(
        title="The same answers in several ways",
        head=("", "median", "IQR", "calls", "peak memory", "scores differ by"),
        rows=tuple(table_rows),
        notes=("Timed in turns by `trainperf.benchmark.compare`; scores relative to the largest.",),
    )
