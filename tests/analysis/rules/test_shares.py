"""Padding, pauses and schedules: which remedy, how much of it, and what it can gain."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from support.runs import RankSpec, make_gap, make_info, make_steps, summary_of

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.fit.checkpoint import checkpoint
from trainperf.analysis.rules.fit.validation import validation
from trainperf.analysis.rules.gains import change_of
from trainperf.analysis.rules.input.padding import padding
from trainperf.analysis.rules.training.scheduler_per_micro_batch import scheduler_per_micro_batch
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.audit import OperatorUse, Part, StepAudit
from trainperf.core.artifacts.folder import Documents
from trainperf.core.findings import Finding
from trainperf.core.phases import Gap
from trainperf.core.steps.records import Scalar, Totals


HALF_FULL = {"tokens_effective": 500, "tokens_padded": 1000}


def said(finding: Finding | None) -> Finding:
    """There is one."""
    assert finding is not None
    return finding


def padded(path: Path, lengths: dict[int, int], padded_to: int | None) -> Summary:
    """Half of all tokens are padding, in sequences of these lengths."""
    config = {} if padded_to is None else {"sequence_length": padded_to}
    totals = Totals(at_step=199, sequence_lengths=lengths, config=config)
    steps = make_steps(200, facts=HALF_FULL, forward=50)
    return summary_of(path, [RankSpec(steps=steps, totals=totals)])


@pytest.mark.parametrize(
    ("lengths", "padded_to", "advice"),
    [
        # Most of them fit twice into a row.
        ({32: 80, 128: 20}, 128, "Pack the sequences"),
        # Two never share a row, but rows of one length need no padding.
        ({80: 50, 96: 20, 128: 30}, 128, "Batch sequences of similar length"),
        # Not even the longest needs the row.
        ({64: 50, 96: 50}, 192, "Pad less"),
        ({20: 100}, 32, "Pad less"),
        ({}, None, "Pack the sequences"),
    ],
)
def test_the_lengths_say_how_to_be_rid_of_padding(
    tmp_path: Path, lengths: dict[int, int], padded_to: int | None, advice: str
) -> None:
    """Packing for short sequences, bucketing for unequal ones, a shorter row for a roomy one."""
    finding = said(padding(Evidence(summary=padded(tmp_path, lengths, padded_to))))

    assert finding.advice == advice
    assert finding.fraction == pytest.approx(0.5)


def test_the_lengths_are_told(tmp_path: Path) -> None:
    """The length that half of them stay below, and the longest; and what to pad to."""
    finding = said(padding(Evidence(summary=padded(tmp_path, {64: 50, 96: 50}, 192))))

    assert "longest ≤ 96, median ≤ 64 tokens" in finding.evidence
    assert finding.action.endswith("or to 96 tokens instead of 192")


def test_what_is_around_forward_and_backward_is_the_same_with_fewer_tokens(tmp_path: Path) -> None:
    """Half of the tokens, but callbacks and update take 30 of 50 ms."""
    steps = make_steps(200, facts=HALF_FULL, forward=12, backward=8, optimizer=10, callbacks=20)
    finding = said(padding(Evidence(summary=summary_of(tmp_path, [RankSpec(steps=steps)]))))

    assert finding.fraction == pytest.approx(0.5 * 20 / 50)
    assert finding.gain_upper_bound == pytest.approx(1 / 0.8)
    assert "60 % of the step is the same with fewer tokens" in finding.evidence


def test_packed_rows_are_not_to_be_sorted_by_length(tmp_path: Path) -> None:
    """They look like long sequences: the batches say that they are several."""
    totals = Totals(
        at_step=199,
        sequence_lengths={80: 50, 96: 20, 128: 30},
        config={"sequence_length": 128, "packed_rows": True},
    )
    steps = make_steps(200, facts=HALF_FULL, forward=50)
    summary = summary_of(tmp_path, [RankSpec(steps=steps, totals=totals)])
    finding = said(padding(Evidence(summary=summary)))

    assert finding.advice == "Pack from more sequences at once"


def test_sorted_batches_padded_to_the_whole_context_are_not_to_be_sorted(tmp_path: Path) -> None:
    """Each as wide as its longest sequence would hardly have any padding."""
    lengths = {32: 100, 64: 100, 120: 100}
    tokens = sum(length * number for length, number in lengths.items())
    totals = Totals(
        at_step=199,
        sequence_lengths=lengths,
        longest_tokens=round(1.05 * tokens),
        config={"sequence_length": 128},
    )
    steps = make_steps(200, facts=HALF_FULL, forward=50)
    summary = summary_of(tmp_path, [RankSpec(steps=steps, totals=totals)])
    finding = said(padding(Evidence(summary=summary)))

    assert finding.advice == "Pad less"


def test_short_sequences_are_not_taken_for_as_long_as_the_edge_of_their_bin(tmp_path: Path) -> None:
    """Most have 17 to 32 tokens, some 600: batches are 12 % wider than what is in them."""
    lengths = {32: 20_000, **dict.fromkeys(range(48, 609, 16), 1)}
    tokens = sum((edge - 7.5) * number for edge, number in lengths.items())
    totals = Totals(
        at_step=199,
        sequence_lengths=lengths,
        longest_tokens=round(1.12 * tokens),
        config={"sequence_length": 608},
    )
    steps = make_steps(200, facts=HALF_FULL, forward=50)
    summary = summary_of(tmp_path, [RankSpec(steps=steps, totals=totals)])
    finding = said(padding(Evidence(summary=summary)))

    assert finding.advice == "Pack the sequences"


def test_batches_padded_to_their_own_longest_sequence_are_to_be_drawn_by_length(
    tmp_path: Path,
) -> None:
    """Most of them fit twice into the longest row, and packing would change the model's input."""
    lengths = {24: 300, 40: 50, 64: 50}
    tokens = sum(length * number for length, number in lengths.items())
    totals = Totals(
        at_step=199,
        sequence_lengths=lengths,
        longest_tokens=2 * tokens,
        config={"sequence_length": 64},
    )
    steps = make_steps(200, facts=HALF_FULL, forward=50)
    summary = summary_of(tmp_path, [RankSpec(steps=steps, totals=totals)])
    finding = said(padding(Evidence(summary=summary)))

    assert finding.advice == "Batch sequences of similar length"


