"""The runner: ``python -m benchmarks run --out FILE.jsonl``, operators x directions x dtypes x shapes x implementations.

Every implementation is compared with float64 before it is timed. A cell that is in the file already is left out, so a run
that ended (by --seconds, or by force) goes on when the command is given again.

Figures, on a GPU: kernel time by CUDA-graph replay over inputs larger than the L2 cache (median and quartiles); the time of
a copy that moves the same bytes, in this same run; CPU time of a call; the most memory that a call allocates. On the CPU:
wall clock, implementations in turns, inputs in cache if they fit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from . import peers, results
from .accuracy import STEPS, real
from .timing import Call, Cpu, Gpu
from .workloads import (
    DIRECTIONS,
    DTYPES,
    LAYOUTS,
    Arena,
    Measured,
    as_tuple,
    every_workload,
    leaves_of,
    shapes_of,
)  # fmt: skip

Tensor = torch.Tensor

# Norm-wise relative error against float64 above which a result is wrong. Peers may have five times as much: on the CPU
# eager adds up the gradient of a weight in bfloat16 (layer_norm, 2048x1024: 3.8e-2).
BOUNDS = {"float64": 1e-9, "float32": 1e-4, "float16": 4e-3, "bfloat16": 2e-2}

DEFAULTS = {
    "cuda": {
        "dtypes": "bfloat16",
        "implementations": "avo,eager,compile,fused,foreach,liger,quack,apex,apex_fast,flash_attn",
    },
    "cpu": {"dtypes": "float32,bfloat16", "implementations": "avo,eager,compile,fused,foreach"},
}


@dataclass(frozen=True)
class Group:
    """The cells that share inputs: all of one operator, dtype, shape and layout."""

    workload: Measured
    dtype: str
    layout: str
    cells: tuple[tuple[str, str], ...]  # implementation, direction

    def __str__(self) -> str:
        layout = "" if self.layout == "contiguous" else f" {self.layout}"
        return f"{self.workload.name} {self.dtype} {self.workload.m}x{self.workload.n}{layout}"


class Reference:
    """Inputs of one group, and results and gradients in float64."""

    def __init__(self, workload: Measured, device: str, dtype: torch.dtype) -> None:
        self.values = workload.arguments(
            lambda shape, _: torch.randn(shape, device=device, dtype=dtype), differentiable=False
        )
        wanted = workload.gradients
        wide = [
            v.double().requires_grad_(name in wanted) if real(v) else v
            for name, v in zip(workload.call, self.values, strict=True)
        ]
        outs = as_tuple(workload.exact(*wide))
        self.grads = [torch.randn(o.shape, device=device, dtype=dtype) for o in outs]
        self.exact = [o.detach() for o in outs]
        if leaves := leaves_of(wide):
            self.exact += torch.autograd.grad(outs, leaves, [g.double() for g in self.grads])

    def error(self, function: peers.Function, values: Sequence[Any]) -> float:
        """The largest norm-wise relative error of a function on these inputs."""
        for mine, given in zip(values, self.values, strict=True):
            if isinstance(mine, Tensor):
                with torch.no_grad():
                    mine.copy_(given)
        outs = as_tuple(function(*values))
        grads = [g.to(o.dtype) for g, o in zip(self.grads, outs, strict=True)]
        leaves = leaves_of(values)
        found = [*outs, *(torch.autograd.grad(outs, leaves, grads) if leaves else ())]
        return max(_distance(g.detach(), w) for g, w in zip(found, self.exact, strict=True))


def _distance(got: Tensor, want: Tensor) -> float:
    """Norm-wise; a NaN where a NaN is expected (of the logarithm of a negative number, say) is no error."""
    if (
        got.dtype in STEPS
    ):  # in percent of the elements; a neighbour is no error: what was rounded may differ in its last bit
        beyond = (STEPS[got.dtype](got) - STEPS[got.dtype](want)).abs() > 1
        return 100 * float(beyond.double().mean())
    got = got.double()
    difference = torch.where(got.isnan() & want.isnan(), 0.0, got - want)
    return float(difference.norm() / want.nan_to_num(0.0).norm().clamp_min(1e-30))


class Runner:
    """Measures groups of cells on one device."""

    def __init__(self, timer: Gpu | Cpu) -> None:
        self.timer = timer
        self._arenas: dict[str, Arena] = {}

    def group(self, group: Group) -> Iterator[results.Row]:
        """The rows of a group's cells, as they are measured."""
        device, dtype = self.timer.device, DTYPES[group.dtype]
        if group.dtype not in self._arenas:
            self._arenas = {group.dtype: Arena(device, dtype)}  # that of another dtype is given back
        names = list(dict.fromkeys(name for name, _ in group.cells))
        there = {n: peers.implementation(n, group.workload) for n in names}
        try:
            reference = Reference(group.workload, device, dtype)
        except torch.OutOfMemoryError as error:
            yield from (_failed(n, d, error) for n, d in group.cells)
            return
        # The CPU's implementations take turns; those of a GPU come one by one, each with inputs made anew.
        for batch in [[n] for n in there] if device == "cuda" else [list(there)]:
            yield from self._batch(group, {n: there[n] for n in batch}, reference)

    def _batch(
        self, group: Group, batch: dict[str, peers.Implementation], reference: Reference
    ) -> Iterator[results.Row]:
        errors: dict[str, float] = {}
        for name, one in batch.items():
            cells = [(n, d) for n, d in group.cells if n == name]
            try:
                if self.timer.device == "cuda":
                    self._arena(group).refill()
                error = reference.error(one.function, self._sets(group, one, 1)[0])
                if not error < BOUNDS[group.dtype] * (1 if name == "avo" else 5):
                    raise ValueError(f"wrong: relative error {error:.1e}")
                errors[name] = error
            except Exception as error:  # of whatever kind a peer has
                yield from (_failed(n, d, error) for n, d in cells)
                self._stop_if_lost(name)
        for direction in DIRECTIONS:
            timed = [n for n in errors if (n, direction) in group.cells]
            if timed:
                yield from self._direction(group, direction, {n: batch[n] for n in timed}, errors)

    def _direction(
        self, group: Group, direction: str, batch: dict[str, peers.Implementation], errors: dict[str, float]
    ) -> Iterator[results.Row]:
        timer = self.timer
        moved = group.workload.bytes(direction, DTYPES[group.dtype])
        try:
            calls = {n: self._calls(group, one, direction, timer.sets(moved)) for n, one in batch.items()}
            times, copy = timer.times(calls, moved)
            for name, t in times.items():
                cpu, peak = timer.cpu_time(calls[name][0]), timer.peak_bytes(calls[name][0])
                yield {
                    "implementation": name, "direction": direction, "us": round(t.median, 3), "us_low": round(t.low, 3),
                    "us_high": round(t.high, 3), "method": t.method, "bytes": moved, "copy_us": round(copy.median, 3),
                    "of_copy": round(copy.median / t.median, 4), "cpu_us": cpu and round(cpu, 2), "peak_bytes": peak,
                    "error": float(f"{errors[name]:.3g}"),
                }  # fmt: skip
        except Exception as error:
            yield from (_failed(n, direction, error) for n in batch)
            self._stop_if_lost(", ".join(batch))

    def _calls(self, group: Group, one: peers.Implementation, direction: str, count: int) -> list[Call]:
        """One call for each set of inputs."""
        sets = self._sets(group, one, count)
        arena = self._arena(group)
        function = one.function
        if direction == "forward":
            return [lambda a=a: function(*a) for a in sets]  # type: ignore[misc]
        calls: list[Call] = []
        for values in sets:
            leaves = leaves_of(values)
            outs = as_tuple(function(*values))
            grads = [
                arena.take(o.shape) if o.dtype == arena.dtype else torch.randn_like(o.detach()) for o in outs
            ]
            if direction == "backward":

                def call(o: Any = outs, v: Any = leaves, g: Any = grads) -> object:
                    return torch.autograd.grad(o, v, g, retain_graph=True)

            else:

                def call(o: Any = values, v: Any = leaves, g: Any = grads) -> object:
                    return torch.autograd.grad(as_tuple(function(*o)), v, g)

            calls.append(call)
        return calls

    def _sets(self, group: Group, one: peers.Implementation, count: int) -> list[list[Any]]:
        arena = self._arena(group)
        arena.reset()
        names = list(group.workload.call)
        found = []
        for _ in range(count):
            values = group.workload.arguments(
                lambda shape, primary: arena.take(shape, group.layout if primary else "contiguous")
            )
            for name in one.float32:
                i = names.index(name)
                values[i] = values[i].detach().float().requires_grad_()
            found.append(values)
        return found

    def _arena(self, group: Group) -> Arena:
        return self._arenas[group.dtype]

    def _stop_if_lost(self, name: str) -> None:
        if not self.timer.alive():
            raise SystemExit(
                f"the GPU no longer answers after {name}: give the command again, to go on after it"
            )


