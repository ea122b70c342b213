"""What stands in for somebody else's object during a fit is gone after it, by identity.

The rows are those of `scripts/docs/replaced.py`, from which the page is made.
"""

import gc
import importlib
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from support.outside import hearing, network
from support.threads import one_thread
from torch.nn.modules import module as nn_module

from scripts.docs.replaced import PROCESS_ENDS, REPLACED
from trainperf.core.launch_environment import LaunchOptions
from trainperf.loop import LoopMonitor, fit
from trainperf.plugins import torch_start
from trainperf.recording.line_sampler import EAGER_SWITCH_S, EagerSwitches


__all__ = ["one_thread"]

pytestmark = [pytest.mark.filterwarnings("ignore:.*"), pytest.mark.usefixtures("one_thread")]


STORIES = "tests/conformance/test_left_behind.py"

FIT: dict[str, object] = {"report": False, "lines": False, "machine": False}


class Planted(Exception):  # noqa: N818 it is no error of ours
    """What the tests raise."""


class Prepared:
    """A loader like Accelerate's, which copies its batches to a device that needs none."""

    device = "meta"

    def __init__(self) -> None:
        self.base_dataloader: Any = [torch.ones(2, 4)] * 4

    def __iter__(self) -> Iterator[torch.Tensor]:
        for batch in self.base_dataloader:
            yield batch.to(self.device, non_blocking=False)


@pytest.mark.parametrize("raises", [False, True], ids=["ends", "raises"])
def test_a_prepared_loader_has_its_own_batches_back(raises: bool) -> None:  # noqa: FBT001 a parameter
    """At the end of an epoch, also of one that an exception has left."""
    loader, model = Prepared(), network()
    before, meanwhile = loader.base_dataloader, []

    with suppress(Planted), LoopMonitor(None, **FIT) as monitor:
        monitor.watch(model, device="cpu")
        for _ in monitor.batches(loader):
            meanwhile.append(loader.base_dataloader)
            if raises:
                raise Planted
            monitor.end_step()

    gc.collect()  # a generator that an exception has left is closed as it goes
    assert meanwhile[0] is not before
    assert loader.base_dataloader is before


def test_the_call_of_a_trained_module_is_awaited_in_the_table_of_torch(tmp_path: Path) -> None:
    """Between two forwards only, so that layers cost nothing."""
    model, counts = network(), []
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    (tmp_path / "words").mkdir()
    options = LaunchOptions(dirpath=str(tmp_path / "out"), signals=str(tmp_path / "words"))

    with hearing(options):
        for _ in range(3):
            counts.append(len(nn_module._global_forward_pre_hooks))
            model(torch.ones(2, 4)).sum().backward()
            sgd.step()

    assert counts == [0, 1, 1]
    assert nn_module._global_forward_pre_hooks == {}


def test_the_switch_interval_is_back_after_a_sample() -> None:
    """And one that somebody has set meanwhile is kept."""
    before = sys.getswitchinterval()
    with suppress(Planted), EagerSwitches():
        assert sys.getswitchinterval() == pytest.approx(EAGER_SWITCH_S, rel=0.01)
        raise Planted
    assert sys.getswitchinterval() == before

    with EagerSwitches():
        sys.setswitchinterval(0.01)
    assert sys.getswitchinterval() == pytest.approx(0.01)
    sys.setswitchinterval(before)


def test_nothing_is_left_to_be_called_at_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a fit that has ended, by whatever."""
    calls: list[Any] = []
    monkeypatch.setattr(fit.atexit, "register", calls.append)
    monkeypatch.setattr(fit.atexit, "unregister", calls.remove)

    with suppress(Planted), LoopMonitor(None, **FIT) as monitor:
        for _ in monitor.batches([0]):
            assert len(calls) == 1
            raise Planted

    assert calls == []


def test_the_import_hook_is_gone_once_the_module_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the module's own loader in its place, and also where the module raises."""
    (tmp_path / "stub_trainer.py").write_text("DEFAULT_CALLBACKS = []\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(torch_start, "TRAINER", "stub_trainer")
    before, loaded = list(sys.meta_path), []

    torch_start._hear_of_trainers(loaded.append)
    assert before != sys.meta_path
    module = importlib.import_module("stub_trainer")

    assert loaded == [module]
    assert before == sys.meta_path
    assert not isinstance(module.__loader__, torch_start._AfterImport)
    monkeypatch.delitem(sys.modules, "stub_trainer")

    (tmp_path / "stub_trainer.py").write_text("raise LookupError\n", encoding="utf-8")
    importlib.invalidate_caches()
    torch_start._hear_of_trainers(loaded.append)
    with pytest.raises(LookupError):
        importlib.import_module("stub_trainer")
    assert before == sys.meta_path


CASES = {
    **dict.fromkeys(("profiler", "backward", "base_dataloader", "object_hooks", "gc"), STORIES),
    **dict.fromkeys(("module_table", "gradient_hook", "monitoring", "dispatch_mode"), STORIES),
    **dict.fromkeys(("prepared", "switch_interval", "atexit", "import_hook"), "here"),
    "post_training": "tests/huggingface/test_post_training.py",
    "own_hooks": "tests/huggingface, tests/lightning",
    "tf32": "tests/audit/test_tf32.py",
    "optimizer_table": "stays, as the row says",
    **dict.fromkeys(("trainer_in_trials", "arguments_in_trials"), "the test_trials.py of its room"),
    "switches_in_trials": "tests/trials, tests/lightning/test_trials.py",
}
"""Where each row is tested."""


def test_every_row_has_a_case_or_ends_with_its_process() -> None:
    """And no case is of a row that is gone."""
    ids = {row.id for row in REPLACED}

    assert len(ids) == len(REPLACED)
    assert set(CASES) <= ids
    assert {row.id for row in REPLACED if row.id not in CASES} == {
        row.id for row in REPLACED if row.back == PROCESS_ENDS and "try" not in row.door
    }
