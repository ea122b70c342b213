"""What a model is given in a few calls, as numbers that are equal where the samples are."""

from collections.abc import Callable, Sequence

import pytest
import torch
from support.live import HostFit
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainperf.accelerators import accelerator_of
from trainperf.core.phases import Gap, Phase, Tag
from trainperf.core.steps.records import Scalar
from trainperf.recording.probes.loop_habits import ValidationProbe
from trainperf.recording.probes.rank_inputs import RankInputsProbe
from trainperf.recording.probes.selection import EVERYTHING, FitObjects, choose


CPU = torch.device("cpu")
GENERATOR = torch.Generator().manual_seed(0)
BATCHES = torch.randn(12, 8, 4, generator=GENERATOR).unbind()
HELD_OUT = torch.randn(5, 8, 4, generator=GENERATOR).unbind()


class Model(nn.Module):
    """Takes whatever it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[object] = []
        self.heard: list[bool] = []
        """Of each call: whether a hook of ours is there."""

    def forward(self, x: object, **_: object) -> None:
        """Nothing is computed."""
        self.given.append(x)
        self.heard.append(bool(self._forward_hooks))


@pytest.fixture(autouse=True)
def _nothing_compiled() -> None:
    """By a test before in the same process: then nothing would be heard."""
    torch._dynamo.utils.counters.clear()


def fit(
    batches: Sequence[object] = BATCHES,
    held_out: Sequence[object] = HELD_OUT,
    *,
    model: Model | None = None,
    audited: bool = False,
) -> dict[str, Scalar]:
    """What a fit has learned that validates with all of *held_out* after the eighth step."""
    model = model or Model()
    host = HostFit(RankInputsProbe([model], accelerator_of(CPU)))
    recorder = host.monitor.recorder
    for step, batch in enumerate(batches):
        recorder.boundary()
        assert recorder.draft is not None
        recorder.draft.tags |= Tag.AUDITED * audited
        recorder.enter(Phase.FORWARD)
        model(batch, size=8)
        recorder.leave()
        host.monitor.micro_batch(None, None, complete=True)
        if step == 7:
            recorder.enter_gap(Gap.VALIDATION)
            for rows in held_out:
                model(rows)
            recorder.leave()
            recorder.enter_gap(Gap.CHECKPOINT)
            model(torch.ones(1, 4))
            recorder.leave()
    host.finish()
    assert host.monitor.guard.faults == {}
    assert not model._forward_hooks
    return host.totals.config


def test_three_calls_are_heard_of_each_kind_and_then_no_more() -> None:
    """After the third step in training; none of a checkpoint."""
    model = Model()
    learned = fit(model=model)

    assert sorted(learned) == ["training_inputs", "validation_inputs"]
    assert all(len(str(numbers).split()) == 3 for numbers in learned.values())
    assert learned == fit([*HELD_OUT[:3], *BATCHES[3:6], *HELD_OUT], [*HELD_OUT[:3], BATCHES[0]])
    steps, validation, checkpoint = model.heard[:8], model.heard[8:13], model.heard[13:14]
    assert steps == [False] * 3 + [True] * 3 + [False] * 2
    assert validation == [True] * 5
    assert checkpoint == [False]
    assert not any(model.heard[14:])


def test_other_samples_have_another_number_and_those_in_another_order_the_same() -> None:
    """Of any tensor that has as many rows; one with other rows is left alone."""
    pairs = [(rows, torch.arange(8)) for rows in BATCHES]
    reordered = [rows.flip(0) for rows in BATCHES]

    assert fit() == fit(reordered)
    assert fit() == fit([(rows, torch.randn(3)) for rows in BATCHES])
    assert fit()["training_inputs"] != fit(pairs)["training_inputs"]
    assert fit()["training_inputs"] != fit([rows + 1e-6 for rows in BATCHES])["training_inputs"]
    assert fit(held_out=HELD_OUT[1:])["validation_inputs"] != fit()["validation_inputs"]


@pytest.mark.parametrize(
    ("change", "number"),
    [
        (lambda rows: BATCHES[0], 1),
        (lambda rows: rows * torch.nan, 0),
        (lambda rows: rows - torch.inf, 0),
        (lambda rows: rows.to_sparse(), 0),
        (lambda rows: rows[0, 0], 0),
        (lambda rows: "text", 0),
    ],
    ids=["one batch", "not a number", "masked", "sparse", "a number", "no tensor"],
)
def test_nothing_is_learned_where_equal_numbers_would_say_nothing(
    change: Callable[[Tensor], object], number: int
) -> None:
    """Of one batch again and again nothing of training: a benchmark is made so."""
    learned = fit([change(rows) for rows in BATCHES], [change(rows) for rows in HELD_OUT])

    assert len(learned) == number
    assert "training_inputs" not in learned


def test_too_few_steps_say_nothing_and_one_batch_of_a_validation_does() -> None:
    """Three calls are wanted of training."""
    assert fit(BATCHES[:5]) == {}
    assert len(str(fit(held_out=HELD_OUT[:1])["validation_inputs"]).split()) == 1
    assert "validation_inputs" not in fit(held_out=())


def test_an_audited_step_is_left_alone() -> None:
    """It would take for the model's what is computed here."""
    assert "training_inputs" not in fit(audited=True)


@pytest.mark.usefixtures("fresh_compiler")
def test_where_something_was_compiled_nothing_is_heard() -> None:
    """It may be this model under another name."""
    torch.compile(nn.Linear(4, 3), backend="eager")(torch.ones(2, 4))

    assert fit() == {}


@pytest.mark.usefixtures("one_rank")
def test_ranks_that_hold_a_part_of_the_model_are_not_asked() -> None:
    """DDP's group has all ranks where each of them holds the whole of it; here it has one of two.

    A validation is heard in the module inside the wrapper, unless a strategy calls that as well.
    """
    module = DistributedDataParallel(nn.Linear(4, 3))
    for strategy, heard in (("", module.module), ("DDPStrategy", module)):
        objects = FitObjects(device=CPU, module=module, world_size=2, strategy=strategy)
        probes = {type(probe): probe for probe in choose(objects, EVERYTHING).probes}
        assert RankInputsProbe not in probes
        assert probes[ValidationProbe]._module is heard
