"""Feeds what torch.compile did: graphs per step, and for the whole fit why, where and how long."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from trainperf.core.artifacts import write_document
from trainperf.core.artifacts.compilation import Compilation, Compiled, CompiledStep, GraphBreak
from trainperf.core.phases import Tag
from trainperf.core.steps.records import Scalar
from trainperf.recording.probes.base import Batch, Probe, add
from trainperf.recording.probes.dynamo_log import (
    compilations,
    compiled,
    compiling_s,
    graph_break,
    graph_breaks,
    graphs_recorded,
    utilities,
)
from trainperf.recording.recorder import Draft


MOST = 1000
"""Compilations that are kept one by one: a fit that makes more has told what it suffers from."""


class CompileProbe(Probe):
    """Counts the graphs torch.compile has built, by its own statistics, and keeps its reasons.

    Reads `torch._dynamo.utils`, which is not a public interface: what a version lacks is reported
    as not measured.  A step in which nothing was compiled costs two look-ups.

    Args:
        run: Where `compile.json` is written once something was compiled; by default nowhere.
    """

    name = "compile"
    facts: ClassVar[tuple[str, ...]] = ("recompiles",)
    counts: ClassVar[tuple[str, ...]] = facts

    def __init__(self, run: Path | None = None) -> None:
        self._run = run
        self._counters: Mapping[str, Counter[str]] | None = None
        """What the compiler counts, once it was loaded."""
        self._built = 0
        self._new = False
        """Whether something is known that is not written."""
        self._compiled: list[Compiled] = []
        self._breaks: Counter[tuple[str, str]] = Counter()
        self._steps: list[CompiledStep] = []

    def begin(self) -> None:
        """Note what there is already."""
        self._latest, self._breaks_before = compilations(), len(graph_breaks())
        self._spent_s = compiling_s() or 0.0
        self._frames, self._graphs = _counted("frames", "total"), graphs_built()
        self._unrecorded = _counted("inductor", "cudagraph_skips")
        self._recorded = graphs_recorded()

    def detach(self) -> None:
        """The last gap may have compiled something too."""
        self._look(None)
        self._new = bool(self._built)  # CUDA graphs are recorded after what they are of
        self._write()

    def config(self) -> dict[str, Scalar]:
        """Whether anything was compiled, where anybody has loaded the compiler."""
        return {"ran_compiled": bool(self._built or graphs_built())} if utilities() else {}

    def micro_batch(self, batch: Batch, loss: object) -> None:
        """Compare with the micro-batch before.  Runs every micro-batch."""
        if self._counters is None:
            utils = utilities()
            self._counters = None if utils is None else utils.counters
        # Empty until something was compiled: one look and no more in most fits.
        # Then `[...]` would run the counter's Python code for a missing key, every step.
        if self._counters and self._counters["frames"].get("total", 0) != self._frames:
            self._look(self.recorder.draft)

    def gap(self, begins: bool) -> None:  # noqa: FBT001 as in the base
        """What was built so far is the open step's; what is built in a gap is nobody's."""
        self._look(self.recorder.draft if begins else None)

    def resolve(self, drafts: Sequence[Draft]) -> None:
        """Write what is known by now, if anything is new.  Runs every flush."""
        steps = [
            CompiledStep(step=draft.index, wall_s=sum(draft.host_ns) / 1e9)
            for draft in (drafts if self._built else ())
            if draft.host_ns and draft.facts["recompiles"]  # one that goes on comes again
        ]
        self._steps += steps
        self._new |= bool(steps)
        self._write()

    def _look(self, draft: Draft | None) -> None:
        """Charge a step, or none, with the graphs that were built since the last look."""
        frames, built = _counted("frames", "total"), graphs_built()
        if frames == self._frames:
            return
        graphs = max(0, built - self._graphs)  # `torch._dynamo.reset()` starts counting anew
        self._frames, self._graphs = frames, built
        # Torch keeps the latest few: the new ones are told apart by identity.
        old, self._latest = set(map(id, self._latest)), compilations()
        step = None if draft is None else draft.index
        self._compiled += [compiled(each, step) for each in self._latest if id(each) not in old]
        del self._compiled[MOST:]
        breaks = graph_breaks()
        new = breaks[self._breaks_before if self._breaks_before <= len(breaks) else 0 :]
        self._breaks.update(map(graph_break, new))
        self._breaks_before = len(breaks)
        self._built += graphs
        self._new = True
        if draft is not None and graphs:
            add(draft, "recompiles", graphs)
            draft.tags |= Tag.RECOMPILED

    def _write(self) -> None:
        if self._run is None or not self._new:
            return
        self._new = False
        write_document(
            Compilation(
                graphs=self._built,
                compile_s=compiling_s(self._spent_s),
                recorded=max(0, graphs_recorded() - self._recorded),
                unrecorded=max(0, _counted("inductor", "cudagraph_skips") - self._unrecorded),
                compiled=tuple(self._compiled),
                breaks=tuple(
                    GraphBreak(reason=reason, where=where, times=times)
                    for (reason, where), times in self._breaks.most_common()
                ),
                steps=tuple(self._steps),
            ),
            self._run,
        )


def graphs_built() -> int:
    """Graphs that torch.compile has built in this process."""
    return _counted("stats", "unique_graphs")


def backwards_captured() -> int:
    """Backward passes that compiled autograd has captured in this process, with their hooks."""
    return _counted("compiled_autograd", "captures")


def _counted(what: str, name: str) -> int:
    """What torch counts of its compilations in this process."""
    utils = utilities()
    return 0 if utils is None else utils.counters[what].get(name, 0)
