"""What is read of a fit's set-up, once at its start."""

import cProfile
from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch
from support.fits import Loader, Model, fit
from support.loops import written
from torch import nn

from trainperf.loop import LoopMonitor
from trainperf.recording.run_settings import settings, together


def of(module: nn.Module, *optimizers: torch.optim.Optimizer) -> dict[str, object]:
    """The settings of a loop without a scaler."""
    return dict(settings(module, optimizers, None))


@pytest.mark.parametrize(
    ("options", "fused", "foreach"),
    [
        ({}, False, "auto"),
        ({"fused": True}, True, "auto"),
        ({"foreach": False}, False, False),
    ],
)
def test_the_optimizers_kernel_is_told(
    options: dict[str, bool], fused: object, foreach: object
) -> None:
    """What the user asked for; what nobody asked for is torch's to decide."""
    model = nn.Linear(2, 2)
    found = of(model, torch.optim.AdamW(model.parameters(), **options))

    assert (found["optimizer_fused"], found["optimizer_foreach"]) == (fused, foreach)


def test_an_optimizer_without_a_fused_kernel_has_none() -> None:
    """`None`, which is not `False`: nothing can be asked for."""
    model = nn.Linear(2, 2)
    found = of(model, torch.optim.LBFGS(model.parameters()))

    assert found["optimizer_fused"] is None
    assert found["optimizer_foreach"] is None


def test_optimizers_that_differ_are_all_told() -> None:
    """In the order in which the loop has them."""
    model = nn.Linear(2, 2)
    fused, plain = (torch.optim.SGD(model.parameters(), fused=on) for on in (True, False))

    assert of(model, fused, plain)["optimizer_fused"] == "True, False"
    assert together([1, 1]) == 1
    assert together([]) is None


@pytest.mark.parametrize(
    ("kernel", "memory_format", "said"),
    [
        (3, torch.channels_last, "channels_last"),
        (3, torch.contiguous_format, "contiguous"),
        (1, torch.contiguous_format, None),
    ],
)
def test_the_format_of_convolution_weights_is_told(
    kernel: int, memory_format: torch.memory_format, said: str | None
) -> None:
    """A kernel of one pixel is in both formats at once."""
    model = nn.Sequential(nn.Conv2d(4, 4, kernel), nn.Linear(2, 2)).to(memory_format=memory_format)

    assert of(model)["convolution_format"] == said


def test_the_largest_embedding_and_dropout_are_told() -> None:
    """Fifty rows and a tenth; a model without either has no vocabulary, and drops nothing."""
    model = nn.Sequential(
        nn.Embedding(7, 2), nn.Embedding(50, 2), nn.Dropout(0.1), nn.Dropout2d(0.05)
    )
    found, plain = of(model), of(nn.Linear(2, 2))

    assert (found["vocabulary"], found["dropout"]) == (50, 0.1)
    assert (plain["vocabulary"], plain["dropout"]) == (None, 0.0)


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


def test_a_wrapper_is_found_also_inside_the_module() -> None:
    """`DataParallel` on a CPU passes everything through, and is one nevertheless."""
    inner = nn.Sequential(nn.DataParallel(nn.Linear(2, 2)))

    assert of(inner)["wrapper"] == "DataParallel"
    assert of(nn.Linear(2, 2))["wrapper"] is None


def test_compiled_modules_are_told_wherever_they_are() -> None:
    """Both ways to compile one; nothing is compiled for it."""
    made = torch.compile(nn.Linear(2, 2), backend="eager")
    in_place = nn.Linear(2, 2)
    in_place.compile(backend="eager")

    assert of(nn.Sequential(made))["compiled"] is True
    assert of(nn.Sequential(in_place))["compiled"] is True
    assert of(nn.Sequential(nn.Linear(2, 2)))["compiled"] is False


def test_what_is_trained_is_counted() -> None:
    """Two layers of which one is frozen: a matrix and a bias, 6 elements of 4 bytes."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(requires_grad=False)
    found = of(model)

    assert (found["parameter_tensors"], found["gradient_bytes"]) == (2, 24)
    assert of(nn.LazyLinear(3))["gradient_bytes"] is None


def test_torchs_own_switches_are_told() -> None:
    """As they are at that moment."""
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        inside = of(nn.Linear(2, 2))

    assert inside["detect_anomaly"] is True
    assert of(nn.Linear(2, 2))["detect_anomaly"] is False
    assert inside["float32_matmul_precision"] == torch.get_float32_matmul_precision()


def test_a_plain_loop_and_a_scaler_are_told(tmp_path: Path) -> None:
    """In the header of the run."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, fused=True)
    scaler = torch.amp.GradScaler("cpu")
    with LoopMonitor(tmp_path, report=False).watch(model, optimizer, scaler) as monitor:
        for _ in monitor.batches([1]):
            monitor.end_step()
    config = written(monitor).info.config

    assert (config["optimizers"], config["optimizer_fused"]) == ("SGD", True)
    assert config["grad_scaler"] == "GradScaler"


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
