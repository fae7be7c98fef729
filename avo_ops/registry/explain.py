"""Which path a call takes, what it moves, and why not a faster one: the runtime's own plan of it, in words."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsIndex

import torch
from torch.overrides import TorchFunctionMode

from ..definitions.composites import Composite
from . import native_library
from .explain_lists import BLOCK, describe_list
from .layout import space_of
from .native import SHORT_NAMES, CudaTarget, TensorSpec
from .plan import Op, Operator

Tensor = torch.Tensor

# SMs of the usual card of an architecture, for grids on a GPU that is not there.
_SMS = {80: 108, 86: 84, 87: 16, 89: 142, 90: 132, 100: 148, 103: 148, 120: 188, 121: 48}
_BYTES = {short: dtype.itemsize for dtype, short in SHORT_NAMES.items()}
_UNALIGNED = {
    "address": "{} does not start at a multiple of 16 bytes",
    "stride": "the row stride of {} is no multiple of the vector width",
    "N": "the row length of {} is no multiple of the vector width",
}

_operators: dict[str, tuple[Operator, Op]] = {}
_composites: dict[str, Composite] = {}
_of_lists: dict[str, Mapping[str, Any]] = {}


def remember(namespace: str, operator: Operator) -> None:
    """Make the ops of an operator known to :func:`explain`."""
    for op in operator.ops:
        _operators[f"{namespace}::{op.name}"] = (operator, op)


def remember_composite(namespace: str, composite: Composite) -> None:
    """Make an operator that calls others known to :func:`explain`."""
    _composites[f"{namespace}::{composite.name}"] = composite


def remember_list(namespace: str, entry: Mapping[str, Any]) -> None:
    """Make an operator over lists of tensors known to :func:`explain`."""
    _of_lists[f"{namespace}::{entry['name']}"] = entry


@dataclass(frozen=True)
class Kernel:
    """One launch on a GPU, or the one kernel of a call on the CPU (grid None); of lists of tensors, without a vector.

    ``vector``: elements of an access where operands are ``aligned``. ``width``: the row length that the kernel is
    compiled for; "chunks" if for any that is a multiple of ``vector``, of aligned rows; "few" if for those of
    calls of few rows; "odd" if for rows that are not such; or None.
    """

    name: str
    grid: tuple[int, int, int] | None = None
    block: int = 0
    cluster: int = 1
    shared_bytes: int = 0
    vector: int = 0
    width: int | str | None = None
    aligned: bool = True
    operands: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.grid is None:
            return self.name
        if not self.vector:
            return f"{self.name}: grid {' x '.join(map(str, self.grid))}, block {self.block}"
        widths = "any width" if self.width is None else f"width {self.width}"
        if self.width == "chunks":
            widths = "rows of whole vectors"
        elif self.width == "few":
            widths = "few rows of whole vectors"
        elif self.width == "odd":
            widths = "rows that are not aligned"
        cluster = f" in clusters of {self.cluster}" if self.cluster > 1 else ""
        return (
            f"{self.name}: grid {' x '.join(map(str, self.grid))}{cluster}, block {self.block}, "
            f"vectors of {self.vector}, {'aligned' if self.aligned else 'not aligned'}, "
            f"for {widths}"
        )


@dataclass(frozen=True)
class Call:
    """The path of one op.

    ``path``: "cuda", "cpu/<isa>/<kernel>", "definition" (``reason`` says why), "empty" or "nothing" (no result wanted).
    ``copies`` and ``casts``: operands that go through a temporary. ``read``, ``written``: bytes that the kernels move,
    each operand once a kernel; ``temporary``: bytes moved to make copies, casts and partial sums.
    """

    op: str
    where: str
    path: str
    reason: str = ""
    rows: int = 0
    columns: int = 0
    math: str = ""
    kernels: tuple[Kernel, ...] = ()
    copies: tuple[str, ...] = ()
    casts: tuple[str, ...] = ()
    read: int = 0
    written: int = 0
    temporary: int = 0
    why_not_faster: tuple[str, ...] = ()
    results: Mapping[str, TensorSpec] = field(default_factory=dict, repr=False)

    def lines(self) -> Iterator[str]:
        space = f", {self.rows} rows of {self.columns}, math in {self.math}" if self.rows else ""
        yield f"{self.op} on {self.where}: {self.path.partition('/')[0]}{space}"
        if self.reason:
            yield f"  because         {self.reason}"
        for kernel in self.kernels:
            yield f"  kernel          {kernel}"
        if self.kernels:
            moved = f"{size_text(self.read)} read, {size_text(self.written)} written"
            yield f"  moves           {moved}" + (
                f", {size_text(self.temporary)} for temporaries" if self.temporary else ""
            )
            for what, names in (("copies", self.copies), ("casts", self.casts)):
                yield f"  {what:<16}{', '.join(names) or 'none'}"
        for why in self.why_not_faster:
            yield f"  not faster      {why}"


@dataclass(frozen=True)
class Explanation:
    """The calls that one call of an operator makes: itself, and where a gradient is wanted its backward.

    Of an operator that is made of others: those that it calls. ``saved``: what is kept for the backward, with its size in bytes.
    """

    calls: tuple[Call, ...]
    saved: Mapping[str, int] | None = None

    def __str__(self) -> str:
        lines = list(self.calls[0].lines())
        if self.saved is None:
            lines.append("  saved           nothing: no gradient is wanted")
        else:
            lines.append(
                "  saved           " + ", ".join(f"{n} ({size_text(b)})" for n, b in self.saved.items())
            )
        for call in self.calls[1:]:
            lines += call.lines()
        return "\n".join(lines)


def explain(op: Any, *args: Any, on: str | CudaTarget | None = None, **kwargs: Any) -> Explanation:
    """The path that a call takes, as an object to print; nothing is computed.

    Args:
        op: "gelu", "avo::gelu", ``torch.ops.avo.gelu`` or an overload of it; the ``_forward`` and ``_backward`` ops too. Of one
            that is made of others (``mse_loss``), the calls of these are explained; not what torch does around them. Of one over
            lists of tensors (``adamw_``), a line for each launch.
        args, kwargs: the arguments of the call. Tensors on the meta device and fake tensors will do: of a tensor only its
            dtype, shape, strides and address count. The incoming gradients of a backward are taken to lie as the results.
        on: "cpu", or a GPU as "sm_90", whether or not it is there; by default where the tensors are.

    Raises:
        ValueError: there is no such op, or what it would run on cannot be told from the tensors.
        RuntimeError: the call would be refused; with the message that it would have.
    """
    name = _name_of(op)
    if name in _composites:
        return _of_composite(name, args, kwargs, on)
    if name in _of_lists:
        return Explanation((_list_call(name, args, kwargs, on),))
    entry, found = _operators[name]
    values = _plain(name, _bound(found, args, kwargs))
    space_of(found, values)
    wanted = torch.is_grad_enabled() and any(isinstance(v, Tensor) and v.requires_grad for v in values)
    gradient = found is entry.public and entry.backward is not None and wanted
    device = values[found.primary].device
    if torch._C._are_functorch_transforms_active():
        return Explanation(
            (Call(name, str(device), "definition", "a torch.func transform or forward-mode AD is at work"),)
        )
    place, where, refusal = _target(on, device)
    if found is entry.public and entry.backward is None and wanted and not entry.constant:
        refusal = refusal or "a gradient is wanted, which torch derives from the definition"
    if refusal:
        return Explanation((Call(name, where, "definition", refusal),))
    if not gradient:
        return Explanation((_call(name, found, values, place, where),))
    space, _, _ = name.partition("::")
    forward, backward = entry.forward, entry.backward
    assert backward is not None
    first = _call(f"{space}::{forward.name}", forward, values, place, where)
    results = first.results or _imagined(forward, values)
    saved = {
        (found.arguments[i].name if kind == "arg" else forward.returns[i].name): (
            values[i] if kind == "arg" else results[forward.returns[i].name]
        )
        for kind, i in entry.saved
    }
    mask = [False] * len(backward.returns)
    for value, position in zip(values, entry.gradients, strict=True):
        if position is not None and isinstance(value, Tensor) and value.requires_grad:
            mask[position] = True
    plain = [v for v, a in zip(values, found.arguments, strict=True) if a.kind != "tensor"]
    gradients = [results[r.name] for r in found.returns]
    incoming = [*gradients, *saved.values(), *plain, mask]
    second = _call(f"{space}::{backward.name}", backward, incoming, place, where)
    sizes = {k: _bytes(v) for k, v in saved.items() if v is not None}
    return Explanation((first, second), sizes)


class _Calls(TorchFunctionMode):
    """Explains the calls of operators."""

    def __init__(self, on: str | CudaTarget | None) -> None:
        super().__init__()
        self.on = on
        self.explained: list[Explanation] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.OpOverloadPacket) and func._qualified_op_name in _operators:
            self.explained.append(explain(func, *args, on=self.on, **kwargs))
        return func(*args, **kwargs)


def _of_composite(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], on: str | CudaTarget | None
) -> Explanation:
    """What a call is made of, by making it with tensors that have no values."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # torch imports it when it is needed

    function = _composites[name].function
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise ValueError(f"{name.partition('::')[2]}: {error}") from None
    tensors = [v for v in bound.arguments.values() if isinstance(v, Tensor)]
    fakes = [t.fake_mode for t in tensors if isinstance(t, FakeTensor)]
    mode = fakes[0] if fakes else FakeTensorMode(allow_non_fake_inputs=True)
    for key, value in bound.arguments.items():
        if isinstance(value, Tensor) and not isinstance(value, FakeTensor):
            bound.arguments[key] = mode.from_tensor(value)
    calls = _Calls(on)
    with mode, calls:
        function(*bound.args, **bound.kwargs)
    if not calls.explained:
        where = str(tensors[0].device) if on is None else str(on)
        return Explanation((Call(name, where, "definition", "torch's own operations do all of this call"),))
    saved = [e.saved for e in calls.explained if e.saved is not None]
    merged = {k: v for one in saved for k, v in one.items()} if saved else None
    return Explanation(tuple(c for e in calls.explained for c in e.calls), merged)


