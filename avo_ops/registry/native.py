"""The C++ runtime (csrc/runtime) from Python: load it, give it operators and kernels, ask what it did.

The operator table and an imagined call travel as text, lines of words between single spaces. Their grammars
stand where they are parsed: csrc/runtime/table_parse.cpp and csrc/runtime/describe.cpp.
"""

import ctypes
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .layout import NAMED
from .store import Frozen

Record = Mapping[str, Any]
"""An operator, op, case or family of plan.json."""

TableSource = Callable[[str], None]
"""Called with the name of an op that the runtime does not know, from any thread: gives the tables of its operator."""

KernelResolver = Callable[[str, int], str | None]
"""(unit, arch) -> path of a cubin, or None. Called from any thread, also twice at once for a unit (see generator.build)."""

_ResolverC = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(ctypes.c_char), ctypes.c_int
)
_TableSourceC = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
_WarningC = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
_HotWidthC = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int)

_DTYPES = ("f32", "f16", "bf16", "f64")
SHORT_NAMES = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float64: "f64",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.float8_e4m3fn: "f8",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.int16: "i16",
    torch.bool: "b8",
}


def has_sanitizer() -> bool:
    """Whether AddressSanitizer is loaded into this process: then kernels for the emulator are compiled with it."""
    return hasattr(ctypes.CDLL(None), "__asan_init")


class NativeError(RuntimeError):
    """The runtime refused a table, a library or a description."""


@dataclass(frozen=True)
class CudaTarget:
    """A CUDA device, present or imagined. arch: 90 for compute capability 9.0."""

    arch: int = 90
    sms: int = 132
    device: int = 0


@dataclass(frozen=True)
class TensorSpec:
    """A tensor that is only described. Of its first element's address only the remainder by 16 matters."""

    sizes: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    strides: tuple[int, ...] | None = None
    address: int = 0


# ---- the texts ----


_PLAIN = re.compile("[!-$&-~]+")
_PLAIN_WORDS = re.compile("[!-$&-~]+(?: [!-$&-~]+)*")


def _word(value: object) -> str:
    """One word: percent-encoded where it holds a space or the like, "%" when empty."""
    text = str(value)
    if not text:
        return "%"
    if _PLAIN.fullmatch(text):
        return text
    return "".join(
        c if "!" <= c <= "~" and c != "%" else "".join(f"%{b:02X}" for b in c.encode()) for c in text
    )


def _line(*words: object) -> str:
    texts = list(map(str, words))
    line = " ".join(texts)
    # Nearly always there is nothing to encode, and to look at the words one by one takes a third of an operator's first call.
    if _PLAIN_WORDS.fullmatch(line) and line.count(" ") == len(texts) - 1:
        return line
    return " ".join(map(_word, texts))


def _optional_returns(schema: str) -> list[bool]:
    """Which returns of a schema are `Tensor?`."""
    text = schema.rpartition("->")[2].strip()
    inner = text[1:-1] if text.startswith("(") else text
    return [part.strip().split()[0].endswith("?") for part in inner.split(",") if part.strip()]


def _arg_line(arg: Record) -> str:
    match arg["kind"]:
        case "tensor":
            numbers = ["integer"] if arg.get("integer") else []
            if arg.get("narrow"):
                numbers = ["narrow", *(SHORT_NAMES[NAMED[name]] for name in arg["narrow"])]
            return _line("arg", arg["name"], "tensor", arg["span"], int(arg.get("optional", False)), *numbers)
        case "mask":
            return _line("arg", arg["name"], "mask", arg["length"])
        case "str":
            return _line("arg", arg["name"], "str", *arg["choices"])
        case "float":
            none = arg.get("none")
            return _line("arg", arg["name"], "float", *(repr(float(value)) for value in none or ()))
        case kind:
            return _line("arg", arg["name"], kind)


def _parts_lines(record: Record) -> Iterable[str]:
    if record.get("parts"):
        yield _line("parts", "pairs" if record["interleaved"] else "halves", *record["parts"])


