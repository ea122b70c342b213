"""Dispatch mode that records every operator call of a step, below autograd and autocast."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from threading import get_ident

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import Self

from trainperf.audit.allocations import Storages
from trainperf.audit.attribution import Attribution, Shield
from trainperf.audit.flops import work_of
from trainperf.audit.nested import tensors_in
from trainperf.audit.operator_call import (
    Access,
    Call,
    CallKind,
    Operator,
    OperatorWork,
    name_of,
    names,
)
from trainperf.audit.traffic import accesses_of, layout_of
from trainperf.audit.values import Values
from trainperf.core.artifacts.audit import Part
from trainperf.core.machine.clocks import monotonic_ns, thread_ns


class AuditMode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Records one `Call` per operator call; keeps no tensor alive.

    Args:
        calls: What they are added to.
        where: Attributes calls; entered by the caller.
        storages: Told of all calls.
        shield: Wraps what is done after each call, so that a fault of ours ends the audit only.
    """

    supports_higher_order_operators = True
    """Operators that are given functions, such as flex attention, are one call like any other."""

    def __init__(
        self, calls: list[Call], where: Attribution, storages: Storages, shield: Shield
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # same
        self.calls = calls
        self._where, self._storages = where, storages
        self._kinds: dict[tuple[object, ...], CallKind] = {}
        """Operator, and layouts of tensors, to what such calls are."""
        self._values = Values(storages)
        self._again: set[int] = set()
        """Sequence numbers of graph nodes of calls that compute the same again."""
        self._place: tuple[Part, int] | None = None
        """Part of the step and thread of the last call."""
        self._since_ns = 0
        """When the last operator of them that moves something had been looked at.

        What the audit took for views after it is added: only what passes without it counts."""
        self._observed = shield(self._observe)

    def __enter__(self) -> Self:
        """What ran since it was left may have used the memory of any tensor it had seen."""
        self._values = Values(self._storages)
        self._place = None
        super().__enter__()  # type: ignore[no-untyped-call]  # same
        return self

    def __torch_dispatch__(
        self,
        func: Operator,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        """Run the operator, then look at it."""
        given = kwargs or {}
        if self._where.lets_pass() or FakeTensor in types:
            return func(*args, **given)
        if isinstance(func, OpOverload):
            # A tensor made of tensors takes its operator apart, and so does a composite operator
            # where autograd is off: what they then call is seen.
            if any(map(_takes_apart, types)):
                return NotImplemented
            if _is_composite(func):
                with self:
                    return func.decompose(*args, **given)
        busy_ns, start_ns = thread_ns(), monotonic_ns()
        out = func(*args, **given)
        end_ns, done_ns = monotonic_ns(), thread_ns()
        operators = len(self.calls)
        # A compiler follows the code with tensors that hold nothing: no work of the step.
        if not any(isinstance(tensor, FakeTensor) for tensor in tensors_in(out)):
            times = (start_ns, end_ns - start_ns, done_ns - busy_ns)
            self._observed(func, args, given, out, times)
        self._where.left_ns -= thread_ns() - done_ns
        looked_ns = monotonic_ns()
        is_view = len(self.calls) == operators
        self._since_ns = self._since_ns + looked_ns - end_ns if is_view else looked_ns
        return out

    def _observe(
        self,
        func: Operator,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        out: object,
        times: tuple[int, int, int],
    ) -> None:
        """Take a call: *times* are when it began, how long it took and computed."""
        start_ns, host_ns, busy_ns = times
        part, site, node = self._where.here()
        if self._place != (part, get_ident()):  # backward may run on a thread of its own
            self._place, self._since_ns = (part, get_ident()), start_ns
            if part == "backward":
                self._values.begin_backward()
        given, results = tensors_in(args) + tensors_in(kwargs), tensors_in(out)
        looked = [layout_of(tensor) for tensor in given + results]
        storages = [storage for _, storage in looked]
        # What a call is, is looked at once: a step has many times as many calls as kinds of them.
        first: dict[int, int] = {}
        aliases = tuple(first.setdefault(key, place) for place, key in enumerate(storages))
        alike = (func, len(given), aliases, *(layout for layout, _ in looked))
        like = self._kinds.get(alike)
        if like is None or name_of(func) in _COUNTS_BY_CONTENT:
            like = self._kinds[alike] = _like(func, args, kwargs, out, first)
        of_results = zip(results, storages[len(given) :], strict=True)
        fresh = [tensor for tensor, key in of_results if key not in storages[: len(given)]]
        self._storages.observe(part, site, fresh)
        self._values.given_to(func, given)
        if not like.places:
            return
        accesses = tuple(Access(storages[each.storage], *each[1:]) for each in like.places)
        touched = dict(zip(storages, given + results, strict=True))
        arguments = (args, kwargs) if part == "forward" else None
        constant, again = self._values.made_by(
            func, like, accesses, arguments, touched, graph=node is not None
        )
        if again and node is not None:
            self._again.add(node)
        self.calls.append(
            Call(
                part=part,
                site=site,
                like=like,
                accesses=accesses,
                passes=self._where.passes,
                host_ns=host_ns,
                busy_ns=min(busy_ns, host_ns),
                before_ns=start_ns - self._since_ns,
                constant=constant,
                again=again or (part == "backward" and node in self._again),
                ignored=_ignored(func, args, out),
            )
        )


def _ignored(func: Operator, args: Sequence[object], out: object) -> float:
    """Share of the rows of a loss whose target is to be ignored; 0 where they have weights."""
    if name_of(func) != "nll_loss_forward" or args[2] is not None or not args[3]:
        return 0.0
    _, counted = tensors_in(out)
    return 1.0 - float(counted) / (tensors_in(args[1])[0].numel() or 1.0)


_COUNTS_BY_CONTENT = names("_flash_attention_forward _efficient_attention_forward")
"""Operators on sequences of unlike length, which another tensor tells."""


def _like(
    func: Operator,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    out: object,
    first: Mapping[int, int],
) -> CallKind:
    given, results = tensors_in(args) + tensors_in(kwargs), tensors_in(out)
    work = work_of(func, args, kwargs, out)
    accesses = accesses_of(func, args, kwargs, out)
    # A number in a tensor of no dimensions moves nothing between devices.
    wide = [tensor for tensor in given if tensor.dim()] or given
    return CallKind(
        name=str(func),
        draws=isinstance(func, OpOverload) and torch.Tag.nondeterministic_seeded in func.tags,
        places=tuple(each._replace(storage=first[each.storage]) for each in accesses),
        shapes=tuple(tuple(tensor.shape) for tensor in given),
        dtypes=tuple(dtype_name(tensor.dtype) for tensor in given),
        precision=_precision(given or results, work, str(func)),
        devices=frozenset(tensor.device.type for tensor in (*wide, *results)),
        work=work,
        result_dtype=next((dtype_name(tensor.dtype) for tensor in results), None),
    )


@lru_cache(maxsize=256)
def _takes_apart(kind: type) -> bool:
    """Whether tensors of this class handle operators themselves."""
    own = kind.__mro__[: kind.__mro__.index(torch.Tensor)]
    return any("__torch_dispatch__" in vars(base) for base in own)


@lru_cache(maxsize=4096)
def _is_composite(func: OpOverload) -> bool:
    """Whether it is made of other operators alone, and not only where the compiler asks."""
    name: str = func.name()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    key = "CompositeImplicitAutograd"
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))  # noqa: SLF001 no public name


