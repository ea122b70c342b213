"""Assertion that a model answers as it should: in eval mode, twice alike, without a graph."""

import torch
from torch import Tensor, nn

from trainperf.audit.inference_state import graph_size, in_train_mode
from trainperf.audit.nested import tensors
from trainperf.core.errors import SmokeFailure
from trainperf.core.formatting.units import plural, size


def assert_inference(model: nn.Module, *request: object) -> None:
    """Fail if *model* is in train mode, answers *request* otherwise twice, or builds a graph.

    The model is called twice, as it would be called by you: under `inference_mode` if the test is.
    Modules that answer alike in both modes may be in train mode.  Answers count as equal where
    every tensor of them is, to the bit; a model whose kernels are not deterministic fails.
    """
    __tracebackhide__ = True
    kinds = in_train_mode(model)
    if kinds:
        named = ", ".join(f"{number:,} {kind}" for kind, number in kinds.most_common())
        raise SmokeFailure(
            f"the model answers in train mode: {named}", "model.eval() before the first request"
        )
    answer, again = model(*request), model(*request)
    graph = graph_size(answer)
    if graph is not None:
        raise SmokeFailure(
            f"the answer hangs on a graph of {plural(graph.nodes, 'node')}, which keep "
            f"{size(graph.kept_bytes)}",
            "with torch.inference_mode(): around the call, or @torch.inference_mode() on the "
            "function that answers",
        )
    first, second = _values(answer), _values(again)
    differing = sum(not torch.equal(a, b) for a, b in zip(first, second, strict=True))
    if differing:
        raise SmokeFailure(
            f"the same request got another answer the second time, in {differing} of "
            f"{plural(len(first), 'tensor')}",
            "F.dropout(x, p, training=self.training), and dropout_p=0.0 in attention in eval "
            "mode; if the model samples, seed it in the test",
        )


def _values(answer: object) -> list[Tensor]:
    return [tensor.detach() for tensor in tensors(answer)]
