"""The plan of trials, run on a training whose steps take planted times."""

import math
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch.distributed import HashStore

from trainperf.core.artifacts.trials import TrialResult, Trials
from trainperf.core.launch_environment import TrialLaunch
from trainperf.recording.guard import Guard
from trainperf.trials import conductor as conductor_module
from trainperf.trials.agreement import Agreement
from trainperf.trials.batch_source import BatchSource
from trainperf.trials.conductor import Conductor
from trainperf.trials.results import Ran
from trainperf.trials.speedup import LOOKS
from trainperf.trials.state import Snapshot
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, cannot


MS = 1_000_000


@dataclass
class Loop:
    """A toy training: a step takes what the changes that are on leave of it."""

    step_ns: int = 10 * MS
    noise: float = 0.01
    factors: dict[str, float] = field(default_factory=dict)
    """Name of a change to what it makes of a step's time."""
    losses: dict[str, float] = field(default_factory=dict)
    on: set[str] = field(default_factory=set)
    switched: list[str] = field(default_factory=list)
    told: list[Trials] = field(default_factory=list)
    clock_ns: int = 0
    training: Training = field(init=False)

    def __post_init__(self) -> None:
        module = torch.nn.Linear(2, 2)
        source = BatchSource([1, 2, 3, 4])
        source.held.extend([1, 2, 3, 4])
        source.over(self._batches())
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        self.training = Training(module, [optimizer], torch.device("cpu"), source)
        self._random = random.Random(1)  # noqa: S311 planted noise

    def change(self, name: str, factor: float, **fields: object) -> Trial:
        """A change under which a step takes so many times as long."""
        self.factors[name] = factor
        return Trial(name, on=self._switch(name), off=self._switch(name, on=False), **fields)  # type: ignore[arg-type]

    def run(
        self,
        trials: list[Trial],
        minutes: float = 10.0,
        earlier: Sequence[TrialResult] = (),
        ended_by: dict[str, str] | None = None,
    ) -> Trials:
        """Carry out the plan, and what it came to."""
        conductor = Conductor(
            self.training,
            trials,
            TrialLaunch(minutes=minutes, ended_by=ended_by or {}),
            self.told.append,
            Guard(),
            earlier,
        )
        plan = conductor.plan()
        steps = next(plan)
        while True:
            assert steps > 0, "a block of no steps would never end"
            try:
                steps = plan.send([self._step(conductor) for _ in range(steps)])
            except StopIteration:
                return conductor.so_far()

    def _step(self, conductor: Conductor) -> Ran:
        ns = float(self.step_ns)
        for name in self.on:
            ns *= self.factors[name]
        loss = 1.0 + sum(self.losses.get(name, 0.0) for name in self.on)
        ns *= 1 + self._random.gauss(0, self.noise)
        self.clock_ns += round(ns)
        return Ran(round(ns), loss if conductor.reads_loss else None)

    def _switch(self, name: str, *, on: bool = True) -> Callable[[], None]:
        def act() -> None:
            (self.on.add if on else self.on.discard)(name)
            self.switched.append(f"{name} {'on' if on else 'off'}")

        return act

    @staticmethod
    def _batches() -> Iterator[int]:
        while True:
            yield 0


def by_id(trials: Trials) -> dict[str, TrialResult]:
    """Results by the names of their trials."""
    return {result.id: result for result in trials.trials}