@pytest.mark.parametrize(
    ("version", "config", "option"),
    [
        ("5.23.0", {}, 'TrainingArguments(train_sampling_strategy="group_by_length")'),
        ("4.57.1", {}, "TrainingArguments(group_by_length=True)"),
        ("5.23.0", {"group_by_length": True}, "a batch_sampler that sorts"),
    ],
)
def test_a_trainer_of_hugging_face_has_an_option_for_it(
    tmp_path: Path, version: str, config: dict[str, Scalar], option: str
) -> None:
    """It takes no sampler of batches; and it is not told to set what is set."""
    totals = Totals(at_step=199, sequence_lengths={80: 50, 96: 20, 128: 30})
    info = make_info(config={"loop": "huggingface", "sequence_length": 128, **config})
    info = msgspec.structs.replace(info, software={**info.software, "transformers": version})
    steps = make_steps(200, facts=HALF_FULL, forward=50)
    summary = summary_of(tmp_path, [RankSpec(steps=steps, totals=totals, info=info)])
    finding = said(padding(Evidence(summary=summary)))

    assert finding.action.startswith(option)
    assert change_of(finding) == "similar length"


def use(name: str, host_s: float, part: Part = "forward") -> OperatorUse:
    """An operator that took so long."""
    return OperatorUse(
        name=name,
        part=part,
        kind="matmul",
        place="device",
        module=None,
        line=None,
        shapes=(),
        dtypes=(),
        precision="fp32",
        calls=1,
        flops=0,
        matmul_flops=0,
        repeated_flops=0,
        read_bytes=0,
        written_bytes=0,
        memory_bytes=0,
        fused_bytes=0,
        host_s=host_s,
    )


@pytest.mark.parametrize(
    ("lengths", "lost"), [({80: 50, 96: 20, 128: 30}, 0.5 + 0.4 * 0.25), ({32: 80, 128: 20}, 0.5)]
)
def test_attention_over_shorter_rows_gains_more_than_its_tokens(
    tmp_path: Path, lengths: dict[int, int], lost: float
) -> None:
    """40 % of the step grow with the square: rows of half the length take a quarter of that.

    Packed rows stay as long as they are.
    """
    audit = StepAudit(
        device="cpu",
        device_name="x",
        cache_bytes=None,
        operators=(
            use("aten._scaled_dot_product_flash_attention_for_cpu.default", 0.004),
            use("aten.addmm.default", 0.006),
        ),
        views=0,
        audited_s=1.0,
    )
    evidence = Evidence(summary=padded(tmp_path, lengths, 128), documents=Documents(audit=audit))

    assert said(padding(evidence)).fraction == pytest.approx(lost)