def _failed(name: str, direction: str, error: BaseException) -> results.Row:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return {"implementation": name, "direction": direction, "failed": text[:300]}


# ---- the command ----


def groups(options: argparse.Namespace, done: set[results.Key]) -> list[Group]:
    """What is to be measured, without what is ``done``."""
    known = every_workload(2, 8)
    wanted = [o for o in options.ops.split(",") if o] or list(known)
    unknown = [o for o in wanted if o not in known]
    if unknown:
        raise SystemExit(f"there is no operator {', '.join(unknown)}; there are {', '.join(known)}")
    found = []
    for op in wanted:
        for dtype in options.dtypes.split(","):
            for m, n in _shapes(options, known[op]):
                workload = every_workload(m, n)[op]
                for layout in options.layouts.split(","):
                    cells = [
                        (i, d)
                        for i in options.implementations.split(",")
                        if peers.has(i, workload, options.device)
                        for d in _directions(options, workload)
                        if (options.device, op, d, dtype, m, n, layout, i) not in done
                    ]
                    found.append(Group(workload, dtype, layout, tuple(cells)))
    return [g for g in found if g.cells]


def _shapes(options: argparse.Namespace, workload: Measured) -> Sequence[tuple[int, int]]:
    if not options.shapes:
        return shapes_of(workload, options.device)
    pairs = [s.split("x") for s in options.shapes.split(",")]
    return [(int(m), int(n)) for m, n in pairs]


