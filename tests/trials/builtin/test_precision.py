"""Half precision and shorter products, switched on a model in fp32."""

import pytest
import torch
from support.toy_training import everything, only, step, switched, training

from trainperf.trials.builtin.autocast import autocast
from trainperf.trials.builtin.matmul_precision import matmul_precision


@pytest.mark.parametrize("compiles", [False, True])
def test_forward_computes_in_bf16_while_autocast_is_on_and_not_after(
    compiles: bool,  # noqa: FBT001 pytest passes it by name
) -> None:
    """Seen by what comes out of the layers, and by what the hooks leave; compiled, too."""
    toy = training()
    net = toy.module
    if compiles:
        net.compile(backend="eager")
    before = everything(toy)

    def computed() -> set[torch.dtype]:
        step(toy)
        assert not torch.is_autocast_enabled("cpu")
        return {output.dtype for output in net.outputs}

    full, half = {torch.float32}, {torch.bfloat16}
    assert switched(only(autocast(toy)), computed) == [full, half, full]
    assert len(everything(toy)) == len(before)


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

    assert switched(trial, torch.get_float32_matmul_precision) == ["highest", "medium", "highest"]


def test_a_precision_that_was_chosen_is_left_alone() -> None:
    """The user has decided."""
    torch.set_float32_matmul_precision("high")
    try:
        trial = only(matmul_precision(training()))
    finally:
        torch.set_float32_matmul_precision("highest")

    assert '"high" already' in trial.why_not()
