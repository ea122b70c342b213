"""What a script does before there is a fit: who is sampled, what is kept, and when it ends."""

import gc
import multiprocessing
import re
import sys
import types
import weakref
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from support.runs import RankSpec, make_gap, make_run_dir, make_step, make_steps
from support.waiting import until

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.lines import SampledCode, before_fit
from trainperf.core.artifacts import read_document, write_document
from trainperf.core.artifacts.compilation import Compilation, Compiled
from trainperf.core.artifacts.lines import (
    AWAITING,
    BEFORE,
    BEFORE_FIT,
    BUILDING,
    COMPILING,
    DATASET_MAP,
    DATASET_MAP_IN_PROCESSES,
    DATASETS,
    IMPORTS,
    JOINING,
    LOADING,
    TOKENIZING,
    Place,
    Sample,
    SampledLines,
    SampledStack,
)
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.phases import Gap, Tag
from trainperf.core.steps.records import RunInfo
from trainperf.recording.early_lines import EarlyLines, prepared_s, slot_of
from trainperf.recording.line_sampler import LineSampler
from trainperf.recording.probes.lines import LinesProbe
from trainperf.recording.recorder import Recorder
from trainperf.recording.stacks import Stack, stack_of
from trainperf.reports.run.headline import headline
from trainperf.reports.run.rows import script_sum


class Work:
    """Something that a frame holds."""


def test_a_copy_has_the_lines_and_holds_nothing() -> None:
    """A frame would keep alive what the script lets go of."""

    def inner() -> tuple[Stack, "weakref.ref[Work]"]:
        held = Work()
        return stack_of(sys._getframe()), weakref.ref(held)

    stack, held = inner()

    gc.collect()
    assert held() is None
    own = sys._getframe().f_code.co_name
    assert [code.co_name for code, _ in stack[:2]] == ["inner", own]


INSTALLED = "/env/lib/python3.12/site-packages"


def running(*frames: tuple[str, str]) -> Stack:
    """A stack of functions, each with its file, the innermost first."""
    module = (compile(f"def {name}(): pass", file, "exec") for file, name in frames)
    return [
        (code, 1) for each in module for code in each.co_consts if isinstance(code, types.CodeType)
    ]


@pytest.mark.parametrize(
    ("frames", "slot"),
    [
        ((("datasets/arrow_dataset.py", "_map_single"),), DATASET_MAP),
        ((("datasets/utils/py_utils.py", "iflatmap_unordered"),), DATASET_MAP_IN_PROCESSES),
        ((("datasets/load.py", "load_dataset"),), DATASETS),
        # The innermost frame is the tokenizer's: it is called by map.
        (
            (
                ("transformers/tokenization_utils.py", "__call__"),
                ("datasets/arrow_dataset.py", "_map_single"),
            ),
            DATASET_MAP,
        ),
        ((("transformers/tokenization_utils.py", "__call__"),), TOKENIZING),
        # Modules that are built as weights are loaded.
        (
            (
                ("torch/nn/modules/linear.py", "__init__"),
                ("transformers/modeling_utils.py", "from_pretrained"),
            ),
            LOADING,
        ),
        ((("torch/serialization.py", "load"),), LOADING),
        ((("torch/nn/modules/linear.py", "__init__"),), BUILDING),
        ((("torch/nn/modules/linear.py", "forward"),), BEFORE_FIT),
        ((("torch/_dynamo/convert_frame.py", "compile_inner"),), COMPILING),
        # Another rank prepares, before a barrier or with a lock.
        ((("torch/distributed/distributed_c10d.py", "barrier"),), JOINING),
        ((("filelock/_api.py", "acquire"), ("datasets/builder.py", "download")), JOINING),
        ((("torch/utils/data/dataloader.py", "_try_get_data"),), AWAITING),
    ],
)
def test_what_has_a_name_is_called_by_it(frames: tuple[tuple[str, str], ...], slot: str) -> None:
    """Of installed packages: a folder of the user's called `datasets` is the user's own."""
    own = ("/home/me/train.py", "main")
    stack = running(*((f"{INSTALLED}/{file}", name) for file, name in frames), own)
    users = running(*((f"/home/me/{file}", name) for file, name in frames), own)
    assert (slot_of(stack), slot_of(users)) == (slot, BEFORE_FIT)


def test_what_could_be_kept_is_counted_on_every_rank() -> None:
    """Modules that are loaded are not."""
    mapping = running((f"{INSTALLED}/datasets/arrow_dataset.py", "_map_single"))
    loading = running(("<frozen importlib._bootstrap>", "_load"))
    sampler = LineSampler(lambda stack: (slot_of(stack), -1, stack))
    numbers = [sampler.stacks.number(slot_of(stack), stack) for stack in (mapping, loading)]
    lines = sampler.lines()
    samples = (Sample(numbers[0], -1, 2_500_000), Sample(numbers[1], -1, 500_000))
    assert prepared_s([msgspec.structs.replace(lines, samples=samples), lines]) == 2.5
    assert prepared_s([]) == 0


