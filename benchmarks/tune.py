"""Search of the schedule space: ``python -m benchmarks tune --ops layer_norm --shapes 8192x1024 --out FILE.jsonl``.

For each operator, direction, dtype and shape it runs the kernels of the full case (every tensor, every gradient) under many
tiles, each compared with float64 first, beside the schedule that ships. Nothing is generated or built anew: a candidate is
the template of generated/ with one other row in its variant table, compiled by NVRTC and registered as an op of its own.

The ladders of avo_ops/generator/schedule.py are written by hand from what this finds. With --emulate the candidates run in
the emulator, which shows that they are right and times nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from avo_ops import plan_file, testing
from avo_ops.generator import build, emulator
from avo_ops.generator.emit_cuda import variant
from avo_ops.generator.schedule import Tile
from avo_ops.jit import EmulatorCompiler, GeneratorCompiler
from avo_ops.registry import native_library
from avo_ops.registry.plan import Op
from avo_ops.registry.store import KernelStore, default_cache_folder

from . import results
from .report import table
from .run import BOUNDS, Reference
from .timing import Call, Gpu
from .workloads import DTYPES, Arena, Workload, as_tuple, workloads

Json = dict[str, Any]
SHORT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64"}
NAMESPACE = "avo_tune"


# ---- the space ----


def _powers(first: int, last: int) -> list[int]:
    return [1 << k for k in range(first.bit_length() - 1, last.bit_length())]


def _resident(block: int, least: int = 256) -> list[int]:
    """Numbers of blocks on an SM, such that it has so many threads at least, and no more than it takes."""
    return [b for b in (1, 2, 3, 4, 5, 6, 8, 12, 16, 32) if least <= b * block <= 2048]


def space(
    kind: str, n: int, vector: int, loads: int, columns: int, sums: int, keeps: bool = False
) -> Iterator[Tile]:
    """The tiles worth a try for rows of ``n``, of ``vector`` elements in 16 bytes.

    ``loads``: operands of span (M, N) that a kernel reads, ``columns``: those of span (N), ``sums``: over the rows,
    ``keeps``: whether a tile may keep values between its passes. A ``vector`` of one is of rows that are no whole number of
    chunks, treated an element at a time. What would need far more registers than its blocks leave a thread is left out.
    """
    chunks, most = -(-n // vector), 8 if vector > 1 else 17
    if kind == "flat":
        for threads in (64, 128, 256, 512):
            yield from (Tile(threads, 1, threads, b, 0) for b in _resident(threads, 512))
    elif kind == "pointwise":
        for threads, vectors, block in itertools.product(_powers(8, 256), (1, 2), (128, 256, 512)):
            if threads <= block and threads * vectors < 2 * chunks:
                for b in _resident(block, 1024):
                    yield from (Tile(threads, vectors, block, b, 0, p) for p in ((0, b) if columns else (0,)))
    elif kind == "row":
        for threads, rows in itertools.product(_powers(8, 1024), (1, 2, 4, 8, 16)):
            vectors, block = -(-chunks // threads), threads * rows
            if not 64 <= block <= 1024 or vectors > most:
                continue
            for b in _resident(block):
                for persist in (b,) if sums else (0, b):
                    tile = Tile(threads, vectors, block, b, threads * vectors * vector, persist)
                    yield from _that_fit(tile, vector, loads, columns, sums, keeps)
    elif kind == "cluster":
        for blocks, block, b in itertools.product((2, 4, 8, 16), (128, 256, 512, 1024), (1, 2, 3, 4)):
            vectors = -(-chunks // (blocks * block))
            # The last block of a cluster must have something to do.
            if vectors > most or block * b > 2048 or (blocks - 1) * block * vectors >= chunks:
                continue
            for persist in (b,) if sums else (0, b):
                tile = Tile(blocks * block, vectors, block, b, blocks * block * vectors * vector, persist)
                yield from _that_fit(tile, vector, loads, columns, sums, keeps)
    elif kind == "column":
        for threads, block, vectors in itertools.product((16, 32, 64), (128, 256, 512), (1, 2)):
            yield from (Tile(threads, vectors, block, b, 0, b) for b in _resident(block, 512))
    elif kind == "loop":
        for block, vectors in itertools.product((256, 512, 1024), (1, 2, 4, 8)):
            for b in _resident(block, 1024):
                if 4 * vectors * loads + 24 <= 65536 // (block * b):
                    yield Tile(block, vectors, block, b, 0)


def _that_fit(tile: Tile, vector: int, loads: int, columns: int, sums: int, keeps: bool) -> Iterator[Tile]:
    """The tile, and that with values kept, where the registers may hold it."""
    for one in (tile, dataclasses.replace(tile, keep=True)) if keeps else (tile,):
        if _registers(one, vector, loads, columns, sums) <= 65536 // (one.block * one.min_blocks):
            yield one


def _registers(tile: Tile, vector: int, loads: int, columns: int, sums: int) -> int:
    """A low guess of the registers of a thread: packed vectors, sums in float32, addresses."""
    ahead = 2 if tile.ahead else 1
    packed = 4 if vector > 1 else 1
    held = packed * (loads * ahead + (columns if tile.ahead else 0)) + vector * (sums + tile.keep)
    return int(0.75 * tile.vectors * held) + 20


# ---- candidates ----


@dataclass(frozen=True)
class Candidate:
    """One way to run an op: an alternative of its case, with one step under a tile of ours."""

    alternative: int
    step: int
    kind: str
    tile: Tile
    exact: bool  # compiled for this width alone
    odd: bool = False  # an element at a time

    @property
    def key(self) -> str:
        t = self.tile
        options = {"keep": t.keep, "exact": self.exact, "odd": self.odd}
        exact = "".join(f" {name}" for name, there in options.items() if there)
        return (
            f"{self.kind} {t.threads}x{t.vectors} block {t.block} min {t.min_blocks} persist {t.persist}{exact}"
            f" ({self.alternative}.{self.step})"
        )


@dataclass(frozen=True, eq=False)
class Problem:
    """What is tuned: an op of a workload in one dtype, as its full case."""

    workload: Workload
    direction: str
    dtype: str

    @property
    def op(self) -> Op:
        operator = self.workload.operator
        found = operator.backward if self.direction == "backward" else operator.forward
        assert found is not None
        return found

    @cached_property
    def case(self) -> Json:
        """That of the plan in which every tensor is there and every gradient wanted."""
        w = self.workload
        values = w.arguments(
            lambda shape, _: torch.empty(shape, dtype=DTYPES[self.dtype], device="meta"), False
        )
        if self.direction == "backward":
            outs = as_tuple(getattr(torch.ops.avo, w.operator.forward.name)(*values))
            values = w.backward_values(values, outs, outs[: len(w.operator.public.returns)])
        key = list(self.op.key(values))
        return dict(next(c for c in self.op.case_records if c["key"] == key))

    def candidates(
        self, families: Json, arch: int, exact: Sequence[bool], limit: int | None
    ) -> list[Candidate]:
        n = self.workload.m * self.workload.n if self.workload.kind == "flat" else self.workload.n
        vector = 16 // DTYPES[self.dtype].itemsize
        found: list[Candidate] = []
        seen: list[list[Json]] = []
        later: set[str] = set()  # families of steps after the first: tuned once, whatever comes before them
        for a, alternative in enumerate(self.case["cuda"]):
            if alternative["min_arch"] > arch or alternative["steps"] in seen:
                continue
            seen.append(alternative["steps"])
            for s, step in enumerate(alternative["steps"]):
                family = families[step["family"]]
                rows = self._rows(family)
                if not rows or family["class"] == "finish" or step["family"] in later:
                    continue
                later |= {step["family"]} if s else set()
                kind = _kind(family, rows)
                spans = [self._span(p[1]) for p in step["params"] if p[0] == "ptr"]
                keeps = "bool kKeep" in (build.generated_folder() / family["source"]).read_text()
                loads, columns = spans.count("MN"), spans.count("N")
                mine = [
                    Candidate(a, s, kind, tile, e)
                    for tile in space(kind, n, vector, loads, columns, family["sums"], keeps)
                    for e in exact
                    if not e or (kind in ("row", "cluster") and n % vector == 0)
                ]
                if kind in ("row", "cluster") and n % vector:
                    mine += [
                        Candidate(a, s, kind, tile, exact=False, odd=True)
                        for tile in space(kind, n, 1, loads, columns, family["sums"], keeps)
                    ]
                stride = len(mine) / limit if limit and limit < len(mine) else 1
                found += [mine[int(i * stride)] for i in range(min(len(mine), limit or len(mine)))]
        return found

    def _rows(self, family: Json) -> list[Json]:
        short = SHORT[self.dtype]
        variants = family["variants"]
        return list(variants.get(short) or variants.get(f"{short},{short}") or ())

    def _span(self, name: str) -> str:
        """The span of an argument; nothing for a result."""
        return next((a.span for a in self.op.arguments if a.name == name), "")

    def family(self, candidate: Candidate, families: Json, name: str) -> Json:
        """The family of the candidate's step with its tile as the only variant, as ``name``."""
        step = self.case["cuda"][candidate.alternative]["steps"][candidate.step]
        old = families[step["family"]]
        n = self.workload.n
        pair = next(
            p for p in (SHORT[self.dtype], f"{SHORT[self.dtype]},{SHORT[self.dtype]}") if p in old["variants"]
        )
        x, _, w = pair.partition(",")
        tile = candidate.tile
        whole = candidate.kind in ("row", "cluster") and n % (16 // DTYPES[self.dtype].itemsize) == 0
        kind_of_width = "odd" if candidate.odd else "chunks" if whole else None
        widths = (n, n, n) if candidate.exact else (1, tile.max_n, kind_of_width)
        if candidate.exact:
            tile = dataclasses.replace(tile, max_n=n)
        row = variant(name, candidate.kind, x, w or None, tile, *widths)
        return {**old, "variants": {pair: [{**row, "unit": None}]}}

    def operator(self, candidate: Candidate, plan: Json, name: str) -> Json:
        """An operator of plan.json with one op: the candidate's alternative alone, its step by the family ``name``."""
        case = self.case
        alternative = dict(case["cuda"][candidate.alternative])
        steps = [dict(s) for s in alternative["steps"]]
        steps[candidate.step]["family"] = name
        when = alternative["when"] if alternative["when"] == "flat" else "rows"
        cuda = [{**alternative, "when": when, "limit": None, "steps": steps}]
        ops = next(o["ops"] for o in plan["operators"] if o["name"] == self.workload.record.name)
        op = next(o for o in ops if o["name"] == self.op.name)
        op_name = f"{self.op.name}_{name}"
        schema = op["schema"].replace(self.op.name, op_name, 1)
        one = {**op, "name": op_name, "schema": schema, "cases": [{**case, "cpu": None, "cuda": cuda}]}
        return {"name": op_name, "ops": [one]}


def _kind(family: Json, rows: Sequence[Json]) -> str:
    if family["class"] != "row":
        return str(family["class"])
    return "pointwise" if rows[0]["cols"] else "cluster" if rows[0]["cluster"] > 1 else "row"


# ---- kernels ----


def _compile(job: tuple[str, str, int, str]) -> str:
    """Compile the text of one family to a path, for an arch or (0) the emulator; the reason if that fails."""
    name, text, arch, path = job
    try:
        binary = (
            emulator.compile_unit(name, text, sanitized=False)
            if arch == 0
            else build.compile_source(name, text, f"sm_{arch}")
        )
    except Exception as error:  # a tile that the hardware or the template does not take, most often
        lines = [line for line in str(error).splitlines() if line.strip()]
        return next((line for line in lines if "error" in line), lines[0] if lines else type(error).__name__)
    Path(path).write_bytes(binary)
    return ""


class Kernels:
    """Compiles candidates and registers them as ops."""

    def __init__(self, folder: Path, arch: int, emulate: bool) -> None:
        self._folder, self._arch = folder, 0 if emulate else arch
        self._generated = build.generated_folder()
        self.plan: Json = plan_file.load(self._generated)
        self.families: Json = self.plan["families"]
        self._paths: dict[str, str] = {}
        self._library = torch.library.Library(NAMESPACE, "FRAGMENT")  # type: ignore[no-untyped-call]
        native = native_library.runtime()
        if native is None:
            raise SystemExit("avo_ops is not built: make build")
        self._native = native
        # The steps that are not tuned, and the schedule that ships, come from where they always do.
        compiler = EmulatorCompiler() if emulate else GeneratorCompiler()
        packaged = None if emulate else self._generated / "kernels"
        suffix = ".so" if emulate else ".cubin"
        store = KernelStore(packaged, default_cache_folder(), compiler, suffix=suffix)
        native.set_kernel_resolver(
            lambda unit, a: (
                self._paths.get(unit) or self._paths.get(unit.rpartition("__")[0]) or store.resolve(unit, a)
            )
        )

    def compile(self, made: dict[str, Json], jobs: int) -> dict[str, str]:
        """Compile families by name; the reasons of those that failed."""
        work = []
        for name, family in made.items():
            text = build.family_source(name, family, self._generated)
            if not self._arch:
                symbols = {v["symbol"] for rows in family["variants"].values() for v in rows}
                text = emulator.unit(text, symbols)
            suffix = ".cubin" if self._arch else ".so"
            work.append((name, text, self._arch, str(self._folder / f"{name}{suffix}")))
        failed = {}
        with ProcessPoolExecutor(jobs) as pool:
            for (name, _, _, made_at), why in zip(work, pool.map(_compile, work), strict=True):
                if why:
                    failed[name] = why
                else:
                    self._paths[name] = made_at
        return failed

    def register(self, operator: Json, families: Json) -> Callable[..., Any]:
        (op,) = operator["ops"]
        self._library.define(op["schema"])  # type: ignore[no-untyped-call]
        self._native.register(operator, {**self.families, **families}, NAMESPACE)
        return getattr(getattr(torch.ops, NAMESPACE), op["name"])  # type: ignore[no-any-return]


# ---- measuring ----


class Bench:
    """Checks and times the candidates of one problem."""

    def __init__(self, problem: Problem, timer: Gpu | None) -> None:
        self.problem, self.timer = problem, timer
        self._device = "cuda" if timer else "cpu"
        self._dtype = DTYPES[problem.dtype]
        self._reference = Reference(problem.workload, self._device, self._dtype)
        w = problem.workload
        self._forward = getattr(torch.ops.avo, w.operator.forward.name)
        self._results = len(w.operator.public.returns)
        self._own = self._inputs(self._reference.values, self._reference.grads)
        self.moved = w.bytes(problem.direction, self._dtype)
        self._sets: list[list[Any]] = []
        if timer is not None:
            arena = Arena(self._device, self._dtype)
            for _ in range(timer.sets(self.moved)):
                values = w.arguments(lambda shape, _: arena.take(shape), False)
                grads = [arena.take(g.shape) for g in self._reference.grads]
                self._sets.append(self._inputs(values, grads))

    def _inputs(self, values: list[Any], grads: list[torch.Tensor]) -> list[Any]:
        if self.problem.direction == "forward":
            return values
        return self.problem.workload.backward_values(values, as_tuple(self._forward(*values)), grads)

    def _exact(self) -> list[torch.Tensor]:
        """What the op must return, as far as it is known: a forward's row statistics are not."""
        exact = self._reference.exact
        if self.problem.direction == "forward":
            return exact[: self._results]
        of = {}
        gradients = iter(exact[self._results :])
        for position in self.problem.workload.operator.gradients:
            if position is not None:
                of[position] = next(gradients)
        return [of[p] for p in sorted(of)]

    def error(self, function: Callable[..., Any]) -> float:
        with torch.no_grad(), testing.emulate() if self.timer is None else contextlib.nullcontext():
            outs = as_tuple(function(*self._own))
        return max(
            float((o.double() - e).norm() / e.norm().clamp_min(1e-30))
            for o, e in zip(outs, self._exact(), strict=False)
        )

    def row(self, function: Callable[..., Any]) -> Json:
        try:
            error = self.error(function)
            if not error < BOUNDS[self.problem.dtype]:
                return {"failed": f"wrong: relative error {error:.1e}"}
            found: Json = {"error": float(f"{error:.3g}")}
            if self.timer is not None:
                calls: list[Call] = [lambda a=a: function(*a) for a in self._sets]  # type: ignore[misc]
                with torch.no_grad():
                    times, copy = self.timer.times({"": calls}, self.moved)
                t = times[""]
                found |= {"us": round(t.median, 3), "us_low": round(t.low, 3), "us_high": round(t.high, 3)}
                found |= {"copy_us": round(copy.median, 3), "of_copy": round(copy.median / t.median, 4)}
            return found
        except RuntimeError as error:
            if self.timer is not None and not self.timer.alive():
                raise SystemExit(f"the GPU no longer answers: {error}") from None
            return {"failed": " ".join(str(error).split())[:200]}


# ---- the command ----


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m benchmarks tune",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--ops", required=True)
    found.add_argument("--shapes", required=True, help="such as 8192x1024,8192x4096")
    found.add_argument("--directions", default="forward,backward")
    found.add_argument("--dtypes", default="bfloat16")
    found.add_argument("--kinds", default="", help="of flat,pointwise,row,cluster,column,loop (default: all)")
    found.add_argument("--only", help="of the candidates those whose names have one of these texts in them")
    found.add_argument("--widths", default="generic", help="generic,exact: kernels for any width, or for one")
    found.add_argument("--limit", type=int, help="so many candidates for each step, evenly from the space")
    found.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="compilers at once")
    found.add_argument("--emulate", action="store_true", help="check in the emulator; no times")
    found.add_argument("--out", type=Path, help="file of JSON lines, to which results are added")
    found.add_argument("--table", type=Path, help="file for the tables, in markdown")
    found.add_argument("--top", type=int, default=5, help="candidates to show for each problem")
    return found


