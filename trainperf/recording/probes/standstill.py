"""Watch of a rank whose steps do not end: what it is at is written while it lasts.

A thread that sleeps.  It asks no device and takes no part in a collective, so it goes on where the
training hangs; while steps end it looks at one number a few seconds apart.
"""

import multiprocessing.process
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import dropwhile
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec
import psutil
import torch.distributed as dist
from torch.utils.data import dataloader

from trainperf.core.artifacts.standstill import ENDED, Standstill
from trainperf.core.errors import RunError
from trainperf.core.machine.clocks import TimingEvent
from trainperf.core.machine.limits import text_of
from trainperf.core.machine.processes import PROC, has_died
from trainperf.core.phases import FIRST_GAP, Gap, Tag
from trainperf.core.run_directory import (
    FLIGHT_RECORDER,
    STANDSTILL,
    attempt,
    packed_part,
    record_file,
    write_atomically,
)
from trainperf.core.steps.codec import decode_info
from trainperf.core.steps.records import FINISHED
from trainperf.recording.guard import log
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.collectives import issued_in
from trainperf.recording.probes.contention import scheduled
from trainperf.recording.probes.user_stacks import LIBRARY, PACKAGE, USER, described, kind_of
from trainperf.recording.process_objects import last_error
from trainperf.recording.recorder import Draft
from trainperf.recording.stacks import Stack, running_in


TIMES = 20
"""As long as the slowest usual step, without the end of one, a rank may stand still."""
LOOKS = 12
"""In the time after which it may at the earliest."""
STAYS = 4
"""A place is stood at that is not left in this part of that time."""
GOES_ON = 0.0005
"""CPU seconds a second from which on a thread that is seen at one place alone goes on: it comes
back there, as to a loader that is slow.  One that asks every few seconds takes a tenth of that."""
COMPUTING = 0.5
"""The same of the process and its children, from which on they work at that place."""
SPINNING = 0.9
"""The same of a thread from which on it asks a device without a pause whether that is done."""
AGAIN_S = 60.0
"""Between two files of what goes on."""

_STEPS = 256
_DEEPEST = 64
_DISTRIBUTED = str(Path(dist.__file__).parent)
_DUMPS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
"""By which PyTorch tells what its Flight Recorder holds: of what works on a CPU, and of NCCL."""


Spent: TypeAlias = dict[str | int, float]
"""What a rank has spent, or what it spends in a second: CPU seconds of the `thread` that trains,
those of the process and its children that live (`busy`), memory of the process that it waited for a
disk to give, by whole pages (`paged_bytes`); and, by the process of a worker, CPU seconds of its
thread that makes batches, where they are waited for."""


