"""Arithmetic of one operator call, in FLOPs.

Contractions (matrix products, convolutions, attention) follow `torch.utils.flop_counter`, with
formulas of our own where it has none.  The rest is a convention, not a measurement: elementwise
work counts one FLOP per element and primitive operation, a transcendental function one; a reduction
counts one per element it reads.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from trainperf.audit.nested import tensors_in
from trainperf.audit.operator_call import Operator, OperatorWork, name_of, names
from trainperf.core.artifacts.audit import Kind


Formula = Callable[[Sequence[object]], int]
"""From the arguments of a call to its FLOPs."""


def work_of(
    func: Operator, args: Sequence[object], kwargs: Mapping[str, object], out: object
) -> OperatorWork:
    """What a call computes, by its operator and the shapes of its arguments."""
    if any(tensor.layout is not torch.strided for tensor in tensors_in(args)):
        return OperatorWork(kind="other", flops=0, counted=False)  # formulas are for dense tensors
    name = name_of(func)
    packet = func.overloadpacket if isinstance(func, OpOverload) else func
    ours = _CONTRACTIONS.get(name)
    if ours is not None or packet in flop_registry:
        matmul = ours(args) if ours else int(flop_registry[packet](*args, **kwargs, out_val=out))
        # Attention that keeps no scores computes them again in backward: one of its five products.
        repeated = matmul // 5 if name in _REPEATS else 0
        return OperatorWork(kind="matmul", flops=matmul, repeated_flops=repeated)
    return elementwise(func, args, out)


def _shape(value: object) -> Sequence[int]:
    return tuple(value.shape) if isinstance(value, Tensor) else ()


# -- contractions that torch's registry lacks -------------------------------------------------


def _product(args: Sequence[object], first: int) -> int:
    """FLOPs of the product of the arguments *first* and the next, batched or not."""
    return 2 * prod(_shape(args[first])) * _shape(args[first + 1])[-1]


def _attention(args: Sequence[object]) -> int:
    """Scores and weighted sum of values; a causal mask saves nothing, as in torch's counts."""
    return int(sdpa_flop_count(*_one_head_each(args[:3])))  # type: ignore[no-untyped-call]


def _attention_backward(args: Sequence[object]) -> int:
    """Five products: scores again, and two gradients for each of the two of forward."""
    return int(sdpa_backward_flop_count(*_one_head_each(args[:4])))  # type: ignore[no-untyped-call]


def _one_head_each(tensors: Sequence[object]) -> list[Sequence[int]]:
    """Shapes of attention's tensors as if no heads of queries shared keys and values."""
    heads = _shape(tensors[0])[:-2]
    return [(*heads, *_shape(tensor)[-2:]) for tensor in tensors]


def _recurrent(args: Sequence[object]) -> int:
    """A oneDNN recurrent layer: input and hidden products of every step of every sequence."""
    steps_and_batch = prod(_shape(args[0])[:-1])
    return 2 * steps_and_batch * (numel(args[1]) + numel(args[2]))


def _cudnn_recurrent(args: Sequence[object]) -> int:
    """Every matrix of every layer and direction, for every step of every sequence."""
    weights = args[1] if isinstance(args[1], list | tuple) else ()
    matrices = sum(numel(weight) for weight in weights if len(_shape(weight)) == 2)
    return 2 * prod(_shape(args[0])[:-1]) * matrices


_KERNELS = ("flash_attention_for_cpu", "fused_attention_overrideable")
"""Those of which torch has the formula, and no entry."""

_CONTRACTIONS: dict[str, Formula] = {
    **dict.fromkeys(("mv", "dot", "vdot"), lambda args: 2 * prod(_shape(args[0]))),
    "addmv": lambda args: 2 * prod(_shape(args[1])),  # (self, matrix, vector)
    "addr": lambda args: 2 * numel(args[1]) * numel(args[2]),  # (self, a, b)
    **dict.fromkeys(("addbmm", "_addmm_activation"), lambda args: _product(args, 1)),
    "_int_mm": lambda args: _product(args, 0),
    "mkldnn_rnn_layer": _recurrent,
    # Gradients of the input and of the weights, each as much as forward.
    "mkldnn_rnn_layer_backward": lambda args: 2 * _recurrent(args),
    "_cudnn_rnn": _cudnn_recurrent,
    "_cudnn_rnn_backward": lambda args: 2 * _cudnn_recurrent(args),
    **dict.fromkeys((f"_scaled_dot_product_{kernel}" for kernel in _KERNELS), _attention),
    **dict.fromkeys(
        (f"_scaled_dot_product_{kernel}_backward" for kernel in _KERNELS), _attention_backward
    ),
}

_REPEATS = names(
    "_scaled_dot_product_flash_attention_for_cpu_backward "
    "_scaled_dot_product_fused_attention_overrideable_backward "
    "_scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward "
    "_scaled_dot_product_cudnn_attention_backward _flash_attention_backward "
    "_efficient_attention_backward"
)
"""Backward passes of attention that keeps no scores."""


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
