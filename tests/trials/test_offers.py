"""The list of built-in trials, which is read without torch, names those that there are."""

from typing import Any

import pytest
import torch
from support.runs import make_info
from support.toy_training import training
from support.tried import trial, tried
from torch.utils.data import DataLoader

from trainperf.analysis.diagnosis.offers import OFFERS, offered_trials
from trainperf.trials.builtin import builtin_trials
from trainperf.trials.training import Mutable, Training


class Loud(Training):
    """With two loggers and a callback."""

    def loggers(self) -> list[Mutable]:
        """Two."""
        return [Mutable(name, lambda: None, lambda: None) for name in ("A", "B")]

    def callbacks(self) -> list[Mutable]:
        """One."""
        return [Mutable("Bar", lambda: None, lambda: None)]


def test_each_built_in_trial_is_in_the_list_once_with_its_kind() -> None:
    """And nothing else is: a row of it is a trial, or a family of them."""
    small = training()
    loader = DataLoader(torch.zeros(8, 2), batch_size=2)  # type: ignore[arg-type] # rows
    loud = Loud(small.module, small.optimizers, small.device, training(batches=loader).source)
    built_in = [*builtin_trials(small), *builtin_trials(loud)]

    for each in built_in:
        rows = [offer for offer in OFFERS if offer.covers(each.id)]
        assert len(rows) == 1, each.id
        # One that cannot be tried may not say what it would be.
        assert each.unavailable or rows[0].kind == each.kind, each.id
        assert each.rules in ((), rows[0].rules), each.id
    for offer in OFFERS:
        assert any(offer.covers(each.id) for each in built_in), offer.id


@pytest.mark.parametrize(
    ("header", "absent", "present"),
    [
        ({"config": {"precision": "bf16-mixed"}}, "autocast_bf16", "compile"),
        (
            {"config": {"optimizers": "AdamW", "optimizer_fused": True}},
            "optimizer_fused",
            "workers_N",
        ),
        ({"config": {"loop": "plain"}}, "no_callback_NAME", "free_loader"),
        ({"world_size": 2, "device": "cuda"}, "attention_sdpa", "no_reduction"),
        ({"world_size": 1}, "no_reduction", "no_update"),
        ({"device": "xpu"}, "attention_cudnn", "compile"),
        (
            {"device": "cuda", "config": {"loop": "lightning", "precision": "32-true"}},
            "attention_cudnn",
            "autocast_bf16",
        ),
        # Its weights are fp32; whether autocast is around them is seen as it trains.
        (
            {"device": "cuda", "config": {"loop": "plain", "precision": "32-true"}},
            "no_logging",
            "attention_cudnn",
        ),
    ],
)
def test_a_header_tells_what_does_not_apply(
    header: dict[str, Any], absent: str, present: str
) -> None:
    """With the reason."""
    offers = {each.id: each for each in offered_trials(make_info(**header), None)}

    assert offers[absent].applies is False
    assert offers[absent].why_not
    assert offers[present].applies is True


def test_what_was_tried_knows_better_than_the_header() -> None:
    """Both ways; a family applies where one member of it did."""
    results = tried(
        trial("trimmed_batches", "not applicable", reason="no row is padded"),
        trial("autocast_bf16", "faster", 1.3),
        trial("workers_1", "slower", 0.9),
        trial("workers_2", "not applicable", reason="no CPU is free"),
    )
    info = make_info(config={"precision": "bf16-mixed"})
    offers = {each.id: each for each in offered_trials(info, results)}

    assert offers["trimmed_batches"].why_not == "no row is padded"
    assert offers["autocast_bf16"].applies is True
    assert offers["workers_N"].applies is True
