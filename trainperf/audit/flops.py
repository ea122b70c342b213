"""Arithmetic of one operator call, in FLOPs.

Contractions (matrix products, convolutions, attention) follow `torch.utils.flop_counter`, with
formulas of our own where it has none.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils.flop_counter import flop_registry

from trainperf.audit.elementwise import Operator, elementwise, name_of, names, numel
from trainperf.audit.operator_call import OperatorWork
from trainperf.audit.traffic import tensors_in


Shape = Sequence[int]
Formula = Callable[[Sequence[object]], int]
"""From the arguments of a call to its FLOPs."""


def work_of(
    func: Operator, args: Sequence[object], kwargs: Mapping[str, object], out: object
) -> OperatorWork:
    """What a call computes, by its operator and the shapes of its arguments."""
    if any(tensor.layout is not torch.strided for tensor in tensors_in(args)):
        return OperatorWork(kind="other", flops=0, counted=False)  # formulas are for dense tensors
    name = name_of(func)
    matmul = _contraction(func, name, args, kwargs, out)
    if matmul is not None:
        # Attention that keeps no scores computes them again in backward: one of its five products.
        repeated = matmul // 5 if name in _REPEATS else 0
        return OperatorWork(
            kind="matmul", flops=matmul, matmul_flops=matmul, repeated_flops=repeated
        )
    return elementwise(func, args, out)


def _contraction(
    func: Operator,
    name: str,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    out: object,
) -> int | None:
    ours = _CONTRACTIONS.get(name)
    if ours is not None:
        return ours(args)
    packet = func.overloadpacket if isinstance(func, OpOverload) else func
    theirs = flop_registry.get(packet)
    return None if theirs is None else int(theirs(*args, **kwargs, out_val=out))


def _shape(value: object) -> Shape:
    return tuple(value.shape) if isinstance(value, Tensor) else ()


# -- contractions that torch's registry lacks -------------------------------------------------


def _vector_product(args: Sequence[object]) -> int:
    return 2 * prod(_shape(args[0]))  # mv(matrix, vector), dot(vector, vector)


def _added_vector_product(args: Sequence[object]) -> int:
    return 2 * prod(_shape(args[1]))  # addmv(self, matrix, vector)


def _outer(args: Sequence[object]) -> int:
    return 2 * numel(args[1]) * numel(args[2])  # addr(self, a, b): a product and a sum per element


def _added_product(args: Sequence[object]) -> int:
    return 2 * prod(_shape(args[1])) * _shape(args[2])[-1]  # (self, a, b), batched or not


def _product(args: Sequence[object]) -> int:
    return 2 * prod(_shape(args[0])) * _shape(args[1])[-1]


def _attention(args: Sequence[object]) -> int:
    """Scores and weighted sum of values; a causal mask saves nothing, as in torch's counts."""
    return _scores(args[0], args[1]) + _weighted(args[0], args[1], args[2])


def _attention_backward(args: Sequence[object]) -> int:
    """Five products: scores again, and two gradients for each of the two of forward."""
    _, query, key, value = args[:4]
    return 3 * _scores(query, key) + 2 * _weighted(query, key, value)


def _scores(query: object, key: object) -> int:
    *batch, rows, width = _shape(query)
    return 2 * prod(batch) * rows * width * _shape(key)[-2]


def _weighted(query: object, key: object, value: object) -> int:
    *batch, rows, _ = _shape(query)
    return 2 * prod(batch) * rows * _shape(key)[-2] * _shape(value)[-1]


def _recurrent(args: Sequence[object]) -> int:
    """A oneDNN recurrent layer: input and hidden products of every step of every sequence."""
    steps_and_batch = prod(_shape(args[0])[:-1])
    return 2 * steps_and_batch * (numel(args[1]) + numel(args[2]))


def _recurrent_backward(args: Sequence[object]) -> int:
    """Gradients of the input and of the weights, each as much as forward."""
    return 2 * _recurrent(args)


def _cudnn_recurrent(args: Sequence[object]) -> int:
    """Every matrix of every layer and direction, for every step of every sequence."""
    weights = args[1] if isinstance(args[1], list | tuple) else ()
    matrices = sum(numel(weight) for weight in weights if len(_shape(weight)) == 2)
    return 2 * prod(_shape(args[0])[:-1]) * matrices


def _cudnn_recurrent_backward(args: Sequence[object]) -> int:
    return 2 * _cudnn_recurrent(args)


_CONTRACTIONS: dict[str, Formula] = {
    "mv": _vector_product,
    "dot": _vector_product,
    "vdot": _vector_product,
    "addmv": _added_vector_product,
    "addr": _outer,
    "addbmm": _added_product,
    "_addmm_activation": _added_product,
    "_int_mm": _product,
    "mkldnn_rnn_layer": _recurrent,
    "mkldnn_rnn_layer_backward": _recurrent_backward,
    "_cudnn_rnn": _cudnn_recurrent,
    "_cudnn_rnn_backward": _cudnn_recurrent_backward,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_fused_attention_overrideable": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "_scaled_dot_product_fused_attention_overrideable_backward": _attention_backward,
}

_REPEATS = names(
    "_scaled_dot_product_flash_attention_for_cpu_backward "
    "_scaled_dot_product_fused_attention_overrideable_backward "
    "_scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward "
    "_scaled_dot_product_cudnn_attention_backward _flash_attention_backward "
    "_efficient_attention_backward"
)
"""Backward passes of attention that keeps no scores."""