OR_FEWER = "or limit_val_batches=0.053"


def paused(
    path: Path, gap: Gap, each_ms: float, number: int, config: Mapping[str, Scalar] | None = None
) -> Evidence:
    """A hundred steps of 100 ms, and so many pauses."""
    gaps = [make_gap(gap, each_ms) for _ in range(number)]
    info = make_info(config=config)
    spec = RankSpec(steps=make_steps(100, forward=100), gaps=gaps, info=info)
    return Evidence(summary=summary_of(path, [spec]))


@pytest.mark.parametrize(
    ("config", "action"),
    [
        # Half of the fit is 19 times as much as a twentieth beside the same steps.
        ({"val_check_interval": 5}, "Trainer(val_check_interval=95), or limit_val_batches=0.053"),
        (
            {"val_check_interval": 0.01},
            "Trainer(val_check_interval=0.19), or limit_val_batches=0.053",
        ),
        (
            {"val_check_interval": 0.25},
            f"Trainer(check_val_every_n_epoch=5, val_check_interval=1.0), {OR_FEWER}",
        ),
        # Lightning refuses an interval of more batches than an epoch has.
        (
            {"val_check_interval": 5, "dataset_samples": 800, "batch_size": 16},
            f"Trainer(check_val_every_n_epoch=2, val_check_interval=1.0), {OR_FEWER}",
        ),
        (
            {"val_check_interval": 5, "dataset_samples": 1600, "batch_size": 16},
            "Trainer(val_check_interval=95), or limit_val_batches=0.053",
        ),
        (
            {
                "val_check_interval": 5,
                "check_val_every_n_epoch": None,
                "dataset_samples": 800,
                "batch_size": 16,
            },
            "Trainer(val_check_interval=95), or limit_val_batches=0.053",
        ),
        # Every 38th of four epochs would be none.
        (
            {"val_check_interval": 1.0, "check_val_every_n_epoch": 2, "max_epochs": 4},
            "Trainer(check_val_every_n_epoch=4), or limit_val_batches=0.053",
        ),
        (
            {"val_check_interval": 1.0, "check_val_every_n_epoch": 2},
            "Trainer(check_val_every_n_epoch=38), or limit_val_batches=0.053",
        ),
        ({"loop": "plain"}, "validate 19 × less often, on fewer batches, or in larger ones"),
        (
            {"loop": "huggingface", "eval_strategy": "steps", "max_steps": 1000},
            "TrainingArguments(eval_steps=95)",
        ),
    ],
)
def test_validation_is_told_how_much_less_is_enough(
    tmp_path: Path, config: dict[str, Scalar], action: str
) -> None:
    """So that it takes a twentieth of the fit; a float interval stays a float."""
    finding = said(validation(paused(tmp_path, Gap.VALIDATION, 500, 20, config)))

    assert finding.action == action
    assert finding.evidence == ("10.0 s in 20 pauses", "500 ms each, one in 5 steps")


def test_pauses_farther_apart_than_the_fit_is_long_are_one_shorter_pause(tmp_path: Path) -> None:
    """Of a hundred steps: with `eval_steps=950` there would be no evaluation at all."""
    trainer: dict[str, Scalar] = {"loop": "huggingface", "eval_strategy": "steps"}
    evaluated = said(validation(paused(tmp_path / "a", Gap.VALIDATION, 5000, 2, trainer)))
    longer = {**trainer, "max_steps": 2000}
    known = said(validation(paused(tmp_path / "b", Gap.VALIDATION, 5000, 2, longer)))
    saved = said(checkpoint(paused(tmp_path / "c", Gap.CHECKPOINT, 5000, 2, trainer)))

    assert evaluated.action == "TrainingArguments(eval_steps=100), on 1/10 of its rows"
    assert known.action == "TrainingArguments(eval_steps=950)"
    # Its Trainer saves in no background.
    assert (saved.action, saved.effort) == ("TrainingArguments(save_steps=100)", "minutes")


def test_waiting_for_another_run_is_no_part_of_the_fit(tmp_path: Path) -> None:
    """Ten seconds of validation beside ten of steps are half, however long the other run took."""
    gaps = [make_gap(Gap.VALIDATION, 500) for _ in range(20)]
    away = [make_gap(Gap.OTHERS_TURN, 4000) for _ in range(10)]
    spec = RankSpec(steps=make_steps(100, forward=100), gaps=[*gaps, *away], info=make_info())

    finding = said(validation(Evidence(summary=summary_of(tmp_path, [spec]))))

    assert finding.fraction == pytest.approx(0.5)


