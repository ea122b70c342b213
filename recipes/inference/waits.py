"""Lines that wait for the device in a function that answers, and what they cost."""

import torch
from torch import Tensor, nn

from recipes.cases.case import Case, MeasuredRow
from recipes.cases.measuring import paired
from recipes.cases.reports import failure_lines
from recipes.cases.verdicts import needs_cuda, verdict
from recipes.inference.model import Size, batch_of, device, model_of
from recipes.inference.published import HIDDEN_WAITS
from trainperf.smoke import assert_no_sync


SURE = 0.5
"""Probability from which an answer is given."""


def asks_each(model: nn.Module, batch: Tensor) -> list[int]:
    """The class of each request, or -1: two reads from the device per request."""
    answers = []
    for request in model(batch).softmax(dim=-1):
        likeliest = int(request.argmax())
        answers.append(likeliest if request.max() > SURE else -1)
    return answers


def asks_once(model: nn.Module, batch: Tensor) -> Tensor:
    """The same decided where the scores are; whoever sends the answers copies them once."""
    probabilities = model(batch).softmax(dim=-1)
    likeliest, classes = probabilities.max(dim=-1)
    return torch.where(likeliest > SURE, classes, -1)


def waits_case(size: Size) -> Case:
    """Found by trainperf's own finder on any device; timed where something waits."""
    model, batch = model_of(size), batch_of(size).to(device())
    with torch.inference_mode():
        before = failure_lines(assert_no_sync, asks_each, model, batch)
        assert_no_sync(asks_once, model, batch)
    judged = needs_cuda("on a CPU nothing waits; the lines are the same ones that would on a GPU")
    measured: tuple[MeasuredRow, ...] = ()
    if device().type == "cuda":
        with torch.inference_mode():
            measured = paired(
                {
                    "asked for each request": lambda given: torch.tensor(asks_each(model, given)),
                    "asked once": lambda given: asks_once(model, given).cpu(),
                },
                batch,
                seconds=size.seconds,
            )
        judged = verdict(measured[-1], "faster")
    return Case(
        name="hidden_waits",
        title="Hidden waits",
        claim="Reading the scores request by request makes the host wait, and the answers late.",
        before=before,
        change=(
            "likeliest, classes = probabilities.max(dim=-1)",
            "answers = torch.where(likeliest > SURE, classes, -1)",
        ),
        measured=measured,
        published=HIDDEN_WAITS,
        **judged,
    )
