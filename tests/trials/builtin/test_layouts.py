"""Channels last, and cuDNN's choice of a convolution."""

import torch
from support.toy_training import Net, only, step, switched, training
from torch import nn
from torch.backends import cudnn

from trainperf.trials.builtin.channels_last import channels_last
from trainperf.trials.builtin.cudnn_benchmark import cudnn_benchmark


def test_outputs_have_their_channels_last_while_it_is_on() -> None:
    """From batches as they are; with the optimizer's state, which a fused update reads in step."""
    toy = training(fused=True)
    net = toy.module
    only(channels_last(toy)).on()
    step(toy)
    state = toy.optimizers[0].state[net.convolve.weight]

    assert net.outputs[0].is_contiguous(memory_format=torch.channels_last)
    assert state["exp_avg"].is_contiguous(memory_format=torch.channels_last)


def test_training_with_it_learns_the_same() -> None:
    """A fused update would mix elements up if weights and state were laid out differently."""
    toys = [training(fused=True), training(fused=True)]
    only(channels_last(toys[0])).on()
    for toy in toys:
        torch.manual_seed(1)
        step(toy)

    for one, other in zip(*(toy.module.parameters() for toy in toys), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_cudnns_search_is_tried_the_other_way_than_it_is() -> None:
    """Off where it is on; afterwards it is as it was."""
    with cudnn.flags(benchmark=True):
        trial = only(cudnn_benchmark(training()))

        assert switched(trial, lambda: cudnn.benchmark) == [True, False, True]
        assert trial.apply == "torch.backends.cudnn.benchmark = False"


def test_without_a_convolution_or_without_cudnn_they_do_not_apply() -> None:
    """Each says why."""
    linear = training(nn.Linear(2, 2))

    assert only(channels_last(linear)).why_not() == "it has no 2-D convolution"
    assert only(cudnn_benchmark(training())).why_not() == "no cuDNN on cpu"
    laid_out = training(Net().to(memory_format=torch.channels_last))
    assert "already" in only(channels_last(laid_out)).why_not()
