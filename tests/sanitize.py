"""Every operator forward and backward on the GPU at the smallest sizes, for NVIDIA's compute-sanitizer:

    compute-sanitizer --tool memcheck python tests/sanitize.py
    compute-sanitizer --tool racecheck python tests/sanitize.py

Widths at both sides of the tiles' ends, rows that are aligned, off by one element, and sliced; prints how many calls and
kernels ran.
"""

from __future__ import annotations

import torch
from catalogue import LAYOUTS, RECORDS, build, calls, differentiable, incoming, leaves, run

import avo_ops

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # there to try it
WIDTHS = (1, 7, 33, 256, 1000, 1024, 4097, 16384, 65537)


def main() -> None:
    ran = 0
    avo_ops.reset_stats()
    for record in RECORDS.values():
        for n in WIDTHS:
            m = 5 if n <= 4097 else 2
            for call in calls(record, m, n)[-2:]:
                for layout in ("contiguous", "odd rows", "sliced rows")[: 3 if n <= 4097 else 1]:
                    dtype = (torch.bfloat16, torch.float32)[ran % 2]
                    arguments = build(call, dtype, DEVICE, layout=LAYOUTS[layout])
                    grads = [LAYOUTS[layout](g) for g in incoming(record, m, n, dtype, DEVICE)]
                    own = leaves(record, arguments)
                    inputs = [own[k] for k in differentiable(record, own)]
                    torch.autograd.grad(run(record, own), inputs, grads)
                    ran += 1
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    print(f"{ran} calls; {len(avo_ops.stats())} different paths and kernels")


if __name__ == "__main__":
    main()
