"""What stands in for somebody else's object during a fit is gone after it, by identity.

The rows are those of `scripts/docs/replaced.py`, from which the page is made.
"""

import gc
import importlib
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from support import hugging_face
from support.fits import Loader, Model, trainer
from support.outside import hearing, network
from support.threads import one_thread
from torch.nn.modules import module as nn_module
from torch.utils._python_dispatch import _get_current_dispatch_mode
from transformers import TrainerCallback

from scripts.docs.replaced import PROCESS_ENDS, REPLACED
from trainperf.audit.chip_benchmark import _products_of_fp32
from trainperf.core.launch_environment import LaunchOptions
from trainperf.lightning import TrainPerf
from trainperf.loop import LoopMonitor, fit
from trainperf.plugins import torch_start
from trainperf.recording.line_sampler import EAGER_SWITCH_S, EagerSwitches


__all__ = ["one_thread"]

pytestmark = [pytest.mark.filterwarnings("ignore:.*"), pytest.mark.usefixtures("one_thread")]

Look = Callable[[], object]

FIT: dict[str, object] = {"report": False, "lines": False, "machine": False}


class Planted(Exception):  # noqa: N818 it is no error of ours
    """What the tests raise."""


@dataclass
class Looks:
    """Places that a fit may touch, each as what it holds at the moment; by the row."""

    places: dict[str, Look]
    before: dict[str, object] = field(default_factory=dict)
    during: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.before = self.now()

    def now(self) -> dict[str, object]:
        """What they hold."""
        return {name: look() for name, look in self.places.items()}

    def look(self) -> None:
        """In the fit."""
        self.during = self.now()

    def changed(self, later: dict[str, object]) -> set[str]:
        """Places that hold something else by now."""
        return {name for name in self.places if not _same(self.before[name], later[name])}


def _same(one: object, other: object) -> bool:
    """The same object; of lists and tables, the same objects in them."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(one[key] is other[key] for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(lambda a, b: a is b, one, other))
    return one is other


def hooks_of(*objects: Any) -> Look:
    """Their tables of hooks, all in one."""

    def look() -> dict[object, object]:
        tables = [
            (id(each), name, table)
            for each in objects
            for name, table in vars(each).items()
            if "hook" in name and isinstance(table, dict)
        ]
        return {(at, name, key): hook for at, name, t in tables for key, hook in t.items()}

    return look


class At(pl.Callback):
    """Looks in the second batch, and then raises if it is to."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act = act

    def on_before_optimizer_step(self, *_: Any) -> None:
        """In a step."""
        self.act()


@pytest.fixture(params=[False, True], ids=["ends", "raises"])
def raises(request: pytest.FixtureRequest) -> bool:
    """Whether the fit is ended by an exception."""
    return bool(request.param)


def looking(looks: list[Looks], *, raises: bool) -> Callable[[], None]:
    """Looks at the places when it is called the second time, and may raise."""
    calls = []

    def act() -> None:
        calls.append(len(calls))
        if len(calls) == 2:
            looks[0].look()
            if raises:
                raise Planted

    return act


def test_a_lightning_fit_gives_everything_back(tmp_path: Path, raises: bool) -> None:  # noqa: FBT001 a fixture
    """And touches nothing of what `trainperf try` does."""
    ours = TrainPerf(dirpath=tmp_path, audit_at=1, **FIT)
    ours._listen()
    looks: list[Looks] = []
    model = Model()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    model.configure_optimizers = lambda: sgd
    act = looking(looks, raises=raises)
    training = trainer(tmp_path, ours, At(act), logger=True)
    own = {name: id(hook) for name, hook in vars(ours).items() if name.startswith("on_")}
    strategy, fit_loop = training.strategy, training.fit_loop
    looks.append(
        Looks(
            {
                "profiler": lambda: training.profiler,
                "own_hooks": lambda: {
                    name: vars(ours).get(name) for name in own if name != "on_train_epoch_end"
                },
                "object_hooks": hooks_of(model, model.layer, sgd),
                "gc": lambda: list(gc.callbacks),
                "dispatch_mode": _get_current_dispatch_mode,
                "module_table": lambda: dict(nn_module._global_forward_pre_hooks),
                "trainer_in_trials": lambda: {
                    "logger": training.loggers[0],
                    "callbacks": type(training.callbacks),
                    "every": training.log_every_n_steps,
                    "epochs": fit_loop.max_epochs,
                    "steps": fit_loop.epoch_loop.max_steps,
                    "checkpoints": strategy.checkpoint_io,
                    "precision": strategy.precision_plugin,
                    "log": vars(model).get("log"),
                },
            }
        )
    )

    with suppress(Planted):
        training.fit(model, Loader(4))

    given = {"profiler", "own_hooks", "object_hooks", "gc", "dispatch_mode", "module_table"}
    assert looks[0].changed(looks[0].during) == given
    assert looks[0].changed(looks[0].now()) == set()


