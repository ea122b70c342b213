"""What the device computes is what the CPU computes, and the host does not wait for it."""

import copy
from collections.abc import Callable

import pytest
import torch
from support.device import frontend as threaded
from support.device.plants import counted_synchronisations, no_synchronisation
from torch import nn
from torch.nn import functional


TOLERANCE = 1e-4


class Attention(nn.Module):
    """Causal self-attention over a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 48)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        """Return the attended values."""
        query, key, value = self.project(sequence).view(2, 5, 3, 2, 8).permute(2, 0, 3, 1, 4)
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


class Recurrent(nn.Module):
    """A recurrent network whose states are left out."""

    def __init__(self, cells: nn.RNNBase) -> None:
        super().__init__()
        self.cells = cells

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        """Return the outputs of the last layer."""
        return self.cells(sequence)[0]


def sequence() -> torch.Tensor:
    """Two sequences of five vectors."""
    return torch.randn(2, 5, 16)


def images() -> torch.Tensor:
    """Three small pictures."""
    return torch.randn(3, 3, 12, 12)


def tokens() -> torch.Tensor:
    """Two sequences of words."""
    return torch.randint(0, 20, (2, 7))


Case = tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]

MODULES: dict[str, Case] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)), sequence),
    "gelu": (lambda: nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)), sequence),
    "convolution": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
        ),
        images,
    ),
    "strided": (lambda: nn.Conv2d(3, 6, 3, stride=2, groups=3, bias=False), images),
    "transposed": (lambda: nn.ConvTranspose2d(3, 6, 3, stride=2), images),
    "pooled": (lambda: nn.Sequential(nn.AdaptiveAvgPool2d(3), nn.AvgPool2d(2)), images),
    "embedding": (lambda: nn.Embedding(20, 8, padding_idx=0), tokens),
    "layer_norm": (lambda: nn.LayerNorm(16), sequence),
    "group_norm": (lambda: nn.GroupNorm(3, 3), images),
    "attention": (Attention, sequence),
    "lstm": (lambda: Recurrent(nn.LSTM(16, 8, 2, batch_first=True)), sequence),
    "encoder": (
        lambda: nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True),
        sequence,
    ),
}


def trained(module: nn.Module, inputs: torch.Tensor, device: torch.device) -> list[torch.Tensor]:
    """Return output, gradients and buffers of one pass on *device*."""
    module, inputs = copy.deepcopy(module).to(device), inputs.to(device, copy=True)
    if inputs.is_floating_point():
        inputs.requires_grad_()
    output = module(inputs)
    weights = torch.linspace(-1, 1, output.numel()).view(output.shape).to(device)
    (output * weights).sum().backward()
    values = [output, *(weight.grad for weight in module.parameters()), *module.buffers()]
    if inputs.grad is not None:
        values.append(inputs.grad)
    return [value.detach().cpu() for value in values if value is not None]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_computes_what_it_computes_on_the_cpu(device: torch.device, name: str) -> None:
    """Output, gradients and buffers."""
    torch.manual_seed(0)
    make, inputs = MODULES[name]
    module, batch = make(), inputs()
    expected = trained(module, batch, torch.device("cpu"))
    for mine, theirs in zip(trained(module, batch, device), expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=TOLERANCE, rtol=TOLERANCE)


LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "cross_entropy": lambda scores, labels: functional.cross_entropy(
        scores, labels, label_smoothing=0.1, ignore_index=1
    ),
    "mse": lambda scores, labels: functional.mse_loss(scores.mean(-1), labels.float()),
    "l1": lambda scores, labels: functional.l1_loss(scores.mean(-1), labels.float()),
    "huber": lambda scores, labels: functional.huber_loss(scores.mean(-1), labels.float()),
    "bce": lambda scores, labels: functional.binary_cross_entropy_with_logits(
        scores[:, 0], (labels > 1).float()
    ),
    "nll": lambda scores, labels: functional.nll_loss(scores.log_softmax(-1), labels),
    "kl": lambda scores, labels: functional.kl_div(
        scores.log_softmax(-1), scores.flip(0).softmax(-1), reduction="batchmean"
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_and_its_gradient_are_those_of_the_cpu(device: torch.device, name: str) -> None:
    """Without a wait until they are read."""
    scores, labels = torch.randn(6, 4), torch.randint(0, 4, (6,))
    values = []
    for place in (torch.device("cpu"), device):
        here, wanted = scores.to(place, copy=True).requires_grad_(), labels.to(place)
        with no_synchronisation():
            loss = LOSSES[name](here, wanted)
            loss.backward()
        values.append((loss.detach().cpu(), here.grad.cpu()))
    torch.testing.assert_close(values[1], values[0], atol=TOLERANCE, rtol=TOLERANCE)


OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9, foreach=False),
    "sgd_foreach": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9, foreach=True),
    "sgd_fused": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9, fused=True),
    "adamw": lambda weights: torch.optim.AdamW(weights, lr=0.1, foreach=False),
    "adamw_foreach": lambda weights: torch.optim.AdamW(weights, lr=0.1, foreach=True),
    "adamw_fused": lambda weights: torch.optim.AdamW(weights, lr=0.1, fused=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_goes_where_it_goes_on_the_cpu(device: torch.device, name: str) -> None:
    """And does not wait for the device."""
    torch.manual_seed(0)
    model, batch = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)), torch.randn(4, 8)
    ends = []
    for place in (torch.device("cpu"), device):
        here, inputs = copy.deepcopy(model).to(place), batch.to(place)
        optimizer = OPTIMIZERS[name](list(here.parameters()))
        with no_synchronisation():
            for _ in range(5):
                here(inputs).square().mean().backward()
                nn.utils.clip_grad_norm_(here.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        ends.append([weight.detach().cpu() for weight in here.parameters()])
    torch.testing.assert_close(ends[1], ends[0], atol=TOLERANCE, rtol=TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_casts_products_and_keeps_losses(device: torch.device, dtype: torch.dtype) -> None:
    """As on other accelerators."""
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)).to(device)
    inputs = torch.randn(4, 8).to(device)
    with torch.autocast(device.type, dtype=dtype):
        scores = model(inputs)
        loss = functional.cross_entropy(scores, torch.zeros(4, dtype=torch.int64, device=device))
    loss.backward()
    assert (scores.dtype, loss.dtype) == (dtype, torch.float32)
    torch.testing.assert_close(scores.float(), model(inputs), atol=0.05, rtol=0.05)


@pytest.mark.parametrize("fused", [False, True])
def test_the_scaler_leaves_out_an_overflow(device: torch.device, fused: bool) -> None:  # noqa: FBT001
    """Fused optimizers skip on the device, others after one wait."""
    model = nn.Linear(4, 1).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)
    moved = []
    for factor in (1.0, float("inf"), 1.0):
        before = model.weight.detach().clone()
        loss = model(torch.ones(2, 4, device=device)).sum() * factor
        scaler.scale(loss).backward()
        with counted_synchronisations() as counts:
            scaler.step(optimizer)
            scaler.update()
        assert bool(counts) is not fused
        optimizer.zero_grad()
        moved.append(not torch.equal(before.cpu(), model.weight.detach().cpu()))
    assert moved == [True, False, True]
    assert scaler.get_scale() == 512.0


def test_a_seed_gives_the_same_numbers(device: torch.device) -> None:
    """Every device has a generator, and the host's is another."""
    draws = []
    for _ in range(2):
        torch.manual_seed(3)
        host = torch.rand(1)
        drawn = torch.randn(100, device=device)
        dropped = functional.dropout(torch.ones(100, device=device), 0.5)
        draws.append(torch.cat([host, drawn.cpu(), dropped.cpu()]))
    assert torch.equal(*draws)
    state = threaded.get_rng_state()
    first = torch.rand(3, device=device).cpu()
    threaded.set_rng_state(state)
    assert torch.equal(torch.rand(3, device=device).cpu(), first)
    assert 20 < int((draws[0][101:] == 0).sum()) < 80


