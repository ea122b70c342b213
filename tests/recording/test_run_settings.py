"""What is read of a fit's set-up, once at its start."""

import cProfile
from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch
from support.fits import Loader, Model, fit
from torch import nn

from trainperf.recording.run_settings import settings, together


def of(module: nn.Module, *optimizers: torch.optim.Optimizer) -> dict[str, object]:
    """The settings of a loop without a scaler."""
    return dict(settings(module, optimizers, None))


def compiled_in_place() -> nn.Module:
    """Nothing is compiled for it."""
    module = nn.Linear(2, 2)
    module.compile(backend="eager")
    return module


def half_frozen() -> nn.Module:
    """What is trained: a matrix and a bias, 6 elements of 4 bytes."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(requires_grad=False)
    return model


def convolution(kernel: int, memory_format: torch.memory_format) -> nn.Module:
    """A kernel of one pixel is in both formats at once."""
    return nn.Sequential(nn.Conv2d(4, 4, kernel)).to(memory_format=memory_format)  # type: ignore[call-overload,no-any-return]


def plain() -> nn.Module:
    """Has none of what may be found."""
    return nn.Linear(2, 2)


def dropping() -> nn.Module:
    """Fifty rows and a tenth are the most."""
    layers = nn.Embedding(7, 2), nn.Embedding(50, 2), nn.Dropout(0.1), nn.Dropout2d(0.05)
    return nn.Sequential(*layers)


MODULES: list[tuple[nn.Module, dict[str, object]]] = [
    (convolution(3, torch.channels_last), {"convolution_format": "channels_last"}),
    (convolution(3, torch.contiguous_format), {"convolution_format": "contiguous"}),
    (convolution(1, torch.contiguous_format), {"convolution_format": None}),
    (dropping(), {"vocabulary": 50, "dropout": 0.1}),
    (plain(), {"vocabulary": None, "dropout": 0.0, "wrapper": None, "compiled": False}),
    (nn.Sequential(nn.DataParallel(plain())), {"wrapper": "DataParallel"}),
    (nn.Sequential(torch.compile(plain(), backend="eager")), {"compiled": True}),
    (nn.Sequential(compiled_in_place()), {"compiled": True}),
    (half_frozen(), {"parameter_tensors": 2, "gradient_bytes": 24}),
    (nn.LazyLinear(3), {"gradient_bytes": None}),
    (nn.BatchNorm1d(4), {"buffer_bytes": 40}),  # two rows of four floats, and a number of batches
]


@pytest.mark.parametrize(("module", "told"), MODULES, ids=lambda value: str(value)[:40])
def test_what_a_module_is_like_is_told(module: nn.Module, told: dict[str, object]) -> None:
    """Wherever in it that is; `DataParallel` on a CPU passes everything through, and is one."""
    found = of(module)

    assert {name: found[name] for name in told} == told


def sgd(**options: bool) -> torch.optim.Optimizer:
    """Of a layer."""
    return torch.optim.SGD(plain().parameters(), 0.1, **options)


@pytest.mark.parametrize(
    ("optimizers", "fused", "foreach"),
    [
        ([sgd()], False, "auto"),
        ([sgd(fused=True)], True, "auto"),
        ([sgd(foreach=False)], False, False),
        ([sgd(fused=True), sgd()], "True, False", "auto"),
        ([torch.optim.LBFGS(plain().parameters())], None, None),
    ],
)
def test_the_optimizers_kernel_is_told(
    optimizers: list[torch.optim.Optimizer], fused: object, foreach: object
) -> None:
    """What the user asked for; else it is torch's to decide, and `None` where there is none."""
    found = of(plain(), *optimizers)

    assert (found["optimizer_fused"], found["optimizer_foreach"]) == (fused, foreach)
    assert (together([1, 1]), together([])) == (1, None)


def test_a_hugging_face_model_tells_how_it_attends_and_recomputes() -> None:
    """Also from inside the module that trains it."""
    transformers = pytest.importorskip("transformers")
    size = {"n_layer": 1, "n_head": 2, "n_embd": 8, "vocab_size": 16, "n_positions": 8}
    size |= {"bos_token_id": 0, "eos_token_id": 0}
    config = transformers.GPT2Config(**size, attn_implementation="eager")
    model = nn.ModuleDict({"gpt": transformers.GPT2LMHeadModel(config)})
    before = of(model)
    gpt = model["gpt"]
    enable = getattr(gpt, "activation_checkpointing_enable", None)  # its name in newer releases
    (enable or gpt.gradient_checkpointing_enable)()
    after = of(model)

    assert (before["attention"], before["gradient_checkpointing"]) == ("eager", False)
    assert after["gradient_checkpointing"] is True
    assert before["vocabulary"] == 16


def test_torchs_own_switches_and_a_scaler_are_told() -> None:
    """As they are at that moment."""
    scaled, not_scaled = torch.amp.GradScaler("cpu"), torch.amp.GradScaler("cpu", enabled=False)
    told = [settings(plain(), (), each)["grad_scaler"] for each in (scaled, not_scaled)]
    assert told == ["GradScaler", None]
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        inside = of(nn.Linear(2, 2))

    assert inside["detect_anomaly"] is True
    assert of(nn.Linear(2, 2))["detect_anomaly"] is False
    assert inside["float32_matmul_precision"] == torch.get_float32_matmul_precision()


class Scheduled(Model):
    """A learning rate that is set anew every third step."""

    def configure_optimizers(self) -> object:
        """With a scheduler by the step."""
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
        how = {"scheduler": scheduler, "interval": "step", "frequency": 3}
        return {"optimizer": optimizer, "lr_scheduler": how}


def test_lightnings_own_settings_are_told(tmp_path: Path) -> None:
    """Schedulers, clipping, callbacks and loggers by name, switches as they are in the fit."""
    ran = fit(
        tmp_path,
        Scheduled(),
        Loader(3),
        pl.callbacks.Timer(),
        gradient_clip_val=0.5,
        detect_anomaly=True,
        benchmark=True,
    )
    config = ran.info.config

    assert config["schedulers"] == "StepLR"
    assert (config["scheduler_interval"], config["scheduler_frequency"]) == ("step", 3)
    assert config["gradient_clip_val"] == 0.5
    assert config["detect_anomaly"] is True
    assert config["cudnn_benchmark"] is True
    assert "Timer" in str(config["callbacks"])
    assert config["loggers"] == ""


def test_who_hears_of_all_python_code_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profiler and a debugger by their modules; nobody by default."""
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    before, model = of(nn.Linear(2, 2)), nn.Linear(2, 2)
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        found = of(model)
    finally:
        profiler.disable()
    assert found["python_tracer"] == "cProfile"
    assert found["launch_blocking"] is True
    assert before["python_tracer"] is None or "cov" in str(before["python_tracer"])
