"""Part of the step, module and line of operator calls."""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trainperf.audit import Audit, audit_step
from trainperf.audit.stack_frames import owner, place, shown_path
from trainperf.core.artifacts.audit import OperatorUse, StepAudit
from trainperf.recording.guard import Guard


class Block(nn.Module):
    """A linear layer with a line of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, given: Tensor) -> Tensor:
        """One contraction."""
        return self.linear(given).relu()


class Model(nn.Module):
    """Two blocks, checkpointed if asked."""

    def __init__(self, *, reentrant: bool | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.reentrant = reentrant

    def forward(self, given: Tensor) -> Tensor:
        """One block after the other."""
        for block in self.blocks:
            given = (
                block(given)
                if self.reentrant is None
                else checkpoint(block, given, use_reentrant=self.reentrant)
            )
        return given


FORWARD_LINE = inspect.getsourcelines(Block.forward)[1] + 2
LINEARS = ["Model.blocks.0.linear", "Model.blocks.1.linear"]
ONE = 2 * 8 * 16 * 16
"""FLOPs of one layer for a batch of eight."""


def batch() -> Tensor:
    """Eight rows whose gradient is wanted."""
    return torch.ones(8, 16, requires_grad=True)


def matmuls(audit: StepAudit, part: str) -> list[OperatorUse]:
    """Contractions of one part, in order."""
    return [use for use in audit.operators if use.kind == "matmul" and use.part == part]


def test_a_guard_around_the_audit_hides_nothing() -> None:
    """What begins a backward, and clipping, are what they are in a fit, too."""
    model = Model()
    audit = Audit(model, lambda function: Guard().wrap("audit", function))

    with audit:
        model(batch()).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    parts = {use.short_name: use.part for use in audit.result().operators}
    assert (parts["ones_like"], parts["_foreach_norm"]) == ("backward", "optimizer")


def test_forward_and_backward_are_told_apart_and_named_alike() -> None:
    """Backward belongs to the module and the line that made its graph."""
    model, given = Model(), batch()

    audit = audit_step(lambda: model(given).sum().backward())

    assert [use.module for use in matmuls(audit, "forward")] == LINEARS
    assert {use.module for use in matmuls(audit, "backward")} == {*LINEARS}
    lines = {use.line for use in audit.operators if use.kind == "matmul"}
    assert {line.rsplit(":")[-1] for line in lines if line} == {str(FORWARD_LINE)}
    assert all(line and line.rsplit(":")[0].endswith("test_attribution.py") for line in lines)


class Counting(nn.Module):
    """As torchmetrics has it: the hash is that of a state which every batch replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0.0

    def __hash__(self) -> int:
        return hash((type(self), self.total))

    def forward(self, given: Tensor) -> Tensor:
        """One more batch."""
        self.total += 1.0
        return given.detach().abs().sum()


def test_a_module_whose_hash_changes_is_audited() -> None:
    """A metric is found again by what it is, not by what it holds."""
    model, metric = Model(), Counting()

    def step() -> None:
        result = model(batch())
        metric(result)
        result.sum().backward()

    audit = audit_step(step)

    assert {use.module for use in audit.operators if "abs" in use.name} == {"Counting"}


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_checkpointing_repeats_counts_apart(*, reentrant: bool) -> None:
    """It is work of the hardware, not of the model."""
    model, given = Model(reentrant=reentrant), batch()

    audit = audit_step(lambda: model(given).sum().backward())

    assert sum(use.matmul_flops for use in matmuls(audit, "recompute")) == 2 * ONE
    assert audit.model_flops == 6 * ONE
    assert audit.hardware_flops == 8 * ONE
    assert matmuls(audit, "recompute")[0].module == "Model.blocks.1.linear"


def test_a_gradient_of_a_gradient_is_backward_not_recomputation() -> None:
    """Gradients are enabled there too, but no forward runs."""
    model, given = Model(), batch()

    def step() -> None:
        (first,) = torch.autograd.grad(model(given).sum(), given, create_graph=True)
        first.square().sum().backward()

    assert not matmuls(audit_step(step), "recompute")


def test_the_update_is_the_optimizer_part_even_around_a_closure() -> None:
    """Forward and backward run inside `step(closure)`, as under Lightning."""
    model, given = Model(), batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = model(given).sum()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        return loss

    audit = audit_step(lambda: optimizer.step(closure))

    assert len(matmuls(audit, "forward")) == 2
    assert matmuls(audit, "backward")
    norms = [use.part for use in audit.operators if "norm" in use.name]
    assert set(norms) == {"optimizer"}
    updates = [use for use in audit.operators if use.part == "optimizer" and "add" in use.name]
    assert updates


