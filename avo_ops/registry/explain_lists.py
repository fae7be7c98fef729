"""What a call of an operator over lists of tensors does: its launches, what they move, what is copied.

The runtime reads such a call from tensors that are there; this follows it (csrc/runtime/list_call.cpp, list_run.cpp) for any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch

from .lists import check_call
from .native import SHORT_NAMES

Tensor = torch.Tensor
Record = Mapping[str, Any]
"""An entry of "lists" of plan.json."""

# As in csrc/common/list.h.
_BYTES, _CODES = 4096, 24
BLOCK, _CHUNK = 256, 16384


@dataclass(frozen=True)
class ListCall:
    """A call that would not be refused. ``launches``: of a GPU, each kernel by its name with the number of its blocks."""

    device: torch.device
    items: int
    launches: tuple[tuple[str, int], ...]
    copies: tuple[str, ...]
    read: int
    written: int
    temporary: int
    math: str


def describe_list(entry: Record, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ListCall:
    """What a call of the operator does.

    Raises:
        RuntimeError: it would be refused; with the message that it would have.
        ValueError: an argument is missing, or there is none of that name.
    """
    _check_names(entry, args, kwargs)
    check_call(entry, args, kwargs)
    names = [a["name"] for a in entry["arguments"]]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    of_kind = {kind: [a["name"] for a in entry["arguments"] if a["kind"] == kind] for kind in _KINDS}
    written = of_kind["written"]
    operands = [a["name"] for a in entry["arguments"] if a["kind"] in ("written", "tensors")]
    tensors = {name: list(given[name]) for name in (*operands, *of_kind["numbers"])}
    count = len(tensors[operands[0]])
    items = [i for i in range(count) if tensors[operands[0]][i].numel()]
    copies = [(name, i) for i in items for name in _copied(tensors, operands, i)]
    # The results are the last operands of the kernel.
    moved = entry["cpu"]["operands"]
    loads, stores = moved[: len(moved) - len(written)], moved[len(moved) - len(written) :]
    wide = any(t.dtype == torch.float64 for name in operands for t in tensors[name])
    first = tensors[operands[0]]
    return ListCall(
        first[0].device if first else torch.device("cpu"),
        len(items),
        tuple(_launches(entry, tensors, operands, items)),
        tuple(f"{name}[{i}]" for name, i in copies),
        sum(_size(tensors[name][i]) for i in items for name in loads),
        sum(_size(tensors[name][i]) for i in items for name in stores),
        # There, and back if it is written; each time read and written.
        sum((4 if name in written else 2) * _size(tensors[name][i]) for name, i in copies),
        "f64" if wide or entry["reduces"] else "f32",
    )


_KINDS = ("written", "tensors", "numbers")


def _check_names(entry: Record, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises ValueError for arguments that no overload of the operator has, or lists that are missing."""
    names = [a["name"] for a in entry["arguments"]]
    unknown = [k for k in kwargs if k not in names[len(args) :]]
    if unknown or len(args) > len(names):
        by_name = f" and {', '.join(unknown)} by name" if unknown else ""
        raise ValueError(
            f"{entry['name']} takes ({', '.join(names)}), but was given {len(args)} arguments{by_name}"
        )
    for a in entry["arguments"][len(args) :]:
        if a["kind"] in _KINDS and a["name"] not in kwargs:
            raise ValueError(f"{entry['name']}: {a['name']} is missing")


def _copied(tensors: Mapping[str, Sequence[Tensor]], operands: Sequence[str], i: int) -> Iterator[str]:
    """The operands of an item that do not lie as its first does, or as a contiguous one if that is not dense."""
    first = tensors[operands[0]][i]
    layout = first.stride() if _is_dense(first) else torch.empty(first.shape, device="meta").stride()
    for name in operands:
        strides = tensors[name][i].stride()
        if any(a != b for n, a, b in zip(first.shape, strides, layout, strict=True) if n != 1):
            yield name


def _is_dense(tensor: Tensor) -> bool:
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _launches(
    entry: Record, tensors: Mapping[str, Sequence[Tensor]], operands: Sequence[str], items: Sequence[int]
) -> Iterator[tuple[str, int]]:
    """Each kernel takes tensors of the same dtypes, as many as its parameter has room for."""

    def dtypes(i: int) -> tuple[int, ...]:
        return tuple(_ORDER.index(SHORT_NAMES[own[i].dtype]) for own in tensors.values())

    # Of an operator that reduces the call has one: where its sums go.
    numbers = 1 if entry["reduces"] else sum(a["kind"] not in _KINDS for a in entry["arguments"])
    room = (_BYTES - 8 * numbers - 4 - _CODES) // (8 * len(tensors) + 12)
    units: list[str] = []
    for _, group in groupby(sorted(items, key=dtypes), dtypes):
        own = list(group)
        names = [SHORT_NAMES[tensors[name][own[0]].dtype] for name in operands]
        units.append("_".join([f"{entry['name']}_", *names]))
        for begin in range(0, len(own), room):
            blocks = [-(-tensors[operands[0]][i].numel() // _CHUNK) for i in own[begin : begin + room]]
            yield units[-1], sum(blocks)
    if entry["reduces"]:
        yield f"{(units or [entry['name'] + '__f32'])[0]}_finish", 1


_ORDER = ("f32", "f16", "bf16", "f64")  # of the runtime's codes


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
