"""Who trains?  One run by itself, or both sides of a stage at once, in interleaving.

Every run has a process of its own: two processes that do the same differ by about a percent for as
long as they live, and repeats in one process would not show it.  Only where something is compiled
do the runs of a side share one, for it takes too long to be done again, and on a GPU, which takes
seconds to be begun with.
"""

import multiprocessing
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Protocol

from recipes.gpt2.machine import this_machine
from recipes.gpt2.stages import Settings
from recipes.gpt2.text import DocumentSpan as Document
from recipes.gpt2.train import Recipe, quieten, train
from trainperf.core import interleaving


TURN_STEPS = 15
"""A second of the smallest model.  Few steps are the first of a turn, which are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A run."""

    settings: Settings
    folder: str
    """Below that of the walkthrough."""
    looked_at: bool
    """Whether one step is audited, and on a GPU the last ones are traced."""


class Training(Protocol):
    """Trains: `Processes`, but for tests that plant what it would have measured."""

    def alone(self, work: Recipe, order: list[Document], run: Planned) -> None:
        """One run."""

    def by_turns(
        self, work: Recipe, order: list[Document], pairs: Sequence[tuple[Planned, Planned]]
    ) -> Generator[None, None, None]:
        """Pairs of runs, those of a pair at once; comes back after each pair.

        Raises:
            RuntimeError: One of them failed, e.g. for lack of memory.
        """


class Processes:
    """Trains for real."""

    def alone(self, work: Recipe, order: list[Document], run: Planned) -> None:
        """One run, in this process."""
        train(work, run.settings, order, run.folder, looked_at=run.looked_at)

    def by_turns(
        self, work: Recipe, order: list[Document], pairs: Sequence[tuple[Planned, Planned]]
    ) -> Generator[None, None, None]:
        """Pairs of runs; where a process takes long to begin, those of a side share one."""
        cuda = this_machine(work.accelerator).cuda
        together = cuda or any(run.settings.compiled for run in pairs[0])
        for several in [pairs] if together else [[pair] for pair in pairs]:
            yield from self._at_once(work, order, several)

    @staticmethod
    def _at_once(
        work: Recipe, order: list[Document], pairs: Sequence[tuple[Planned, Planned]]
    ) -> Iterator[None]:
        with ExitStack() as stack:
            address = stack.enter_context(interleaving.new_address())
            referee = stack.enter_context(interleaving.Referee(address, TURN_STEPS))
            told = {}
            for side, runs in enumerate(zip(*pairs, strict=True)):
                place = interleaving.Participant(address=str(address), side=side)
                process, end = stack.enter_context(_process(place, work, order, runs))
                told[end] = process
            for _ in pairs:
                _hear(told)
                yield
            for side, process in enumerate(told.values()):
                process.join()
                referee.gone(side)


@contextmanager
def _process(
    place: interleaving.Participant, work: Recipe, order: list[Document], runs: Sequence[Planned]
) -> Iterator[tuple[BaseProcess, "Connection[None, str]"]]:
    # Forked from a process that has imported everything and computed nothing.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["recipes.gpt2.train"])
    told, tells = context.Pipe(duplex=False)
    process = context.Process(target=_side, args=(place, work, order, runs, tells))
    process.start()
    tells.close()
    try:
        yield process, told
    finally:
        process.kill()  # does nothing to one that has ended; there is nothing to save
        process.join()
        told.close()


def _side(
    place: interleaving.Participant,
    work: Recipe,
    order: list[Document],
    runs: Sequence[Planned],
    tells: "Connection[str, None]",
) -> None:
    """All runs of one side; tells after each why it failed, or that it did not."""
    os.environ.update(place.variable())
    quieten()
    for run in runs:
        try:
            train(work, run.settings, order, run.folder, looked_at=run.looked_at)
        except RuntimeError as error:  # out of memory, or the compiler gave up
            tells.send(str(error) or type(error).__name__)
            return
        tells.send("")


def _hear(told: "Mapping[Connection[None, str], BaseProcess]") -> None:
    """Until every side has told of one more run; whichever tells first."""
    silent = dict(told)
    while silent:
        spoken = wait(list(silent))
        for end in [one for one in silent if one in spoken]:
            _heard(end, silent.pop(end))


def _heard(end: "Connection[None, str]", process: BaseProcess) -> None:
    try:
        failed = end.recv()
    except EOFError:
        process.join()
        raise ChildProcessError(
            f"a training ended with exit code {process.exitcode}; why is printed above"
        ) from None
    if failed:
        raise RuntimeError(failed)