class Halving(torch.optim.Optimizer):
    """An optimizer of the user's own."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: object = None) -> None:
        """Halve everything."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.mul_(0.5)


@pytest.mark.parametrize(
    "act",
    [
        # Whatever file it stands in.
        lambda weight: Halving([weight]).step(),
        # Clipping before the step is neither forward nor backward.
        lambda weight: nn.utils.clip_grad_norm_([weight], 1.0),
    ],
)
def test_what_changes_weights_or_their_gradients_is_the_optimizer_part(
    act: Callable[[nn.Parameter], object],
) -> None:
    """An optimizer of the user's own, too."""
    weight = nn.Parameter(torch.ones(4))
    weight.grad = torch.ones(4)

    assert {use.part for use in audit_step(lambda: act(weight)).operators} == {"optimizer"}


def test_a_compiled_model_is_audited_uncompiled_under_its_own_name() -> None:
    """No graph hides its operators, and it is still compiled afterwards."""
    model, given = Model(), batch()
    runs: list[int] = []

    def counting(graph: torch.fx.GraphModule, example: list[Tensor]) -> Callable[..., object]:
        def run(*inputs: Tensor) -> object:
            runs.append(1)
            return graph.forward(*inputs)

        return run

    compiled = torch.compile(model, backend=counting)
    compiled(given)
    before = len(runs)

    audit = audit_step(lambda: compiled(given).sum().backward(), model=compiled)
    audited = len(runs)
    compiled(given)

    assert before == audited < len(runs)
    assert [use.module for use in matmuls(audit, "forward")] == LINEARS
    assert audit.model_flops == 6 * ONE


def test_autocast_is_seen_as_it_computes() -> None:
    """Products in bf16, and the casts it inserts are copies."""
    model, given = Model(), batch()

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(given).sum()
        loss.backward()

    audit = audit_step(step)

    assert {use.precision for use in audit.operators if use.kind == "matmul"} == {"bf16"}
    casts = [use for use in audit.operators if use.name == "aten._to_copy.default"]
    assert casts
    assert {use.kind for use in casts} == {"copy"}
    assert audit.precision == "bf16"


def test_the_audit_leaves_nothing_behind() -> None:
    """Neither hooks nor a mode, also after a step that raises: its error is the user's."""
    model, given = Model(), batch()

    def raises() -> None:
        model(given)
        raise ValueError("theirs")

    with pytest.raises(ValueError, match="theirs"):
        audit_step(raises)

    assert torch._C._len_torch_dispatch_stack() == 0
    assert not nn.modules.module._global_forward_hooks
    assert not nn.modules.module._global_forward_pre_hooks


def test_a_function_of_torchvision_is_not_torchs() -> None:
    """The name of one folder begins with the other's."""
    folder = Path(torch.__file__).parent
    ours = f"{folder}vision/transforms.py", f"{folder}/nn/functional.py"
    functions = [
        eval(compile("lambda: None", file, "eval"))  # noqa: S307 to choose the file's name
        for file in ours
    ]

    assert [owner(function.__code__) for function in functions] == ["user", "torch"]


LIBRARY = """
def metric(x):
    return x.sigmoid().sum()

def deeper(x):
    return metric(x)
"""


def library_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StepAudit:
    """An audit of a step whose operators an installed package calls, but for one."""
    package = tmp_path / "venv" / "site-packages" / "scores"
    package.mkdir(parents=True)
    (package / "functional.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(package))
    deeper: Callable[[Tensor], Tensor] = importlib.import_module("functional").deeper
    given = torch.ones(3, requires_grad=True)
    return audit_step(lambda: deeper(given.exp()).backward())


def test_a_line_of_an_installed_package_is_followed_by_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The innermost of the user's own code around it, also of the gradients that it makes."""
    audit = library_step(tmp_path, monkeypatch)
    own = place(__file__, library_step.__code__.co_firstlineno + 8)

    lines = {(use.short_name, use.part): (use.line, use.called_at) for use in audit.operators}

    assert lines["exp", "forward"] == (own, None)
    assert lines["sum", "forward"] == ("scores/functional.py:3", own)
    assert lines["sigmoid_backward", "backward"] == ("scores/functional.py:3", own)


def test_files_are_shown_from_the_package_the_script_or_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment may lie below the working directory; all else keeps its whole path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "/jobs/a/train.py", raising=False)

    assert shown_path(str(tmp_path / "venv/lib/site-packages/x/y.py")) == "x/y.py"
    assert shown_path(str(tmp_path / "train.py")) == "train.py"
    assert shown_path("/jobs/a/models/net.py") == "models/net.py"
    assert shown_path("/jobs/b/net.py") == "/jobs/b/net.py"
