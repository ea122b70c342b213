"""The whole recipe: watched loops first, then the cases that any machine shows, then CUDA's."""

import time
from itertools import chain
from pathlib import Path

import msgspec
import torch

from recipes.cases.case import RecipeRun, save
from recipes.cases.measuring import machine
from recipes.overlap import (
    cpu_threads,
    cuda_copies,
    cuda_graphs,
    cuda_streams,
    launches,
    prefetching,
)
from recipes.overlap.effort import FULL, SMALL
from recipes.overlap.watched import figures, timeline


ABOUT = (
    "What can go on at the same time, what that gains, and next to each a case in which it gains "
    "nothing. A GPU runs kernels of several streams side by side, and copies while it computes; a "
    "captured graph replays many kernels for one launch. A CPU runs operators of several threads, "
    "and compilation makes fewer of them. The watched loops ran under trainperf: the table has its "
    "always-on figures, and the timelines draw a step from its trace, which shows the loop's own "
    "thread."
)


NO_LOOPS = "Loops of copies, streams and graphs, with their timelines, need CUDA."


def measured(out: Path, *, small: bool, also: Path | None = None) -> RecipeRun:
    """Measure everything; *small* is for tests and proves nothing.

    Args:
        out: Where the run directories of the watched loops go.
        small: The size.
        also: A file that is written after each case: a run that is cut short leaves what it has.
    """
    begun_s = time.perf_counter()
    effort = SMALL if small else FULL
    runs = out / "runs"
    threading = cpu_threads.watch(runs, effort)
    loading = prefetching.watch(runs, effort)
    launching = launches.watch(runs, effort)
    copying = cuda_copies.watch(runs, effort)
    streaming = cuda_streams.watch(runs, effort)
    replaying = cuda_graphs.watch(runs, effort)
    loops = [*threading, *loading, launching, *copying, *streaming, *replaying]
    run = RecipeRun(
        recipe="overlap",
        title="Overlap: streams, copies, launches",
        about=ABOUT,
        command="python -m recipes.overlap" + (" --size small" if small else ""),
        machine=machine(),
        took_s=0.0,
        tables=(figures(loops, () if torch.cuda.is_available() else (NO_LOOPS,)),),
        timelines=tuple(filter(None, map(timeline, loops))),
    )
    anywhere = (
        cpu_threads.cases(effort),
        prefetching.cases(loading[0], effort),
        launches.cases(launching, effort),
    )
    on_cuda = (
        cuda_streams.cases(streaming, effort),
        cuda_copies.cases(copying, effort),
        cuda_graphs.cases(replaying, effort),
    )
    # What may be cut short begins with what it was run for.
    order = (*on_cuda, *anywhere) if torch.cuda.is_available() else (*anywhere, *on_cuda)
    for case in chain.from_iterable(order):
        took_s = time.perf_counter() - begun_s
        run = msgspec.structs.replace(run, cases=(*run.cases, case), took_s=took_s)
        if also is not None:
            save(run, also)
    return run