def _directions(options: argparse.Namespace, workload: Measured) -> Sequence[str]:
    if not workload.has_backward:
        return DIRECTIONS[:1]
    if options.directions:
        return options.directions.split(",")  # type: ignore[no-any-return]
    return DIRECTIONS if workload.kind == "loss" else DIRECTIONS[:2]


def _choices(text: str, known: Sequence[str], what: str) -> str:
    wrong = [t for t in text.split(",") if t and t not in known]
    if wrong:
        raise SystemExit(f"{what}: {', '.join(wrong)} is not one of {', '.join(known)}")
    return text


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m benchmarks run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cuda", "cpu")
    )
    found.add_argument(
        "--ops", default="", help="such as gelu,gelu_tanh,layer_norm (default: the whole catalogue)"
    )
    found.add_argument(
        "--shapes", default="", help="such as 8192x4096,64x4096 (default: by the kind of operator)"
    )
    found.add_argument("--dtypes", help="default: bfloat16 on a GPU, float32,bfloat16 on the CPU")
    found.add_argument(
        "--directions", default="", help="forward,backward,both (default: both for losses alone)"
    )
    found.add_argument(
        "--layouts", default="contiguous", help="contiguous,sliced,offset, of the (M, N) operands"
    )
    found.add_argument("--implementations", help=f"of {','.join(peers.NAMES)}")
    found.add_argument("--out", type=Path, help="file of JSON lines, to which results are added")
    found.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no further group after this long"
    )
    return found


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    for name, value in DEFAULTS[options.device].items():
        setattr(options, name, getattr(options, name) or value)
    _choices(options.dtypes, tuple(DTYPES), "--dtypes")
    _choices(options.directions, DIRECTIONS, "--directions")
    _choices(options.layouts, LAYOUTS, "--layouts")
    _choices(options.implementations, peers.NAMES, "--implementations")
    done = set(results.read([options.out])) if options.out and options.out.exists() else set()
    todo = groups(options, done)
    peers.prepared()
    runner = Runner(Gpu() if options.device == "cuda" else Cpu())
    about, writer = results.about(options.device), results.Writer(options.out)
    print(" ".join(f"{k} {v};" for k, v in about.items()))
    progress = results.Progress(sum(len(g.cells) for g in todo))
    wrong = 0
    for group in todo:
        if progress.seconds > options.seconds:
            progress.clear()
            left = sum(len(g.cells) for g in todo) - progress.done
            print(
                f"stopped after {progress.seconds:.0f} s with {left} cells left: give the command again to go on"
            )
            break
        progress.show(str(group))
        rows = []
        for row in runner.group(group):
            w = group.workload
            row = {
                "device": options.device, "op": w.name, "dtype": group.dtype, "m": w.m, "n": w.n, "layout": group.layout,
                **row, **about,
            }  # fmt: skip
            writer.write(row)
            rows.append(row)
            wrong += row["implementation"] == "avo" and "failed" in row
        progress.step(len(group.cells))
        progress.clear()
        for line in table_lines(group, rows):
            print(f"{progress.head()} {line}", flush=True)
    return int(wrong > 0)


def table_lines(group: Group, rows: Sequence[results.Row]) -> Iterator[str]:
    """A line for each direction: each implementation's time and the share that a copy's is of it; then the copy's."""
    for direction in DIRECTIONS:
        mine = [r for r in rows if r["direction"] == direction]
        good = [r for r in mine if "us" in r]
        if not mine:
            continue
        cells = [f"{r['implementation']} {r['us']:.2f} ({r['of_copy']:.2f})" for r in good]
        copy = f"copy {good[0]['copy_us']:.2f}" if good else ""
        yield "  ".join([f"{group} {direction}:", *cells, copy])
        for r in mine:
            if "failed" in r:
                yield f"    {r['implementation']}: {r['failed']}"


if __name__ == "__main__":
    sys.exit(main())
