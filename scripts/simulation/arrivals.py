"""Arrival-time model of a data-parallel job: who comes when, and who therefore waits how long.

Each rank has work of its own between synchronisation points; it leaves a point when the last rank
has come and the transfer is done.  Waits are computed from arrivals, never drawn, and nothing here
knows how trainperf estimates anything.  Times are float nanoseconds of one common clock; a record
has only differences of them, as real ranks' clocks are not comparable.

* `cpu`: the host works and waits itself: inside backward, and under Lightning before the fetch.
* `cuda`: the host launches and the device follows in order.  The all-reduce holds up the device
  only.  Under Lightning the host waits before the fetch until all devices have drained; in a plain
  loop it runs ahead, up to `LEAD` steps, until the queue of launches is full (in forward).

What is drawn: every rank's lasting speed, jitter of each piece of work, rare long delays with a
Pareto tail (the operating system's noise, which the largest of many ranks sees in every step), the
transfer, and small differences in leaving.  What is planted comes on top, from a generator of its
own, so that the same job without it is the same job.

Not modelled: buckets that overlap with backward and slow it down, ranks that share cores, networks
that are slow for some ranks only, accumulation, gaps in the middle of a fit.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from trainperf.core.phases import PHASES, Phase


Times = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

WORK = (
    "data_wait",
    "h2d",
    "callbacks_before",
    "forward",
    "backward",
    "finalise",
    "callbacks_after",
    "optimizer",
    "callbacks_end",
    "other",
    "loop",
)
"""Pieces of a step's host work, in order; the all-reduce is between `backward` and `finalise`."""

DEVICE_WORK = ("device_h2d", "device_forward", "device_backward", "device_optimizer")
"""What the device does; nothing where the host is the device."""

PIECES = (*WORK, *DEVICE_WORK)

_EDGES = (
    Phase.DATA_WAIT,
    Phase.H2D,
    Phase.CALLBACKS,
    Phase.FORWARD,
    Phase.BACKWARD,
    Phase.CALLBACKS,
    Phase.OPTIMIZER,
    Phase.CALLBACKS,
    Phase.OTHER,
    Phase.LOOP,
)
"""Phase before each edge of a step on the host."""

MS = 1e6

CPU_MS: Mapping[str, float] = {
    "data_wait": 2.0,
    "callbacks_before": 0.3,
    "forward": 14.0,
    "backward": 26.0,
    "finalise": 0.1,
    "callbacks_after": 0.2,
    "optimizer": 3.0,
    "callbacks_end": 0.4,
    "other": 0.05,
    "loop": 0.4,
}
CUDA_MS: Mapping[str, float] = {
    "data_wait": 1.0,
    "h2d": 0.1,
    "callbacks_before": 0.2,
    "forward": 8.0,
    "backward": 11.0,
    "finalise": 0.02,
    "callbacks_after": 0.2,
    "optimizer": 2.0,
    "callbacks_end": 0.3,
    "other": 0.05,
    "loop": 0.4,
    "device_h2d": 0.3,
    "device_forward": 14.0,
    "device_backward": 28.0,
    "device_optimizer": 3.0,
}

LEAD = 2
"""Steps that a host gets ahead of its device before a launch waits for room in the queue."""

