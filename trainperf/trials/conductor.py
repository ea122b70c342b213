"""Conductor: takes a training through its trials, step by step.

It is a plan that runs between two steps: a generator that asks for so many steps and is sent what
they took.  Each change is first made on the same batches as without it, from the same weights, for
the loss; then it is switched on and off in blocks of steps that take turns.  After each trial the
state of before is put back.
"""

import math
from collections.abc import Callable, Generator, Sequence
from statistics import median
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
    Blocks,
    RaisedError,
    Ran,
    alike,
    bound_of,
    mean_loss,
    most_promising,
    result_of,
)
from trainperf.trials.speedup import LOOKS, is_decided
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
SAME_BATCHES = 4
"""Steps by which the losses with and without a change are compared."""
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
            yield from self._tried(trial, left=len(waiting))
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
        for trial in waiting.values():
            if trial.id not in common:
                self._note(trial, verdict="not applicable", reason="another rank has no such trial")
        return [waiting[id_] for id_ in common]

    def _settle(self) -> Steps[float]:
        """Steps until they take equally long, as caches fill; nanoseconds of one then."""
        before = now = math.inf
        for _ in range(WARM_LOOKS):
            before, times = now, [ran.ns for ran in (yield WARM_STEPS)]
            now = self._agree(median(times))
            if max(now / before, before / now) <= STEADY:
                break
        return now

    def _tried(self, trial: Trial, left: int) -> Steps[None]:
        """One trial, and what it came to."""
        why = self._why_not(trial)
        if self._agree(float(bool(why))):
            why = why or "it does not apply on another rank"
            failed = trial.id in self._launch.ended_by
            self._note(trial, verdict="failed" if failed else "not applicable", reason=why)
            return
        # Sets have their turn in a short run too.
        reserved = min(RESERVED * len(self._worth_keeping()), MOST_RESERVED)
        remaining = self._remaining_ns() - reserved * self._total_ns
        if remaining <= 0:
            self._note(trial, verdict="undecided", reason="no time was left for it")
            return
        yield from self._run(trial, remaining / left)
        self._tell(self.so_far())

    def _run(
        self, trial: Trial, for_ns: float, parts: Sequence[Trial] = ()
    ) -> Steps[document.TrialResult]:
        """A trial that is told before it begins, and its result kept; of a set with its *parts*."""
        self._trying = trial.id
        self._tell(self.so_far())
        result = yield from self._measured(trial, min(for_ns, TRIAL_NS))
        result = msgspec.structs.replace(result, parts=tuple(each.id for each in parts))
        self._results.append(result)
        return result

    def _measured(self, trial: Trial, for_ns: float) -> Steps[document.TrialResult]:
        """What a trial came to; afterwards all is as it was, unless the fit has ended amid it."""
        began = monotonic_ns()
        training = self._training
        snapshot = Snapshot(training.module, training.optimizers, training.others)
        try:
            losses, first_ns = yield from self._on_the_same_batches(trial, snapshot)
            snapshot.restore()
            blocks = yield from self._in_turns(trial, began + for_ns)
        except RaisedError as error:
            return result_of(trial, verdict="failed", reason=str(error))
        finally:
            self.reads_loss = False
            snapshot.restore()
            self._guard.last(f"end of trial {trial.id}", trial.finish)
        self._baseline_ns += blocks.off.ns
        if blocks.graphs >= blocks.pairs:
            reason = (
                f"torch.compile built {blocks.graphs} graphs while it was switched "
                f"{blocks.pairs} times"
            )
            return result_of(trial, verdict="failed", reason=reason)
        speedup = blocks.speedup()
        differs = losses is not None and not alike(losses, trial.tolerance)
        differs = self._agree(float(differs)) > 0  # or ranks would put together other sets
        return result_of(
            trial,
            verdict="loss differs" if differs else verdict_of(speedup.low, speedup.high),
            speedup=speedup.ratio,
            low=speedup.low,
            high=speedup.high,
            pairs=blocks.pairs,
            loss_before=losses and losses[0],
            loss_after=losses and losses[1],
            memory_before=blocks.off.peak_bytes(without=snapshot.device_bytes),
            memory_after=blocks.on.peak_bytes(without=snapshot.device_bytes),
            first_step_s=first_ns / 1e9,
            took_s=(monotonic_ns() - began) / 1e9,
        )

    def _on_the_same_batches(
        self, trial: Trial, snapshot: Snapshot
    ) -> Steps[tuple[tuple[float, float] | None, int]]:
        """Mean losses without and with it, and the time of its first step."""
        source, ahead = self._training.batches, self._training.steps_ahead
        batches = _multiple(SAME_BATCHES * self._training.micro_batches, trial)
        compares = not self._training.no_batches and trial.tolerance is not None
        steps = batches // self._training.micro_batches if compares else 1
        self.reads_loss, ran = compares, list[list[Ran]]()
        for on in (False, True):
            snapshot.restore()
            source.replay_only(batches if compares else 0)
            if on:
                self._switch(trial, on=True)
            # Batches from before a switch, which the loop holds, leave no trace.
            held = (yield ahead) if ahead else []
            if ahead:
                snapshot.restore(options=False)
            ran.append([*held, *(yield steps)])
        self._switch(trial, on=False)
        source.replay_only(0)
        without, with_it = (mean_loss(side[-steps:]) for side in ran)
        return None if without is None or with_it is None else (without, with_it), ran[1][0].ns

    def _in_turns(self, trial: Trial, until_ns: float) -> Steps[Blocks]:
        """Blocks without it and with it, until it is decided or the time is over."""
        self._switch(trial, on=True)
        if trial.warmup_steps:
            yield trial.warmup_steps
        yield from self._settle()
        self._switch(trial, on=False)
        step_ns = self._agree(median(ran.ns for ran in (yield WARM_STEPS)))
        steps = _multiple(max(2, min(math.ceil(BLOCK_NS / step_ns), MOST_STEPS)), trial)
        blocks, graphs = Blocks(), graphs_built()
        while blocks.pairs < LOOKS[-1]:
            # Off on, on off, …: what drifts evenly costs both sides alike.
            for on in (False, True) if blocks.pairs % 2 == 0 else (True, False):
                yield from self._block(trial, blocks, steps, on=on)
            if blocks.pairs in LOOKS and is_decided(blocks.speedup()):
                break
            if blocks.pairs >= LOOKS[0] and self._agree(monotonic_ns() - until_ns) > 0:
                break
        blocks.graphs = int(self._agree(graphs_built() - graphs))
        return blocks

    def _block(self, trial: Trial, blocks: Blocks, steps: int, *, on: bool) -> Steps[None]:
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
        side, peak = blocks.on if on else blocks.off, accelerator.peak_bytes()
        side.peaks += [] if peak is None else [peak]
        if on:
            self._switch(trial, on=False)
        work = sum(each.work for each in ran) or float(steps)
        side.ns.append(self._agree(sum(each.ns for each in ran) / work))

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
            both = together(tried)
            if both.id in self._launch.ended_by:
                self._note(both, verdict="failed", reason=self._launch.ended_by[both.id])
                continue
            result = yield from self._run(both, remaining / (len(best) - place), tried)
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
            self._training.batches.replay_only(0)
            self._training.batches.draw_from(None)
            raise RaisedError(faults.get(part, "it failed on another rank"))

    def _why_not(self, trial: Trial) -> str:
        ended = self._launch.ended_by.get(trial.id, "")
        return trial.why_not() or ended or bound_of(trial, self._results)

    def _note(self, trial: Trial, *, verdict: document.TrialVerdict, reason: str) -> None:
        self._results.append(result_of(trial, verdict=verdict, reason=reason))

    def _remaining_ns(self) -> float:
        """Of the budget; on all ranks what the latest has."""
        return -self._agree(float(monotonic_ns() - self._began_ns - self._total_ns))


def _multiple(steps: int, trial: Trial) -> int:
    """So many or more, in whole groups of those that belong together."""
    return math.ceil(steps / trial.block_multiple) * trial.block_multiple