@pytest.mark.parametrize(
    ("factor", "fields", "loss", "minutes", "verdicts"),
    [
        (0.8, {}, 0.0, 10.0, {"faster"}),
        # Batches that are sorted together are counted from the first of them on.
        (0.8, {"warmup_steps": 0, "block_multiple": 8}, 0.0, 10.0, {"faster"}),
        # Neither takes more time than it takes to see that there is little to gain.
        (1.3, {}, 0.0, 10.0, {"slower"}),
        (1.0, {}, 0.0, 10.0, {"equal", "undecided"}),
        # However fast it is, what learns something else is no gain.
        (0.5, {}, 0.5, 10.0, {"loss differs"}),
        (0.5, {}, math.nan, 10.0, {"loss differs"}),
        (0.8, {}, 0.0, 0.0, {"undecided"}),
    ],
    ids=["faster", "no step to settle", "slower", "same", "cheat", "no loss", "no time"],
)
def test_a_change_comes_to_what_was_planted(
    factor: float, fields: dict[str, int], loss: float, minutes: float, verdicts: set[str]
) -> None:
    """With an interval that holds the truth; without time no number is made up."""
    loop = Loop(noise=0.02, losses={"change": loss})
    trials = loop.run([loop.change("change", factor, **fields)], minutes=minutes)
    result = by_id(trials)["change"]

    assert result.verdict in verdicts
    assert (trials.best is None) == (result.verdict != "faster")
    if minutes:
        assert (result.low or 0.0) <= 1 / factor <= (result.high or 0.0)
        assert (result.pairs == LOOKS[0]) or not result.little_to_gain
    else:
        assert (result.speedup, result.reason) == (None, "no time was left for it")


def test_no_loss_is_read_in_a_step_that_is_timed() -> None:
    """It would wait for the device in each."""
    loop = Loop()
    original, reads = loop._step, list[bool]()

    def noted(conductor: Conductor) -> Ran:
        reads.append(conductor.reads_loss)
        return original(conductor)

    loop._step = noted  # type: ignore[method-assign]
    pairs = by_id(loop.run([loop.change("change", 0.8)]))["change"].pairs

    assert sum(reads) == 2 * conductor_module.SAME_STEPS
    assert not any(reads[-4 * pairs :])


def test_the_peak_of_memory_is_read_with_and_without_a_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the blocks alone, the copy of the state not counted; on a CPU there is none."""
    loop = Loop()
    trial = loop.change("smaller", 0.8)
    plain = by_id(loop.run([trial]))["smaller"]
    device = SimpleNamespace(forget_peak=int, peak_bytes=lambda: 700 if loop.on else 900)
    monkeypatch.setattr(conductor_module, "accelerator_of", lambda _: device)
    monkeypatch.setattr(Snapshot, "device_bytes", 100)
    measured = by_id(loop.run([trial]))["smaller"]

    assert (plain.memory_before, plain.memory_after) == (None, None)
    assert (measured.memory_before, measured.memory_after) == (800, 600)


def test_results_are_ranked_by_what_was_measured_and_ceilings_come_after() -> None:
    """What has no number comes last among the changes."""
    loop = Loop()
    trials = loop.run(
        [
            loop.change("ceiling", 0.2, kind="ceiling", tolerance=None),
            loop.change("small", 0.9),
            loop.change("large", 0.6),
            cannot("none", "no such thing here"),
        ]
    )

    single = [result.id for result in trials.trials if not result.parts]
    assert single == ["large", "small", "none", "ceiling"]


def test_what_a_high_ceiling_bounds_is_tried_next() -> None:
    """Though it comes late otherwise: with little time left it is what must not be missed."""
    loop = Loop()
    late = replace(loop.change("late", 0.6), run_last=True, bounded_by="high")
    other = replace(loop.change("other", 0.7), run_last=True, bounded_by="low")
    ceilings = [
        loop.change("low", 0.95, kind="ceiling", tolerance=None),
        loop.change("high", 0.5, kind="ceiling", tolerance=None),
    ]
    loop.run([*ceilings, loop.change("early", 0.8), late, other])

    order = list(dict.fromkeys(name.split()[0] for name in loop.switched if "+" not in name))
    assert order[:5] == ["low", "high", "late", "early", "other"]


def test_the_set_is_measured_not_multiplied() -> None:
    """Two changes that save the same time bring together what one brings."""
    loop = Loop()
    first, second = loop.change("first", 0.5), loop.change("second", 0.6)
    third = loop.change("third", 0.7)
    original = loop._step

    def overlapping(conductor: Conductor) -> Ran:
        hidden = "second" in loop.on and "first" in loop.on
        if hidden:
            loop.on.remove("second")
        ran = original(conductor)
        if hidden:
            loop.on.add("second")
        return ran

    loop._step = overlapping  # type: ignore[method-assign]

    best = loop.run([first, second, third]).best
    assert set(best.parts) == {"first", "third"}
    assert best.speedup == pytest.approx(1 / 0.35, rel=0.03)


def test_in_a_short_run_the_best_are_put_together_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The single trials leave them time, though none of the later ones is decided in its own."""
    loop = Loop(noise=0.5)
    monkeypatch.setattr(conductor_module, "monotonic_ns", lambda: loop.clock_ns)
    faster = [loop.change(f"faster_{place}", 0.3) for place in range(2)]
    same = [loop.change(f"same_{place}", 1.0) for place in range(6)]
    trials = loop.run([*faster, *same], minutes=0.5)

    assert set(trials.best.parts) == {"faster_0", "faster_1"}
    assert trials.took_s < 1.1 * 30