def test_frequent_checkpoints_become_rarer_and_long_ones_go_to_the_background(
    tmp_path: Path,
) -> None:
    """Fifty of 100 ms are a third of the fit, a tenth of them a twentieth; two of five seconds."""
    often = said(checkpoint(paused(tmp_path / "a", Gap.CHECKPOINT, 100, 50)))
    slow = said(checkpoint(paused(tmp_path / "b", Gap.CHECKPOINT, 5000, 2)))
    plain = {"loop": "plain"}
    loop = said(checkpoint(paused(tmp_path / "c", Gap.CHECKPOINT, 5000, 2, plain)))

    assert often.action == "ModelCheckpoint(every_n_train_steps=20)"
    assert often.effort == "minutes"
    assert slow.action.startswith("Trainer(plugins=[AsyncCheckpointIO()]), or ")
    assert slow.effort == "hours"
    assert loop.action.startswith("torch.distributed.checkpoint.async_save")


def scheduled(path: Path, config: Mapping[str, Scalar]) -> Evidence:
    """A run that counted so."""
    totals = Totals(at_step=99, config={"schedulers": "StepLR", **config})
    return Evidence(
        summary=summary_of(path, [RankSpec(steps=make_steps(100, forward=9), totals=totals)])
    )


@pytest.mark.parametrize(
    ("steps", "passes", "advice"),
    [
        (400, 400, "Step the scheduler once per update"),
        (200, 100, "Step the scheduler less"),
    ],
)
def test_a_schedule_that_runs_ahead_of_the_updates_is_named_first(
    tmp_path: Path, steps: int, passes: int, advice: str
) -> None:
    """It gains nothing and spoils what is learned."""
    config = {"scheduler_steps": steps, "updates": 100, "micro_batches": passes}
    finding = said(scheduler_per_micro_batch(scheduled(tmp_path, config)))

    assert finding.advice == advice
    assert finding.evidence[0] == f"StepLR: {steps} steps in 100 updates"
    assert finding.urgent
    assert finding.gain_upper_bound is None


@pytest.mark.parametrize(
    "config",
    [
        {"scheduler_steps": 100, "updates": 100, "micro_batches": 400},
        {"scheduler_steps": 2, "updates": 100, "micro_batches": 100},
        {"scheduler_steps": 40, "updates": 10, "micro_batches": 40},
        {},
    ],
)
def test_a_schedule_by_the_update_or_the_epoch_is_right(
    tmp_path: Path, config: dict[str, Scalar]
) -> None:
    """So is one of which ten updates say too little, or nothing is known."""
    assert scheduler_per_micro_batch(scheduled(tmp_path, config)) is None


@pytest.mark.parametrize(
    ("loop", "software", "steps", "named"),
    [
        ("plain", {"accelerate": "1.15"}, 200, False),
        ("outside", {"accelerate": "1.15"}, 200, False),
        ("plain", {"accelerate": "1.15"}, 400, True),
        ("plain", {}, 200, True),
        ("huggingface", {"accelerate": "1.15"}, 200, True),
    ],
)
def test_accelerate_steps_its_schedule_for_every_rank(
    tmp_path: Path,
    *,
    loop: str,
    software: dict[str, str],
    steps: int,
    named: bool,
) -> None:
    """Two ranks, two steps an update: its own doing, right for a schedule made for one rank."""
    counted = {"scheduler_steps": steps, "updates": 100, "micro_batches": 200}
    specs = []
    for rank in (0, 1):
        info = make_info(rank=rank, world_size=2, config={"loop": loop})
        info = msgspec.structs.replace(info, software=software)
        totals = Totals(at_step=99, config=counted)
        specs.append(RankSpec(steps=make_steps(100, forward=9), info=info, totals=totals))
    evidence = Evidence(summary=summary_of(tmp_path, specs))

    assert (scheduler_per_micro_batch(evidence) is not None) is named


def test_the_steps_between_evaluations_are_a_number_as_python_writes_it(tmp_path: Path) -> None:
    """`eval_steps=4,000` would be two arguments."""
    steps, config = 4000, {"loop": "huggingface", "eval_strategy": "steps", "max_steps": 100_000}
    spec = RankSpec(
        steps=make_steps(steps, forward=50),
        info=make_info(config=config),
        gaps=[make_gap(Gap.VALIDATION, steps * 50)],
    )
    finding = said(validation(Evidence(summary=summary_of(tmp_path, [spec]))))

    assert finding.action == "TrainingArguments(eval_steps=76_000)"
