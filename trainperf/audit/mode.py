"""Which operators does the step call, and with what?  Seen below autograd and autocast."""

from collections.abc import Mapping, Sequence

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from trainperf.audit.calls import Call
from trainperf.audit.flops import work_of
from trainperf.audit.shield import Shield, as_it_is
from trainperf.audit.traffic import accesses_of, tensors_in
from trainperf.audit.where import Where
from trainperf.clocks.host import monotonic_ns


class AuditMode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Keeps one `Call` per operator call.  Holds no tensor alive.

    Args:
        where: Tells where a call comes from; entered by the caller.
        shield: Wraps what is done after each call, so that a fault of ours ends the audit only.
    """

    def __init__(self, where: Where, shield: Shield = as_it_is) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # same
        self.calls: list[Call] = []
        self.views = 0
        self._where = where
        self._seen = shield(self._observe)

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        """Run the operator, then look at it."""
        del types
        given = kwargs or {}
        start = monotonic_ns()
        out = func(*args, **given)
        self._seen(func, args, given, out, monotonic_ns() - start)
        return out

    def _observe(
        self,
        func: OpOverload,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        out: object,
        host_ns: int,
    ) -> None:
        part, site = self._where.here()
        accesses = accesses_of(func, args, kwargs, out)
        if not accesses:
            self.views += 1
            return
        given = [*tensors_in(args), *tensors_in(list(kwargs.values()))]
        touched = given or list(tensors_in(out))
        self.calls.append(
            Call(
                name=str(func),
                part=part,
                site=site,
                shapes=tuple(tuple(tensor.shape) for tensor in given),
                dtypes=tuple(dtype_name(tensor.dtype) for tensor in given),
                precision=_precision(touched),
                devices=frozenset(_devices(given, out)),
                work=work_of(func, args, kwargs, out),
                accesses=accesses,
                host_ns=host_ns,
            )
        )


def dtype_name(dtype: torch.dtype) -> str:
    """The usual short name, e.g. `bf16`; torch's own where there is none."""
    plain = str(dtype).removeprefix("torch.")
    return "fp8" if plain.startswith("float8") else _SHORT.get(plain, plain)


_SHORT = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16"}


def _precision(touched: Sequence[torch.Tensor]) -> str:
    """The first floating-point operand decides; TF32 is what torch makes of fp32 if allowed."""
    for tensor in touched:
        if tensor.is_floating_point():
            name = dtype_name(tensor.dtype)
            tf32 = name == "fp32" and tensor.is_cuda and torch.backends.cuda.matmul.allow_tf32
            return "tf32" if tf32 else name
    return dtype_name(touched[0].dtype)


def _devices(given: Sequence[torch.Tensor], out: object) -> set[str]:
    """Device types involved; a number in a tensor of no dimensions moves nothing between them."""
    wide = [tensor for tensor in given if tensor.dim()] or given
    return {tensor.device.type for tensor in (*wide, *tensors_in(out))}
