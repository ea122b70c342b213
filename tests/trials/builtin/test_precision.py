"""Half precision and shorter products, switched on a model in fp32."""

import pytest
import torch
from support.toy_training import Net, everything, only, step, training

from trainperf.trials.builtin.autocast import autocast
from trainperf.trials.builtin.matmul_precision import matmul_precision


def test_forward_computes_in_bf16_while_autocast_is_on_and_not_after() -> None:
    """Seen by what comes out of the layers, and by what the hooks leave."""
    toy = training()
    net = toy.module
    assert isinstance(net, Net)
    before = everything(toy)
    trial = only(autocast(toy))
    trial.on()
    step(toy)
    assert {output.dtype for output in net.outputs} == {torch.bfloat16}
    assert not torch.is_autocast_enabled("cpu")
    trial.off()
    net(torch.randn(1, 3, 8, 8))

    assert {output.dtype for output in net.outputs} == {torch.float32}
    assert len(everything(toy)) == len(before)


def test_autocast_goes_with_a_compiled_module() -> None:
    """The two are tried together where both are faster."""
    toy = training()
    net = toy.module
    assert isinstance(net, Net)
    net.compile(backend="eager")
    trial = only(autocast(toy))
    trial.on()
    step(toy)
    assert {output.dtype for output in net.outputs} == {torch.bfloat16}
    trial.off()

    assert not torch.is_autocast_enabled("cpu")


def test_a_model_in_half_precision_gets_neither() -> None:
    """Its products are short already."""
    toy = training(torch.nn.Linear(2, 2).bfloat16())

    for trial in (only(autocast(toy)), only(matmul_precision(toy))):
        assert trial.why_not() == "it computes in half precision already"


def test_precision_of_products_is_set_and_put_back() -> None:
    """Where this CPU has shorter products."""
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("this CPU has no bf16")
    trial = only(matmul_precision(training()))
    trial.on()
    assert torch.get_float32_matmul_precision() == "medium"
    trial.off()

    assert torch.get_float32_matmul_precision() == "highest"


def test_a_precision_that_was_chosen_is_left_alone() -> None:
    """The user has decided."""
    torch.set_float32_matmul_precision("high")
    try:
        trial = only(matmul_precision(training()))
    finally:
        torch.set_float32_matmul_precision("highest")

    assert '"high" already' in trial.why_not()