def _list_call(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], on: str | CudaTarget | None
) -> Call:
    entry = _of_lists[name]
    found = describe_list(entry, args, kwargs)
    place, where, refusal = _target(on, found.device)
    if refusal:
        return Call(name, where, "definition", refusal)
    if not found.items and not entry["reduces"]:
        return Call(name, where, "empty")
    if place is None:
        native = native_library.runtime()
        assert native is not None
        path = f"cpu/{native.cpu_isa()}/{entry['cpu']['elements']}"
        kernels: tuple[Kernel, ...] = (Kernel(path),)
    else:
        path = "cuda"
        kernels = tuple(Kernel(symbol, (blocks, 1, 1), BLOCK) for symbol, blocks in found.launches)
    why = tuple(f"{one} is copied: it does not lie in the order of the first list" for one in found.copies)
    return Call(
        name, where, path, math=found.math, kernels=kernels, copies=found.copies, read=found.read, written=found.written,
        temporary=found.temporary, why_not_faster=why,
    )  # fmt: skip


def _name_of(op: Any) -> str:
    if isinstance(op, torch._ops.OpOverload):
        name = op._schema.name
    elif isinstance(op, torch._ops.OpOverloadPacket):
        name = op._qualified_op_name
    else:
        name = str(op) if "::" in str(op) else f"avo::{op}"
    if name not in _operators and name not in _composites and name not in _of_lists:
        known = sorted({*_operators, *_composites, *_of_lists})
        raise ValueError(f"there is no operator {name}; there are {', '.join(known)}")
    return name


