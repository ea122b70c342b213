"""Memory traffic of one operator call: the tensors that it reads and writes.

Each tensor counts once, and elements of a broadcast tensor once: what the call must move if nothing
were cached.  Views and allocations move nothing.  A look-up reads its rows, not the table.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod

import torch
from torch import Tensor
from torch._ops import OpOverload

from trainperf.audit.nested import tensors_in
from trainperf.audit.operator_call import Access, Operator, bound, name_of, names


def accesses_of(
    func: Operator, args: Sequence[object], kwargs: Mapping[str, object], out: object
) -> tuple[Access, ...]:
    """What the call read and wrote; empty for a view or an allocation."""
    name, given = name_of(func), tensors_in([*args, *kwargs.values()])
    storages = set(map(storage_key, given))
    results = [tensor for tensor in tensors_in(out) if storage_key(tensor) not in storages]
    aliases = ((parameter.alias_info, value) for parameter, value in bound(func, args, kwargs))
    written = tensors_in([value for alias, value in aliases if alias and alias.is_write])
    reshapes = isinstance(func, OpOverload) and torch.Tag.inplace_view in func.tags  # in place
    works = bool(results or written) or name in _READS_ONLY
    if not works or name in _ALLOCATIONS or reshapes:
        return ()
    read = _read(func, name, args, kwargs)
    read_bytes = _LOOKUPS[name](read, results) if name in _LOOKUPS else map(stored_bytes, read)
    accesses = (
        *map(_access, read, read_bytes),
        *(_access(tensor, stored_bytes(tensor), writes=True) for tensor in written),
        *(_access(tensor, stored_bytes(tensor), writes=True, new=True) for tensor in results),
    )
    # A tensor that is given twice is read once.
    return tuple(dict.fromkeys(access for access in accesses if access.size_bytes))


def _read(
    func: Operator, name: str, args: Sequence[object], kwargs: Mapping[str, object]
) -> list[Tensor]:
    """The tensors whose values the call needs: not those that it only replaces."""
    if name in _SHAPE_ONLY:
        return []
    # What is given as `out=` is not read there; it may be given to be read as well.
    into_out = str(func).rpartition(".")[2].endswith(("out", "grad_input"))
    replaces = name in _REPLACES or name.startswith("_foreach_copy") or into_out
    parameters = [*bound(func, args, kwargs)] if replaces else []
    kept = [
        value for each, value in parameters if not (each.alias_info and each.alias_info.is_write)
    ]
    return tensors_in(kept if parameters else [*args, *kwargs.values()])


def stored_bytes(tensor: Tensor) -> int:
    """Bytes behind a tensor's elements: those it repeats by a stride of zero count once."""
    if tensor.layout is not torch.strided:
        return tensor.numel() * tensor.element_size()
    own = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return prod(own) * tensor.element_size() if tensor.numel() else 0


def _access(tensor: Tensor, size: int, *, writes: bool = False, new: bool = False) -> Access:
    held = tensor.untyped_storage().nbytes() if tensor.layout is torch.strided else 0
    return Access(
        storage=storage_key(tensor),
        size_bytes=size,
        writes=writes,
        whole=size >= held,
        new=new,
    )


def storage_key(tensor: Tensor) -> int:
    """Address of the memory behind a tensor, or its identity where it has none."""
    return layout_of(tensor)[1]


def layout_of(tensor: Tensor) -> tuple[tuple[object, ...], int]:
    """What of a tensor decides what a call with it computes and moves, and its `storage_key`."""
    layout = (tensor.shape, tensor.dtype, tensor.device, tensor.layout)
    if tensor.layout is not torch.strided:
        return layout, id(tensor)
    storage = tensor.untyped_storage()
    identity: int = storage._cdata  # noqa: SLF001 the only identity of a storage
    try:
        # Tensors without data, on the meta device, have no address.
        address = storage.data_ptr() or identity
    except RuntimeError:  # it wraps another tensor, which has the memory: sharded, or on its way
        address = identity
    return (*layout, tensor.stride(), storage.nbytes()), address


# -- look-ups: what is read of a table is what comes out ---------------------------------------


Lookup = Callable[[Sequence[Tensor], Sequence[Tensor]], list[int]]
"""From what a call reads and its results to the bytes it needs of each tensor read."""


def _rows(read: Sequence[Tensor], results: Sequence[Tensor]) -> list[int]:
    """The first tensor is a table, of which the result is read; the others are read whole."""
    table, *others = map(stored_bytes, read)
    return [min(table, sum(map(stored_bytes, results))), *others]


def _written_rows(read: Sequence[Tensor], _: Sequence[Tensor]) -> list[int]:
    """A gradient of zeros but for some: the tensor that only lends its shape is not read."""
    return [0 if place == 1 else stored_bytes(tensor) for place, tensor in enumerate(read)]


def _picked(read: Sequence[Tensor], _: Sequence[Tensor]) -> list[int]:
    """One element of each row, chosen by the second tensor."""
    table, *others = map(stored_bytes, read)
    return [min(table, read[1].numel() * read[0].element_size()), *others]


_LOOKUPS: dict[str, Lookup] = {
    "embedding": _rows,
    "index": _rows,
    "_unsafe_index": _rows,
    "index_select": _rows,
    "gather": _rows,
    "nll_loss_forward": _picked,
    "nll_loss2d_forward": _picked,
    "nll_loss_backward": _written_rows,
    "nll_loss2d_backward": _written_rows,
}

_ALLOCATIONS = names(
    "empty empty_like empty_strided empty_permuted new_empty new_empty_strided resize_ set_ lift "
    "lift_fresh record_stream _has_same_storage_numel"
)

_READS_ONLY = names("_local_scalar_dense equal is_nonzero")

_REPLACES = names(
    "copy_ fill_ zero_ _foreach_zero_ normal_ uniform_ bernoulli_ random_ exponential_"
)

# `zeros_like` and its kin are given a tensor of which they take the shape only.
_SHAPE_ONLY = names("zeros_like ones_like full_like rand_like randn_like new_zeros new_full")
