"""Bandwidth over that of a copy, beside eager and torch.compile: ``python -m benchmarks.table --out FILE.jsonl``.

Every implementation is compared with float64 before it is timed. Forward means a training forward, backward the
gradients of all arguments. A fraction is the time of a copy that moves the same bytes, in the same run, over the time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch._functorch.config

from . import timing
from .workloads import WORKLOADS, Workload


def tensors_of(values: Sequence[Any]) -> list[torch.Tensor]:
    return [v for v in values if isinstance(v, torch.Tensor)]


def as_tuple(value: Any) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else tuple(value) if isinstance(value, list) else (value,)


def error(got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> float:
    """The largest norm-wise relative error."""
    return max(
        float((g.double() - w).norm() / w.norm().clamp_min(1e-30)) for g, w in zip(got, want, strict=True)
    )


def check(work: Workload, function: Callable[..., Any], dtype: torch.dtype, m: int, n: int) -> float:
    """Error of results and gradients against float64 on the same inputs."""
    arguments = work.make(m, n, dtype)
    exact = [a.detach().double().requires_grad_() if isinstance(a, torch.Tensor) else a for a in arguments]
    out, want = as_tuple(function(*arguments)), as_tuple(work.eager()(*exact))
    grads = [torch.randn_like(o) for o in out]
    got = torch.autograd.grad(out, tensors_of(arguments), grads)
    wanted = torch.autograd.grad(want, tensors_of(exact), [g.double() for g in grads])
    return error([*out, *got], [*want, *wanted])


def measure(
    work: Workload, function: Callable[..., Any], m: int, n: int, dtype: torch.dtype, backward: bool
) -> timing.Timing:
    sets = [work.make(m, n, dtype) for _ in range(timing.sets_for(work.bytes(m, n, dtype, backward)))]
    if not backward:
        return timing.replay_time([lambda a=a: function(*a) for a in sets])
    # Autograd runs a backward on the stream of its forward: both on one side stream.
    stream = torch.cuda.Stream()
    calls = []
    with torch.cuda.stream(stream):
        for arguments in sets:
            out = as_tuple(function(*arguments))
            grads = [torch.randn_like(o) for o in out]
            calls.append(
                lambda o=out, a=arguments, g=grads: torch.autograd.grad(
                    o, tensors_of(a), g, retain_graph=True
                )
            )
        stream.synchronize()
        return timing.replay_time_on(calls, stream)


def implementations(names: Sequence[str], work: Workload) -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for name in names:
        if name == "avo":
            found[name] = work.avo()
        elif name == "eager":
            found[name] = work.eager()
        elif name == "compile":
            torch._dynamo.reset()
            found[name] = torch.compile(work.eager(), dynamic=False)
        else:
            raise ValueError(f"unknown implementation {name!r}")
    return found


def machine() -> dict[str, Any]:
    """Card, driver, versions, commit and date, which every line of results carries."""

    def run(*command: str) -> str:
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return "unknown"

    return {
        "card": torch.cuda.get_device_name(),
        "driver": run("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").splitlines()[0],
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "commit": run("git", "rev-parse", "--short", "HEAD"),
        "date": time.strftime("%Y-%m-%d"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table", description=__doc__)
    parser.add_argument("--out", type=Path, help="append one JSON line a cell to this file")
    parser.add_argument("--shapes", default="8192x4096,8192x1024")
    parser.add_argument("--ops", default=",".join(w.op for w in WORKLOADS))
    parser.add_argument("--implementations", default="avo,eager,compile")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--directions", default="forward,backward")
    args = parser.parse_args()
    torch._functorch.config.donated_buffer = (
        False  # the backward of a compiled function runs several times here
    )
    dtype = getattr(torch, args.dtype)
    names = args.implementations.split(",")
    about = machine()
    print(json.dumps(about))
    print(f"{'op':<16}{'direction':<10}{'shape':<14}" + "".join(f"{n:>22}" for n in names) + f"{'copy':>16}")
    for work in WORKLOADS:
        if work.op not in args.ops.split(","):
            continue
        for shape in args.shapes.split(","):
            m, n = (int(s) for s in shape.split("x"))
            for direction in args.directions.split(","):
                backward = direction == "backward"
                moved = work.bytes(m, n, dtype, backward)
                copy = timing.copy_time(moved)
                cells = []
                for name, function in implementations(names, work).items():
                    wrong = check(work, function, dtype, min(m, 512), n)
                    if not wrong < 2e-2:
                        raise SystemExit(f"{work.op} by {name} is wrong: relative error {wrong:.2e}")
                    t = measure(work, function, m, n, dtype, backward)
                    cells.append(
                        f"{copy.median / t.median:.2f} {moved / t.median / 1e3:5.0f} GB/s {t.median:6.1f}"
                    )
                    row = {
                        **about, "op": work.op, "direction": direction, "shape": [m, n], "dtype": args.dtype,
                        "implementation": name, "us": round(t.median, 2), "us_low": round(t.low, 2),
                        "us_high": round(t.high, 2), "bytes": moved, "copy_us": round(copy.median, 2),
                        "of_copy": round(copy.median / t.median, 3), "error": wrong,
                    }  # fmt: skip
                    if args.out:
                        with args.out.open("a") as file:
                            file.write(json.dumps(row) + "\n")
                line = f"{work.op:<16}{direction:<10}{shape:<14}" + "".join(f"{c:>22}" for c in cells)
                print(line + f"{moved / copy.median / 1e3:7.0f} GB/s {copy.median:6.1f}", flush=True)


if __name__ == "__main__":
    main()
