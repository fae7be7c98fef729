"""The record that states one operator: its signature, its math and what is known about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

Tensor = torch.Tensor
# Gradients and results by name, and the arguments of an own gradient. A float among these is a tensor while it is traced.
Grads = dict[str, Tensor]
Arguments = dict[str, Any]


@dataclass(frozen=True)
class Columns:
    """Which dims of the primary tensor are the columns N of the (M, N) normal form; all others are rows M.

    ``flat``: the operator is pointwise and knows no rows. ``last``: the last dim. ``trailing``: as many trailing
    dims as the int list argument ``arg`` has entries. ``dim``: the one dim that the int argument ``arg`` names.
    ``groups``: the channels, dim 1, fall into as many groups as the int argument ``arg`` says. A row is a group of one
    sample, and its columns are the group's channels, each with all its positions (the dims behind dim 1). A tensor of span N
    has a value for each channel: to a row those of its group, each for a run of as many columns as there are positions.
    """

    rule: str
    arg: str | None = None

    def __post_init__(self) -> None:
        if self.rule not in ("flat", "last", "trailing", "dim", "groups"):
            raise ValueError(f"Columns: unknown rule {self.rule!r}")
        if (self.arg is not None) != (self.rule in ("trailing", "dim", "groups")):
            raise ValueError(
                f"Columns: rule {self.rule!r} {'needs' if self.arg is None else 'takes no'} an argument"
            )


FLAT = Columns("flat")
LAST = Columns("last")


def trailing(arg: str) -> Columns:
    """The columns are the trailing dims counted by the int list argument ``arg``."""
    return Columns("trailing", arg)


def along(arg: str) -> Columns:
    """The column dim is the one named by the int argument ``arg``."""
    return Columns("dim", arg)


def groups(arg: str) -> Columns:
    """A row is a group of channels of one sample; the int argument ``arg`` says how many groups there are."""
    return Columns("groups", arg)


@dataclass(frozen=True)
class Whole:
    """A tensor of whole numbers in [low, high), in place of its shape."""

    shape: tuple[int, ...]
    high: int
    low: int = 0


@dataclass(frozen=True)
class Narrow:
    """A tensor of 8 bits, in place of its shape."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Sample:
    """One call for tests and documentation: arguments as shapes (tuples) for tensors, plain values otherwise."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OpDef:
    """One operator, stated once.

    Attributes:
        name: name of the operator in ``torch.ops.avo``.
        schema: its signature without the name, in the syntax of ``torch.library``.
        definition: the math, as side-effect-free torch code with the schema's parameters. It sees float32 or float64
            tensors (16-bit inputs are widened) of any shape that the schema allows; results are rounded once.
        columns: the (M, N) normal form of a call.
        formula: the formula, for documentation and as a comment in the generated code.
        source: where the formula comes from.
        spans: the span of each tensor argument that is not the shape of the first one: ``{"weight": "N"}``; "1" is a tensor
            of one number.
        integers: tensor arguments of whole numbers (int64 or int32), of span "M": the definition sees int64, and compares it
            with ``torch.arange`` of the columns.
        narrow: tensor arguments of 8 bits, of span "MN", and the dtypes that each may have: ``{"x": ("int8",)}``. The definition
            sees their values as it sees all others.
        whole: tensor arguments of span "MN" of integers or bools, and the dtype of each: ``{"mask": "bool"}``; None: integers are
            numbers of the math, as everything else. Otherwise all math with integers is torch's, exact and of the same dtypes, that
            with ``integers`` too, and a result may name such a dtype.
        parts: tensor arguments and results that hold several values for each column, and the names of those:
            ``{"x": ("gate", "up")}`` is a tensor of twice the columns. The definition takes it apart by
            ``x.chunk(2, -1)`` or, if ``interleaved``, by ``x[..., 0::2]`` and ``x[..., 1::2]``, and returns a packed
            result as a tuple; an own gradient names the parts.
        interleaved: whether the parts alternate along the columns instead of lying one after the other.
        results: names of the results; a result has the dtype of the argument named in ``dtypes`` or of the first one.
        dtypes: result name -> argument name, where it is not the first argument; or a string argument, whose value names the
            dtype; or the name of a dtype; or "compute", that of the math. A result of 8 bits the definition casts itself.
        gradient: an own gradient where the derived one would be numerically poor or would keep more alive:
            ``gradient(grads, args, results) -> {argument name: gradient}``, traced just as the definition is.
        differentiation: "kernels": by a backward op; "definition": torch differentiates the definition, which then runs; "none":
            the results are constants, as integers are.
        invariant: whether the results do not depend on what the definition detaches, as softmax does not on the maximum that it
            takes off: then neither do derivatives of any order. Else a backward that is differentiated in its turn runs the
            definition, and all arguments are kept for it.
        none_scalars: value of a ``float?`` argument that is None, as a function of the dtype of the math.
        choices: the admissible values of each string argument.
        twin: the torch function of the same signature, compared with in tests and benchmarks.
        widths: row widths N worth a specialised kernel, by direction ("forward", "backward"); earned by measurement.
        kernels: the operator before it in the catalogue whose kernels are its own too: one that computes the same of parts that
            lie otherwise.
        packaged: whether its CUDA kernels are compiled with the package. Else each is when it is first called.
        samples: calls for the tests.
    """

    name: str
    schema: str
    definition: Callable[..., Any]
    columns: Columns
    formula: str
    source: str
    spans: dict[str, str] = field(default_factory=dict)
    integers: tuple[str, ...] = ()
    narrow: dict[str, tuple[str, ...]] = field(default_factory=dict)
    whole: dict[str, str] | None = None
    parts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    interleaved: bool = False
    results: tuple[str, ...] = ("y",)
    dtypes: dict[str, str] = field(default_factory=dict)
    gradient: Callable[[Grads, Arguments, Grads], Grads] | None = None
    differentiation: str = "kernels"
    invariant: bool = False
    none_scalars: dict[str, Callable[[torch.dtype], float]] = field(default_factory=dict)
    choices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    twin: Callable[..., Any] | None = None
    widths: dict[str, tuple[int, ...]] = field(default_factory=dict)
    kernels: str | None = None
    packaged: bool = True
    samples: tuple[Sample, ...] = ()

    def shape_of(self, name: str, m: int, n: int) -> tuple[int, ...]:
        """The shape of a tensor argument in a call of m rows and n columns."""
        columns = n * len(self.parts.get(name, (name,)))
        return {"N": (columns,), "M": (m, 1), "1": (), "MN": (m, columns)}[self.spans.get(name, "MN")]

    @property
    def stored(self) -> dict[str, tuple[str, ...]]:
        """The dtypes that each argument may have whose elements are not of the row operands' dtype."""
        return {**self.narrow, **{name: (dtype,) for name, dtype in (self.whole or {}).items()}}

    @property
    def of_integers(self) -> tuple[str, ...]:
        """The tensor arguments of integers or bools."""
        return (*self.integers, *(self.whole or {}))

    @property
    def values(self) -> tuple[str, ...]:
        """The names of the results, those of its parts for a packed one."""
        return tuple(name for r in self.results for name in self.parts.get(r, (r,)))

    def compute(self, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        """The results by the definition, packed ones put together (along the last dim)."""
        if self.differentiation == "none":
            args = tuple(map(_constant, args))
            kwargs = {name: _constant(value) for name, value in kwargs.items()}
        out = self.definition(*args, **kwargs)
        found = [out] if len(self.results) == 1 else list(out)
        return tuple(
            put_together(value, -1, self.interleaved) if r in self.parts else value
            for r, value in zip(self.results, found, strict=True)
        )


def _constant(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def put_together(parts: Sequence[Tensor], dim: int, interleaved: bool) -> Tensor:
    """A packed tensor of its parts."""
    if not interleaved:
        return torch.cat(tuple(parts), dim)
    sizes = parts[0].shape
    dim %= len(sizes)
    stacked = torch.stack(tuple(parts), dim + 1)
    return stacked.reshape([*sizes[:dim], sizes[dim] * len(parts), *sizes[dim + 1 :]])