def _case_lines(case: Record) -> Iterable[str]:
    yield _line("case", *case["key"])
    yield _line("returns", *map(int, case["returns"]))
    cpu = case.get("cpu")
    if cpu:
        yield _line("cpu", cpu["symbol"], cpu["class"], cpu["buffers"])
        for names in ("operands", "scalars", "sums"):
            yield _line(names, *cpu.get(names, ()))
    for alternative in case.get("cuda") or ():
        limit = alternative.get("limit")
        limits = [limit.get(dtype, -1) for dtype in _DTYPES] if limit else []
        yield _line("alt", alternative["when"], alternative.get("min_arch", 0), *limits)
        for step in alternative["steps"]:
            yield _line("step", step["family"])
            for param in step["params"]:
                yield _line("param", *param)


def _op_lines(op: Record) -> Iterable[str]:
    columns = op["columns"]
    rule_arg = columns.get("arg")
    yield _line("op", op["name"], columns["rule"], -1 if rule_arg is None else rule_arg, op["primary"])
    args = op["args"]
    for arg in args:
        yield _arg_line(arg)
        yield from _parts_lines(arg)
    index = {arg["name"]: i for i, arg in enumerate(args)}
    optional = _optional_returns(op["schema"])
    if len(optional) != len(op["returns"]):
        raise NativeError(
            f"{op['name']}: the schema has {len(optional)} returns, the record {len(op['returns'])}"
        )
    for result, none in zip(op["returns"], optional, strict=True):
        yield _line(
            "return", result["name"], result["span"], int(none), *_dtype_words(result["dtype"], index, args)
        )
        yield from _parts_lines(result)
    for case in op["cases"]:
        yield from _case_lines(case)


def _dtype_words(dtype: str, index: Mapping[str, int], args: Sequence[Record]) -> list[object]:
    if dtype == "compute":
        return []
    if dtype in NAMED:
        return ["is", SHORT_NAMES[NAMED[dtype]]]
    places = [index[name] for name in dtype.split("|")]
    if args[places[0]]["kind"] == "str":
        return ["by", places[0], *(SHORT_NAMES[NAMED[choice]] for choice in args[places[0]]["choices"])]
    return list(places)


def _family_lines(name: str, family: Record) -> Iterable[str]:
    yield _line("family", name, family["class"], family.get("sums", 0))
    for dtypes, variants in family["variants"].items():
        x, _, w = dtypes.partition(",")
        for variant in variants:
            yield _line("unit", variant["unit"] or name)
            numbers = (
                variant["min_n"],
                variant["max_n"],
                "any" if variant["exact"] is None else variant["exact"],
                variant["block"],
                variant["rows"],
                variant["vec"],
                variant["cols"],
                variant["persist"],
                variant["cluster"],
                variant["smem"],
            )
            yield _line("variant", x, w or "-", variant["symbol"], *numbers)


def families_of(operator: Record) -> list[str]:
    """The names of the CUDA families that an operator's cases use, in order, each once."""
    names = (
        step["family"]
        for op in operator["ops"]
        for case in op["cases"]
        for alternative in case.get("cuda") or ()
        for step in alternative["steps"]
    )
    return list(dict.fromkeys(names))


def table_text(operator: Record, families: Mapping[str, Record], namespace: str = "avo") -> str:
    """The operator table of one operator of plan.json, in the text form that the runtime parses."""
    lines = ["avo 1", _line("namespace", namespace)]
    for name in families_of(operator):
        if name not in families:
            raise NativeError(f"{operator['name']}: there is no family {name!r}")
        lines += _family_lines(name, families[name])
    for op in operator["ops"]:
        lines += _op_lines(op)
    return "\n".join(lines) + "\n"


