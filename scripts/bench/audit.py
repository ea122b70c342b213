"""Cost of an audited step beside a normal one, for steps of few, of many and of large operators.

`python -m scripts.bench.audit`: one thread and its CPU time, best of five steps and three audits.
*Written* is what sums a step up, `stopped` that operators were let pass because there are so many.
"""

from collections.abc import Callable
from time import thread_time

import torch
from torch import nn

from trainperf.audit.step import Audit
from trainperf.recording.probes.audit import MOST_S


def chain(length: int) -> tuple[nn.Module, torch.Tensor]:
    """So many multiplications and additions of 64 numbers, one after the other."""

    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(length):
                x = x * self.weight + 0.01
            return x

    return Chain(), torch.ones(64)


def perceptron(width: int, layers: int, batch: int) -> tuple[nn.Module, torch.Tensor]:
    """Linear layers with ReLU."""
    blocks = (nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers))
    return nn.Sequential(*blocks), torch.randn(batch, width)


def transformer() -> tuple[nn.Module, torch.Tensor]:
    """Six encoder layers, 4 × 128 tokens of 256."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    return nn.TransformerEncoder(layer, 6), torch.randn(4, 128, 256)


CASES: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "2 layers of 64": lambda: perceptron(64, 2, 16),
    "30 layers of 64": lambda: perceptron(64, 30, 16),
    "8 layers of 1,024, batch 256": lambda: perceptron(1024, 8, 256),
    "6 encoder layers, 4 × 128 tokens": transformer,
    "chain of 1,000 tiny operators": lambda: chain(500),
    "chain of 20,000 tiny operators": lambda: chain(10_000),
}


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print("| step | operators | normal | audited | ratio | written |\n|---|--:|--:|--:|--:|--:|")
    for name, make in CASES.items():
        print(row(name, *make()), flush=True)


def row(name: str, model: nn.Module, x: torch.Tensor) -> str:
    """One case."""
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(3):
        step()
    normal_s = min(seconds(step) for _ in range(5))
    audits = []
    for _ in range(3):
        audit = Audit(model, most_ns=int(MOST_S * 1e9))

        def audited(audit: Audit = audit) -> None:
            with audit:
                step()

        audits.append((seconds(audited), audit))
    audited_s, audit = min(audits, key=lambda each: each[0])
    written_s = 0.0 if audit.stopped else seconds(audit.result)
    calls = "stopped" if audit.stopped else f"{audit.result().calls:,}"
    times = f"{normal_s * 1e3:,.1f} ms | {audited_s * 1e3:,.0f} ms | {audited_s / normal_s:.1f} ×"
    return f"| {name} | {calls} | {times} | {written_s * 1e3:,.0f} ms |"


def seconds(act: Callable[[], object]) -> float:
    """Processor time of one call: what others do on the machine does not count."""
    begin = thread_time()
    act()
    return thread_time() - begin


if __name__ == "__main__":
    main()