def test_of_one_group_at_most_one_is_in_a_set() -> None:
    """Two precisions exclude each other."""
    loop = Loop()
    trials = loop.run(
        [loop.change("bf16", 0.7, group="precision"), loop.change("fp16", 0.8, group="precision")]
    )

    assert not [result for result in trials.trials if result.parts]


def test_a_trial_that_raises_is_undone_and_the_next_is_measured() -> None:
    """What it had done before it raised is undone too."""
    loop = Loop()

    def broken() -> None:
        loop.on.add("broken")
        raise RuntimeError("no kernel for this")

    loop.factors["broken"] = 3.0
    trial = Trial("broken", on=broken, off=lambda: loop.on.discard("broken"))
    results = by_id(loop.run([trial, loop.change("next", 0.8)]))

    assert results["broken"].verdict == "failed"
    assert "no kernel for this" in results["broken"].reason
    assert results["next"].verdict == "faster"


def test_what_ended_an_earlier_attempt_is_not_tried_again_and_the_rest_is_kept() -> None:
    """Neither is what was measured already."""
    loop = Loop()
    before = TrialResult(id="first", kind="change", title="", verdict="equal", speedup=1.0)
    trials = [loop.change(name, 0.8) for name in ("first", "second", "third")]
    results = by_id(loop.run(trials, earlier=[before], ended_by={"second": "out of memory"}))

    assert results["first"] == before
    assert (results["second"].verdict, results["second"].reason) == ("failed", "out of memory")
    assert results["third"].verdict == "faster"
    assert not {name.split()[0] for name in loop.switched} & {"first", "second"}


def test_everything_is_off_and_the_weights_are_as_they_were_at_the_end() -> None:
    """Also where a change spoils them."""
    loop = Loop()
    weights = loop.training.module.weight.detach().clone()

    def spoil() -> None:
        with torch.no_grad():
            loop.training.module.weight.add_(1)

    loop.run([loop.change("faster", 0.8), Trial("spoils", on=spoil, off=lambda: None)])

    assert not loop.on
    assert torch.equal(loop.training.module.weight, weights)


def test_the_document_names_the_trial_that_is_running() -> None:
    """If the process dies, the reader knows of what."""
    loop = Loop()
    loop.run([loop.change("faster", 0.8)])

    assert loop.told[0].trying == "faster"
    assert loop.told[-1].trying == ""


def test_what_a_ceiling_leaves_nothing_to_gain_is_not_tried() -> None:
    """The reason names the ceiling and what it brings; another ceiling bounds nothing of it."""
    loop = Loop()
    low = loop.change("low", 1.0, kind="ceiling", title="free batches", tolerance=None)
    high = loop.change("high", 0.5, kind="ceiling", tolerance=None)
    bounded = [
        loop.change("workers", 0.9, bounded_by="low"),
        loop.change("fused", 0.9, bounded_by="high"),
    ]
    results = by_id(loop.run([low, high, *bounded]))

    assert results["workers"].verdict == "not applicable"
    assert "free batches brings 1.00" in results["workers"].reason
    assert results["fused"].verdict == "faster"


