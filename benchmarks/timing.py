"""Timing. On a GPU: CUDA-graph replays over rotated inputs, so that neither the CPU nor the L2 cache is in a figure.

On the CPU: wall clock, the implementations in turns, so that what else the machine does is shared among them.
"""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

Call = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """Microseconds of one call: the median, and the quartiles around it. ``method``: graph, events or wall."""

    median: float
    low: float
    high: float
    method: str

    @staticmethod
    def of(samples: Sequence[float], method: str) -> Timing:
        ordered = sorted(samples)
        last = len(ordered) - 1
        low, median, high = (ordered[round(q * last)] for q in (0.25, 0.5, 0.75))
        return Timing(median, low, high, method)

    def scaled(self, factor: float) -> Timing:
        return Timing(self.median * factor, self.low * factor, self.high * factor, self.method)


class Gpu:
    """Times calls on the current GPU. All graphs share one memory pool.

    From its construction on, the work of this thread is on one stream that can be captured: autograd runs a backward on
    the stream of its forward.
    """

    device = "cuda"
    REPLAYS = 21
    MOST_CALLS = 100  # in a graph

    def __init__(self) -> None:
        l2 = torch.cuda.get_device_properties().L2_cache_size
        # A pass over the inputs moves at least this much, so that nothing of it is left in the L2 cache for the next.
        self.rotated = 6 * l2
        torch.cuda.set_stream(torch.cuda.Stream())
        self._pool = torch.cuda.graph_pool_handle()
        self._flusher = torch.ones(max(2 * l2 // 4, 1), dtype=torch.int32, device="cuda")
        self._copies: dict[int, Timing] = {}
        # A graph that lives as long as this object keeps the pool: the others give their memory back to it.
        self._anchor, self._kept = self._capture([lambda: torch.ones(1, device="cuda")])

    def sets(self, moved: int) -> int:
        """How many sets of inputs to rotate through, for calls that move so many bytes."""
        return min(self.MOST_CALLS, max(2, -(-self.rotated // max(moved, 1))))

    def times(self, calls: Mapping[str, Sequence[Call]], moved: int) -> tuple[dict[str, Timing], Timing]:
        """The time of a call by name, and of a copy; each name has one call for each set of inputs."""
        return {name: self._time(each, moved) for name, each in calls.items()}, self._copy(moved)

    def _time(self, calls: Sequence[Call], moved: int) -> Timing:
        calls[0]()
        torch.cuda.synchronize()
        try:
            # What waits for the GPU is found before a capture that it would break: the random numbers of this process with it.
            torch.cuda.set_sync_debug_mode("error")
            try:
                calls[1]()
            finally:
                torch.cuda.set_sync_debug_mode("default")
            torch.cuda.synchronize()
            graph, kept = self._capture(calls)
        except RuntimeError:  # it synchronises, for example
            torch.cuda.synchronize()
            return Timing.of(self._events(lambda: [call() for call in calls], len(calls), moved), "events")
        samples = self._events(graph.replay, len(calls), moved)
        del kept
        graph.reset()
        return Timing.of(samples, "graph")

    def _capture(self, calls: Sequence[Call]) -> tuple[torch.cuda.CUDAGraph, list[object]]:
        """The calls as one graph; their outputs stay alive for a pass.

        Not by ``torch.cuda.graph``, which hands all cached memory back first: seconds, over a whole run.
        """
        graph = torch.cuda.CUDAGraph()
        gc.disable()  # a tensor of some earlier graph must not be freed in the middle
        try:
            graph.capture_begin(pool=self._pool)
            try:
                kept = [call() for call in calls]
            except BaseException:
                with contextlib.suppress(RuntimeError):  # the first error says why
                    graph.capture_end()
                raise
            graph.capture_end()
        finally:
            gc.enable()
        return graph, kept

    def _events(self, run: Call, calls: int, moved: int) -> list[float]:
        """Microseconds of a call in each of several runs.

        The GPU sleeps before each until its launches are under way, so that no launch is waited for between the two events.
        """
        cold = moved * calls < self.rotated
        sleep = 200_000 + 2_000 * calls
        for _ in range(3):
            run()
        pairs = []
        for _ in range(self.REPLAYS):
            if cold:
                self._flusher.sum()
            torch.cuda._sleep(sleep)
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            run()
            end.record()
            pairs.append((begin, end))
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) * 1e3 / calls for begin, end in pairs]

    def _copy(self, moved: int) -> Timing:
        """A copy that reads and writes so many bytes in all: the faster of a memcpy and a kernel.

        Both move a whole number of 4 KB blocks (a ragged size costs a memcpy a quarter of its speed), nearly as many as
        asked (sizes within 0.4 % share a measurement), and are scaled; below a megabyte the time hardly knows the size.
        """
        blocks = -(-moved // 8192)
        step = 1 << max(blocks.bit_length() - 8, 0)
        blocks = blocks // step * step
        if blocks not in self._copies:
            count = self.sets(8192 * blocks)
            sources = torch.randn(count, 2048 * blocks, device="cuda", dtype=torch.bfloat16)
            targets = torch.empty_like(sources)
            torch.cuda.synchronize()
            pairs = list(zip(sources, targets, strict=True))
            kinds: dict[str, Sequence[Call]] = {
                "memcpy": [lambda s=s, t=t: t.copy_(s) for s, t in pairs],  # type: ignore[misc]
                "kernel": [lambda s=s, t=t: torch.neg(s, out=t) for s, t in pairs],  # type: ignore[misc]
            }
            found = [self._time(calls, 8192 * blocks) for calls in kinds.values()]
            self._copies[blocks] = min(found, key=lambda t: t.median)
        return self._copies[blocks].scaled(moved / (8192 * blocks) if blocks > 128 else 1.0)

    def cpu_time(self, call: Call, calls: int = 20, runs: int = 3) -> float:
        """Microseconds for which a call keeps the CPU: the least of a few runs, each too short to fill the GPU's queue."""
        best = math.inf
        for _ in range(runs):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            best = min(best, time.perf_counter() - begin)
        torch.cuda.synchronize()
        return best / calls * 1e6

    def peak_bytes(self, call: Call) -> int:
        """What a call allocates at most, results included."""
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return torch.cuda.max_memory_allocated() - before

    def alive(self) -> bool:
        """Whether the GPU still answers: after an illegal access nothing of this process will run there."""
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return False
        return True


class Cpu:
    """Times calls on the CPU: one set of inputs, which may stay in the caches."""

    device = "cpu"

    def __init__(self, seconds: float = 0.15, rounds: int = 25) -> None:
        self.seconds, self.rounds = seconds, rounds

    def sets(self, moved: int) -> int:
        return 1

    def times(self, calls: Mapping[str, Sequence[Call]], moved: int) -> tuple[dict[str, Timing], Timing]:
        """The time of a call by name, and of a copy of as many bytes, all in turns.

        A sample is as many calls as take about ``seconds / rounds``, and one at least.
        """
        source = torch.randn(max(moved // 8, 1))
        target = torch.empty_like(source)
        each: list[Call] = [*(one[0] for one in calls.values()), lambda: target.copy_(source)]
        counts = [self._count(call) for call in each]
        samples: list[list[float]] = [[] for _ in each]
        for _ in range(self.rounds):
            for call, count, found in zip(each, counts, samples, strict=True):
                begin = time.perf_counter()
                for _ in range(count):
                    call()
                found.append((time.perf_counter() - begin) / count * 1e6)
        *timings, copy = [Timing.of(found, "wall") for found in samples]
        return dict(zip(calls, timings, strict=True)), copy

    def _count(self, call: Call) -> int:
        call()
        begin = time.perf_counter()
        call()
        once = max(time.perf_counter() - begin, 1e-7)
        return max(1, min(1000, int(self.seconds / self.rounds / once)))

    def cpu_time(self, call: Call) -> None:
        """The time of a call is this already."""

    def peak_bytes(self, call: Call) -> None:
        """Not known to torch's allocator."""

    def alive(self) -> bool:
        return True
