"""How the ops run on DTensors: by rows, which know nothing of each other.

A dim of rows may be sharded. The columns, what belongs to them and single numbers are replicated, and a gradient of these is a
partial sum. Operands that lie otherwise are brought there. Nothing is registered before somebody imports
``torch.distributed.tensor``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .late import when_imported
from .layout import column_dims
from .plan import Op, Operator


def register_sharding(operator: Operator, overloads: Sequence[Any]) -> None:
    """Let DTensor know of the ops of an operator, whose overloads these are."""

    def register() -> None:
        from torch.distributed.tensor import DTensor

        # Not a strategy of register_sharding: it has no place for a return that may be None, as those of backward ops are.
        handlers = getattr(DTensor._op_dispatcher, "_custom_op_handlers", {})
        for op, overload in zip(operator.ops, overloads, strict=True):
            handlers[overload] = functools.partial(_run, op)

    when_imported("torch.distributed.tensor", register)


def _run(op: Op, overload: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The op on DTensors, by the same op on the parts that are here."""
    from torch.distributed.tensor import DTensor

    given = list(op.filled(args))
    mesh = next(given[i].device_mesh for i in op.tensors if isinstance(given[i], DTensor))
    for i in op.tensors:
        tensor, name = given[i], op.arguments[i].name
        if tensor is None:
            continue
        if not isinstance(tensor, DTensor):
            if tensor.numel() != 1:
                raise RuntimeError(
                    f"{op.subject}: {name} must be a DTensor as others are, but is a plain tensor"
                )
            given[i] = tensor = DTensor.from_local(tensor, mesh, run_check=False)
        if tensor.device_mesh != mesh:
            raise RuntimeError(
                f"{op.subject}: {name} must be on {mesh} as others are, but is on {tensor.device_mesh}"
            )
    choices = list(_ways(op, given))
    chosen = [min(choices, key=lambda way: _cost(way, op, given, k)) for k in range(mesh.ndim)]
    sizes = _sizes(op, given)
    local = list(given)
    for i in op.tensors:
        if given[i] is not None:
            wanted = [way.arguments[i] for way in chosen]
            local[i] = given[i].redistribute(mesh, wanted).to_local()
    out = overload(*local)

    def whole(i: int, part: torch.Tensor | None) -> Any:
        if part is None:
            return None
        found = [way.returns[i] for way in chosen]
        shape = [sizes[d] if any(p.is_shard(d) for p in found) else size for d, size in enumerate(part.shape)]
        return DTensor.from_local(
            part, mesh, found, run_check=False, shape=torch.Size(shape), stride=_strides(shape, part)
        )

    if isinstance(out, torch.Tensor) or out is None:
        return whole(0, out)
    return tuple(whole(i, part) for i, part in enumerate(out))


class Way:
    """How a call is done on one dim of a mesh: in whole by everyone, or a part of a dim of its rows by each."""

    def __init__(self, op: Op, args: Sequence[Any], dim: int | None) -> None:
        from torch.distributed.tensor import Partial, Replicate, Shard

        rank = len(_sizes(op, args))
        self.arguments: dict[int, Any] = {}
        for i in op.tensors:
            if args[i] is not None:
                shape = args[i].shape
                own = -1 if dim is None else dim - rank + len(shape)
                by_rows = op.arguments[i].span in ("MN", "M") and own >= 0 and shape[own] != 1
                self.arguments[i] = Shard(own) if by_rows else Replicate()
        self.returns = [
            Replicate() if dim is None else Partial() if r.span == "N" else Shard(dim) for r in op.returns
        ]


def _sizes(op: Op, args: Sequence[Any]) -> tuple[int, ...]:
    """The shape of a call, of its rows at least: the columns of a packed one count several times."""
    if op.primary not in op.elements:
        return tuple(args[op.primary].shape)
    shapes = [args[i].shape for i in op.elements if args[i] is not None]
    return tuple(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]


def _ways(op: Op, args: Sequence[Any]) -> Sequence[Way]:
    sizes = _sizes(op, args)
    columns = column_dims(op, args, sizes)
    dims = [d for d in range(len(sizes)) if d not in columns and sizes[d] > 1]
    return [Way(op, args, None), *(Way(op, args, d) for d in dims)]  # what stays in whole first, of equals


def _cost(way: Way, op: Op, args: Sequence[Any], k: int) -> tuple[int, bool]:
    """Bytes that operands move, about, to come from where they are on a dim of the mesh to where a way wants them.

    Of equals, what leaves the primary operand where it is counts less.
    """
    cost, moves = 0, False
    for i, wanted in way.arguments.items():
        now, size = args[i].placements[k], args[i].numel() * args[i].element_size()
        if now != wanted and not now.is_replicate():
            cost += 2 * size if now.is_partial() and wanted.is_replicate() else size
            moves |= i == op.primary
    return cost, moves


def _strides(shape: Sequence[int], part: torch.Tensor) -> tuple[int, ...]:
    """Strides of a dense tensor of a shape, whose dims lie in the order of those of a part of it."""
    strides, step = [0] * len(shape), 1
    for d in sorted(range(len(shape)), key=lambda d: (part.stride(d), -d)):
        strides[d], step = step, step * max(shape[d], 1)
    return tuple(strides)
