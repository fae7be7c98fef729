"""Shapes, dtypes and strides of results, and the checks of arguments: the C++ runtime's rules."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from .expression import Space
from .plan import Op, Return

Tensor = torch.Tensor

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INTEGERS = (torch.int64, torch.int32)
NAMED = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
}
NAMED |= {
    "float8_e4m3fn": torch.float8_e4m3fn,
    "int8": torch.int8,
    "bool": torch.bool,
    "uint8": torch.uint8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
}  # that a return may have whatever the arguments
INTEGER_NAMES = tuple(name for name, dtype in NAMED.items() if not dtype.is_floating_point)
MAX_DIMS = 64  # kMaxDims of csrc/runtime/layout.h


def _fail(op: Op, message: str) -> RuntimeError:
    return RuntimeError(f"{op.subject}: {message}")


def _shape(sizes: Sequence[Any]) -> str:
    return f"[{', '.join(map(str, sizes))}]"


def _name(dtype: torch.dtype | torch.layout) -> str:
    return str(dtype).removeprefix("torch.")


def _check_values(op: Op, args: Sequence[Any]) -> None:
    for a, value in zip(op.arguments, args, strict=True):
        if a.kind == "tensor" and value is None and not a.optional:
            raise _fail(op, f"{a.name} must be a tensor, but is None")
        if a.kind == "ints" and len(value) > MAX_DIMS:
            raise _fail(op, f"{a.name} must have at most {MAX_DIMS} entries, but has {len(value)}")
        if a.kind == "str" and value not in a.choices:
            *others, last = [f"'{c}'" for c in a.choices]
            allowed = f"{', '.join(others)} or {last}" if others else last
            raise _fail(op, f"{a.name} must be {allowed}, but is '{value}'")
        if a.kind == "mask" and len(value) != a.length:
            raise _fail(op, f"{a.name} must have {a.length} entries, but has {len(value)}")


def _check_tensor(op: Op, a: Any, tensor: Tensor, primary: Tensor) -> None:
    name = a.name
    if tensor.dtype not in (INTEGERS if a.integer else a.narrow or DTYPES):
        wanted = " or ".join(map(_name, a.narrow)) or (
            "a tensor of whole numbers (int64 or int32)"
            if a.integer
            else "a floating-point tensor (float32, float16, bfloat16 or float64)"
        )
        raise _fail(op, f"{name} must be {wanted}, but is {_name(tensor.dtype)}")
    if tensor.device != primary.device:
        raise _fail(
            op,
            f"{name} must be on {primary.device} like {op.arguments[op.primary].name}, "
            f"but is on {tensor.device}",
        )
    if tensor.dim() > MAX_DIMS:
        raise _fail(op, f"{name} must have at most {MAX_DIMS} dimensions, but has {tensor.dim()}")
    if tensor.layout != torch.strided:
        raise _fail(op, f"{name} must be a strided tensor, but is {_name(tensor.layout)}")


def take_apart(tensor: Tensor, like: Any, dim: int) -> tuple[Tensor, ...]:
    """The parts of a packed tensor, as ``like``, an argument or return, says they lie."""
    count = len(like.parts)
    if not like.interleaved:
        return tuple(tensor.chunk(count, dim))
    before = (slice(None),) * dim
    return tuple(tensor[(*before, slice(i, None, count))] for i in range(count))


def _packed_shape(op: Op, sizes: Sequence[Any], space_dim: int) -> tuple[Any, ...]:
    return tuple(s * op.packing if d == space_dim else s for d, s in enumerate(sizes))


def _part_shape(op: Op, args: Sequence[Any], sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """The shape of a call whose primary is packed: that of a part."""
    (dim,) = _columns(op, args, sizes)
    torch._check(  # type: ignore[no-untyped-call]
        sizes[dim] % op.packing == 0,
        lambda: (
            f"{op.subject}: {op.arguments[op.primary].name} must have a multiple of {op.packing} as size of dimension "
            f"{dim}, but has shape {_shape(sizes)}"
        ),
    )
    return tuple(s // op.packing if d == dim else s for d, s in enumerate(sizes))


def _columns(op: Op, args: Sequence[Any], sizes: tuple[Any, ...]) -> tuple[int, ...]:
    rank, name = len(sizes), op.arguments[op.primary].name
    if op.rule == "flat":
        return ()
    if not rank and (op.rule == "last" or op.packing > 1):
        raise _fail(op, f"{name} must have at least 1 dimension, but has shape []")
    if op.rule == "last":
        return (rank - 1,)
    argument, value = op.arguments[op.rule_argument].name, args[op.rule_argument]
    if op.rule == "groups":
        return tuple(range(2, rank))
    if op.rule == "dim":
        span = max(rank, 1)
        if not -span <= value < span:
            plural = "dimension" if rank == 1 else "dimensions"
            raise _fail(
                op,
                f"{argument} must be in [{-span}, {span - 1}] ({name} has {rank} {plural}), but is {value}",
            )
        return (value % rank,) if rank else ()
    if not len(value):
        raise _fail(op, f"{argument} must have at least 1 entry, but is []")

    def message() -> str:
        return (
            f"{op.subject}: {argument} must be the last dimensions of {name}, whose shape is {_shape(sizes)}, "
            f"but is {_shape(value)}"
        )

    if len(value) > rank:
        raise RuntimeError(message())
    for own, given in zip(sizes[rank - len(value) :], value, strict=True):
        torch._check(own == given, message)  # type: ignore[no-untyped-call]
    return tuple(range(rank - len(value), rank))


def column_dims(op: Op, args: Sequence[Any], sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """The dims of a call of this shape of which no row has only a part; a packed dim may be whole."""
    return tuple(range(1, len(sizes))) if op.rule == "groups" else _columns(op, args, sizes)


def _split_channels(op: Op, args: Sequence[Any], sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """The shape of a call whose rows are groups of channels: (samples, groups, channels of one, ...)."""
    name, argument = op.arguments[op.primary].name, op.arguments[op.rule_argument].name
    groups = args[op.rule_argument]
    if not 2 <= len(sizes) < MAX_DIMS:
        raise _fail(
            op,
            f"{name} must have 2 to {MAX_DIMS - 1} dimensions (samples, channels, ...), but has shape {_shape(sizes)}",
        )
    torch._check(  # type: ignore[no-untyped-call]
        groups >= 1 and sizes[1] % groups == 0,
        lambda: (
            f"{op.subject}: {argument} must divide the number of channels, {sizes[1]} (dimension 1 of {name}), "
            f"but is {groups}"
        ),
    )
    return (sizes[0], groups, sizes[1] // groups, *sizes[2:])


def _common_shape(op: Op, args: Sequence[Any]) -> tuple[Any, ...]:
    """The shape that the tensors of span MN have, or broadcast to."""
    primary, name = args[op.primary], op.arguments[op.primary].name
    _check_tensor(op, op.arguments[op.primary], primary, primary)
    sizes = tuple(primary.shape)
    if op.arguments[op.primary].parts:
        sizes = _part_shape(op, args, sizes)
    for i in op.tensors:
        a, value = op.arguments[i], args[i]
        if value is None:
            continue
        _check_tensor(op, a, value, primary)
        if a.span != "MN" or a.parts or i == op.primary:
            continue
        try:
            sizes = tuple(torch.broadcast_shapes(sizes, value.shape))  # type: ignore[no-untyped-call]
        except RuntimeError:
            raise _fail(
                op,
                f"{a.name} must have shape {_shape(sizes)} (that of {name}) or broadcast to it, "
                f"but has shape {_shape(value.shape)}",
            ) from None
    return sizes


def _check_spans(op: Op, args: Sequence[Any], space: Space) -> None:
    primary = op.arguments[op.primary].name
    columns = {
        "trailing": op.arguments[op.rule_argument].name,
        "dim": f"dimension {space.columns[0] if space.columns else 0} of {primary}",
        "groups": f"dimension 1 of {primary}",
    }.get(op.rule, f"the last dimension of {primary}")
    what = {
        "N": columns,
        "M": f"one value for each row of {primary}",
        "1": "one number",
        "packed": f"{op.packing} values for each column of {primary}",
    }
    for i in op.tensors:
        a, value = op.arguments[i], args[i]
        if value is None or (a.span == "MN" and not a.parts):
            continue
        if a.span == "1":
            if value.dim() > 1 or (value.dim() == 1 and value.shape[0] != 1):
                raise _fail(
                    op,
                    f"{a.name} must have shape [] or [1] (one number), but has shape {_shape(value.shape)}",
                )
            continue
        expected = shape_of(op, a, space)

        def message(a: Any = a, expected: Any = expected, value: Any = value) -> str:
            return (
                f"{op.subject}: {a.name} must have shape {_shape(expected)} ({what['packed' if a.parts else a.span]}), "
                f"but has shape {_shape(value.shape)}"
            )

        if value.dim() != len(expected):
            raise RuntimeError(message())
        for own, given in zip(expected, value.shape, strict=True):
            torch._check(own == given, message)  # type: ignore[no-untyped-call]


def space_of(op: Op, args: Sequence[Any]) -> Space:
    """Check a call (every argument there) and find its rows and columns.

    Raises:
        RuntimeError: an argument is not what the operator takes; the message names it, what it is and may be.
    """
    _check_values(op, args)
    return space_of_tensors(op, args)


def space_of_tensors(op: Op, args: Sequence[Any]) -> Space:
    """As :func:`space_of`, of a call that may lack tensors."""
    sizes = _common_shape(op, args)
    channels = None
    if op.rule == "groups":
        whole, sizes = sizes, _split_channels(op, args, sizes)
        channels = whole[1]
    columns = _columns(op, args, sizes)
    rows = tuple(d for d in range(len(sizes)) if d not in columns)
    double = any(args[i] is not None and args[i].dtype == torch.float64 for i in op.tensors)
    dtype = torch.float64 if double else torch.float32
    space = Space(sizes, rows, columns, dtype, args[op.primary].device, channels)
    _check_spans(op, args, space)
    return space


def span_shape(span: str, space: Space) -> tuple[Any, ...]:
    """The shape of a tensor of this span."""
    if span == "MN":
        return space.shape
    if span == "N" and space.channels is not None:
        return (space.channels,)
    if span == "N":
        return tuple(space.sizes[d] for d in space.columns)
    return tuple(1 if d in space.columns else s for d, s in enumerate(space.sizes))[: len(space.shape)]


def shape_of(op: Op, like: Any, space: Space) -> tuple[Any, ...]:
    """The shape of an argument or a return."""
    shape = span_shape(like.span, space)
    if not like.parts:
        return shape
    return _packed_shape(op, shape, space.columns[0] if like.span == "MN" else 0)


def return_dtype(op: Op, ret: Return, args: Sequence[Any], space: Space) -> torch.dtype:
    """The dtype of a return: what its arguments promote to; an absent one gives it the dtype of the math."""
    if ret.dtype == "compute":
        return space.dtype
    if ret.dtype in NAMED:
        return NAMED[ret.dtype]
    names = ret.dtype.split("|")
    values = [value for a, value in zip(op.arguments, args, strict=True) if a.name in names]
    if any(value is None for value in values):
        return space.dtype
    if isinstance(values[0], str):
        return NAMED[values[0]]
    dtype: torch.dtype = functools.reduce(torch.promote_types, (value.dtype for value in values))
    return dtype


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill a range of memory, each once, in whatever order of dims."""
    if tensor.is_contiguous():
        return True
    expected: Any = 1
    for stride, size in sorted(
        (stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1
    ):
        if stride != expected:
            return False
        expected = stride * size
    return True


def memory_format(op: Op, primary: Tensor) -> torch.memory_format:
    """That of the results of an operator over channels: of the primary tensor, as torch finds it from its strides."""
    if op.rule != "groups" or primary.dim() not in (4, 5):
        return torch.contiguous_format
    return suggest_memory_format(primary)


def keeps_strides(op: Op, primary: Tensor, space: Space) -> bool:
    """Whether results have the strides of the primary tensor: pointwise ones of a dense one, as in torch."""
    return op.rule == "flat" and tuple(primary.shape) == space.sizes and is_dense(primary)


def allocate(op: Op, ret: Return, args: Sequence[Any], space: Space) -> Tensor:
    """A return without values, as the kernels allocate it."""
    primary, dtype = args[op.primary], return_dtype(op, ret, args, space)
    if ret.span == "MN" and keeps_strides(op, primary, space):
        return torch.empty_like(primary, dtype=dtype)
    shape = shape_of(op, ret, space)
    layout = memory_format(op, primary) if ret.span == "MN" else torch.contiguous_format
    return torch.empty(shape, dtype=dtype, device=space.device, memory_format=layout)


def returned(op: Op, args: tuple[Any, ...]) -> tuple[bool, ...]:
    """Which returns a call has."""
    if not op.optional_returns:
        return (True,) * len(op.returns)
    case = op.case(args)
    return (False,) * len(op.returns) if case is None else case.returned


def fake(op: Op, args: tuple[Any, ...]) -> Any:
    """The fake kernel: returns of the right shapes, dtypes and strides."""
    args = op.filled(args)
    space = space_of(op, args)
    exists = returned(op, args)
    out = tuple(allocate(op, r, args, space) if e else None for r, e in zip(op.returns, exists, strict=True))
    return out[0] if len(out) == 1 else out