class StandstillProbe(Probe):
    """Watches the thread that attaches it, which is the one that trains.

    Args:
        run: Where files are written.
        rank: Of this process.
        world_size: Of the job.
        least_s: Without the end of a step, after which a rank may stand still.
        on_host: Whether the host computes: else its thread may wait for a device at full speed.
    """

    name = "standstill"

    def __init__(
        self,
        run: Path,
        rank: int,
        world_size: int,
        *,
        least_s: float,
        on_host: bool = True,
    ) -> None:
        self._run, self._rank, self._world_size = run, rank, world_size
        self._on_host, self._least_ns = on_host, int(least_s * 1e9)
        self._latest: deque[Draft] = deque(maxlen=_STEPS)
        """Steps that are over."""
        self._step = -1
        self._place: Stack = []
        self._place_ns = 0
        self._spent: Spent | None = None
        """What was spent before, once it was seen there twice."""
        self._spots: set[int] = set()
        """Its innermost instructions: one, if it is in one call all the time."""
        self._written: Standstill | None = None
        self._stop = threading.Event()

    def begin(self) -> None:
        """Begin to watch this thread."""
        self._watched, self._trains = threading.get_ident(), threading.current_thread()
        self._since_ns, self._starved = self.recorder.zero_ns, _starved()
        (self._run / STANDSTILL.format(self._rank)).unlink(missing_ok=True)  # of another attempt
        self._thread = threading.Thread(
            target=self.shield(self._watch), name="trainperf standstill", daemon=True
        )
        self._thread.start()
        self.undo.callback(self._thread.join, timeout=1.0)
        self.undo.callback(self._stop.set)

    def ended(self, reason: str) -> None:
        """What lasted as an error or a signal ended the fit is told in its report."""
        if reason == FINISHED:
            self._goes_on(self.recorder.now_ns())

    def seal(self) -> tuple[TimingEvent, ...]:
        """Keep the steps that are written next.  Every flush."""
        self._latest.extend(self.recorder.closed)
        return ()

    def look(self) -> None:
        """See whether a step has ended since the last look, and what lasts if none has."""
        recorder = self.recorder
        now = recorder.now_ns()
        if recorder.index != self._step:
            self._goes_on(now)
            draft = recorder.draft
            self._since_ns = now if draft is None else recorder.zero_ns + draft.start_ns
            self._step, self._place = recorder.index, []
            return
        lasts_ns = now - self._since_ns
        limit_ns = max(self._least_ns, TIMES * self._slowest_ns())
        if 2 * lasts_ns < limit_ns:
            return
        if not self._trains.is_alive():  # and its clock cannot be asked
            self._spent = None
            self._write(now, [], limit_ns)
            return
        frame, stack = running_in(self._watched)
        # Without the innermost frames of Python's own library: a wait there asks again and again.
        place = [*dropwhile(lambda frame: kind_of(frame[0].co_filename) == LIBRARY, stack)]
        if place != self._place:
            self._place, self._place_ns = place, now
            self._spent, self._spots = None, set()
        elif self._spent is None:
            self._place_ns, self._spent = now, _spent(self._watched, stack)
        self._spots.add(-1 if frame is None else frame.f_lasti)
        if lasts_ns >= limit_ns:
            self._write(now, stack, limit_ns)

    def _slowest_ns(self) -> int:
        """Host time of the slowest usual step; 0 before there is one.

        All ranks have ended the same steps, whatever is written of them.  The first one is of no
        use, and while all others are warm-up they are all there is.
        """
        drafts = [draft for draft in (*self._latest, *self.recorder.closed) if draft.index]
        steady = [draft for draft in drafts if not draft.tags & Tag.WARMUP]
        usual = sorted(sum(draft.host_ns) for draft in steady or drafts)
        return usual[int(0.99 * (len(usual) - 1))] if usual else 0

    def _watch(self) -> None:
        while not self._stop.wait(self._least_ns / LOOKS / 1e9):
            self.look()

    def _goes_on(self, now: int) -> None:
        written, self._written = self._written, None
        if written is not None:
            self._save(msgspec.structs.replace(written, at_s=self._fit_s(now), over=True))

    def _write(self, now: int, stack: Stack, limit_ns: int) -> None:
        """Write what it is at, if that is due or has come to stand still.

        Within three more looks all ranks have done so.
        """
        stayed_s = (now - self._place_ns) / 1e9 if self._spent else 0.0
        rates = self._rates(stayed_s, stack)
        if rates.get("busy", 0.0) < 0:  # a child has ended: what goes on is seen anew from here on
            self._spent, stayed_s = None, 0.0
        busy = max(0.0, rates.pop("busy", 0.0))
        paged_bytes_per_s = rates.pop("paged_bytes", 0.0)
        one_call = not self._on_host and len(self._spots) == 1
        spins = one_call and rates.get("thread", 0.0) >= SPINNING
        goes_on = busy >= COMPUTING or max(rates.values(), default=0.0) >= GOES_ON
        stays = STAYS * stayed_s >= self._least_ns / 1e9 and not self._may_be_over(stack)
        own, written = _own_depth(stack), self._written
        still = own >= 0 and stays and (spins or not goes_on)
        begins = still and (written is None or not written.still)
        if written is not None and not begins and self._fit_s(now) < written.at_s + AGAIN_S:
            return
        self._written = Standstill(
            rank=self._rank,
            step=self._step,
            phase=self.recorder.label if stack else ENDED,
            since_s=self._fit_s(self._since_ns),
            at_s=self._fit_s(now),
            settled_s=(1 + 3 / LOOKS) * limit_ns / 1e9,
            still=still,
            busy=busy,
            paged_bytes_per_s=paged_bytes_per_s,
            handles=_handled(self._watched if stack else None),
            stack=tuple(
                described(code, line or code.co_firstlineno)
                for code, line in reversed(stack[:_DEEPEST])
            ),
            own=own,
            sequences=_sequences(),
            peers=dict(self._peers()),
            starved=_starved() - self._starved,
        )
        self._save(self._written)
        if begins:
            with suppress(RuntimeError):
                _dump(self._run / FLIGHT_RECORDER.format(self._rank))
        if begins and self._rank == 0:
            log.warning(
                "trainperf: no step has ended for %.1f min; `trainperf report %s` says what each "
                "rank is at",
                *((now - self._since_ns) / 60e9, self._run),
            )

    def _rates(self, stayed_s: float, stack: Stack) -> Spent:
        """What is spent in a second at this place."""
        before = self._spent or {}
        spent = _spent(self._watched, stack) if stayed_s else {}
        return {of: (now - before.get(of, 0.0)) / stayed_s for of, now in spent.items()}

    def _may_be_over(self, stack: Stack) -> bool:
        """Whether nobody has asked for a batch since the last step, and no rank is waited for.

        Of a loop that nobody closes the last step is known only then.
        """
        recorder = self.recorder
        apart = recorder.slot < FIRST_GAP or recorder.slot == Gap.EPOCH_BOUNDARY
        waits = any(code.co_filename.startswith(_DISTRIBUTED) for code, _ in stack)
        return recorder.index >= 0 and recorder.awaits_batch and apart and not waits

    def _save(self, standstill: Standstill) -> None:
        write_atomically(self._run / STANDSTILL.format(self._rank), msgspec.json.encode(standstill))

    def _fit_s(self, ns: int) -> float:
        return (ns - self.recorder.zero_ns) / 1e9

    def _peers(self) -> Iterator[tuple[int, str]]:
        """Other ranks whose process can be seen from here, and does not run."""
        for rank in range(self._world_size):
            first = record_file(self._run, rank, attempt())
            with suppress(OSError, RunError, psutil.Error):
                part = first if first.exists() else packed_part(first)
                with part.open("rb") as file:
                    process = decode_info(file.readline()).process
                if has_died(process):
                    yield rank, "gone"
                elif has_died(process) is False:
                    number = int(process.rsplit("/", 2)[1])
                    if psutil.Process(number).status() == psutil.STATUS_STOPPED:
                        yield rank, "stopped"


