"""Runs whose reports are kept as golden files: one per thing that must read well."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from support.runs import MS, RankSpec, make_gap, make_info, make_step, make_steps

from trainperf.core.phases import Gap, Tag
from trainperf.core.steps.records import Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Ranks to be written, and how long ago the last line was."""

    ranks: list[RankSpec]
    silent_s: float = 1.0
    width: int = 100
    damage: bytes = b""
    """Appended to the first rank's file."""


_LOADER: Mapping[str, str | int | bool] = {"num_workers": 0, "batch_size": 8}
_HOSTILE = "A\x1b[31m|`<b>[bold]x[/bold]\nB\u202ecba.on_train_batch_end"


def loader_bound() -> Case:
    """The example of the design: a slow loader, padding, overflows, validation."""
    steps = []
    for index in range(480):
        tags = int(Tag.WARMUP) if index < 12 else 0
        if index in {120, 240, 360}:
            tags |= int(Tag.AFTER_VALIDATION)
        jitter = 0.5 * ((index * 7) % 11) / 10
        steps.append(
            make_step(
                index,
                tags=tags,
                data_wait=20 + jitter,
                forward=14,
                backward=13 - jitter / 2,
                optimizer=3,
                callbacks=5,
                other=0.1,
                facts={
                    "tokens_effective": 50,
                    "tokens_padded": 80,
                    "attempts": 1,
                    "overflows": int(index % 5 == 0),
                    "loss_scale": 2048.0,
                    "loss": 2.5,
                    "overhead_ns": 30_000,
                },
            )
        )
    gaps = [make_gap(Gap.STARTUP, 200), *[make_gap(Gap.VALIDATION, 130)] * 3]
    totals = Totals(at_step=479, actions_ns={"Slow.on_train_batch_end": 480 * 5 * MS})
    info = make_info(config=_LOADER, hardware={"cpu_count": 2})
    return Case(ranks=[RankSpec(steps=steps, info=info, gaps=gaps, totals=totals)])


def narrow() -> Case:
    """The same on eighty columns."""
    return Case(ranks=loader_bound().ranks, width=80)


def compute_bound() -> Case:
    """Nothing to remove: the answer must not invent something."""
    steps = make_steps(200, data_wait=0.4, forward=20, backward=41, optimizer=6, callbacks=0.6)
    return Case(ranks=[RankSpec(steps=steps)])


def hidden_wait() -> Case:
    """An asynchronous device that is always busy: the host's wait costs nothing."""
    facts = {
        "data_stall_ns": 60_000,
        "h2d_device_ns": 700_000,
        "h2d_bytes": 8_388_608,
        "h2d_tensors": 3,
        "lead_forward": 6,
        "lead_backward": 9,
        "peak_bytes": 31 * 2**30,
        "samples": 32,
        "loss": 3.25,
    }
    steps = make_steps(
        200, data_wait=60, h2d=1, forward=12, backward=18, optimizer=5, loop=3, facts=facts
    )
    info = make_info(device="cuda", config={"num_workers": 4, "pin_memory": True})
    return Case(ranks=[RankSpec(steps=steps, info=info)])


def straggler() -> Case:
    """Four ranks; rank 2 has a slow loader, and rank 1 a heavy callback after backward."""
    specs = []
    for rank in range(4):
        loader, hook = 25.0 * (rank == 2), 15.0 * (rank == 1)
        tail, loop = 1.5 + 25 - loader, 0.5 + 15 - hook
        steps = make_steps(
            300,
            data_wait=1 + loader,
            forward=20,
            backward=40 + tail,
            optimizer=4,
            callbacks=0.5 + hook,
            loop=loop,
            facts={"tail_ns": round(tail * MS), "samples": 16},
        )
        info = make_info(rank=rank, world_size=4, config={"num_workers": 2})
        totals = Totals(at_step=1, actions_ns={"Probe.on_train_batch_end": round(300 * hook) * MS})
        specs.append(RankSpec(steps=steps, info=info, totals=totals))
    return Case(ranks=specs, width=80)


def running() -> Case:
    """Still being written, and validation is going on."""
    spec = RankSpec(steps=make_steps(130, forward=30, backward=60), end=None)
    return Case(ranks=[spec])


def killed() -> Case:
    """No end mark, and silent for a day; the disk was full for two lines."""
    spec = RankSpec(steps=make_steps(130, forward=30, backward=60), end=None)
    return Case(ranks=[spec], silent_s=86_400, damage=b"[1,2\n[]\n")


def failed() -> Case:
    """An exception before anything settled."""
    steps = make_steps(7, data_wait=80, forward=20)
    return Case(ranks=[RankSpec(steps=steps, end="OutOfMemoryError")])


def one_step() -> Case:
    """`fast_dev_run` with a directory, or max_steps=1."""
    return Case(ranks=[RankSpec(steps=make_steps(1, forward=300, backward=500))])


def no_step() -> Case:
    """The first batch raised."""
    spec = RankSpec(steps=[], gaps=[make_gap(Gap.STARTUP, 1300)], end="ValueError")
    return Case(ranks=[spec])


def microseconds() -> Case:
    """A toy loop."""
    steps = make_steps(2000, data_wait=0.012, forward=0.11, backward=0.2, optimizer=0.03)
    return Case(ranks=[RankSpec(steps=steps)])


def minutes() -> Case:
    """A step of a huge model with much accumulation, and validation for half of the time."""
    steps = make_steps(100, data_wait=9_000, forward=60_000, backward=130_000, optimizer=11_000)
    gaps = [make_gap(Gap.VALIDATION, 5_400_000), make_gap(Gap.CHECKPOINT, 600_000)]
    return Case(ranks=[RankSpec(steps=steps, gaps=gaps)])


def hostile() -> Case:
    """Names with escape sequences, markup, HTML, newlines and reversed text."""
    steps = make_steps(200, callbacks=20, forward=30)
    totals = Totals(
        at_step=1,
        actions_ns={_HOSTILE: 200 * 20 * MS},
        faults={_HOSTILE: "KeyError: '\x07'"},
    )
    return Case(ranks=[RankSpec(steps=steps, totals=totals)])


CASES: Mapping[str, Callable[[], Case]] = {
    make.__name__: make
    for make in (
        loader_bound,
        narrow,
        compute_bound,
        hidden_wait,
        straggler,
        running,
        killed,
        failed,
        one_step,
        no_step,
        microseconds,
        minutes,
        hostile,
    )
}
"""All of them, by name."""
