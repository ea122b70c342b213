"""Conductor: takes a training through its trials, step by step.

It is a plan that runs between two steps: a generator that asks for so many steps and is sent what
they took.  Each change is first made on the same batches as without it, from the same weights, for
the loss; then it is switched on and off in blocks of steps that take turns.  After each trial the
state of before is put back.
"""

import math
from collections.abc import Callable, Generator, Sequence
from statistics import fmean, median
from typing import TypeVar

import msgspec

from trainperf.accelerators import accelerator_of
from trainperf.core.artifacts import trials as document
from trainperf.core.launch_environment import TrialLaunch
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.stats.verdict import verdict_of
from trainperf.recording.guard import Guard
from trainperf.recording.probes.compilation import graphs_built
from trainperf.trials.results import (
    LEAST_GAIN,
    FailedError,
    Ran,
    alike,
    bound_of,
    mean_loss,
    most_promising,
    peak_bytes,
    result_of,
)
from trainperf.trials.speedup import LOOKS, Block, is_decided, switched_speedup
from trainperf.trials.state import RESTORED, Snapshot
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, together


R = TypeVar("R")
Steps = Generator[int, list[Ran], R]
"""Yields how many steps to run, and is sent them."""

BLOCK_NS = 60_000_000
"""A block takes at least so long, and two steps."""
MOST_STEPS = 64
"""Of a block."""
SAME_STEPS = 4
"""By whose losses a change is compared with the training as it is."""
WARM_STEPS, WARM_LOOKS = 3, 10
"""Steps with a change between two looks whether they take equally long yet; and looks at most."""
STEADY = 1.15
"""Ratio up to which they do."""
RESERVED, MOST_RESERVED = 0.1, 0.3
"""Of the budget, for sets: for each change that is worth keeping, and altogether."""
TRIAL_NS = 20_000_000_000
"""One trial takes at most so long by the host clock; all of them together may leave it less."""
ADDS = 1.01
"""By which a set must be faster than it was without its last member."""


