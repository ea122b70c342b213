"""Modules that do not learn, in plain loops of real steps: whether the same comes back."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from support.live import HostFit
from torch import nn

from trainperf.accelerators import accelerator_of
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.loop import LoopMonitor
from trainperf.recording.probes.fingerprints import fingerprints
from trainperf.recording.probes.frozen import FrozenProbe, _frozen, came_back, look


SAMPLES, BATCH, WIDTH = 96, 16, 32


@pytest.fixture(autouse=True)
def _nothing_compiled() -> None:
    """By a test before in the same process: then no module would be hooked."""
    torch._dynamo.utils.counters.clear()


class Encoder(nn.Module):
    """Frozen by leaving it out of the optimizer; takes most of a step."""

    def __init__(self, dropped: float = 0.0) -> None:
        super().__init__()
        self.inner, self.drop = nn.Linear(WIDTH, WIDTH), nn.Dropout(dropped)

    def forward(self, x: torch.Tensor, *, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Many times the same layer."""
        for _ in range(40):
            x = self.drop(torch.tanh(self.inner(x)))
        return x if mask is None else x * mask


@dataclass
class Planted:
    """What a loop does."""

    encoder: nn.Module
    epochs: int = 4
    change: Callable[[torch.Tensor], torch.Tensor] = lambda x: x
    follow: bool = False
    """Whether the encoder follows the model, as the average of its weights."""


def config(path: Path, planted: Planted) -> dict[str, object]:
    """What its fit has learned of itself."""
    torch.manual_seed(0)
    model, data, encoder = nn.Linear(WIDTH, WIDTH), torch.randn(SAMPLES, WIDTH), planted.encoder
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    monitor = LoopMonitor(path, report=False, lines=False).watch(model, optimizer)
    with monitor:
        for _ in range(planted.epochs):
            for rows in monitor.batches(data[torch.randperm(SAMPLES)].split(BATCH)):
                with torch.no_grad():
                    code = encoder(planted.change(rows), mask=torch.ones(len(rows), 1))
                model(code).mean().backward()
                optimizer.step()
                if planted.follow:
                    encoder.inner.weight.data.lerp_(model.weight.data, 1e-3)
                monitor.end_step()
    assert monitor.monitor.guard.faults == {}
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in encoder.modules())
    return dict(summarize(Run.open(monitor.run)).run.config)


@pytest.mark.parametrize(
    ("planted", "back"),
    [
        (lambda: Planted(Encoder()), True),
        (lambda: Planted(Encoder(), epochs=1), False),
        (lambda: Planted(Encoder(), change=lambda x: x + torch.randn(len(x), 1)), False),
        (lambda: Planted(Encoder(dropped=0.5)), False),
        (lambda: Planted(Encoder(), follow=True), False),
        (lambda: Planted(Encoder(), change=lambda x: x.requires_grad_()), False),
    ],
    ids=["frozen", "one epoch", "augmented", "dropout is on", "follows the model", "learned"],
)
def test_the_same_is_said_to_come_back_where_it_gives_the_same(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    planted: Callable[[], Planted],
    back: bool,  # noqa: FBT001 pytest passes it by name
) -> None:
    """Of a module outside of the model, called between update and forward."""
    monkeypatch.setattr(FrozenProbe, "share", 1.0)  # of steps of a millisecond
    known = config(tmp_path, planted())

    assert known.get("frozen_modules") == ("Encoder" if back else None)
    assert (float(known.get("frozen_again", 0.0)) >= 0.05) == back  # type: ignore[arg-type]