class Stops(TrainerCallback):
    """Looks at each update."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act = act

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """In a step."""
        self.act()


def test_a_hugging_face_training_gives_everything_back(tmp_path: Path, raises: bool) -> None:  # noqa: FBT001 a fixture
    """With `with callback:` also after an exception; none of what `trainperf try` does."""
    ours = hugging_face.quiet(dirpath=tmp_path / "runs", machine=False)
    looks: list[Looks] = []
    training = hugging_face.trainer(
        tmp_path, ours, Stops(looking(looks, raises=raises)), max_steps=4
    )
    loader = training.get_train_dataloader()
    training.get_train_dataloader = lambda: loader
    handler, model = training.callback_handler, training.model
    looks.append(
        Looks(
            {
                "backward": lambda: vars(training.accelerator).get("backward"),
                "base_dataloader": lambda: loader.base_dataloader,
                "own_hooks": lambda: {
                    name: hook for name, hook in vars(ours).items() if name.startswith("on_")
                },
                "object_hooks": hooks_of(model, model.layer),
                "gc": lambda: list(gc.callbacks),
                "arguments_in_trials": lambda: [
                    training.args.max_steps,
                    training.state.logging_steps,
                    *handler.callbacks,
                ],
            }
        )
    )

    with suppress(Planted), ours:
        training.train()

    changed = looks[0].changed(looks[0].during)
    assert changed >= {"backward", "base_dataloader", "own_hooks", "object_hooks", "gc"}
    assert looks[0].changed(looks[0].now()) - {"arguments_in_trials"} == set()
    assert looks[0].during["arguments_in_trials"][2:] == handler.callbacks


class Prepared:
    """A loader like Accelerate's, which copies its batches to a device that needs none."""

    device = "meta"

    def __init__(self) -> None:
        self.base_dataloader: Any = [torch.ones(2, 4)] * 4

    def __iter__(self) -> Iterator[torch.Tensor]:
        for batch in self.base_dataloader:
            yield batch.to(self.device, non_blocking=False)


def test_a_plain_loop_gives_everything_back(raises: bool) -> None:  # noqa: FBT001 a fixture
    """At the end of an epoch, also of one that is left, and at the end of the fit."""
    loader, model = Prepared(), network()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    tables = {"gc": lambda: list(gc.callbacks), "object_hooks": hooks_of(model, *model, sgd)}
    looks = Looks({"prepared": lambda: loader.base_dataloader, **tables})
    act = looking([looks], raises=raises)

    with suppress(Planted), LoopMonitor(None, **FIT) as monitor:
        monitor.watch(model, sgd, device="cpu")
        for _ in monitor.batches(loader):
            act()
            model(torch.ones(2, 4)).sum().backward()
            sgd.step()
            monitor.end_step()

    assert looks.changed(looks.during) == {"prepared", "gc", "object_hooks"}
    gc.collect()  # a generator that an exception has left is closed as it goes
    assert looks.changed(looks.now()) == set()


def test_a_loop_that_is_recorded_from_outside_keeps_no_hook(tmp_path: Path, raises: bool) -> None:  # noqa: FBT001 a fixture
    """Nor does torch; the two of its optimizers belong to the process."""
    model = network()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    tools = getattr(sys, "monitoring", None)
    looks = Looks(
        {
            "module_table": lambda: dict(nn_module._global_forward_pre_hooks),
            "object_hooks": hooks_of(model, *model, sgd),
            "gc": lambda: list(gc.callbacks),
            "sigterm": lambda: signal.getsignal(signal.SIGTERM),
            "monitoring": lambda: tools and [tools.get_tool(number) for number in (3, 4)],
        }
    )
    (tmp_path / "words").mkdir()
    options = LaunchOptions(dirpath=str(tmp_path / "out"), signals=str(tmp_path / "words"))
    kept: list[object] = []

    with hearing(options), suppress(Planted):
        for step in range(4):
            output = model(torch.ones(2, 4))
            kept.append(output._backward_hooks)
            if step == 3:
                looks.look()
                if raises:
                    raise Planted
            output.sum().backward()
            sgd.step()

    assert looks.changed(looks.during) >= {"object_hooks", "gc", "sigterm"}
    assert ("monitoring" in looks.changed(looks.during)) is (tools is not None)
    assert kept[0] is None
    assert kept[3] is not None  # it goes with the tensor
    assert looks.changed(looks.now()) == set()


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
    assert not _same(before, list(sys.meta_path))
    module = importlib.import_module("stub_trainer")

    assert loaded == [module]
    assert _same(before, list(sys.meta_path))
    assert not isinstance(module.__loader__, torch_start._AfterImport)
    monkeypatch.delitem(sys.modules, "stub_trainer")

    (tmp_path / "stub_trainer.py").write_text("raise LookupError\n", encoding="utf-8")
    importlib.invalidate_caches()
    torch_start._hear_of_trainers(loaded.append)
    with pytest.raises(LookupError):
        importlib.import_module("stub_trainer")
    assert _same(before, list(sys.meta_path))


def test_the_precision_of_products_is_back_after_the_benchmark() -> None:
    """Of the chip, also where it fails."""
    switch = torch.backends.cuda.matmul
    before = switch.fp32_precision

    with suppress(Planted), _products_of_fp32("tf32"):
        assert switch.fp32_precision == "tf32"
        raise Planted

    assert switch.fp32_precision == before


CASES = {
    **dict.fromkeys(("profiler", "trainer_in_trials", "dispatch_mode"), "lightning"),
    **dict.fromkeys(("backward", "base_dataloader", "arguments_in_trials"), "hugging_face"),
    **dict.fromkeys(("own_hooks", "object_hooks", "gc"), "lightning, hugging_face, plain"),
    "prepared": "plain",
    **dict.fromkeys(("module_table", "gradient_hook", "monitoring", "sigterm"), "outside"),
    **dict.fromkeys(("switch_interval", "atexit", "import_hook", "tf32"), "by itself"),
    "warnings": "Python's own context",
    "optimizer_table": "stays, as the row says",
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
