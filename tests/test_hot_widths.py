"""Kernels for one width, made in the background: when they are asked for, that they have the same bits, and what stops them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import avo_ops
from avo_ops.generator import build
from avo_ops.jit import compilers, hot_widths
from avo_ops.registry import native_library
from avo_ops.testing import emulate

Tensor = torch.Tensor
CALLS = 64


def norm(x: Tensor, w: Tensor) -> Tensor:
    h = x.float()
    return (h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-6) * w).to(x.dtype)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The thread's work, to be done here by ``finish``: jobs wait in a list."""
    if native_library.runtime() is None:
        pytest.skip("the package is not built")
    made = hot_widths._Worker()
    made.is_ending = True  # so that no thread is started
    monkeypatch.setattr(hot_widths, "_worker", made)
    yield made


def finish(worker: Any) -> list[tuple[str, int, int]]:
    """Do the jobs that wait; which they were."""
    jobs = []
    while not worker.jobs.empty():
        jobs.append(worker.jobs.get())
        worker.work(*jobs[-1])
    return jobs


def ran() -> dict[str, int]:
    return {k.rpartition("cuda/")[2]: n for k, n in avo_ops.stats().items() if "cuda/" in k}


def test_a_width_that_is_called_often_gets_a_kernel_of_the_same_bits(worker: Any) -> None:
    f = avo_ops.compile(norm, name="hot_norm")
    x, other = torch.randn(3, 24).bfloat16(), torch.randn(3, 40).bfloat16()
    w, v = torch.randn(24).bfloat16(), torch.randn(40).bfloat16()
    with emulate(sms=3), torch.no_grad():
        before, beside = f(x, w), f(other, v)
        for _ in range(CALLS - 1):
            f(x, w)
        assert worker.jobs.empty()
        f(x, w)
        ((general, n, arch),) = finish(worker)
        assert (n, arch) == (24, 0)
        (unit,) = worker.made
        assert unit.startswith(general.partition("__")[0]) and unit.endswith("_n24")
        avo_ops.reset_stats()
        for rows in ([0, 1, 2], [0, 1], [2, 0, 1, 1, 2], [1, 0]):
            assert torch.equal(f(x[rows], w), before[rows])
        columns_first = x.t().contiguous().t()
        assert torch.equal(f(columns_first, w), before)
        assert ran() == {unit: 5}
        assert torch.equal(f(other, v), beside)
        shifted = (
            torch.randn(3 * 25 + 1).bfloat16()[1:].view(3, 25)[:, :24]
        )  # rows that do not start at chunks
        f(shifted, w)
        assert set(ran()) == {unit, general, *(k for k in ran() if "chunks" not in k)}
    (variant,) = f.variants()
    assert variant.kernels_of_widths == (unit,)
    assert unit in str(variant)
    for _ in range(3 * CALLS):  # it is asked for once
        with emulate(sms=3), torch.no_grad():
            f(x, w)
    assert worker.jobs.empty()


def test_gradients_get_theirs(worker: Any) -> None:
    f = avo_ops.compile(norm, name="hot_norm_with_gradients")
    x, w = torch.randn(5, 32, requires_grad=True), torch.randn(32, requires_grad=True)
    with emulate(sms=3):
        grads = [torch.autograd.grad(f(x, w).square().sum(), [x, w]) for _ in range(CALLS)]
        assert {n for _, n, _ in finish(worker)} == {32}
        avo_ops.reset_stats()
        again = torch.autograd.grad(f(x, w).square().sum(), [x, w])
        assert sum(k.endswith("_n32") for k in ran()) == 2
    for a, b in zip(grads[0], again, strict=True):
        assert torch.equal(a, b)


def test_widths_in_turn_are_not_hot(worker: Any) -> None:
    f = avo_ops.compile(norm, name="hot_norm_in_turn")
    with emulate(sms=3), torch.no_grad():
        for i in range(3 * CALLS):
            n = (24, 40)[i % 2]
            f(torch.ones(1, n), torch.ones(n))
    assert worker.jobs.empty()


def test_nothing_is_made_after_freeze(worker: Any) -> None:
    f = avo_ops.compile(norm, name="hot_norm_frozen")
    x, w = torch.randn(2, 16), torch.randn(16)
    with emulate(sms=3), torch.no_grad():
        f(x, w)
        avo_ops.freeze()
        try:
            for _ in range(2 * CALLS):
                f(x, w)
            assert worker.jobs.empty()
        finally:
            avo_ops.freeze(False)
        for _ in range(2 * CALLS):  # asked for at a later run of that width
            f(torch.ones(2, 24), torch.ones(24))
        avo_ops.freeze()
        try:
            assert len(finish(worker)) == 1
            assert not worker.made
        finally:
            avo_ops.freeze(False)