def test_values_that_change_the_shape_are_right(device: torch.device) -> None:
    """Masks, selections, unique values, sorting."""
    numbers = torch.tensor([[3.0, -1.0], [0.0, 3.0]])
    here = numbers.to(device)
    assert torch.equal(here[here > 0].cpu(), numbers[numbers > 0])
    assert torch.equal(here.nonzero().cpu(), numbers.nonzero())
    assert torch.equal(here.unique().cpu(), numbers.unique())
    assert torch.equal(here.sort(-1).values.cpu(), numbers.sort(-1).values)
    assert torch.equal(here.topk(1).indices.cpu(), numbers.topk(1).indices)
    here[here > 0] = 7.0
    assert here.cpu().tolist() == [[7.0, -1.0], [0.0, 7.0]]
    here[torch.tensor([1], device=device)] = 5.0
    assert here.cpu().tolist() == [[7.0, -1.0], [5.0, 5.0]]
    assert torch.equal(torch.cat([here, here]).cpu()[:2], here.cpu())


def test_views_share_the_memory(device: torch.device) -> None:
    """They are made on the host at once and see what is written later."""
    numbers = torch.zeros(4, 6, device=device)
    with no_synchronisation():
        views = [numbers.t(), numbers.view(2, 12), numbers[1:, ::2], numbers.unfold(1, 2, 2)]
        views += [numbers.unsqueeze(0).expand(3, 4, 6), numbers.diagonal(), numbers.flatten()]
        numbers.fill_(2.0)
    assert all(bool((view == 2.0).all()) for view in views)


def test_a_state_is_saved_and_loaded(device: torch.device, tmp_path: object) -> None:
    """To a file, and to the device it came from."""
    model = nn.Linear(3, 2).to(device)
    path = f"{tmp_path}/state.pt"
    torch.save(model.state_dict(), path)
    loaded = torch.load(path)
    assert loaded["weight"].device == device
    assert torch.equal(loaded["weight"].cpu(), model.weight.detach().cpu())
    assert torch.load(path, map_location="cpu")["weight"].device.type == "cpu"
