"""Artifacts that a run directory holds."""

from dataclasses import dataclass, field

from trainperf.core.artifacts import D, read_document
from trainperf.core.artifacts.audit import MeasuredChip, StepAudit
from trainperf.core.artifacts.compilation import Compilation
from trainperf.core.artifacts.lines import SampledLines
from trainperf.core.artifacts.memory import MemoryLedger
from trainperf.core.artifacts.standstill import Standstill, read_standstills
from trainperf.core.artifacts.trials import Trials
from trainperf.core.errors import RunError
from trainperf.core.paths import AnyPath


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """Those of one run; `None` for what nobody looked at, or what cannot be read."""

    audit: StepAudit | None = None
    chip: MeasuredChip | None = None
    memory: MemoryLedger | None = None
    compilation: Compilation | None = None
    lines: SampledLines | None = None
    trials: Trials | None = None
    standstills: tuple[Standstill, ...] = ()
    problems: dict[str, str] = field(default_factory=dict)
    """Name of a file that cannot be read, to why."""


def read_documents(run: AnyPath) -> Documents:
    """Read them all; a damaged one is a problem to tell, never an error."""
    problems: dict[str, str] = {}

    def read(kind: type[D]) -> D | None:
        try:
            return read_document(kind, run)
        except RunError as error:
            problems[kind.file] = str(error)
            return None

    return Documents(
        audit=read(StepAudit),
        chip=read(MeasuredChip),
        memory=read(MemoryLedger),
        compilation=read(Compilation),
        lines=read(SampledLines),
        trials=read(Trials),
        standstills=tuple(read_standstills(run)),
        problems=problems,
    )