_LAUNCH_NS = 10_000.0
_STRUCK = {"data_wait": 0.4, "forward": 0.2, "backward": 0.2, "optimizer": 0.1}
"""Where the rare long delays happen, and how often; else in `callbacks_end`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """What makes ranks late: extra time in one piece of work.

    With *rotates* it strikes one of the ranks at a time, drawn anew for each step.
    """

    ranks: tuple[int, ...]
    piece: str
    delay_ms: float
    share: float = 1.0
    """Of the steps in which it happens, drawn independently."""
    rotates: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job of so many ranks and steps, and what is planted in it."""

    ranks: int
    steps: int
    loop: str = "lightning"
    """Or `plain`: then nothing but the all-reduce makes ranks wait for each other."""
    device: str = "cpu"
    """Or `cuda`."""
    plants: tuple[Plant, ...] = ()
    seed: int = 0
    scale: float = 1.0
    """Factor of all work: longer or shorter steps."""
    jitter: float = 0.02
    """Standard deviation of the logarithm of each piece, from step to step."""
    spread: float = 0.004
    """The same between ranks, lasting."""
    struck: float = 0.002
    """Share of a rank's steps with a rare long delay."""
    least_struck_ms: float = 0.5
    tail_index: float = 1.5
    """Of the Pareto distribution of such delays, cut at a hundred times the least."""
    transfer_ms: float = 2.0
    leave_ms: float = 0.02
    """Mean by which a rank leaves a synchronisation point after the first."""
    per_host: int = 8

    def healthy(self) -> "Job":
        """The same job without what is planted: same draws otherwise."""
        return replace(self, plants=())

    @property
    def typical_ns(self) -> dict[str, float]:
        """Typical length of each piece of work."""
        work = CPU_MS if self.device == "cpu" else CUDA_MS
        return {piece: work.get(piece, 0.0) * MS * self.scale for piece in PIECES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Some consecutive steps of all ranks: arrays of steps x ranks, whole nanoseconds."""

    first: int
    start_ns: Whole
    phases_ns: tuple[Whole, ...]
    """In the order of `Phase`."""
    tail_ns: Whole
    stall_ns: Whole
    """Device idle for the loader; on a CPU the data wait itself."""

    @property
    def wall_ns(self) -> Whole:
        """Of each step on each rank."""
        total: Whole = np.sum(self.phases_ns, axis=0, dtype=np.int64)
        return total


@dataclass(slots=True)
class _Clocks:
    """Where all ranks are: their hosts, their devices, and the devices' last few steps."""

    host: Times
    device: Times
    ends: deque[Times] = field(default_factory=lambda: deque(maxlen=LEAD))


class Simulation:
    """A job going through its steps."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._draws = np.random.default_rng((job.seed, 1))
        self._planted = np.random.default_rng((job.seed, 2))
        typical = np.array([job.typical_ns[piece] for piece in PIECES])
        lasting = np.exp(job.spread * self._draws.standard_normal((1, job.ranks)))
        self._typical = typical[:, None] * lasting
        self.startup_ns = np.rint(2e9 + 1e9 * self._draws.random(job.ranks))
        """Before the first step, of each rank."""
        host = self.startup_ns.max() + np.zeros(job.ranks)
        self._clocks = _Clocks(host, host.copy())
        self._zero = host - self.startup_ns

    def chunks(self, most: int = 256) -> Iterator[Steps]:
        """All steps, some at a time: fewer with more ranks."""
        size = max(1, min(most, (1 << 19) // self.job.ranks))
        for first in range(0, self.job.steps, size):
            yield self._steps(first, min(size, self.job.steps - first))

    def _steps(self, first: int, number: int) -> Steps:
        job = self.job
        work = self._work(number)
        transfer = job.transfer_ms * MS * np.exp(0.1 * self._draws.standard_normal((number, 2)))
        # The flag that Lightning broadcasts is small.
        transfer[:, 1] *= 0.05
        leaves = self._draws.exponential(job.leave_ms * MS, (number, 2, job.ranks))
        advance = self._on_cpu if job.device == "cpu" else self._on_device
        edges = np.empty((number, len(_EDGES) + 1, job.ranks))
        tails, stalls = np.empty((2, number, job.ranks))
        for step in range(number):
            edges[step], tails[step], stalls[step] = advance(
                work[step], transfer[step, :, None] + leaves[step]
            )
        # Whole moments first: the phases of a step then tile it exactly.
        moments = np.rint(edges - self._zero).astype(np.int64)
        spent = np.diff(moments, axis=1)
        phases = tuple(
            spent[:, [place for place, edge in enumerate(_EDGES) if edge == phase]].sum(axis=1)
            for phase in PHASES
        )
        return Steps(
            first=first,
            start_ns=moments[:, 0],
            phases_ns=phases,
            tail_ns=np.rint(tails).astype(np.int64),
            stall_ns=np.rint(stalls).astype(np.int64),
        )

    def _work(self, number: int) -> Times:
        """Nanoseconds of each piece: steps x pieces x ranks."""
        job, draws = self.job, self._draws
        work = draws.standard_normal((number, len(PIECES), job.ranks))
        work *= job.jitter
        np.exp(work, out=work)
        work *= self._typical
        steps, ranks = np.nonzero(draws.random((number, job.ranks)) < job.struck)
        chosen = np.searchsorted(np.cumsum([*_STRUCK.values()]), draws.random(len(steps)))
        pieces = np.array([PIECES.index(name) for name in (*_STRUCK, "callbacks_end")])[chosen]
        delays = (1 - draws.random(len(steps))) ** (-1 / job.tail_index)
        work[steps, pieces, ranks] += job.least_struck_ms * MS * np.minimum(delays, 100.0)
        for plant in job.plants:
            self._plant(plant, work)
        return work

    def _plant(self, plant: Plant, work: Times) -> None:
        number, piece = len(work), PIECES.index(plant.piece)
        steps = np.flatnonzero(self._planted.random(number) < plant.share)
        delays = plant.delay_ms * MS * np.exp(0.05 * self._planted.standard_normal(number))
        if plant.rotates:
            ranks = self._planted.choice(plant.ranks, number)
            work[steps, piece, ranks[steps]] += delays[steps]
            return
        for rank in plant.ranks:
            work[steps, piece, rank] += delays[steps]

    def _on_cpu(self, work: Times, leave: Times) -> tuple[Times, Times, Times]:
        """One step: the host does everything itself.  Edges, tails and stalls."""
        edges = np.empty((len(_EDGES) + 1, self.job.ranks))
        edges[0] = self._clocks.host
        for place in range(4):
            edges[place + 1] = edges[place] + work[place]
        ready = edges[4] + work[4]
        edges[5] = ready.max() + leave[0] + work[5]
        for place in range(5, 10):
            edges[place + 1] = edges[place] + work[place + 1]
        if self.job.loop == "lightning":
            edges[10] = edges[10].max() + leave[1]
        self._clocks.host = edges[10]
        return edges, edges[5] - ready, work[0]

    def _on_device(self, work: Times, leave: Times) -> tuple[Times, Times, Times]:
        """One step: the host launches, its device works in order.  Edges, tails and stalls."""
        clocks, of = self._clocks, dict(zip(PIECES, work, strict=True))
        edges = np.empty((len(_EDGES) + 1, self.job.ranks))
        edges[0] = clocks.host
        for place in range(4):
            edges[place + 1] = edges[place] + work[place]
        if self.job.loop == "plain" and len(clocks.ends) == LEAD:
            edges[4] = np.maximum(edges[4], clocks.ends[0])
        edges[5] = edges[4] + work[4]
        for place in range(5, 10):
            edges[place + 1] = edges[place] + work[place + 1]

        stall = np.maximum(clocks.device, edges[1]) - np.maximum(clocks.device, edges[0])
        device = np.maximum(clocks.device, edges[1]) + of["device_h2d"]
        device = _followed(device, edges[3], edges[4], of["device_forward"])
        ready = _followed(device, edges[4], edges[5], of["device_backward"])
        reduced = ready.max() + leave[0] + of["finalise"]
        device = _followed(reduced, edges[6], edges[7], of["device_optimizer"])
        if self.job.loop == "lightning":
            arrived = np.maximum(device, edges[10])
            edges[10] = device = arrived.max() + leave[1]
        clocks.host, clocks.device = edges[10], device
        clocks.ends.append(device)
        return edges, reduced - ready, stall


def _followed(device: Times, begun: Times, launched: Times, work: Times) -> Times:
    """When the device is done with what the host launches from *begun* to *launched*."""
    finished: Times = np.maximum(np.maximum(device, begun) + work, launched + _LAUNCH_NS)
    return finished


def step_s(job: Job, *, skip: int = 20) -> float:
    """Mean seconds of a step over all ranks: what the job takes, waits included."""
    simulation = Simulation(job)
    starts = [chunk.start_ns for chunk in simulation.chunks()]
    moments = np.concatenate(starts)[skip:]
    return float(np.diff(moments, axis=0).mean()) / 1e9