def test_a_compiler_that_fails_costs_a_warning(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f = avo_ops.compile(norm, name="hot_norm_failing")
    x, w = torch.randn(2, 16), torch.randn(16)
    with emulate(sms=3), torch.no_grad():
        before = f(x, w)
        for _ in range(CALLS):
            f(x, w)

        def fails(unit: str, arch: int) -> str:
            raise OSError("the disk is full")

        monkeypatch.setattr(hot_widths, "resolve_kernel", fails)
        with pytest.warns(RuntimeWarning, match="for rows of 16 alone: the disk is full"):
            finish(worker)
        assert torch.equal(f(x, w), before)
    assert not worker.made


def test_the_thread_makes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a compile step and a runtime that only say what they were asked for."""
    asked: list[tuple[str, int]] = []
    added: list[tuple[str, str, int, int]] = []

    class Runtime:
        def add_exact(self, *job: Any) -> None:
            added.append(job)

    def resolve(unit: str, arch: int) -> str:
        asked.append((unit, arch))
        return unit

    monkeypatch.setattr(hot_widths, "resolve_kernel", resolve)
    monkeypatch.setattr(hot_widths, "add_exact_unit", lambda general, n: f"{general}_n{n}")
    monkeypatch.setattr(hot_widths, "has_family_of", lambda symbol: symbol != "of_the_catalogue")
    monkeypatch.setattr(native_library, "runtime", Runtime)
    worker = hot_widths._Worker()
    for symbol in ("a", "a", "of_the_catalogue", "b"):
        worker.ask(symbol, 64, 90)
    until = time.monotonic() + 20
    while len(worker.made) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    assert asked == [("a_n64", 90), ("b_n64", 90)]
    assert added == [("a", "a_n64", 64, 90), ("b", "b_n64", 64, 90)]


def test_they_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    class Runtime:
        def set_hot_width_callback(self, callback: Any) -> None:
            raise AssertionError

    monkeypatch.setattr(native_library, "runtime", Runtime)
    monkeypatch.setattr(hot_widths, "_started", [])
    monkeypatch.setenv("AVO_OPS_HOT_WIDTHS", "0")
    hot_widths.start()
    monkeypatch.delenv("AVO_OPS_HOT_WIDTHS")
    with pytest.raises(AssertionError):
        hot_widths.start()


def test_a_kernel_of_one_width_is_that_of_a_build_that_names_the_width() -> None:
    row = {
        "symbol": "f__bf16_f32_t32x4_chunks", "vec": 8,
        "instantiate": "AVO_KERNEL(f__bf16_f32_t32x4_chunks, 128, 4, bf16, f32, 32, 4, kWholeChunks, true)",
    }  # fmt: skip
    symbol, line = build.exact_kernel("f", row, 512)
    assert symbol == "f__bf16_f32_t32x2_n512"
    assert line == f"AVO_KERNEL({symbol}, 128, 4, bf16, f32, 32, 2, 512, true)"
    with pytest.raises(ValueError, match="no kernel for whole chunks"):
        build.exact_kernel("f", {**row, "instantiate": line}, 512)
    assert not compilers.has_family_of(symbol)


def test_the_end_of_a_process_waits_for_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, done = threading.Event(), []

    class Slow(hot_widths._Worker):
        def work(self, symbol: str, n: int, arch: int) -> None:
            begun.set()
            time.sleep(0.2)
            done.append(symbol)

    monkeypatch.setattr(hot_widths, "has_family_of", lambda symbol: True)
    worker = Slow()
    worker.ask("one", 8, 0)
    assert begun.wait(10)
    worker.ask("two", 8, 0)
    worker.end()
    assert done == ["one"], "what was begun is done, and nothing else"
    assert worker.thread is not None and not worker.thread.is_alive()
    worker.ask("three", 8, 0)
    assert not worker.thread.is_alive()


def test_a_call_of_few_rows_and_one_of_many_need_one_kernel(worker: Any) -> None:
    """Which is compiled when it is first called."""
    f = avo_ops.compile(norm, name="few_and_many")
    w = torch.randn(1024)
    with emulate(sms=1), torch.no_grad():
        before = ran()
        few, many = f(torch.ones(2, 1024), w), f(torch.ones(99, 1024), w)
        assert torch.equal(few, many[:2])
        assert len(set(ran()) - set(before)) == 1


def test_a_process_makes_no_more_than_it_may(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_widths, "has_family_of", lambda symbol: True)
    for n in range(hot_widths._MOST + 3):
        worker.ask("one", 8 * n, 0)
    assert worker.jobs.qsize() == hot_widths._MOST


def test_a_forked_child_begins_anew_with_what_was_made(worker: Any) -> None:
    worker.made.append("one__n8")
    with worker.mutex:  # as a thread that the child does not have may hold it
        hot_widths._in_child()
        assert hot_widths._worker is not worker
        assert not hot_widths._worker.mutex.locked()
    assert hot_widths.made_for(["one"]) == ("one__n8",)