def dtype_name(dtype: torch.dtype) -> str:
    """The usual short name, e.g. `bf16`; torch's own where there is none."""
    plain = str(dtype).removeprefix("torch.")
    return "fp8" if plain.startswith("float8") else _SHORT.get(plain, plain)


_SHORT = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16"}


def _precision(touched: Sequence[torch.Tensor], work: OperatorWork, name: str) -> str:
    """The first floating-point operand decides; TF32 is what torch makes of fp32 if allowed."""
    floating = next((tensor for tensor in touched if tensor.is_floating_point()), None)
    if floating is None:
        return dtype_name(touched[0].dtype) if touched else "none"
    plain = dtype_name(floating.dtype)
    short = plain == "fp32" and floating.is_cuda and work.kind == "matmul"
    return "tf32" if short and _allows_tf32("conv" in name) else plain


def _allows_tf32(convolves: bool) -> bool:  # noqa: FBT001 one caller
    """What the user has set, by the older or the newer of torch's switches."""
    older = torch.backends.cudnn if convolves else torch.backends.cuda.matmul
    newer = getattr(older, "conv", None) if convolves else older
    # Reading the older switch is an error once the newer one was set.
    chosen = getattr(newer, "fp32_precision", None)
    return bool(older.allow_tf32) if chosen is None else bool(chosen == "tf32")
