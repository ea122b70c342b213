"""Updates of many brief micro-batches, and those that had better stay as they are."""

from pathlib import Path

import pytest
from support.runs import RankSpec, make_info, make_steps, summary_of

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.host.small_micro_batches import small_micro_batches
from trainperf.core.findings import Finding
from trainperf.core.steps.records import Scalar


GIB = 2**30


def found(
    path: Path,
    config: dict[str, Scalar] | None = None,
    *,
    device: str = "cpu",
    facts: dict[str, int | float | None] | None = None,
    forward: float = 24,
) -> Finding | None:
    """About two hundred updates of eight micro-batches of 6 ms, on 64 GiB of which 6 are used."""
    peak = "resident_bytes" if device == "cpu" else "peak_bytes"
    info = make_info(
        device=device,
        config={"accumulate_grad_batches": 8, "gradient_bytes": GIB, **(config or {})},
        hardware={"device_memory_bytes": 64 * GIB},
    )
    columns = {peak: 6 * GIB, "samples": 8, **(facts or {})}
    steps = make_steps(200, facts=columns, forward=forward, backward=24)
    return small_micro_batches(
        Evidence(summary=summary_of(path, [RankSpec(steps=steps, info=info)]))
    )


def test_eight_micro_batches_of_one_row_become_one_of_eight(tmp_path: Path) -> None:
    """The same rows in each update, launched once."""
    trainer = found(tmp_path / "a", {"loop": "huggingface"})
    lightning = found(tmp_path / "b", {"loop": "lightning"})

    assert trainer is not None
    assert lightning is not None
    assert trainer.title == "an update is 8 micro-batches of 6.00 ms each"
    assert trainer.action == (
        "TrainingArguments(per_device_train_batch_size=8, gradient_accumulation_steps=1)"
    )
    assert trainer.gain_upper_bound is None
    assert lightning.action.startswith("a micro-batch 8 times as large and no accumulate_grad")


@pytest.mark.parametrize(
    ("config", "facts", "forward"),
    [
        ({"accumulate_grad_batches": 1}, {}, 24),
        ({}, {}, 240),  # each takes 33 ms
        ({}, {"resident_bytes": 11 * GIB}, 24),  # eight times 7 GiB do not fit
        ({}, {"resident_bytes": None}, 24),
    ],
    ids=["no accumulation", "long ones", "no room", "room unknown"],
)
def test_what_may_have_a_reason_is_left_alone(
    tmp_path: Path,
    config: dict[str, Scalar],
    facts: dict[str, int | float | None],
    forward: float,
) -> None:
    """Memory is why gradients are accumulated."""
    assert found(tmp_path, config, facts=facts, forward=forward) is None


@pytest.mark.parametrize(("lead", "is_named"), [(0, True), (9, False)])
def test_on_a_device_it_matters_where_it_waits_for_its_host(
    tmp_path: Path, lead: int, *, is_named: bool
) -> None:
    """A device that has work left computes no faster with larger ones."""
    facts: dict[str, int | float | None] = {"lead_forward": lead, "lead_backward": lead}

    assert (found(tmp_path, device="cuda", facts=facts) is not None) is is_named
