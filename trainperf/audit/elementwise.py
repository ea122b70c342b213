"""Arithmetic of operators that are no contraction: a convention, not a measurement.

Elementwise work counts one FLOP per element and primitive operation, a transcendental function
one; a reduction counts one per element it reads.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator, OpOverload

from trainperf.audit.operator_call import OperatorWork
from trainperf.core.artifacts.audit import Kind


Operator = OpOverload | HigherOrderOperator
"""What is dispatched: an overload of an operator, or one that is given functions."""


def elementwise(func: Operator, args: Sequence[object], out: object) -> OperatorWork:
    """What a call that is no contraction computes."""
    name = name_of(func)
    if name in _COPIES or name.startswith("_foreach_copy"):
        return OperatorWork(kind="copy", flops=0)
    if name in _PER_ELEMENT:
        kind, each = _PER_ELEMENT[name]
        return OperatorWork(kind=kind, flops=each * _elements(args))
    if name in ("native_layer_norm", "native_group_norm", "native_batch_norm"):
        return OperatorWork(kind="reduction", flops=_norm_flops(name, args))
    if name in _REDUCTIONS or name.startswith("_foreach_norm"):
        return OperatorWork(kind="reduction", flops=_elements(args))
    tags = func.tags if isinstance(func, OpOverload) else ()
    if torch.Tag.pointwise in tags or name.startswith("_foreach_"):
        each = _PRIMITIVES.get(name.strip("_"), 1)
        # Elements of the result, or of what is written in place.
        return OperatorWork(kind="pointwise", flops=each * (numel(out) or _elements(args)))
    return OperatorWork(kind="other", flops=0, counted=name in _NO_ARITHMETIC)


def name_of(func: Operator) -> str:
    """The operator without its overload, e.g. `addmm`."""
    return str(func.overloadpacket.__name__ if isinstance(func, OpOverload) else func)


def names(text: str) -> frozenset[str]:
    """The words of a text, as a table of operators."""
    return frozenset(text.split())


def numel(value: object) -> int:
    """Elements of a tensor, or of all tensors of a list; 0 for anything else."""
    if isinstance(value, Tensor):
        return value.numel()
    return sum(map(numel, value)) if isinstance(value, list | tuple) else 0


def _elements(args: Sequence[object]) -> int:
    """Elements of the first tensor or list of tensors."""
    return next((count for count in map(numel, args) if count), 0)


def _norm_flops(name: str, args: Sequence[object]) -> int:
    """Mean, variance, subtract, scale: four an element; a weight and a bias one more each."""
    first = 2 if name == "native_layer_norm" else 1
    affine = sum(isinstance(value, Tensor) for value in args[first : first + 2])
    return (4 + affine) * _elements(args)


_PRIMITIVES = {
    "addcmul": 2,
    "addcdiv": 2,
    "lerp": 3,
    "foreach_addcmul": 2,
    "foreach_addcdiv": 2,
    "foreach_lerp": 3,
    "sigmoid": 4,  # 1 / (1 + exp(-x))
    "silu": 5,
    "gelu": 5,  # x / 2 · (1 + erf(x / √2))
}

_PER_ELEMENT: dict[str, tuple[Kind, int]] = {
    "_softmax": ("reduction", 5),  # maximum, subtract, exp, sum, divide
    "_safe_softmax": ("reduction", 5),
    "_log_softmax": ("reduction", 5),  # maximum, subtract, exp, sum, subtract
    "_softmax_backward_data": ("reduction", 4),  # multiply, sum, subtract, multiply
    "_log_softmax_backward_data": ("reduction", 4),  # sum, exp, multiply, subtract
    "native_layer_norm_backward": ("reduction", 12),  # x̂ 2, weight 1, two sums 3, dx 3, dw and db 3
    "native_group_norm_backward": ("reduction", 12),
    "native_batch_norm_backward": ("reduction", 12),
    "native_dropout": ("pointwise", 2),  # compare, scale
    "native_dropout_backward": ("pointwise", 2),
    "gelu_backward": ("pointwise", 9),  # (1 + erf)/2 4, x·exp(-x²/2)/√2π 4, sum 1
    "silu_backward": ("pointwise", 8),
    # Decay 1, moments 3 and 4, bias corrections 1, root 1, epsilon 1, step 3, per parameter.
    "_fused_adamw_": ("pointwise", 14),
    "_fused_adam_": ("pointwise", 14),
    "_fused_sgd_": ("pointwise", 4),
    "_fused_adagrad_": ("pointwise", 7),
    "_amp_foreach_non_finite_check_and_unscale_": ("pointwise", 2),
}

_REDUCTIONS = names(
    "sum mean amax amin max min any all argmax argmin prod var std var_mean cumsum logsumexp "
    "linalg_vector_norm norm embedding_dense_backward nll_loss_backward nll_loss2d_backward "
    "max_pool2d_with_indices avg_pool2d _adaptive_avg_pool2d mse_loss count_nonzero"
)

_COPIES = names(
    "_to_copy copy_ copy clone cat stack contiguous fill_ fill zero_ zeros ones full zeros_like "
    "ones_like full_like new_zeros new_ones new_full scalar_tensor arange eye linspace "
    "slice_backward select_backward constant_pad_nd repeat _foreach_zero_"
)

_NO_ARITHMETIC = names(
    "embedding index index_put index_put_ _index_put_impl_ _unsafe_index index_select gather "
    "scatter scatter_ nll_loss_forward nll_loss2d_forward _local_scalar_dense tril triu roll flip "
    "sort topk max_pool2d_with_indices_backward bernoulli_ normal_ uniform_ random_ randn rand "
    "randint randperm multinomial equal nonzero record_stream"
)
