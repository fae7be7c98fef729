"""The CUDA kernels of operators in the emulator, every one of them: run by test_emulator.py, in a process of its own.

    python tests/emulator_catalogue.py --compile
    python tests/emulator_catalogue.py OPERATOR X,W [X,W ...]      dtypes of row and column operands
    python tests/emulator_catalogue.py --formulas 0/3 X,W [X,W ...]      a third of the other operators

Each kernel runs at both sides of every width where the plan changes, on contiguous, sliced and odd rows, in three
orders of threads and over two fills of memory: the results are the same to the bit, and near float64. Under the
environment of avo_ops.testing.sanitizer_environment() the sanitizers watch.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from catalogue import (
    FAMILIES,
    LAYOUTS,
    OPERATORS,
    RECORDS,
    RELATIVE,
    REPRESENTATIVES,
    STEPS,
    Narrow,
    as_tuple,
    assert_close,
    build,
    column_argument,
    doubled,
    equal,
    gradient_roundings,
    magnified,
    number,
    of_positive,
    real,
    representatives,
    saves_a_result,
    steps_off,
)

import avo_ops
from avo_ops import testing
from avo_ops.registry import native_library
from avo_ops.registry.layout import NAMED
from avo_ops.registry.native import CudaTarget

RECORD_OF = {op["name"]: RECORDS[name] for name, entry in OPERATORS.items() for op in entry["ops"]}
TORCH = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}


EVERYTHING = os.environ.get("AVO_OPS_EMULATOR") == "all"
MANY_FAMILIES, MANY_KERNELS = 20, 600
ARCHS, SMS = (90, 80), 1  # with clusters and without; one SM: persistent kernels go round
SMALL = (1, 3, 8, 33)
FORMULA_WIDTHS = (7, 300)
TOGETHER = 4  # operators whose kernels for these widths are one library
PAIRS = ("bf16,bf16", "f32,f32", "bf16,f32", "f16,f16", "f16,f32", "f64,f64")
# Adding up partial sums of wide rows takes seconds. Up to NARROW every width runs in all ways, up to WIDE in the first
# three; a wider one runs if it brings a kernel that has not run (for one call of an op: in any case), and twice if it
# brings a template that has not.
NARROW, WIDE = 256, 1024

# layout, order of threads, fill; the first is compared with float64 and with the others.
RUNS = (
    ("contiguous", "ascending", 0xFF),
    ("contiguous", "descending", 0x5A),
    ("odd rows", "random", 0xFF),
    ("sliced rows", "descending", 0x5A),
    ("odd rows", "ascending", 0x5A),
)


def channels_of(n: int) -> int:
    """Channels of a row of n columns, where rows are groups of them: few, with many positions, or one or all."""
    return next((c for c in (4, 3, 5, 7) if n % c == 0), n if n <= 64 else 1)


@dataclass(frozen=True)
class Pair:
    """Dtypes of row operands (and results) and of column operands."""

    x: str
    w: str

    def of(self, span: str) -> torch.dtype:
        compute = torch.float64 if self.x == "f64" else torch.float32
        return {"MN": TORCH[self.x], "N": TORCH[self.w], "M": compute, "1": compute}[span]

    def variants(self, family: str) -> list[dict[str, Any]]:
        variants = FAMILIES[family]["variants"]
        return variants.get(f"{self.x},{self.w}") or variants.get(self.x, [])


@dataclass(frozen=True)
class Call:
    """One case of an op: what its arguments are beside their values."""

    op: dict[str, Any]
    case: dict[str, Any]

    def families(self) -> set[str]:
        return {step["family"] for a in self.case["cuda"] for step in a["steps"]}

    def arguments(self, m: int, n: int, pair: Pair, layout: str, seed: int = 0) -> dict[str, Any]:
        """Random tensors, and plain values otherwise."""
        generator = torch.Generator().manual_seed(seed)
        key = iter(self.case["key"])
        found: dict[str, Any] = {}
        for arg in self.op["args"]:
            match arg["kind"]:
                case "tensor" if arg.get("narrow"):
                    shape = (m, n * len(arg.get("parts", (1,))))
                    made = build(
                        {"": Narrow(shape, NAMED[arg["narrow"][next(key)]])}, torch.float32, "cpu", seed
                    )
                    found[arg["name"]] = LAYOUTS[layout](made[""])
                case "tensor":
                    tensor = self.tensor(arg, m, n, pair, layout, generator)
                    found[arg["name"]] = None if arg["optional"] and not next(key) else tensor
                case "str":
                    own = str(TORCH[pair.x]).removeprefix("torch.")  # of a result, where a string names it
                    chosen = arg["choices"][next(key)]
                    found[arg["name"]] = own if own in arg["choices"] else chosen
                case "mask":
                    found[arg["name"]] = [bool(next(key)) for _ in range(arg["length"])]
                case "ints":
                    found[arg["name"]] = [n]
                case _:
                    record = RECORD_OF[self.op["name"]]
                    of_columns = arg["name"] == record.columns.arg
                    found[arg["name"]] = (
                        column_argument(record) if of_columns else number(record, arg["name"])
                    )
                    if arg["kind"] == "int":
                        found[arg["name"]] = int(found[arg["name"]])
        return found

    def tensor(
        self, arg: dict[str, Any], m: int, n: int, pair: Pair, layout: str, generator: torch.Generator
    ) -> torch.Tensor:
        width = n * len(arg.get("parts", (1,)))
        if arg["span"] == "1":
            return torch.full((), 0.0431, dtype=pair.of("1"))  # no quotient lies between two integers
        shape: tuple[int, ...] = {"MN": (m, width), "N": (width,), "M": (m, 1)}[arg["span"]]
        of_channels = RECORD_OF[self.op["name"]].columns.rule == "groups"
        if of_channels:
            shape = {"MN": shape, "N": (channels_of(n),), "M": (m, 1, 1)}[arg["span"]]
        if arg.get("integer"):
            return torch.randint(n, shape, generator=generator)
        wide = torch.randn(shape, generator=generator, dtype=torch.float64)
        if of_positive(RECORD_OF[self.op["name"]].name) and not arg["name"].startswith("grad"):
            wide = wide.abs()
        tensor = wide.to(pair.of(arg["span"]))
        tensor = LAYOUTS[layout](tensor) if arg["span"] == "MN" else tensor
        return tensor.unflatten(1, (channels_of(n), -1)) if of_channels and arg["span"] == "MN" else tensor

    def run(self, arguments: dict[str, Any]) -> tuple[torch.Tensor | None, ...]:
        return as_tuple(getattr(torch.ops.avo, self.op["name"])(*arguments.values()))

    def steps(self, n: int, pair: Pair, layout: str, arch: int) -> list[tuple[str, ...]]:
        """(family, kernel) of each launch."""
        native = native_library.runtime()
        assert native is not None
        arguments = self.arguments(2, n, pair, layout)
        lines = native.describe(f"avo::{self.op['name']}", *arguments.values(), target=CudaTarget(arch, SMS))
        assert lines[0] == "path cuda", lines
        return [tuple(line.split()[1:3]) for line in lines if line.startswith("step ")]


def representative_calls(op: dict[str, Any]) -> list[Call]:
    """Cases that use all families of an op together."""
    calls = [Call(op, case) for case in op["cases"] if case["cuda"]]
    calls.sort(key=lambda call: -len(call.families()))
    seen: set[str] = set()
    chosen = []
    for call in calls:
        if call.families() - seen:
            chosen.append(call)
            seen |= call.families()
    return chosen


def widths(call: Call, pair: Pair, layout: str, arch: int) -> set[int]:
    """Both sides of every width where the kernels change, and some small ones.

    Where rows that are no whole chunks have kernels or alternatives of their own, also a width of each kernel for any rows
    that is: all widths of rows that start between two chunks.
    """
    variants = [v for family in call.families() for v in pair.variants(family)]
    chunks = any(a["when"] == "chunks" for a in call.case["cuda"])
    if chunks or any(v["exact"] == "odd" for v in variants):
        whole = {-(-v["min_n"] // v["vec"]) * v["vec"] for v in variants if v["exact"] is None}
    else:
        whole = set()
    if layout == "odd rows":
        return whole
    exact = {"chunks", "few", "odd", None}
    ends = {
        end
        for v in variants
        for end in (v["max_n"], v["max_n"] and v["max_n"] - v["vec"] if v["exact"] in exact else v["exact"])
        if end is not None and end < 2**20
    }
    # Three tiles of columns: a whole one that is not the first, and one that is not whole.
    chunk = max((v["vec"] for v in variants), default=1)  # none: compiled when first called
    found = {*SMALL, *whole, *(2 * v["cols"] + v["vec"] for v in variants if v["cols"])}
    for end in ends:
        at, above = (call.steps(n, pair, layout, arch) for n in (end, end + 1))
        if at != above:
            found.add(end)
            if end == 1 or above != call.steps(end - 1, pair, layout, arch):
                found.add(end + 1)
            next_whole = end - end % chunk + chunk
            if whole and not set(call.steps(next_whole, pair, layout, arch)) <= {*at, *above}:
                found.add(next_whole)
    return found


def rows_of(n: int) -> int:
    return 37 if n <= NARROW else 9 if n <= 512 else 3 if n <= WIDE else 2


def most_of_few(call: Call, n: int, pair: Pair) -> int:
    """For how many rows there are kernels of their own, if any."""
    variants = [v for family in call.families() for v in pair.variants(family)]
    return max(
        (
            SMS * v["persist"] * v["rows"]
            for v in variants
            if v["exact"] == "few" and v["min_n"] <= n <= v["max_n"] and n % v["vec"] == 0
        ),
        default=0,
    )


class Operator:
    """An operator's ops, and its definition in float64."""

    def __init__(self, name: str) -> None:
        self.name, self.record = name, RECORDS[name]
        self.entry = OPERATORS[name]
        self.public, self.forward = self.entry["ops"][:2]
        self.backward = self.entry["ops"][2] if len(self.entry["ops"]) > 2 else None
        self.kernels: set[tuple[str, bool]] = set()  # that have run
        self.templates: set[str] = set()  # that have run in several orders

    def inputs_of_backward(
        self, call: Call, m: int, n: int, pair: Pair, layout: str
    ) -> tuple[Any, dict[str, Any]]:
        """(arguments of the public op, arguments of the backward op with the values that the forward op saves)."""
        arguments = call.arguments(m, n, pair, layout, seed=1)
        wanted = self.wanted(arguments["mask"])
        generator = torch.Generator().manual_seed(2)
        public: dict[str, Any] = {}
        for arg in self.public["args"]:
            name = arg["name"]
            value = arguments.get(name)
            hidden = name in wanted and name not in arguments  # the backward takes no such argument
            if arg["kind"] == "tensor" and value is None and (not arg["optional"] or hidden):
                value = call.tensor(arg, m, n, pair, layout, generator)
            public[name] = value
        saved = dict(zip((r["name"] for r in self.forward["returns"]), self._forward(public), strict=True))
        for name, value in arguments.items():
            span = next(a.get("span") for a in call.op["args"] if a["name"] == name)
            if name in saved:
                kept = saved[name]
                arguments[name] = LAYOUTS[layout](kept) if span == "MN" else kept
            elif name in public and value is not None:
                arguments[name] = public[name]
        return public, arguments

    def _forward(self, public: dict[str, Any]) -> tuple[Any, ...]:
        return as_tuple(getattr(torch.ops.avo, self.forward["name"])(*public.values()))

    def wanted(self, mask: Sequence[bool]) -> list[str]:
        """The inputs whose gradients a mask asks for."""
        return [name for name, index in self.entry["autograd"]["gradients"].items() if mask[index]]

    def reference(self, public: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        return self.record.compute(**doubled(public))

    @torch.enable_grad()
    def reference_gradients(
        self, public: dict[str, Any], backward: dict[str, Any]
    ) -> list[torch.Tensor | None]:
        """By the position of the gradient among the returns of the backward op."""
        exact = {k: v.double().requires_grad_() if real(v) else v for k, v in public.items()}
        results = self.record.compute(**exact)
        grads = [v for k, v in backward.items() if k == "grad" or k.startswith("grad_")]
        given = [(r, g.double()) for r, g in zip(results, grads, strict=True) if g is not None]
        mask = backward["mask"]
        positions = self.entry["autograd"]["gradients"]
        found: list[torch.Tensor | None] = [None] * len(mask)
        for name in self.wanted(mask):
            if exact[name] is None:
                continue
            (found[positions[name]],) = torch.autograd.grad(
                [r for r, _ in given],
                exact[name],
                [g for _, g in given],
                retain_graph=True,
                materialize_grads=True,
            )
        return found

    def check_widths(self, call: Call, pair: Pair, layout: str, arch: int, both_sides: bool = False) -> int:
        """How many calls were checked."""
        count = 0
        tiles = {
            v["symbol"]: v["cols"] for family in call.families() for v in pair.variants(family) if v["cols"]
        }
        for n in sorted(widths(call, pair, layout, arch)):
            steps = call.steps(n, pair, layout, arch)
            # A kernel is tried with one tile of columns and with several.
            kernels = {(kernel, n > 2 * tiles.get(kernel, n)) for _, kernel in steps}
            templates = {family for family, _ in steps}
            if n <= WIDE and arch == ARCHS[0]:
                runs = RUNS if n <= NARROW else RUNS[:3]
            elif kernels <= self.kernels and not both_sides:
                continue
            else:
                runs = RUNS[2:3] if templates <= self.templates else RUNS[1:3]
            # The widths are those of this layout.
            self.check(call, n, pair, arch, [(layout, *runs[0][1:]), *runs[1:]])
            self.kernels |= kernels
            self.templates |= templates
            count += 1
        return count

    def check(self, call: Call, n: int, pair: Pair, arch: int, runs: Sequence[tuple[str, str, int]]) -> None:
        """All runs of one call: the same bits, near float64."""
        few = most_of_few(call, n, pair)
        m = max(rows_of(n), few + 1)
        is_backward = call.op is self.backward
        base: tuple[torch.Tensor | None, ...] | None = None
        for i, (layout, order, fill) in enumerate(runs):
            with testing.emulate(arch, SMS, order=order, seed=i, fill=fill):
                if is_backward:
                    public, arguments = self.inputs_of_backward(call, m, n, pair, layout)
                else:
                    public = arguments = call.arguments(m, n, pair, layout)
                got = call.run(arguments)
            where = f"{call.op['name']} {call.case['key']} {pair.x},{pair.w} {m}x{n} {layout} {order} {fill:#x} sm_{arch}"
            if base is None:
                base = got
                want = self.reference_gradients(public, arguments) if is_backward else self.reference(public)
                # Without an argument whose dtype it has, a gradient is in that of the math, and autograd casts it.
                like = [r["dtype"].split("|") for r in call.op["returns"]]
                cast = [
                    pair.of("MN")
                    if a is not None and any(arguments.get(n, a) is None for n in names)
                    else None
                    for a, names in zip(got, like, strict=True)
                ]
                near = [a if dtype is None else a.to(dtype) for a, dtype in zip(got, cast, strict=True)]
                named = (
                    {k: NAMED[v] for k, v in arguments.items() if isinstance(v, str) and v in NAMED}
                    if not is_backward
                    else {}
                )
                self.compare(near, want, n, pair, where, is_backward, {**NAMED, **named})
            for k, (a, b) in enumerate(zip(got, base, strict=True)):
                assert (a is None) == (b is None), where
                assert a is None or equal(a, b), f"{where}: result {k} differs from that of {runs[0]}"
            if few and layout == "contiguous":
                # The first rows alone, by the kernels for few: the same bits.
                spans = {a["name"]: a.get("span") for a in call.op["args"]}
                own = {
                    k: v[:few] if spans[k] in ("MN", "M") and v is not None else v
                    for k, v in arguments.items()
                }
                with testing.emulate(arch, SMS, order=order, seed=i, fill=fill):
                    for a, b in zip(call.run(own), base, strict=True):
                        assert a is None or equal(a, b[:few]), f"{where}: otherwise for {few} rows alone"

    def compare(
        self,
        got: Sequence[Any],
        want: Sequence[Any],
        n: int,
        pair: Pair,
        where: str,
        is_backward: bool,
        named: dict[str, torch.dtype],
    ) -> None:
        # As in test_catalogue: a result that another one uses is rounded first, and a short row's gradient is a small
        # difference.
        base = (1 if len(self.record.results) == 1 else 3) * (2 if n > WIDE else 1)
        returns = (self.backward if is_backward else self.public)["returns"]
        for result, a, b in zip(returns, got, want, strict=False):
            if a is None or b is None:
                continue
            # One result is computed from the other as that is stored.
            from_result = len(self.record.results) > 1 or (is_backward and saves_a_result(self.record))
            coarse = RELATIVE[pair.of("MN")] if from_result else 0.0
            own = named.get(result["dtype"], pair.of(result["span"]))
            if own in STEPS:
                assert_close(
                    a, b, own, f"{where}: {result['name']}", off=steps_off(self.record, pair.of("MN"))
                )
                continue
            roundings = base * max(1.0, coarse / RELATIVE[own])
            gradient = gradient_roundings(self.name) * roundings
            scale, floor = roundings * magnified(self.record, n), 0.0
            if is_backward:
                scale, floor = gradient, 100.0 if n <= 3 else 0.1
            floor += torch.finfo(own).tiny  # below it a rounding is absolute
            assert_close(a, b, own, f"{where}: {result['name']}", scale, floor)


def other_paths() -> list[str]:
    """Calls that no CUDA kernel served."""
    paths = {path.partition(" / ")[2] for path in avo_ops.stats()}
    return [path for path in paths if path == "definition" or path.startswith("cpu/")]


def check_operator(name: str, pairs: Sequence[Pair]) -> Iterator[str]:
    """Runs all of an operator's kernels for pairs of dtypes; a line about each op."""
    operator = Operator(name)
    avo_ops.reset_stats()
    wanted: set[str] = set()
    if not any(arg.get("span") == "N" for arg in operator.public["args"]):
        pairs = [pair for pair in pairs if pair.x == pair.w]
    for pair, op in itertools.product(pairs, operator.entry["ops"][1:]):
        start, count = time.perf_counter(), 0
        for i, call in enumerate(representative_calls(op)):
            wanted |= {v["symbol"] for family in call.families() for v in pair.variants(family)}
            both_sides = i == 0 and pair == pairs[0]
            count += operator.check_widths(call, pair, "contiguous", ARCHS[0], both_sides)
            count += operator.check_widths(call, pair, "contiguous", ARCHS[1])
            if any(alternative["when"] == "flat" for alternative in call.case["cuda"]):
                count += operator.check_widths(call, pair, "sliced rows", ARCHS[0])
            count += operator.check_widths(call, pair, "odd rows", ARCHS[0])
        yield f"{op['name']} {pair.x},{pair.w}: {count} calls, {time.perf_counter() - start:.1f} s"
    assert not other_paths(), name
    missing = {f"cuda/{kernel}" for kernel in wanted} - {path.partition(" / ")[2] for path in avo_ops.stats()}
    assert not missing, f"{name}: kernels that no width reached: {sorted(missing)}"


def libraries_of(name: str) -> list[set[str]]:
    """The kernels of an operator for the dtypes in which it is checked, as they are compiled together.

    Those of clusters are apart: whenever another block goes on, all shared memory of a library is exchanged.
    """
    dtypes = {dtype for pair in pairs_of(name) for dtype in (f"{pair.x},{pair.w}", pair.x)}
    found: dict[bool, set[str]] = {}
    for family in families(name):
        for key, rows in FAMILIES[family]["variants"].items():
            for v in rows if key in dtypes else ():
                found.setdefault(v["cluster"] > 1, set()).add(v["symbol"])
    return list(found.values())


def use_libraries(name: str) -> None:
    """Call the kernels of an operator from the libraries that ``--compile`` has made."""
    testing.compile_kernels(libraries_of(name))


def pairs_of(name: str) -> list[Pair]:
    """The dtypes in which an operator is checked."""
    return [Pair(*pair.split(",")) for pair in (PAIRS if EVERYTHING or not has_many(name) else PAIRS[:3])]


def formula_kernels(name: str, pairs: Sequence[Pair]) -> set[str]:
    """The kernels that :func:`check_formula` calls."""
    return {
        kernel
        for pair, call, n in itertools.product(pairs, formula_calls(name), FORMULA_WIDTHS)
        for _, kernel in call.steps(n, pair, "contiguous", ARCHS[0])
    }


def formula_calls(name: str) -> list[Call]:
    """The cases of an operator, each with the first alternative alone."""
    return [
        Call(op, {**case, "cuda": case["cuda"][:1]})
        for op in OPERATORS[name]["ops"][1:]
        for case in op["cases"]
        if case["cuda"]
    ]


def check_formula(name: str, pairs: Sequence[Pair]) -> int:
    """Runs the kernels of an operator's usual calls at two widths; how many calls."""
    operator, count = Operator(name), 0
    if not any(arg.get("span") == "N" for arg in operator.public["args"]):
        pairs = [pair for pair in pairs if pair.x == pair.w]
    avo_ops.reset_stats()
    for pair, call, n in itertools.product(pairs, formula_calls(name), FORMULA_WIDTHS):
        kernels = {family for family, _ in call.steps(n, pair, "contiguous", ARCHS[0])}
        assert kernels <= call.families(), f"{name}: the first alternative does not serve N={n}"
        operator.check(call, n, pair, ARCHS[0], RUNS[:1])
        count += 1
    assert not other_paths(), (name, other_paths())
    return count


def families(name: str) -> set[str]:
    calls = [Call(op, case) for op in OPERATORS[name]["ops"] for case in op["cases"]]
    return {family for call in calls for family in call.families()}


def families_of(name: str) -> int:
    """How many families an operator has."""
    return len(families(name))


def has_many(name: str) -> bool:
    """Whether an operator has many families or kernels, as norms have, or is one: sums over rows that a cluster shares."""
    found = [FAMILIES[family] for family in families(name)]
    variants = [[v for rows in family["variants"].values() for v in rows] for family in found]
    of_norms = any(
        family["sums"] and v["cluster"] > 1
        for family, rows in zip(found, variants, strict=True)
        for v in rows
    )
    return len(found) > MANY_FAMILIES or sum(map(len, variants)) > MANY_KERNELS or of_norms


def chosen() -> list[str]:
    """The representatives, but for AVO_OPS_EMULATOR=all without those of many kernels (norms, of about a thousand each).

    For these stands the packaged one of the most column operands that sums over rows, of the fewest families; of those that
    find a scale for 8 bits in each row the one of the fewest.
    """

    def simplest(name: str) -> tuple[int, int]:
        columns = sum(arg.get("span") == "N" for arg in OPERATORS[name]["ops"][0]["args"])
        return -columns, families_of(name)

    many = [name for name in RECORDS if has_many(name)]
    with_sums = [n for n in many if RECORDS[n].packaged and any(FAMILIES[f]["sums"] for f in families(n))]
    kept = min(with_sums, key=simplest)
    if EVERYTHING:
        return REPRESENTATIVES
    few = representatives([name for name in RECORDS if name not in many])
    scaled = sorted((n for n in few if "scale" in RECORDS[n].results), key=families_of)
    return [n for n in RECORDS if n == kept or (n in few and n not in scaled[1:])]


def others(part: int = 0, parts: int = 1) -> list[str]:
    """Operators whose formulas alone are checked, or one of some parts of them."""
    return sorted((name for name in RECORDS if name not in chosen()), key=families_of)[part::parts]


def main(args: Sequence[str]) -> None:
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    if args[0] == "--compile":
        start, libraries = time.perf_counter(), [one for name in chosen() for one in libraries_of(name)]
        libraries.sort(key=len, reverse=True)
        testing.compile_kernels(libraries)
        print(f"{len(libraries)} libraries in {time.perf_counter() - start:.0f} s")
        return
    if args[0] == "--formulas":
        pairs = [Pair(*pair.split(",")) for pair in args[2:]]
        names = others(*map(int, args[1].split("/")))
        start, wanted = time.perf_counter(), [formula_kernels(name, pairs) for name in names]
        libraries = [set().union(*wanted[i : i + TOGETHER]) for i in range(0, len(wanted), TOGETHER)]
        testing.compile_kernels(libraries, run_often=False)
        print(
            f"{len(libraries)} libraries in {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True
        )
        for name in names:
            count = check_formula(name, pairs)
            print(f"{name}: {count} calls", flush=True)
        return
    use_libraries(args[0])
    for line in check_operator(args[0], [Pair(*pair.split(",")) for pair in args[1:]]):
        print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
