"""What torch compiles in a training under `trainperf run`: what it compiles without us."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


SCRIPT = """
import json, sys
import torch
from torch._dynamo.utils import counters
from torch.utils.data import DataLoader

how = sys.argv[1]
graphs = []


def backend(graph, inputs):
    graphs.append(len(graph.graph.nodes))
    return graph.forward


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.last = torch.nn.Linear(16, 1)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


torch.manual_seed(0)
model = step = Net()
optimizer = torch.optim.AdamW(model.parameters())
update = optimizer.step
if how == "another name":
    step = torch.compile(model, backend=backend)
elif how == "function":

    @torch.compile(backend=backend)
    def step(x):
        return model(x)

elif how == "in place":
    model.compile(backend=backend)
elif how == "region":
    model.first = torch.compile(model.first, backend=backend)
elif how == "optimizer":
    update = torch.compile(optimizer.step, backend=backend)
elif how == "autograd":
    torch._dynamo.config.compiled_autograd = True

    @torch.compile(backend=backend)
    def train(x):
        loss = model(x).mean()
        loss.backward()
        return loss


data = DataLoader(torch.randn(120, 8), batch_size=4)
for epoch in range(3):
    for number, x in enumerate(data):
        if how == "later" and number == 5:
            step = torch.compile(model, backend=backend)
        if how == "autograd":
            train(x)
        else:
            step(x).mean().backward()
        update()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        for x in data:
            step(x)
    model.train()
print("COMPILED", json.dumps([graphs, sum(counters["graph_break"].values())]))
"""


def compiled(path: Path, how: str, *command: str) -> list[object]:
    """Nodes of each graph that was built, and the number of graph breaks."""
    script = path / "train.py"
    script.write_text(SCRIPT)
    ran = subprocess.run(
        [sys.executable, *command, str(script), how],
        cwd=path,
        capture_output=True,
        text=True,
        check=True,
    )
    line = next(line for line in ran.stdout.splitlines() if line.startswith("COMPILED "))
    return json.loads(line.removeprefix("COMPILED "))


@pytest.mark.slow
@pytest.mark.beside
@pytest.mark.parametrize(
    "how", ["another name", "function", "in place", "later", "region", "optimizer", "autograd"]
)
def test_graphs_and_breaks_are_those_of_the_script_alone(tmp_path: Path, how: str) -> None:
    """In all steps, before and after hooks are timed no more, and in validation."""
    alone = compiled(tmp_path, how)
    under_us = compiled(tmp_path, how, "-m", "trainperf", "run", "--out", str(tmp_path / "run"))

    assert under_us == alone
    assert alone[0]
