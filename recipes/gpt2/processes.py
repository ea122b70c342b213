"""Training processes: one run by itself, or both sides of a stage in turns.

Every run has its own process: two processes that do the same differ by about 1 % for as long as
they live, and repeats inside one process would not show it.  Runs of a side share a process only
where starting one is expensive: with `torch.compile`, and on a GPU.
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
from recipes.gpt2.train import Also, Recipe, quieten, train
from trainperf.core import interleaving
from trainperf.core.launch_environment import VARIABLE, LaunchOptions, TrialLaunch


TURN_STEPS = 15
"""Steps of a turn: one second of the smallest model, so few steps are a turn's excluded first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A run to be trained."""

    settings: Settings
    folder: str
    """Relative to the walkthrough's folder."""
    profiled: bool
    """Audit one step, and on a GPU trace the last ones."""
    also: Also = ""
    """What else is done in a profiled run."""


class Training(Protocol):
    """How runs are trained: `Processes`, or a test's own."""

    def alone(self, work: Recipe, order: list[Document], run: Planned) -> None:
        """One run."""

    def by_turns(
        self, work: Recipe, order: list[Document], pairs: Sequence[tuple[Planned, Planned]]
    ) -> Generator[None, None, None]:
        """Train pairs of runs, both of a pair at the same time; yields after each pair.

        Raises:
            RuntimeError: A run failed, e.g. out of memory.
        """


class Processes:
    """Real training."""

    def alone(self, work: Recipe, order: list[Document], run: Planned) -> None:
        """One run, in this process; changes are tried in one of their own, which ends with them."""
        if run.also == "trials":
            _try(work, order, run)
        else:
            train(work, run.settings, order, run.folder, profiled=run.profiled, also=run.also)

    def by_turns(
        self, work: Recipe, order: list[Document], pairs: Sequence[tuple[Planned, Planned]]
    ) -> Generator[None, None, None]:
        """Train pairs of runs; those of a side share a process where starting one is expensive."""
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
            processes = {}
            for side, runs in enumerate(zip(*pairs, strict=True)):
                participant = interleaving.Participant(address=str(address), side=side)
                variables = participant.variable()
                process, end = stack.enter_context(_process(variables, work, order, runs))
                processes[end] = process
            for _ in pairs:
                _await_all(processes)
                yield
            for side, process in enumerate(processes.values()):
                process.join()
                referee.gone(side)


def _try(work: Recipe, order: list[Document], run: Planned) -> None:
    """Try changes in a run that ends with them; what a change ends was measured until then."""
    trials = TrialLaunch(minutes=work.trial_minutes)
    launch = LaunchOptions(dirpath=str(work.out / run.folder), trials=trials)
    variables = {VARIABLE: launch.environment({})[VARIABLE]}
    with _process(variables, work, order, [run]) as (process, _):
        process.join()


@contextmanager
def _process(
    variables: Mapping[str, str],
    work: Recipe,
    order: list[Document],
    runs: Sequence[Planned],
) -> Iterator[tuple[BaseProcess, "Connection[None, str]"]]:
    # Forked from a process that has imported everything and computed nothing.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["recipes.gpt2.train"])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_side, args=(variables, work, order, runs, sender))
    process.start()
    sender.close()
    try:
        yield process, receiver
    finally:
        process.kill()  # does nothing to one that has ended; there is nothing to save
        process.join()
        receiver.close()


def _side(
    variables: Mapping[str, str],
    work: Recipe,
    order: list[Document],
    runs: Sequence[Planned],
    sender: "Connection[str, None]",
) -> None:
    """Train all runs of one side; after each send its error, empty for none.

    The variables are what launches them: turns with the other side, or trials.
    """
    os.environ.update(variables)
    quieten()
    for run in runs:
        try:
            train(work, run.settings, order, run.folder, profiled=run.profiled, also=run.also)
        except RuntimeError as error:  # out of memory, or the compiler gave up
            sender.send(str(error) or type(error).__name__)
            return
        sender.send("")


def _await_all(processes: "Mapping[Connection[None, str], BaseProcess]") -> None:
    """Return when every side has finished one more run."""
    pending = dict(processes)
    while pending:
        ready = wait(list(pending))
        for end in [each for each in pending if each in ready]:
            _check(end, pending.pop(end))


def _check(end: "Connection[None, str]", process: BaseProcess) -> None:
    try:
        error = end.recv()
    except EOFError:
        process.join()
        raise ChildProcessError(
            f"a training process ended with exit code {process.exitcode}; see its error above"
        ) from None
    if error:
        raise RuntimeError(error)