def _list_lines(entry: Record, namespace: str) -> Iterable[str]:
    yield _line("op", namespace, entry["name"], entry["definition"], entry["shared"])
    for arg in entry["arguments"]:
        absent = [repr(arg["absent"])] if arg["kind"] == "tensor" else []
        yield _line("arg", arg["name"], arg["kind"], *absent)
    floats = [arg["name"] for arg in entry["arguments"] if arg["kind"] == "float"]
    for overload, schema in entry["overloads"].items():
        tensors = [name for name in floats if re.search(rf"\bTensor {name}\b", schema)]
        yield _line("overload", overload, *tensors)
    cpu = entry["cpu"]
    if entry["reduces"]:
        yield _line("reduces")
    yield _line("numbers", cpu["numbers"])
    yield _line("elements", cpu["elements"], cpu["buffers"])
    yield _line("operands", *cpu["operands"])
    yield _line("scalars", *cpu["scalars"])


def lists_text(entries: Iterable[Record], namespace: str = "avo") -> str:
    """The table of the operators over lists of plan.json (csrc/runtime/list_table.h)."""
    lines = ["lists 1", *(line for entry in entries for line in _list_lines(entry, namespace))]
    return "\n".join(lines) + "\n"


def _contiguous_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    stride = 1
    for size in reversed(sizes):
        strides.insert(0, stride)
        stride *= max(size, 1)
    return tuple(strides)