def test_a_call_on_what_was_learned_is_no_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A perceptual loss compares what comes back with what a model has made of it."""
    monkeypatch.setattr(FrozenProbe, "share", 1.0)
    optimizer = torch.optim.SGD(nn.Linear(WIDTH, WIDTH).parameters(), 0.1)
    probe = FrozenProbe([optimizer], accelerator_of(torch.device("cpu")))
    data, encoder = torch.randn(SAMPLES, WIDTH), nn.Linear(WIDTH, WIDTH)
    fit = HostFit(probe)
    encoder.register_forward_hook(
        lambda _, given, __: fit.clock.advance(ms=30 if given[0].requires_grad else 10)
    )

    for rows in 4 * data.split(BATCH):
        fit.monitor.recorder.boundary()
        encoder(rows)
        encoder((2 * rows).requires_grad_())
        fit.monitor.micro_batch(None, None, complete=True)
        fit.monitor.recorder.last_hook_done()
    fit.finish()

    assert probe.config()["frozen_modules"] == "Linear"
    assert probe.config()["frozen_s"] == pytest.approx(0.010)
    assert probe.config()["frozen_part"] == pytest.approx(0.25)


def looks(
    *epochs: list[int], results: Callable[[int, int], float]
) -> list[tuple[torch.Tensor, ...]]:
    """Samples by number, and what a module gave for each in an epoch."""
    kept = []
    for epoch, samples in enumerate(epochs):
        given = torch.tensor(samples, dtype=torch.float64)
        kept.append((given, torch.tensor([results(epoch, each) for each in samples])))
    return kept


def test_a_few_special_rows_are_no_epoch() -> None:
    """An empty text comes again and again; so does everything of a dataset of a few samples."""
    same: Callable[[int, int], float] = lambda _, sample: float(sample)  # noqa: E731 as a table

    assert came_back(looks([*range(50)], [*range(50)], results=same)) == 0.5
    assert came_back(looks([0, 0, *range(1, 50)], [0, 0, *range(50, 90)], results=same)) == 0.0
    assert came_back(looks([0] * 4, [0] * 4, results=same)) == pytest.approx(7 / 8)
    moved: Callable[[int, int], float] = lambda epoch, sample: sample + 0.1 * epoch  # noqa: E731 same
    assert came_back(looks([*range(50)], [*range(50)], results=moved)) == 0.0


def test_a_row_has_the_number_of_all_that_belongs_to_it() -> None:
    """Wherever it is in its batch; another order or another mask is another one."""
    tokens, mask = torch.randint(0, 50_000, (8, 512)), torch.ones(8, 512, dtype=torch.bool)
    order = torch.randperm(8)
    plain = fingerprints([tokens, mask])
    masked = mask.clone()
    masked[:, :256] = False

    assert torch.equal(fingerprints([tokens[order], mask]), plain[order])
    assert not (fingerprints([tokens.flip(1), mask]) == plain).any()
    assert not (fingerprints([tokens, masked]) == plain).any()
    assert look(nn.Linear(1, 1), [torch.tensor(1.0)], [torch.ones(2)]) == []


ROWS = torch.randn(4, 3)


@pytest.mark.parametrize(
    ("given", "weights"),
    [
        (ROWS.to_sparse(), 3),
        (ROWS.to(torch.complex64), 3),
        (ROWS[:0], 3),
        (ROWS.to("meta"), 3),
        (torch.nested.nested_tensor([ROWS, ROWS], layout=torch.jagged), 3),
        (ROWS.as_subclass(type("Sharded", (torch.Tensor,), {})), 3),
        (torch.tensor(1.0), 3),
    ],
    ids=["sparse", "complex", "empty", "elsewhere", "nested", "a subclass", "a number"],
)
def test_what_cannot_be_looked_at_alone_is_not(given: torch.Tensor, weights: int) -> None:
    """A look must neither raise, nor wait, nor be a collective."""
    assert look(nn.Linear(weights, weights), [given], [ROWS]) == []


def test_a_fused_encoder_is_hooked_as_a_whole_alone() -> None:
    """With a hook on one of its layers it would compute in another way."""
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    whole = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    found = {id(module) for module, _ in _frozen(set())}
    inside = [part for part in whole.layers.modules() if part is not whole.layers]
    assert id(whole) in found
    assert not found & {id(part) for part in inside}