class Conductor:
    """The trials of one training, in their order.

    Args:
        training: That is tried.
        trials: What is tried in it; those that come late are put behind the others.
        launch: How long all of it may take, by the host clock, and what ended earlier attempts.
        tell: Hears what is known so far, before and after each trial.
        guard: Under which a trial is switched: one that raises is undone, and said so.
        earlier: What an earlier attempt came to.
    """

    def __init__(
        self,
        training: Training,
        trials: Sequence[Trial],
        launch: TrialLaunch,
        tell: Callable[[document.Trials], object],
        guard: Guard,
        earlier: Sequence[document.TrialResult] = (),
    ) -> None:
        self._training = training
        self._trials = sorted(trials, key=lambda trial: trial.run_last)
        self._launch = launch
        self._total_ns = round(launch.minutes * 60e9)
        self._tell = tell
        self._guard = guard
        self._results = list(earlier)
        self._baseline_ns: list[float] = []
        self._agree = training.agreement.largest
        """The largest of a value over all ranks, so that every rank decides alike; it raises
        `RanksApartError` if a rank has not answered: its trials may have been switched off."""
        self._began_ns = monotonic_ns()
        self._trying = ""
        self.reads_loss = False
        """Whether the losses of the steps that run now are asked for."""
        self.untouched = True
        """Whether the steps that run now are those of the training as it is."""

    # -- the plan -----------------------------------------------------------------------------

    def plan(self) -> Steps[None]:
        """Everything, from the first step of the training on."""
        yield from self._settle()
        self.untouched = False
        self._began_ns = monotonic_ns()
        waiting = self._in_common()
        while waiting:
            trial = most_promising(waiting, self._results)
            # Sets have their turn in a short run too.
            reserved = min(RESERVED * len(self._worth_keeping()), MOST_RESERVED)
            remaining = self._remaining_ns() - reserved * self._total_ns
            yield from self._tried(trial, remaining / len(waiting))
            waiting.remove(trial)
        yield from self._sets()
        self._trying = ""
        self._tell(self.so_far())

    def so_far(self) -> document.Trials:
        """The document, as far as it is known."""
        blocks = self._baseline_ns
        return document.Trials(
            baseline=document.Baseline(step_s=median(blocks) / 1e9, blocks=len(blocks))
            if blocks
            else None,
            trials=document.in_order(self._results),
            planned=sum(not self._why_not(trial) for trial in self._trials),
            trying=self._trying,
            script=self._launch.script,
            restored=RESTORED,
            took_s=(monotonic_ns() - self._began_ns) / 1e9,
        )

    # -- one trial ------------------------------------------------------------------------------

    def _in_common(self) -> list[Trial]:
        """Trials that all ranks have yet to do: numbers of workers come from a host's CPUs."""
        judged = {result.id for result in self._results}
        waiting = {trial.id: trial for trial in self._trials if trial.id not in judged}
        common = self._training.agreement.in_common(list(waiting))
        self._results += [
            result_of(trial, verdict="not applicable", reason="another rank has no such trial")
            for trial in waiting.values()
            if trial.id not in common
        ]
        return [waiting[id_] for id_ in common]

    def _settle(self) -> Steps[None]:
        """Steps until they take equally long, as caches fill."""
        before = now = math.inf
        for _ in range(WARM_LOOKS):
            before, times = now, [ran.ns for ran in (yield WARM_STEPS)]
            now = self._agree(median(times))
            if max(now / before, before / now) <= STEADY:
                break

    def _tried(
        self, trial: Trial, for_ns: float, parts: Sequence[Trial] = ()
    ) -> Steps[document.TrialResult]:
        """One trial, told before it begins, and what it came to; of a set with its *parts*."""
        why = self._why_not(trial)
        if self._agree(float(bool(why))):
            result = result_of(
                trial,
                verdict="failed" if trial.id in self._launch.ended_by else "not applicable",
                reason=why or "it does not apply on another rank",
            )
        elif for_ns <= 0:
            result = result_of(trial, verdict="undecided", reason="no time was left for it")
        else:
            self._trying = trial.id
            self._tell(self.so_far())
            result = yield from self._measured(trial, min(for_ns, TRIAL_NS))
        result = msgspec.structs.replace(result, parts=tuple(each.id for each in parts))
        self._results.append(result)
        self._tell(self.so_far())
        return result

    def _measured(self, trial: Trial, for_ns: float) -> Steps[document.TrialResult]:
        """What a trial came to; afterwards all is as it was, unless the fit has ended amid it."""
        began = monotonic_ns()
        training = self._training
        snapshot = Snapshot(training.module, training.optimizers, training.others)
        try:
            losses, first_ns = yield from self._on_the_same_batches(trial, snapshot)
            snapshot.restore()
            off, on = yield from self._in_turns(trial, began + for_ns)
        except FailedError as error:
            return result_of(trial, verdict="failed", reason=str(error))
        finally:
            snapshot.restore()
            self._guard.last(f"end of trial {trial.id}", trial.finish)
        self._baseline_ns += [block.step_ns for block in off]
        speedup = switched_speedup(off, on)
        differs = losses is not None and not alike(losses, trial.tolerance)
        differs = self._agree(float(differs)) > 0  # or ranks would put together other sets
        return result_of(
            trial,
            verdict="loss differs" if differs else verdict_of(speedup.low, speedup.high),
            speedup=speedup.ratio,
            low=speedup.low,
            high=speedup.high,
            pairs=len(on),
            loss_before=losses and losses[0],
            loss_after=losses and losses[1],
            memory_before=peak_bytes(off, without=snapshot.device_bytes),
            memory_after=peak_bytes(on, without=snapshot.device_bytes),
            first_step_s=first_ns / 1e9,
            took_s=(monotonic_ns() - began) / 1e9,
        )

    def _on_the_same_batches(
        self, trial: Trial, snapshot: Snapshot
    ) -> Steps[tuple[tuple[float, float] | None, int]]:
        """Mean losses without and with it, and the time of its first step."""
        source, ahead = self._training.batches, self._training.steps_ahead
        self.reads_loss = not self._training.no_batches and trial.tolerance is not None
        steps = _multiple(SAME_STEPS, trial) if self.reads_loss else 1
        ran: list[list[Ran]] = []
        try:
            for on in (False, True):
                snapshot.restore()
                source.replay_only(steps * self._training.micro_batches if self.reads_loss else 0)
                if on:
                    self._switch(trial, on=True)
                # Batches from before a switch, which the loop holds, leave no trace.
                held = (yield ahead) if ahead else []
                if ahead:
                    snapshot.restore(options=False)
                ran.append([*held, *(yield steps)])
            self._switch(trial, on=False)
        finally:
            source.replay_only(0)
            self.reads_loss = False
        without, with_it = (mean_loss(side[-steps:]) for side in ran)
        return None if without is None or with_it is None else (without, with_it), ran[1][0].ns

    def _in_turns(self, trial: Trial, until_ns: float) -> Steps[tuple[list[Block], list[Block]]]:
        """Blocks without it and with it, until it is decided or the time is over."""
        self._switch(trial, on=True)
        if trial.warmup_steps:
            yield trial.warmup_steps
        yield from self._settle()
        self._switch(trial, on=False)
        step_ns = self._agree(median(ran.ns for ran in (yield WARM_STEPS)))
        steps = _multiple(max(2, min(math.ceil(BLOCK_NS / step_ns), MOST_STEPS)), trial)
        off, on = list[Block](), list[Block]()
        graphs = graphs_built()
        while len(on) < LOOKS[-1]:
            # Off on, on off, …: what drifts evenly costs both sides alike.
            for side in (off, on) if len(on) % 2 == 0 else (on, off):
                side.append((yield from self._block(trial, steps, on=side is on)))
            if len(on) in LOOKS and is_decided(switched_speedup(off, on)):
                break
            if len(on) >= LOOKS[0] and self._agree(monotonic_ns() - until_ns) > 0:
                break
        built = int(self._agree(graphs_built() - graphs))
        if built >= len(on):
            raise FailedError(
                f"torch.compile built {built} graphs while it was switched {len(on)} times"
            )
        return off, on

    def _block(self, trial: Trial, steps: int, *, on: bool) -> Steps[Block]:
        """One block, with the change or without."""
        if on:
            self._switch(trial, on=True)
        if ahead := trial.warmup_steps + self._training.steps_ahead:
            yield ahead
        accelerator = accelerator_of(self._training.device)
        accelerator.forget_peak()
        self.untouched = not on
        ran = yield steps
        self.untouched = False
        peak = accelerator.peak_bytes()
        if on:
            self._switch(trial, on=False)
        return Block(self._agree(fmean(each.ns for each in ran)), peak)

    # -- several together -----------------------------------------------------------------------

    def _sets(self) -> Steps[None]:
        """Put the best together, one after the other: their gains do not multiply."""
        best = self._worth_keeping()
        chosen = [trial for _, trial in best[:1]]
        so_far = max((speedup for speedup, _ in best), default=1.0)
        for place, (_, trial) in enumerate(best[1:], start=1):
            if trial.group and trial.group in {other.group for other in chosen}:
                continue
            remaining = self._remaining_ns()
            if remaining <= 0:
                return
            tried = [*chosen, trial]
            for_ns = remaining / (len(best) - place)
            result = yield from self._tried(together(tried), for_ns, tried)
            if result.verdict == "faster" and (result.speedup or 0.0) > so_far * ADDS:
                chosen, so_far = tried, result.speedup or so_far

    def _worth_keeping(self) -> list[tuple[float, Trial]]:
        """Changes that were faster, each with its speed-up, the best first."""
        trials = {trial.id: trial for trial in self._trials if trial.kind == "change"}
        return [
            (result.speedup, trials[result.id])
            for result in document.in_order(self._results)
            if result.id in trials
            and result.verdict == "faster"
            and result.speedup is not None
            and result.speedup >= LEAST_GAIN
        ]

    # -- inside -------------------------------------------------------------------------------

    def _switch(self, trial: Trial, *, on: bool) -> None:
        """Make or unmake a change; one that cannot be made is unmade as far as it was."""
        part = f"trial {trial.id}"
        self._guard.run(part, trial.on if on else trial.off)
        faults = self._guard.faults
        if self._agree(float(part in faults)):
            self._guard.last(part, trial.off)
            raise FailedError(faults.get(part, "it failed on another rank"))

    def _why_not(self, trial: Trial) -> str:
        ended = self._launch.ended_by.get(trial.id, "")
        return trial.why_not() or ended or bound_of(trial, self._results)

    def _remaining_ns(self) -> float:
        """Of the budget; on all ranks what the latest has."""
        return -self._agree(float(monotonic_ns() - self._began_ns - self._total_ns))


def _multiple(steps: int, trial: Trial) -> int:
    """So many or more, in whole groups of those that belong together."""
    return math.ceil(steps / trial.block_multiple) * trial.block_multiple