def _argument_line(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, torch.Tensor):
        value = TensorSpec(tuple(value.shape), value.dtype, value.stride(), value.data_ptr() % 256)
    if isinstance(value, TensorSpec):
        if value.dtype not in SHORT_NAMES:
            raise NativeError(
                f"a tensor to describe must be of a floating-point dtype, int64, int32 or int8, but is {value.dtype}"
            )
        strides = _contiguous_strides(value.sizes) if value.strides is None else value.strides
        return _line(
            "tensor", SHORT_NAMES[value.dtype], value.address, len(value.sizes), *value.sizes, *strides
        )
    if isinstance(value, str):
        return _line("str", value)
    if isinstance(value, float):
        return _line("float", repr(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return _line("int", value)
    if isinstance(value, Sequence):
        if value and all(isinstance(item, bool) for item in value):
            return _line("mask", *map(int, value))
        return _line("ints", *value)
    raise NativeError(f"cannot describe an argument of type {type(value).__name__}")


# ---- the library ----


class Native:
    """The loaded runtime library. One object for a library file is enough; all state is in the library."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.emulated: CudaTarget | None = None  # where CPU tensors go
        self._lib = lib = ctypes.CDLL(str(path))
        text = ctypes.c_char_p
        for name, arguments, result in (
            ("avo_register_operator", [text], text),
            ("avo_register_lists", [text], text),
            ("avo_declare_op", [text], text),
            ("avo_add_tables", [text], text),
            ("avo_set_table_source", [_TableSourceC], None),
            ("avo_load_cpu_kernels", [text], text),
            ("avo_cpu_isa", [], text),
            ("avo_set_kernel_resolver", [_ResolverC], None),
            ("avo_set_warning_callback", [_WarningC], None),
            ("avo_set_hot_width_callback", [_HotWidthC], None),
            ("avo_add_exact", [text, text, ctypes.c_int64, ctypes.c_int], text),
            ("avo_stats", [], text),
            ("avo_reset_stats", [], None),
            ("avo_set_strict", [ctypes.c_int], None),
            ("avo_emulate", [ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_uint, ctypes.c_int], None),
            (
                "avo_emulator_launch",
                [text, text, ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ctypes.c_void_p)],
                text,
            ),
            ("avo_describe_plan", [text, ctypes.POINTER(text)], ctypes.c_int),
        ):
            function = getattr(lib, name)
            function.argtypes = arguments
            function.restype = result
        self._callbacks: list[object] = []  # the library keeps pointers to them for ever, and so must we

    def register(
        self,
        operator: Record,
        families: Mapping[str, Record],
        namespace: str = "avo",
        text: str | None = None,
    ) -> None:
        """Registers the CPU and CUDA kernels of an operator of plan.json.

        The schemas of its ops must be defined in the namespace already, as must the overload `.definition` by
        the time of a call that no kernel serves.

        Raises:
            NativeError: the record is not consistent, or an op of that name is registered already.
        """
        text = table_text(operator, families, namespace) if text is None else text
        self._check(self._lib.avo_register_operator(text.encode()))

    def register_lists(self, entries: Iterable[Record], namespace: str = "avo") -> None:
        """Registers the CPU and CUDA kernels of operators over lists, as ``register`` does.

        Raises:
            NativeError: a record is not consistent.
        """
        self._check(self._lib.avo_register_lists(lists_text(entries, namespace).encode()))

    def declare(self, op: str) -> None:
        """Registers the CPU and CUDA kernels of an op ("avo::gelu"), whose table is asked for when it is first called.

        Raises:
            NativeError: there are too many.
        """
        self._check(self._lib.avo_declare_op(op.encode()))

    def set_table_source(self, source: TableSource) -> None:
        """Sets who is asked for the tables of ops that were declared. An exception in it is a warning."""

        def ask(op: bytes) -> None:
            try:
                source(op.decode())
            except Exception as error:  # it must not travel through the library
                warnings.warn(f"avo_ops: no table of {op.decode()}: {error}", RuntimeWarning, stacklevel=2)

        callback = _TableSourceC(ask)
        self._callbacks.append(callback)
        self._lib.avo_set_table_source(callback)

    def add_tables(
        self,
        operator: Record,
        families: Mapping[str, Record],
        namespace: str = "avo",
        text: str | None = None,
    ) -> None:
        """Gives the tables of an operator whose kernels are registered; nothing happens if the runtime has them.

        ``text``: what :func:`table_text` made of it once.

        Raises:
            NativeError: the record is not consistent.
        """
        text = table_text(operator, families, namespace) if text is None else text
        self._check(self._lib.avo_add_tables(text.encode()))

    def address(self, function: str) -> int:
        """The address of an exported function."""
        return ctypes.cast(getattr(self._lib, function), ctypes.c_void_p).value or 0

    def load_cpu_kernels(self, path: Path) -> None:
        """Adds the CPU kernels of a shared library (csrc/cpu/abi.h); may be called again for further ones."""
        self._check(self._lib.avo_load_cpu_kernels(str(path).encode()))

    def cpu_isa(self) -> str:
        """The instruction set that CPU kernels are taken for: "base", "v3" or "v4"."""
        isa = self._lib.avo_cpu_isa()
        if isa is None:
            raise NativeError("AVO_OPS_CPU_ISA must be base, v3 or v4")
        return str(isa.decode())

    def set_kernel_resolver(self, resolver: KernelResolver) -> None:
        """Sets who is asked for cubins.

        Frozen fails the call that needs the unit, a later one asks again. Any other exception is a warning, and counts as None.
        """

        def resolve(unit: bytes, arch: int, text: Any, text_size: int) -> int:
            status, answer = 1, b""
            try:  # no exception may travel through the library
                answer = (resolver(unit.decode(), arch) or "").encode()
            except Frozen as error:
                status, answer = -1, str(error).encode()[: text_size - 1]
            except Exception as error:
                warnings.warn(f"avo_ops: no cubin of {unit.decode()}: {error}", RuntimeWarning, stacklevel=2)
            if not 0 < len(answer) < text_size:
                return 0
            ctypes.memmove(text, answer + b"\0", len(answer) + 1)
            return status

        callback = _ResolverC(resolve)
        self._callbacks.append(callback)
        self._lib.avo_set_kernel_resolver(callback)

    def set_hot_width_callback(self, callback: Callable[[str, int, int], None]) -> None:
        """Sets who hears, on the thread of a call, that many calls in a row of a kernel were of one width.

        It is called with the kernel's symbol, the width and the architecture, which is 0 in the emulator.
        """

        def tell(symbol: bytes, n: int, arch: int) -> None:
            try:
                callback(symbol.decode(), n, arch)
            except Exception as error:  # it must not travel through the library
                warnings.warn(f"avo_ops: no kernel for rows of {n}: {error}", RuntimeWarning, stacklevel=2)

        wrapped = _HotWidthC(tell)
        self._callbacks.append(wrapped)
        self._lib.avo_set_hot_width_callback(wrapped)

    def add_exact(self, general: str, symbol: str, n: int, arch: int) -> None:
        """Puts the kernel of a unit in the place of a general one, for rows of ``n`` columns (csrc/runtime/hot_widths.h).

        Raises:
            NativeError: it cannot be loaded, or the other is not for such rows.
        """
        self._check(self._lib.avo_add_exact(general.encode(), symbol.encode(), n, arch))

    def set_warning_callback(self, callback: Callable[[str], None]) -> None:
        """Sets who hears the runtime's warnings. Without one they go to stderr."""
        wrapped = _WarningC(lambda message: callback(message.decode()))
        self._callbacks.append(wrapped)
        self._lib.avo_set_warning_callback(wrapped)

    def emulate(self, arch: int, sms: int, order: int, seed: int, fill: int) -> None:
        """Sends CPU tensors through the CUDA kernels in the emulator; arch 0 ends that (csrc/runtime/api.cpp)."""
        self._lib.avo_emulate(arch, sms, order, seed, fill)
        self.emulated = CudaTarget(arch, sms) if arch else None

    @property
    def print_running_thread(self) -> Any:
        """The C function that writes to stderr which emulated thread is running."""
        return self._lib.avo_emulator_print_running_thread

    def launch_emulated(
        self, path: Path, kernel: str, grid: Sequence[int], block: Sequence[int], cluster: int, shared: int,
        params: Sequence[Any],
    ) -> None:  # fmt: skip
        """Runs a kernel of a library that generator.emulator made, with the order and fill of the last ``emulate``.

        Raises:
            NativeError: the kernel did what it may not do.
        """
        sizes = (ctypes.c_uint * 8)(*grid, *block, cluster, shared)
        pointers = (ctypes.c_void_p * max(1, len(params)))(*map(ctypes.addressof, params))
        self._check(self._lib.avo_emulator_launch(str(path).encode(), kernel.encode(), sizes, pointers))

    def stats(self) -> dict[str, int]:
        """How many calls took which path: "namespace::op / path" -> count.

        Paths: "cpu/<isa>/<kernel>" and "cuda/<symbol>" (launches), "definition", "empty" (nothing to do),
        and "copy" and "cast" (operands that went through a temporary).
        """
        lines = self._lib.avo_stats().decode().splitlines()
        return {f"{op} / {path}": int(count) for op, path, count in (line.split("\t") for line in lines)}

    def reset_stats(self) -> None:
        """Sets all counters to zero."""
        self._lib.avo_reset_stats()

    def set_strict(self, mode: int) -> None:
        """0: off; 1: a call whose definition would run raises; 2: one that would copy or cast an operand does too."""
        self._lib.avo_set_strict(mode)

    def describe(self, op: str, *args: object, target: CudaTarget | None = None) -> list[str]:
        """What a call of `op` ("avo::layer_norm") would do, in the lines of csrc/runtime/describe.cpp.

        `args` are all arguments of the schema, in order; a tensor may be a TensorSpec. Nothing is computed or
        allocated, and `target` need not be present; without one the call is planned for the CPU.

        Raises:
            NativeError: with the message of the error that the call would raise.
        """
        where = "cpu" if target is None else _line("cuda", target.device, target.arch, target.sms)
        lines = [_line("op", op), f"target {where}", *map(_argument_line, args)]
        answer = ctypes.c_char_p()
        done = self._lib.avo_describe_plan("\n".join(lines).encode(), ctypes.byref(answer))
        text = (answer.value or b"").decode()
        if not done:
            raise NativeError(text)
        return text.splitlines()

    @staticmethod
    def _check(error: bytes | None) -> None:
        if error is not None:
            raise NativeError(error.decode())


def load(path: Path) -> Native:
    """Loads the runtime library. torch must be imported first: its symbols are looked up in this process."""
    return Native(path)
