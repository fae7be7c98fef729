"""Registration of operators over lists of tensors: schemas, fake kernels, what autograd sees of them, the definition.

They write in place, or return a constant. So the kernel at Autograd only refuses to write tensors that autograd watches, and that
at ADInplaceOrView tells autograd that they have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ..definitions.lists import OverLists
from .counters import noted
from .layout import DTYPES
from .register import register_fake

Tensor = torch.Tensor
Record = Mapping[str, Any]
"""An entry of "lists" of plan.json."""

_TAGS = (torch.Tag.pt2_compliant_tag,)
_ELSEWHERE = "the runtime library has no kernels for this device, or is not loaded"


def register_list(library: torch.library.Library, entry: Record, record: OverLists) -> None:
    """Define the overloads of one operator and of its definition, with everything but the kernels for CPU and CUDA."""
    call = _Call(entry)

    def definition(*args: Any, **kwargs: Any) -> Any:
        call.check(args, kwargs)
        return record.compute(*args, **kwargs)

    for overload, schema in entry["overloads"].items():
        name, by_definition = (
            one + (f".{overload}" if overload else "") for one in (entry["name"], entry["definition"])
        )
        library.define(name + schema, tags=_TAGS)  # type: ignore[no-untyped-call]
        library.define(by_definition + schema, tags=_TAGS)  # type: ignore[no-untyped-call]
        library.impl(by_definition, definition, "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
        elsewhere = noted(f"{library.ns}::{entry['name']}", definition, _ELSEWHERE)
        library.impl(name, elsewhere, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
        register_fake(library, name, call.fake)
        packet = getattr(getattr(torch.ops, library.ns), entry["name"])
        op = getattr(packet, overload or "default")
        library.impl(name, call.at_autograd(op), "Autograd")  # type: ignore[no-untyped-call]
        if not entry["reduces"]:
            library.impl(name, call.at_inplace(op), "ADInplaceOrView")  # type: ignore[no-untyped-call]


def check_call(entry: Record, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises RuntimeError for what an operator does not take, in the words of the call itself."""
    _Call(entry).check(args, kwargs)


class _Call:
    """The checks of a call, in the words of csrc/runtime/list_call.cpp, and what autograd must know of it."""

    def __init__(self, entry: Record) -> None:
        self._name, self._reduces = entry["name"], entry["reduces"]
        arguments = list(enumerate(entry["arguments"]))

        def of(*kinds: str) -> list[tuple[int, str]]:
            return [(i, a["name"]) for i, a in arguments if a["kind"] in kinds]

        self._written, whole = of("written"), of("written", "tensors")
        self._lists, self._whole = [*whole, *of("numbers")], len(whole)
        self._numbers = of("float", "bool", "tensor", "unless")

    def fake(self, *args: Any, **kwargs: Any) -> Tensor | None:
        """The kernel for tensors without data."""
        self.check(args, kwargs)
        if not self._reduces:
            return None
        tensors = _given(args, kwargs, *self._lists[0])
        wide = any(t.dtype == torch.float64 for t in tensors)
        dtype = torch.float64 if wide else torch.float32
        return tensors[0].new_empty((), dtype=dtype) if tensors else torch.empty((), dtype=dtype)

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raises RuntimeError for what the operator does not take."""
        lists = [_given(args, kwargs, i, name) for i, name in self._lists]
        first_name = self._lists[0][1]
        for (_, name), tensors in zip(self._lists[1:], lists[1:], strict=True):
            if len(tensors) != len(lists[0]):
                raise self._error(
                    name, f"must have {len(lists[0])} tensors like {first_name}, but has {len(tensors)}"
                )
        for i, tensors in enumerate(zip(*lists, strict=True)):
            for k, ((place, name), tensor) in enumerate(zip(self._lists, tensors, strict=True)):
                text = f"{name}[{i}]"
                self._check_tensor(text, tensor)
                self._check_device(text, tensor, lists[0][0], first_name)
                if k >= self._whole:
                    self._check_number(text, tensor)
                elif tensor.shape != tensors[0].shape:
                    raise self._error(
                        text,
                        f"must have shape {_shape(tensors[0])} like {first_name}[{i}], but has shape {_shape(tensor)}",
                    )
                if (place, name) in self._written and _has_zero_stride(tensor):
                    raise self._error(text, "is written, but several of its elements are one in memory")
        for i, name in self._numbers:
            value = _given(args, kwargs, i, name)
            if isinstance(value, Tensor):
                self._check_tensor(name, value)
                self._check_number(name, value)
                if lists[0] and value.device.type != "cpu":
                    self._check_device(name, value, lists[0][0], first_name)

    def at_autograd(self, op: Any) -> Callable[..., Any]:
        """The kernel at Autograd."""
        below = self.at_inplace(op)

        def run(*args: Any, **kwargs: Any) -> Any:
            if torch.is_grad_enabled():
                for name, i, tensor in self._each_written(args, kwargs):
                    if tensor.requires_grad:
                        raise self._error(
                            f"{name}[{i}]",
                            "requires grad, and is written in place: call it under torch.no_grad()",
                        )
            return below(*args, **kwargs)

        return run

    def at_inplace(self, op: Any) -> Callable[..., Any]:
        """The kernel at ADInplaceOrView, which alone is asked in inference mode."""

        def run(*args: Any, **kwargs: Any) -> Any:
            with torch._C._AutoDispatchBelowADInplaceOrView():
                out = op(*args, **kwargs)
            if self._written:
                torch.autograd.graph.increment_version([t for _, _, t in self._each_written(args, kwargs)])
            return out

        return run

    def _each_written(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Iterator[tuple[str, int, Tensor]]:
        for place, name in self._written:
            for i, tensor in enumerate(_given(args, kwargs, place, name)):
                yield name, i, tensor

    def _check_tensor(self, text: str, tensor: Tensor) -> None:
        if tensor.dtype not in DTYPES:
            raise self._error(
                text,
                "must be a floating-point tensor (float32, float16, bfloat16 or float64), but is "
                f"{str(tensor.dtype).removeprefix('torch.')}",
            )

    def _check_number(self, text: str, tensor: Tensor) -> None:
        if tensor.numel() != 1:
            raise self._error(text, f"must be a tensor of one number, but has shape {_shape(tensor)}")

    def _check_device(self, text: str, tensor: Tensor, first: Tensor, first_name: str) -> None:
        if tensor.device != first.device:
            raise self._error(
                text, f"must be on {first.device} like {first_name}[0], but is on {tensor.device}"
            )

    def _error(self, text: str, message: str) -> RuntimeError:
        return RuntimeError(f"{self._name}: {text} {message}")


def _given(args: Sequence[Any], kwargs: Mapping[str, Any], place: int, name: str) -> Any:
    return args[place] if place < len(args) else kwargs.get(name)


def _shape(tensor: Tensor) -> str:
    return f"[{', '.join(map(str, tensor.shape))}]"


def _has_zero_stride(tensor: Tensor) -> bool:
    return any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
