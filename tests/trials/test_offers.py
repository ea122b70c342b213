"""The list of built-in trials, which is read without torch, names those that there are."""

import torch
from support.toy_training import training
from support.tried import trial, tried
from torch.utils.data import DataLoader

from trainperf.analysis.diagnosis.offers import OFFERS, offered_trials
from trainperf.trials.builtin import builtin_trials
from trainperf.trials.training import Training
from trainperf.trials.trial import Trial


class Loud(Training):
    """With two loggers and a callback."""

    loggers = tuple(Trial(name, lambda: None, lambda: None) for name in ("A", "B"))
    callbacks = (Trial("Bar", lambda: None, lambda: None),)


def test_each_built_in_trial_is_in_the_list_once_with_its_kind() -> None:
    """And nothing else is: a row of it is a trial, or a family of them."""
    small = training()
    loader = DataLoader(torch.zeros(8, 2), batch_size=2)  # type: ignore[arg-type] # rows
    loud = Loud(small.module, small.optimizers, small.device, training(batches=loader).batches)
    built_in = [*builtin_trials(small), *builtin_trials(loud)]

    for each in built_in:
        rows = [offer for offer in OFFERS if offer.covers(each.id)]
        assert len(rows) == 1, each.id
        # One that cannot be tried may not say what it would be.
        assert each.unavailable or rows[0].kind == each.kind, each.id
        assert each.rules in ((), rows[0].rules), each.id
    for offer in OFFERS:
        assert any(offer.covers(each.id) for each in built_in), offer.id


def test_what_was_tried_tells_what_does_not_apply() -> None:
    """With the reason; a family applies where one member of it did."""
    results = tried(
        trial("trimmed_batches", "not applicable", reason="no row is padded"),
        trial("autocast_bf16", "faster", 1.3),
        trial("workers_1", "slower", 0.9),
        trial("workers_2", "not applicable", reason="no CPU is free"),
    )
    offers = {each.id: each for each in offered_trials(results)}

    assert (offers["trimmed_batches"].applies, offers["compile"].applies) == (False, None)
    assert offers["trimmed_batches"].why_not == "no row is padded"
    assert offers["autocast_bf16"].applies is True
    assert offers["workers_N"].applies is True
