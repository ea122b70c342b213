"""Audits with less time than their step would take: batches, and the update behind them."""

from collections import Counter

import torch

from trainperf.audit import Audit
from trainperf.audit.data_flow import FEWEST


BATCHES = 5


def audited(*, seen: int) -> tuple[Audit, Counter[tuple[str, str]]]:
    """A step of some batches; time runs out amid the one after those that are *seen*."""
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=False)
    audit, batch = Audit(model, most_ns=10**15), torch.ones(4, 8)
    for number in range(BATCHES):
        with audit:
            outputs = model(batch)
            if number == seen:
                audit._where.left_ns = -1
            outputs.sum().backward()
            if number == BATCHES - 1:
                optimizer.step()
        audit.batch_trained(batch)
    calls = Counter[tuple[str, str]]()
    for use in audit.result(micro_batches=BATCHES).operators:
        if not use.name.startswith("aten.add_"):  # of gradients, which the first batch has not
            calls[use.part, use.name] += use.calls
        calls[use.part, "passes"] = max(use.passes, calls[use.part, "passes"])
    return audit, calls


def test_batches_without_time_are_taken_to_be_as_those_that_were_looked_at() -> None:
    """Whichever it ran out in; the update is looked at all the same."""
    whole, truth = audited(seen=BATCHES)

    assert (len(whole.batches), whole.stopped) == (BATCHES, False)
    assert truth["forward", "aten.addmm.default"] == BATCHES
    for seen in (2, 3, 4):
        audit, calls = audited(seen=seen)
        looped = BATCHES if seen >= FEWEST else 1
        truth["forward", "passes"] = truth["backward", "passes"] = looped
        assert (len(audit.batches), audit.stopped, calls) == (seen, False, truth)


def test_an_audit_that_has_seen_no_batch_to_its_end_says_so() -> None:
    """Nothing of it is told."""
    audit, _ = audited(seen=0)

    assert audit.stopped