def test_a_trial_is_finished_after_its_last_block_and_may_be_begun_again_in_a_set() -> None:
    """It stops what it has started, with the change unmade, even if nothing came of it."""
    loop = Loop()
    finish = partial(loop.switched.append, "finished")
    loop.run([loop.change("first", 0.5, finish=finish), loop.change("second", 0.6)])

    ends = [place for place, what in enumerate(loop.switched) if what == "finished"]
    assert len(ends) == 2
    assert all(loop.switched[place - 1] == "first off" for place in ends)


def test_a_change_under_which_every_switch_builds_graphs_anew_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The number would be one of the compiler."""
    loop = Loop()
    monkeypatch.setattr(conductor_module, "graphs_built", lambda: loop.switched.count("again on"))
    results = by_id(loop.run([loop.change("again", 0.5), loop.change("once", 0.5)]))

    assert results["again"].verdict == "failed"
    assert "graphs" in results["again"].reason
    assert results["once"].verdict == "faster"


def test_ranks_decide_alike_where_the_compiler_works_on_one_of_them_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows may be of unlike lengths there; who decides alone asks less often than the others."""
    loops, store = [Loop(), Loop()], HashStore()
    built = threading.local()
    monkeypatch.setattr(
        conductor_module,
        "graphs_built",
        lambda: loops[1].switched.count("again on") if built.rank else 0,
    )

    def run(rank: int) -> dict[str, str]:
        built.rank = rank
        loop = loops[rank]
        loop.training.agreement = Agreement(store, rank, 2, patience_ns=60_000 * MS)
        results = loop.run([loop.change("again", 0.5), loop.change("once", 0.5)])
        return {result.id: result.verdict for result in results.trials}

    with ThreadPoolExecutor(2) as ranks:
        verdicts = list(ranks.map(run, range(2)))

    assert verdicts == [{"once": "faster", "again": "failed"}] * 2


def test_ranks_of_unlike_hosts_try_what_all_of_them_have() -> None:
    """Numbers of workers come from the CPUs of a host: nobody answers for another trial."""
    loops, store = [Loop(), Loop()], HashStore()
    names = [["workers_2", "workers_4", "fused"], ["workers_4", "workers_8", "fused"]]

    def run(rank: int) -> dict[str, TrialResult]:
        loop = loops[rank]
        loop.training.agreement = Agreement(store, rank, 2, patience_ns=60_000 * MS)
        factors = {"fused": 0.9, "workers_2": 0.8, "workers_4": 0.5, "workers_8": 2.0}
        return by_id(loop.run([loop.change(name, factors[name]) for name in names[rank]]))

    with ThreadPoolExecutor(2) as ranks:
        both = list(ranks.map(run, range(2)))

    for results, alone in zip(both, ("workers_2", "workers_8"), strict=True):
        assert results["workers_4"].verdict == results["fused"].verdict == "faster"
        assert results["workers_4"].speedup == pytest.approx(2.0, rel=0.1)
        assert results[alone].verdict == "not applicable"
        assert results[alone].reason == "another rank has no such trial"
    assert [set(loop.switched) & {"workers_2 on", "workers_8 on"} for loop in loops] == [set()] * 2


def test_whether_a_trial_applies_may_be_asked_once_batches_have_come() -> None:
    """Before that nobody can tell."""
    loop = Loop()
    results = by_id(
        loop.run(
            [
                loop.change("no", 0.5, unavailable=lambda: "not these batches"),
                loop.change("yes", 0.5, unavailable=lambda: ""),
            ]
        )
    )

    assert results["no"].reason == "not these batches"
    assert results["yes"].verdict == "faster"