def _arch(emulate: bool) -> int:
    if emulate:
        return 90
    # Not by torch: compilers are forked before it touches the GPU.
    query = ("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"there is no GPU to tune on (--emulate checks without one): {error}") from None
    return int(done.stdout.split()[0].replace(".", ""))


def _problems(options: argparse.Namespace) -> Iterator[Problem]:
    for op, dtype, shape, direction in itertools.product(
        *(text.split(",") for text in (options.ops, options.dtypes, options.shapes, options.directions))
    ):
        m, n = map(int, shape.split("x"))
        workload = workloads(m, n)[op]
        if not isinstance(workload, Workload):
            raise SystemExit(f"{op} has no kernels of its own")
        yield Problem(workload, direction, dtype)


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    arch = _arch(options.emulate)
    exact = [w == "exact" for w in options.widths.split(",")]
    with tempfile.TemporaryDirectory(prefix="avo_ops-tune-") as folder:
        kernels = Kernels(Path(folder), arch, options.emulate)
        wanted: list[tuple[Problem, dict[str, Candidate]]] = []
        made: dict[str, Json] = {}
        for problem in _problems(options):
            mine = {}
            for candidate in problem.candidates(kernels.families, arch, exact, options.limit):
                if options.kinds and candidate.kind not in options.kinds.split(","):
                    continue
                if options.only and not any(text in candidate.key for text in options.only.split(",")):
                    continue
                name = f"tune_{len(made)}"
                made[name] = problem.family(candidate, kernels.families, name)
                mine[name] = candidate
            wanted.append((problem, mine))
        print(f"{len(made)} candidates of {len(wanted)} problems", flush=True)
        failed = kernels.compile(made, options.jobs)
        if failed:
            print(f"{len(failed)} do not compile, for example: {next(iter(failed.values()))}")
        timer = None if options.emulate else Gpu()
        about, writer = results.about("cpu" if options.emulate else "cuda"), results.Writer(options.out)
        found: list[Json] = []
        tables: list[str] = []
        for problem, mine in wanted:
            rows = []
            for row in _measure(
                problem, {n: c for n, c in mine.items() if n not in failed}, made, kernels, timer
            ):
                rows.append(row)
                writer.write({**row, **about})
            found += rows
            tables += (lines := _table(rows, options.top))
            print("\n".join(lines), flush=True)
    if options.table and tables:
        machine = " ".join(f"{k} {v};" for k, v in about.items())
        options.table.write_text("\n".join(["# Schedules by search", "", machine, "", *tables]))
    if options.emulate:
        print(f"{sum('error' in r for r in found)} right, {sum('failed' in r for r in found)} failed")
    wrong = [r for r in found if r.get("failed", "").startswith("wrong")]
    for r in wrong:
        print(f"{r['op']} {r['direction']} {r['candidate']}: {r['failed']}", file=sys.stderr)
    return int(bool(wrong))


def _measure(
    problem: Problem, mine: dict[str, Candidate], made: Json, kernels: Kernels, timer: Gpu | None
) -> Iterator[Json]:
    bench = Bench(problem, timer)
    w = problem.workload
    head = {"op": w.name, "direction": problem.direction, "dtype": problem.dtype, "m": w.m, "n": w.n}
    if timer is not None:
        shipped = getattr(torch.ops.avo, problem.op.name)
        yield {**head, "candidate": "as it ships", **bench.row(shipped)}
    for name, candidate in mine.items():
        operator = problem.operator(candidate, kernels.plan, name)
        function = kernels.register(operator, {name: made[name]})
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", RuntimeWarning
            )  # a kernel that does not load: its call fails, and says why
            row = bench.row(function)
        tile = dataclasses.asdict(candidate.tile)
        yield {
            **head,
            "candidate": candidate.key,
            "kind": candidate.kind,
            "tile": tile,
            "exact": candidate.exact,
            **row,
        }


def _table(rows: Iterable[Json], top: int) -> list[str]:
    """What ships and the best candidates of one problem, the best of each kind among them; nothing without times."""
    shipped, *others = rows
    if "us" not in shipped:
        return []
    good = sorted((r for r in others if "us" in r), key=lambda r: float(r["us"]))
    firsts = {r["kind"]: r for r in reversed(good)}
    shown = good[:top] + [r for r in firsts.values() if r not in good[:top]]
    title = f"{shipped['op']} {shipped['direction']} {shipped['dtype']} {shipped['m']}x{shipped['n']}"
    failed = sum("failed" in r for r in others)
    lines = [f"### {title}", "", f"{len(others)} candidates, {failed} failed.", ""]

    def cells(r: Json) -> list[str]:
        gain = f"{shipped['us'] / r['us']:.3f}"
        return [r["candidate"], f"{r['us']:.2f}", f"{r['us'] / r['copy_us']:.3f}", gain]

    return [*lines, *table(["schedule", "us", "copies", "x as it ships"], map(cells, [shipped, *shown]))]


if __name__ == "__main__":
    sys.exit(main())