def _bound(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """All arguments in the order of the schema, defaults filled in."""
    names = [a.name for a in op.arguments]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    unknown = [k for k in kwargs if k not in names or k in names[: len(args)]]
    if unknown or len(args) > len(names):
        by_name = f" and {', '.join(unknown)} by name" if unknown else ""
        raise ValueError(
            f"{op.name} takes ({', '.join(names)}), but was given {len(args)} arguments{by_name}"
        )
    for a, name, default in zip(op.arguments, names, op.defaults, strict=True):
        if name not in given and default is None and not (a.optional or a.none):
            raise ValueError(f"{op.name}: {name} is missing")
    return tuple(given.get(n, d) for n, d in zip(names, op.defaults, strict=True))


def _plain(name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments as torch's schema takes them.

    Raises:
        RuntimeError: torch, or the operator, would refuse them; with their words.
    """
    tensors = [v for v in values if isinstance(v, Tensor)]
    if any(v.is_nested for v in tensors):
        raise RuntimeError(f"{name.partition('::')[2]}: a nested tensor, which avo_ops does not support")
    space, _, op = name.partition("::")
    if not any(
        v.layout != torch.strided for v in tensors
    ):  # those the operator itself refuses, by its name for them
        on_meta = [v.detach().to("meta") if isinstance(v, Tensor) else v for v in values]
        with torch.no_grad():
            getattr(getattr(torch.ops, space), op).default(*on_meta)
    return tuple(
        operator.index(v) if isinstance(v, SupportsIndex) and not isinstance(v, Tensor | bool) else v
        for v in values
    )


def _target(target: str | CudaTarget | None, device: torch.device) -> tuple[CudaTarget | None, str, str]:
    """Where a call is planned for (None: the CPU), that in words, and why it has no kernels there, or ""."""
    native = native_library.runtime()
    if native is None:
        return None, str(device), "the runtime library is not loaded"
    if isinstance(target, str) and target.startswith("sm_") and target[3:].isdigit():
        arch = int(target[3:])
        if not 80 <= arch < 200:
            raise ValueError(f"there are kernels for sm_80 and later, but none for {target}")
        target = CudaTarget(arch, _SMS.get(arch, 132))
    if isinstance(target, CudaTarget):
        return target, f"sm_{target.arch} with {target.sms} SMs", ""
    if target is None and device.type == "cpu" and (emulated := native.emulated):
        return emulated, f"emulated sm_{emulated.arch} with {emulated.sms} SMs", ""
    if target == "cpu" or (target is None and device.type == "cpu"):
        return None, "cpu", ""
    if target is not None:
        raise ValueError(f"on must be 'cpu' or a GPU as 'sm_90', but is {target!r}")
    if device.type == "meta" or (device.type == "cuda" and not torch.cuda.is_available()):
        raise ValueError(f"a tensor on {device} is nowhere to run: say on='sm_90' or on='cpu'")
    if device.type != "cuda":
        return None, str(device), f"there are no kernels for {device.type}"
    about = torch.cuda.get_device_properties(device)
    arch = 10 * about.major + about.minor
    place = CudaTarget(arch, about.multi_processor_count, device.index or 0)
    return place, f"sm_{arch} with {place.sms} SMs", ""


def _described(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    if value.device.type != "meta" and type(value) in (Tensor, torch.nn.Parameter):
        address = value.data_ptr()
    else:  # a fake tensor has no memory: as if its storage were aligned
        address = int(value.storage_offset()) * value.dtype.itemsize
    sizes, strides = tuple(map(int, value.shape)), tuple(map(int, value.stride()))
    return TensorSpec(sizes, value.dtype, strides, address % 256)


def _imagined(op: Op, values: Sequence[Any]) -> dict[str, TensorSpec]:
    """The results of a call that no kernel serves, as the fake kernel makes them."""
    from .layout import fake

    on_meta = tuple(v.to("meta") if isinstance(v, Tensor) else v for v in values)
    out = fake(op, on_meta)
    outs = out if isinstance(out, tuple) else (out,)
    return {r.name: _described(o) for r, o in zip(op.returns, outs, strict=True)}


def _call(name: str, op: Op, values: Sequence[Any], place: CudaTarget | None, where: str) -> Call:
    native = native_library.runtime()
    assert native is not None
    numbers = [
        float(v) if a.kind == "float" and v is not None else v
        for a, v in zip(op.arguments, values, strict=True)
    ]
    lines = [text.split(" ") for text in native.describe(name, *map(_described, numbers), target=place)]
    facts: dict[str, list[list[str]]] = {}
    for word, *rest in lines:
        facts.setdefault(word, []).append(rest)
    path = facts["path"][0][0]
    results = dict(_result(rest) for rest in facts.get("result", ()))
    if path in ("definition", "empty", "nothing"):
        reason = " ".join(facts["reason"][0]) if "reason" in facts else ""
        return Call(name, where, path, reason, results=results)
    rows, columns = map(int, facts["space"][0][:2])
    operands = {rest[0]: rest for rest in facts["operand"]}
    kernels = tuple(_kernels(path, facts))
    elements = {"MN": rows * columns, "N": columns, "M": rows, "1": 1}
    arguments = {name for a in op.arguments for name in (a.name, *a.parts)}
    read = written = temporary = 0
    for operand in (operands[n] for k in kernels for n in k.operands):
        moved = elements[operand[1]] * _BYTES[operand[2]]
        read, written = (read + moved, written) if operand[0] in arguments else (read, written + moved)
    casts = {n: rest[rest.index("cast") + 1] for n, rest in operands.items() if "cast" in rest}
    copies = tuple(n for n, rest in operands.items() if "copy" in rest)
    for n in {*copies, *casts}:
        operand = operands[n]
        temporary += elements[operand[1]] * (_BYTES[operand[2]] + _BYTES[casts.get(n, operand[2])])
    math = facts["dtypes"][0][2] if place is not None else _math(values)
    for groups, sums, n in facts.get("workspace", ()):
        temporary += 2 * int(groups) * int(sums) * int(n) * _BYTES[math]
    return Call(
        name, where, path, "", rows, columns, math, kernels, copies,
        tuple(f"{n} from {dtype} to {operands[n][2]}" for n, dtype in casts.items()),
        read, written, temporary, tuple(_why_not_faster(op, values, facts, copies)), results,
    )  # fmt: skip


def _math(values: Sequence[Any]) -> str:
    dtypes = [v.dtype for v in values if isinstance(v, Tensor | TensorSpec)]
    return "f64" if torch.float64 in dtypes else "f32"


def _kernels(path: str, facts: Mapping[str, list[list[str]]]) -> Iterator[Kernel]:
    if "step" not in facts:
        yield Kernel(path, operands=tuple(facts["uses"][0]))
    for step, variant, params in zip(
        facts.get("step", ()), facts.get("variant", ()), facts.get("params", ()), strict=True
    ):
        _, symbol, _, x, y, z, _, block, _, cluster, _, shared, _, aligned = step
        pointers = [p.removeprefix("ptr:") for p in params if p.startswith("ptr:") and p != "ptr:null"]
        yield Kernel(
            symbol, (int(x), int(y), int(z)), int(block), int(cluster), int(shared), int(variant[0]),
            {"any": None}.get(variant[1], int(variant[1]) if variant[1].isdigit() else variant[1]), aligned == "1", tuple(pointers),
        )  # fmt: skip


def _why_not_faster(
    op: Op, values: Sequence[Any], facts: Mapping[str, list[list[str]]], copies: Sequence[str]
) -> Iterator[str]:
    if "skipped" in facts:
        key = list(op.key(values))
        record = next(c for c in op.case_records if c["key"] == key)
        for index, *words in facts["skipped"]:
            families = [s["family"] for s in record["cuda"][int(index)]["steps"]]
            yield f"{' + '.join(families)} was passed over: {' '.join(words)}"
    for vec, width, *missed in facts.get("variant", ()):
        if missed and width == "any":
            yield f"the faster kernel needs aligned rows (vectors of {vec})"
    for name, what in facts.get("unaligned", ()):
        yield f"no 16-byte accesses: {_UNALIGNED[what].format(name)}"
    for name in copies:
        when = "first" if any(a.name == name for a in op.arguments) else "afterwards"
        yield f"{name} is copied {when}: the kernel does not take its strides or alignment"


def _result(words: Sequence[str]) -> tuple[str, TensorSpec]:
    name, dtype, *rest = words
    sizes, _, strides = " ".join(rest).partition("] [")
    torch_dtype = next(d for d, short in SHORT_NAMES.items() if short == dtype)
    return name, TensorSpec(_numbers(sizes), torch_dtype, _numbers(strides))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.strip("[]").split(", ") if n)


def _bytes(value: Tensor | TensorSpec) -> int:
    sizes = value.sizes if isinstance(value, TensorSpec) else value.shape
    count = 1
    for size in sizes:
        count *= int(size)
    return count * value.dtype.itemsize


def size_text(count: int) -> str:
    """A number of bytes in words."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count} B"
