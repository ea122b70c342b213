"""Live readings over all ranks: what `aggregate=True` adds to the loggers of rank 0.

At log interval every rank puts what its meters have summed up since the fit began into the store
of the job, under a key of its own.  Rank 0 looks at its own log interval what is there, and shows
what has come since it last did: a difference of sums, in which no step is lost however late a rank
is.  While a rank has put nothing new, nothing is shown.

Nothing here holds up training.  There is no collective and no group.  To put is to send, without
an answer; rank 0 reads keys that are always there, from a store that its own machine serves.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from operator import sub

import msgspec
from torch.distributed import distributed_c10d as c10d

from trainperf.core.formatting.units import ranks_named
from trainperf.core.stats.reductions import Rate, Reduction
from trainperf.core.steps.block import StepBlock, StepSchema
from trainperf.core.steps.records import Row, RunInfo
from trainperf.meters import Meter, Scope
from trainperf.meters.fold import Fold, Reading, readings
from trainperf.meters.own import SMALL, numbers_of
from trainperf.recording.guard import Guard
from trainperf.recording.sinks.base import Sink


class Sums(msgspec.Struct, frozen=True, array_like=True):
    """What the meters of a rank have summed up since its fit began."""

    steps: int = 0
    steady_steps: int = 0
    statistics: dict[str, tuple[str, tuple[float, ...]]] = {}
    """Meter to the class of its statistic and the numbers of it; percentiles have too many."""

    @classmethod
    def of(cls, fold: Fold) -> "Sums":
        """Those of *fold*."""
        reductions = {meter.name: fold.reduction(meter.name) for meter in fold.meters}
        statistics = {
            name: (type(reduction).__name__, numbers)
            for name, reduction in reductions.items()
            if (numbers := numbers_of(reduction))
        }
        return cls(fold.steps, fold.steady_steps, statistics)

    def text(self) -> str:
        """As it is put into the store."""
        return msgspec.json.encode(self).decode()

    def since(self, before: "Sums", whole: Collection[str]) -> dict[str, Reduction]:
        """The statistics of the steps since then; those named in *whole* stand on all of them."""
        statistics = {}
        for name, (kind, numbers) in self.statistics.items():
            earlier = before.statistics.get(name)
            if earlier is None or name in whole:
                *fields, n = numbers
            else:
                *fields, n = map(sub, numbers, earlier[1])
            if n:
                statistics[name] = _at_one_pace(SMALL[kind](*fields, round(n)))
        return statistics


class AggregationSink(Sink):
    """Readings over all ranks, given to the other sinks of rank 0.

    Args:
        meters: Whose statistics are sent, where they are of a few numbers.
        others: Sinks that get the readings.
        guard: Under which they do.
        store: Opens a connection to the store of the job; `None` where it cannot.
    """

    name = "live aggregation"

    def __init__(
        self,
        meters: Sequence[Meter],
        others: Sequence[Sink],
        guard: Guard,
        store: Callable[[], c10d.Store | None] | None = None,
    ) -> None:
        self._fold, self._others, self._guard = Fold(meters), others, guard
        self._whole = {meter.name for meter in meters if meter.scope is Scope.ALL}
        self._open = store or _second_connection
        self._store: c10d.Store | None = None
        self._rows: list[Row] = []
        self._info, self._schema = RunInfo(), StepSchema()
        self._ranks: list[str] = []
        self._shown: list[Sums] = []
        self._awaited: list[int] = []
        self._lost = ""
        self.windows = self.aggregated = 0

    def begin(self, info: RunInfo) -> None:
        """Open the store; what comes first from a rank is compared with nothing."""
        self._info, self._schema = info, StepSchema(info.columns, info.device)
        store = self._open()
        if store is None:
            self._lost = "this torch opens no second connection to its store"
            return
        fit = store.add(f"trainperf/aggregations/{info.rank}", 1)
        self._store = c10d.PrefixStore(f"trainperf/aggregation/{fit}", store)
        if info.rank == 0:  # a key that is not there would be waited for
            self._ranks = [str(rank) for rank in range(info.world_size)]
            self._shown = [Sums()] * info.world_size
            for rank in self._ranks:
                self._store.set(rank, Sums().text())

    def rows(self, rows: Sequence[Row]) -> None:
        """Keep them for the next log interval."""
        if self._store is not None:
            self._rows += rows

    def readings(self, step: int, readings: Mapping[str, Reading]) -> None:
        """At log interval: put what there is and, on rank 0, show what has come."""
        del readings
        self.windows += 1
        if self._store is None:
            return
        self._fold.observe(StepBlock.from_rows(self._schema, self._rows))
        self._rows = []
        try:
            self._store.set(str(self._info.rank), Sums.of(self._fold).text())
            values = _values(self._store, self._ranks)
        except RuntimeError as error:  # torch names the place in its sources first
            what = str(error).split(". ")[0].splitlines()[0].rpartition("] ")[2]
            self._store, self._lost = None, f"the job's store is gone ({what})"
        else:
            self._look(step, [msgspec.json.decode(value, type=Sums) for value in values])

    def notes(self) -> dict[str, str]:
        """How many windows were shown, and why no more came, on rank 0."""
        if self._info.rank:
            return {}
        why = self._lost
        if self._awaited and self.windows > self.aggregated + 1:
            why = why or f"nothing new came from {ranks_named(self._awaited)}"
        return {
            "aggregation": f"{self.aggregated} of {self.windows} windows were aggregated over "
            f"{self._info.world_size} ranks while training{why and f'; {why}'}"
        }

    def _look(self, step: int, latest: list[Sums]) -> None:
        pairs = list(zip(latest, self._shown, strict=True))
        self._awaited = [rank for rank, (now, then) in enumerate(pairs) if now.steps == then.steps]
        if self._awaited or not latest:
            return
        self._shown, self.aggregated = latest, self.windows
        shared = readings([self._since(now, then) for now, then in pairs], self._info)
        for sink in self._others:
            self._guard.run(sink.name, partial(sink.all_ranks, step, shared))

    def _since(self, now: Sums, then: Sums) -> Fold:
        steps, steady = now.steps - then.steps, now.steady_steps - then.steady_steps
        return Fold.holding(self._fold.meters, now.since(then, self._whole), steps, steady)


def _values(store: c10d.Store, keys: list[str]) -> list[bytes]:
    """In one round trip, where the store can."""
    if store.has_extended_api():  # type: ignore[attr-defined]  # torch's stubs lack it
        return store.multi_get(keys)
    return [store.get(key) for key in keys]


def _at_one_pace(reduction: Reduction) -> Reduction:
    """A rate over as long a time on each rank: windows end at another step on each.

    Amounts of unlike times do not add up.
    """
    if isinstance(reduction, Rate) and reduction.seconds:
        return type(reduction)(reduction.amount / reduction.seconds, 1.0, reduction.n)
    return reduction


def _second_connection() -> c10d.Store | None:
    """To the store of the job: its first one is training's, and what waits on it holds it up."""
    default = c10d._get_default_store()  # noqa: SLF001 there is no public way
    clone = getattr(default, "clone", None)
    return None if clone is None else clone()