def _own_depth(stack: Stack) -> int:
    """Place of the innermost frame of the user's code, from the outermost; -1 without one.

    Of a training that is an installed package, of that package's.
    """
    kinds = [kind_of(code.co_filename) for code, _ in reversed(stack[:_DEEPEST])]
    whose = USER if USER in kinds else PACKAGE
    return max((depth for depth, kind in enumerate(kinds) if kind == whose), default=-1)


def _spent(thread: int, stack: Stack) -> Spent:
    """What was spent by now, with that *thread*, by which a *stack* is run."""
    clock = getattr(time, "pthread_getcpuclockid", None)  # Unix has it
    spent: Spent = {"thread": time.clock_gettime(clock(thread)) if clock else 0.0, "busy": 0.0}
    with suppress(psutil.Error):
        process = psutil.Process()
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.Error):
                spent["busy"] += sum(each.cpu_times()[:2])
    with suppress(ImportError):
        import resource  # noqa: PLC0415 Windows has none

        pages = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
        spent["paged_bytes"] = pages * resource.getpagesize()
    if any(code.co_filename == dataloader.__file__ for code, _ in stack):
        children = list(cast("Any", multiprocessing.process)._children)  # noqa: SLF001 the public one asks whether they live
        for child in children:
            for _, ran_ns in scheduled(Path(f"/proc/{child.pid}"), "ran_ns"):
                spent[child.pid] = ran_ns / 1e9
    return spent


def _starved() -> int:
    """Processes that the system has ended for lack of memory since it began; 0 if unknown."""
    counts = dict(line.split() for line in text_of(PROC / "vmstat").splitlines())
    return int(counts.get("oom_kill", 0))


def _handled(thread: int | None) -> str:
    """Type of the exception that a thread handles, or that ended the one that is gone, if any."""
    error: Any = last_error() if thread is None else sys._current_exceptions().get(thread)  # noqa: SLF001
    error = error[1] if isinstance(error, tuple) else error  # until Python 3.11
    return "" if error is None else type(error).__name__


def _sequences() -> dict[str, int]:
    """Process group to the number of collectives begun in it, where its backend counts them."""
    sequences: dict[str, int] = {}
    if dist.is_available():
        for group, name in list(dist.distributed_c10d._world.pg_names.items()):  # noqa: SLF001
            with suppress(RuntimeError):
                sequences[name] = issued_in([group])
    return sequences


def _dump(file: Path) -> None:
    """Write PyTorch's record of collectives, where it keeps one."""
    backend = sys.modules.get("torch._C._distributed_c10d")
    ready = backend is not None and dist.is_initialized()
    dump = getattr(backend, _DUMPS["nccl" in dist.get_backend()], None) if ready else None
    if dump is not None:
        write_atomically(file, bytes(dump()))
