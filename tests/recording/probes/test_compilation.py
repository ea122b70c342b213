"""What torch.compile did in a fit: per step, and in `compile.json`."""

import inspect
import itertools
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from support.live import HostFit
from torch import Tensor, nn
from torch._inductor import cudagraph_utils

from trainperf.audit.stack_frames import shown_path
from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.compilation import Compilation
from trainperf.core.phases import Gap
from trainperf.recording.probes import dynamo_log
from trainperf.recording.probes.compilation import CompileProbe


pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("fresh_compiler")]

HERE = Path(__file__)


def fit(path: Path, *calls: object) -> Compilation:
    """A fit whose steps make one call each; what it wrote."""
    made = HostFit(CompileProbe(path))
    for call in calls:
        made.monitor.recorder.boundary()
        made.clock.advance(ms=7)
        call()  # type: ignore[operator]
        made.micro_batch()
    made.finish()
    return read_document(Compilation, path)


def scaled(rows: Tensor, times: int) -> Tensor:
    """Depends on a Python number."""
    return rows * times


def interrupted(rows: Tensor) -> Tensor:
    """Two graphs: torch cannot compile a print."""
    doubled = rows * 2
    print(end="")  # noqa: T201 the fault
    return doubled + 1


def line_of(text: str) -> str:
    """Where this file says so, as documents name it."""
    lines = HERE.read_text(encoding="utf-8").splitlines()
    return f"{shown_path(str(HERE))}:{1 + next(n for n, one in enumerate(lines) if text in one)}"


def test_a_recompilation_has_its_step_its_line_and_the_guard_that_failed(tmp_path: Path) -> None:
    """The third step brings rows of another width."""
    work = torch.compile(scaled, backend="eager", dynamic=False)

    found = fit(
        tmp_path,
        lambda: work(torch.ones(3), 2),
        lambda: work(torch.ones(3), 2),
        lambda: work(torch.ones(5), 2),
    )

    assert found.graphs == 2
    assert [one.step for one in found.compiled] == [0, 2]
    again = found.recompiled[0]
    assert (again.function, again.where) == ("scaled", line_of("def scaled"))
    # Torch 2.6 writes the tensor as `L['rows']`.
    assert again.reason.startswith("tensor ")
    assert again.reason.endswith(" size mismatch at index 0. expected 3, actual 5")
    assert [one.step for one in found.steps] == [0, 2]


def test_a_break_has_its_line_and_reason(tmp_path: Path) -> None:
    """And both graphs are counted."""
    work = torch.compile(interrupted, backend="eager")

    found = fit(tmp_path, lambda: work(torch.ones(3)), lambda: work(torch.ones(3)))

    assert found.graphs == 2
    assert found.recompiled == ()
    (broken,) = found.breaks
    assert broken.where == line_of('print(end="")')
    assert "print" in broken.reason
    assert broken.times == 1


def test_the_backward_of_a_graph_is_no_recompilation(tmp_path: Path) -> None:
    """It is compiled when it first runs."""
    module = nn.Linear(3, 3)
    work = torch.compile(module, backend="aot_eager")

    found = fit(tmp_path, lambda: work(torch.ones(2, 3)).sum().backward())

    assert [one.backward for one in found.compiled] == [False, True]
    assert found.recompiled == ()
    assert found.compile_s > 0


def test_that_torch_gives_up_is_told(tmp_path: Path) -> None:
    """From the ninth shape on the function runs as it is written."""
    work = torch.compile(scaled, backend="eager", dynamic=False)
    limit = getattr(torch._dynamo.config, "recompile_limit", 8)

    found = fit(tmp_path, *(lambda n=n: work(torch.ones(n + 3), 2) for n in range(limit + 2)))

    assert found.graphs == limit
    assert [one.step for one in found.compiled if one.gave_up] == [limit]


def test_cuda_graphs_and_what_was_to_be_one_are_those_of_the_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folds in one process have one counter of each; that of graphs shows its next number."""
    counter, counts = itertools.count(18), torch._dynamo.utils.counters["inductor"]
    manager = SimpleNamespace(tree_manager=SimpleNamespace(graph_counter=counter))
    trees = SimpleNamespace(local=SimpleNamespace(tree_manager_containers={0: manager}))
    monkeypatch.setitem(dynamo_log.sys.modules, "torch._inductor.cudagraph_trees", trees)
    work = torch.compile(scaled, backend="eager", dynamic=False)
    counts["cudagraph_skips"] = 5

    def leaves_one_out() -> None:
        counts["cudagraph_skips"] += 1

    found = fit(tmp_path, lambda: work(torch.ones(3), 2), lambda: next(counter), leaves_one_out)

    assert (found.graphs, found.recorded, found.unrecorded) == (1, 1, 1)
    # Torch counts it so, and leaves all out on a CPU.
    assert 'counters["inductor"]["cudagraph_skips"] += 1' in inspect.getsource(cudagraph_utils)


def test_whether_anything_was_compiled_is_part_of_the_configuration() -> None:
    """Of a fit in which the compiled object is never called nothing was."""
    probe, module = CompileProbe(), nn.Linear(3, 3)
    work = torch.compile(module, backend="eager")
    torch._dynamo.utils.counters.clear()
    made = HostFit(probe)

    made.monitor.recorder.boundary()
    module(torch.ones(2, 3))
    made.micro_batch()
    before = probe.config()
    work(torch.ones(2, 3))
    made.micro_batch().finish()

    assert before == {"ran_compiled": False}
    assert probe.config() == {"ran_compiled": True}


def test_what_was_compiled_before_the_fit_is_not_its_own(tmp_path: Path) -> None:
    """A run without compilation has no such file."""
    work = torch.compile(scaled, backend="eager", dynamic=False)
    work(torch.ones(3), 2)
    made = HostFit(CompileProbe(tmp_path))
    made.monitor.recorder.boundary()
    work(torch.ones(3), 2)
    made.micro_batch().finish()

    assert read_document(Compilation, tmp_path) is None


def test_what_a_gap_compiles_belongs_to_no_step(tmp_path: Path) -> None:
    """Validation has its own shapes."""
    work = torch.compile(scaled, backend="eager", dynamic=False)
    made = HostFit(CompileProbe(tmp_path)).steps(2)
    made.monitor.recorder.rest(Gap.VALIDATION)
    work(torch.ones(3), 2)
    made.steps(2).finish()

    found = read_document(Compilation, tmp_path)
    assert [one.step for one in found.compiled] == [None]
    assert found.steps == ()
    assert made.facts("recompiles") == [0, 0, 0, 0]


def test_an_interface_that_is_missing_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another version of torch may keep less."""
    bare = ModuleType("torch._dynamo.utils")
    monkeypatch.setitem(dynamo_log.sys.modules, dynamo_log.UTILITIES, bare)

    assert dynamo_log.compilations() == []
    assert dynamo_log.compiling_s() is None