def test_what_was_seen_before_stands_for_its_time_and_comes_with_the_lines_of_the_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once; where every second sample was left out, the others stand for it."""
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "train.py", raising=False)
    early = EarlyLines()
    early.start("torch")
    (sampler,) = early._samplers
    began_ns = monotonic_ns()
    until(lambda: sampler.taken >= 12)
    took_s = (monotonic_ns() - began_ns) / 1e9
    sampler.every = 2
    early.end()
    (lines,) = early.take()

    assert early.take() == ()
    seen_s = sum(sample.stands_for_us for sample in lines.samples) / 2e6
    assert seen_s == pytest.approx(took_s, rel=0.5)
    probe = LinesProbe(tmp_path, early=[lines])
    probe.attach(Recorder(monotonic_ns))
    probe.detach()
    document = read_document(SampledLines, tmp_path)
    assert document.before_fit_s > took_s
    slots = [document.stacks[sample.stack].slot for sample in document.samples]
    assert sum(slot in BEFORE for slot in slots) == len(lines.samples)


def test_as_a_fit_starts_only_what_could_be_kept_has_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is built, loaded or waited for there stands for its time alone."""
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "train.py", raising=False)
    early = EarlyLines()
    early.start("torch")
    early.fit_begins()
    before, startup = early._samplers
    until(lambda: startup.taken >= 3)
    own = running(("/home/me/train.py", "prepare"))
    loading = running((f"{INSTALLED}/torch/serialization.py", "load"))

    assert {stack.slot for stack in early.take()[-1].stacks} == {"startup"}
    assert startup._where(own) == ("startup", -1, own)
    assert startup._where([*loading, *own]) == ("startup", -1, [])
    assert before._where(own) == (BEFORE_FIT, -1, own)

    recorder = Recorder(monotonic_ns)
    probe = LinesProbe(tmp_path)
    probe.attach(recorder)
    try:
        assert recorder.label == "startup"
        assert probe._where([*loading, *own])[::2] == ("startup", [])
        assert probe._where(own)[::2] == ("startup", own)
        recorder.end()
        assert probe._where(own) is None  # a report is written, and the script goes on
    finally:
        probe.detach()


def test_who_does_not_prepare_is_not_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker loads torch as well, and would be sampled for as long as it lives."""
    early = EarlyLines()
    for owner, name, value in (
        (multiprocessing, "parent_process", types.SimpleNamespace),
        # One that is spawned loads the script before it has a parent.
        (multiprocessing.current_process(), "_inheriting", True),
        # A session that somebody types into.
        (sys.modules, "__main__", types.ModuleType("__main__")),
    ):
        with monkeypatch.context() as there:
            if owner is sys.modules:
                there.setitem(sys.modules, name, value)
            else:
                there.setattr(owner, name, value, raising=False)
            early.start("torch")
        assert early._samplers == []


def lines_of(before_s: float, loading_s: float, whole_s: float) -> SampledLines:
    """Samples of half a second from before a fit, and ten of its forward."""
    stacks = [
        SampledStack(slot, (place,), 1)
        for place, slot in enumerate((BEFORE_FIT, IMPORTS, "forward"))
    ]
    early = [Sample(0, -1, 500_000)] * round(2 * before_s) + [Sample(1, -1, 500_000)] * round(
        2 * loading_s
    )
    return SampledLines(
        taken=10,
        every=1,
        cost_s=0.0,
        places=tuple(Place("train.py", line, "prepare") for line in (7, 1, 9)),
        stacks=tuple(stacks),
        samples=(*early, *[Sample(2, 30, 1000)] * 10),
        before_fit_s=whole_s,
    )


def test_what_came_before_sums_to_the_time_of_the_process() -> None:
    """The script's own, loading modules, and what was before the first look."""
    lines = lines_of(12.0, 3.0, 16.5)

    assert before_fit(lines) == {"before_fit": 12.0, "imports": 3.0, "unseen": 1.5}
    owners = {each.slot: each.owner for each in SampledCode(lines).phases([30])}
    assert owners[BEFORE_FIT].where == "train.py:7"


@pytest.mark.parametrize("loop", ["plain", "outside"])
def test_the_ledger_sums_to_the_wall_time_of_the_process(loop: str, tmp_path: Path) -> None:
    """From its start to the end of the fit, compiling in the first step; on both ranks.

    From outside the first step was over before the fit.
    """
    first = make_step(0, tags=int(Tag.WARMUP), data_wait=300, forward=700)
    steps = [first, *make_steps(40, warmup=4, forward=100)[1:]]
    info = RunInfo(prepared_s=12.0, world_size=3, config={"loop": loop})
    ranks = [
        RankSpec(steps=steps, info=msgspec.structs.replace(info, rank=rank, prepared_s=prepared_s))
        for rank, prepared_s in enumerate((12.0, 11.0, 1.0))
    ]
    ranks[0] = replace(ranks[0], gaps=[make_gap(Gap.STARTUP, 200)], fit_ns=6_000_000_000)
    run = make_run_dir(tmp_path / "trainperf", ranks)
    write_document(lines_of(12.0, 3.0, 16.5), run)
    compiled = Compiled(function="f", where="", step=0, seconds=0.4, reason=None)
    write_document(Compilation(graphs=1, compiled=(compiled,)), run)

    summary = summarize(Run.open(run))

    assert summary.run.prepared_ranks == 2
    first_s = {"first_batch": 0.3, "compiling": 0.4, "first_step": 0.3, "warmup": 0.3}
    if loop == "outside":
        first_s = {"warmup": 1.3}
    assert summary.run.first_s == pytest.approx({"startup": 0.2, **first_s})
    terms = script_sum(summary)
    whole, *parts = (
        float(number) for term in terms for number in re.findall(r"(?<= )[\d.]+", term)
    )
    assert whole == pytest.approx(16.5 + 6.0)
    assert sum(parts) == pytest.approx(whole, abs=0.1 * len(parts))
    assert "until torch was loaded 1.5" in terms
    assert "12.0 s of the script's 22.5 s came before the fit." in headline(summary)


def test_without_a_look_nothing_is_told() -> None:
    """A callback of one's own, or a later fit of a process."""
    assert before_fit(None) == {}
    assert before_fit(lines_of(0.0, 0.0, 0.0)) == {}
