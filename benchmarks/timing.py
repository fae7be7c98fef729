"""Timing on one GPU: CUDA-graph replay over rotated inputs, so that neither the CPU nor the L2 cache is in a figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

# The inputs of one pass are larger than this, several times the 60 MB of an H200's L2 cache.
ROTATED_BYTES = 400_000_000


@dataclass(frozen=True)
class Timing:
    """Microseconds of one call: the median over the replays, and the 20th and 80th percentile."""

    median: float
    low: float
    high: float


def sets_for(bytes_per_call: int) -> int:
    """How many sets of inputs one pass rotates through."""
    return max(2, ROTATED_BYTES // max(bytes_per_call, 1) + 1)


def replay_time(calls: Sequence[Callable[[], object]], *, replays: int = 15) -> Timing:
    """Time of one of ``calls``, which are captured together in a CUDA graph; their outputs stay alive for a pass."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    return replay_time_on(calls, stream, replays=replays)


def replay_time_on(
    calls: Sequence[Callable[[], object]], stream: torch.cuda.Stream, *, replays: int = 15
) -> Timing:
    """The same on a stream of the caller's."""
    with torch.cuda.stream(stream):
        for call in calls[:2]:
            call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            kept = [call() for call in calls]
        for _ in range(3):
            graph.replay()
        times = []
        for _ in range(replays):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / len(calls))
    del kept, graph
    times.sort()
    return Timing(times[len(times) // 2], times[len(times) // 5], times[len(times) * 4 // 5])


def copy_time(bytes_moved: int) -> Timing:
    """Time of a copy that reads and writes ``bytes_moved`` bytes in all: the faster of a memcpy and a kernel.

    Both move a whole number of 4 KB blocks (a ragged size costs a memcpy a quarter of its speed), and are scaled.
    """
    elements = max(bytes_moved // 4 // 2048, 1) * 2048
    count = sets_for(bytes_moved)
    sources = [torch.randn(elements, device="cuda").to(torch.bfloat16) for _ in range(count)]
    targets = [torch.empty_like(s) for s in sources]
    pairs = list(zip(sources, targets, strict=True))
    best = min(
        replay_time([lambda s=s, t=t: t.copy_(s) for s, t in pairs]),
        replay_time([lambda s=s, t=t: torch.neg(s, out=t) for s, t in pairs]),
        key=lambda t: t.median,
    )
    scale = bytes_moved / (4 * elements)
    return Timing(best.median * scale, best.low * scale, best.high * scale)
