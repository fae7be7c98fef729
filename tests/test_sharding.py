"""The operators on DTensors, in two processes (gloo): each operator with its rows sharded, and what has to be moved first."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from catalogue import RECORDS, REPRESENTATIVES, build, calls, differentiable, leaves, readable, run

import avo_ops
from avo_ops.registry import native_library

TESTS = Path(__file__).resolve().parent
PROCESSES = 2


def worker(rank: int, store: str) -> None:
    import torch.distributed as dist
    from torch.distributed.tensor import init_device_mesh

    torch.set_num_threads(1)
    torch.manual_seed(0)  # the same numbers in both
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=PROCESSES)
    mesh = init_device_mesh("cpu", (PROCESSES,))
    for check in (operators, placements, modules, compiled, refusals):
        try:
            with avo_ops.strict():  # the kernels run throughout
                check(mesh)
        except Exception as error:
            raise AssertionError(f"{check.__name__}: {error}") from error
        if rank == 0:
            print(check.__name__, flush=True)
    dist.destroy_process_group()


def distributed(mesh: Any, tensor: torch.Tensor, placement: Any) -> Any:
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.detach(), mesh, [placement]).requires_grad_(tensor.requires_grad)


def operators(mesh: Any) -> None:
    """Rows over the devices, five and six of them: the results' bits are those of one device, gradients of columns are sums."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    for name in REPRESENTATIVES:
        record = RECORDS[name]
        for m in (5, 6):
            plain = leaves(record, build(calls(record, m, 24)[-1], torch.float32, "cpu"))
            names = differentiable(record, plain)
            spans = {k: record.spans.get(k, "MN") for k, v in plain.items() if isinstance(v, torch.Tensor)}
            split = {k: Shard(0) if span in ("MN", "M") else Replicate() for k, span in spans.items()}
            ours = {k: distributed(mesh, v, split[k]) if k in spans else v for k, v in plain.items()}
            want, got = run(record, plain), run(record, ours)
            for a, b in zip(got, want, strict=True):
                assert a.placements == (Shard(0),) and torch.equal(readable(a.full_tensor()), readable(b)), (
                    name,
                    m,
                )
            if not names:
                continue
            grads = [torch.randn_like(b) for b in want]
            wanted = torch.autograd.grad(want, [plain[k] for k in names], grads)
            for way in (Shard(0), Replicate()):
                given = [distributed(mesh, g, way) for g in grads]
                found = torch.autograd.grad(got, [ours[k] for k in names], given, retain_graph=True)
                for k, a, b in zip(names, found, wanted, strict=True):
                    assert a.placements == ((Partial(),) if spans[k] in "N1" else (Shard(0),)), (
                        name,
                        k,
                        a.placements,
                    )
                    torch.testing.assert_close(a.full_tensor(), b, msg=f"{name} {k}")


def placements(mesh: Any) -> None:
    """Three dims; sharded columns and partial sums are moved, what is whole stays whole, broadcast operands stay where they are."""
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    x, w = torch.randn(4, 3, 16, requires_grad=True), torch.randn(16, requires_grad=True)
    scale, shift = torch.randn(4, 1, 16, requires_grad=True), torch.randn(16, requires_grad=True)
    norm, modulate = torch.ops.avo.rms_norm, torch.ops.avo.layer_norm_modulate
    want = norm(x, [16], w)
    wanted = torch.autograd.grad(want.square().sum(), [x, w])
    for before, after in (
        (Shard(0), Shard(0)),
        (Shard(1), Shard(1)),
        (Shard(2), Replicate()),
        (Replicate(), Replicate()),
    ):
        ours = [distributed(mesh, x, before), distributed(mesh, w, Replicate())]
        y = norm(ours[0], [16], ours[1])
        assert y.placements == (after,) and y.shape == x.shape and y.stride() == x.stride()
        assert torch.equal(y.full_tensor(), want)
        for a, b in zip(torch.autograd.grad(y.square().sum(), ours), wanted, strict=True):
            torch.testing.assert_close(a.full_tensor(), b)
    part = DTensor.from_local(x.detach() / PROCESSES, mesh, [Partial()])
    torch.testing.assert_close(norm(part, [16], ours[1]).full_tensor(), want)
    for before in (Shard(0), Shard(1)):
        given = [distributed(mesh, t, p) for t, p in ((x, before), (scale, Shard(0)), (shift, Replicate()))]
        y = modulate(*given, [16])
        assert y.placements == (before,)
        torch.testing.assert_close(y.full_tensor(), modulate(x, scale, shift, [16]))
        want_scale = torch.autograd.grad(modulate(x, scale, shift, [16]).square().sum(), [scale, shift])
        for a, b in zip(torch.autograd.grad(y.square().sum(), given[1:]), want_scale, strict=True):
            torch.testing.assert_close(a.full_tensor(), b)
    packed = distributed(mesh, torch.randn(3, 4, 16), Shard(1))
    y = torch.ops.avo.swiglu_packed(packed)
    assert y.placements == (Shard(1),) and torch.equal(
        y.full_tensor(), torch.ops.avo.swiglu_packed(packed.full_tensor())
    )


def modules(mesh: Any) -> None:
    """Sequence parallelism, as torch's own norms have it."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import SequenceParallel, parallelize_module

    x = torch.randn(2, 6, 16, requires_grad=True)
    for norm in (avo_ops.nn.LayerNorm(16), avo_ops.nn.RMSNorm(16)):
        torch.nn.init.ones_(norm.weight)
        want = norm(x)
        wanted = torch.autograd.grad(want.sum(), [x, *norm.parameters()])
        sharded = parallelize_module(norm, mesh, SequenceParallel())
        given = distributed(mesh, x, Shard(1))
        y = sharded(given)
        assert y.placements == (Shard(1),) and torch.equal(y.full_tensor(), want)
        y.sum().redistribute(placements=[Replicate()]).backward()
        for a, b in zip([given, *sharded.parameters()], wanted, strict=True):
            torch.testing.assert_close(a.grad.full_tensor(), b)


def compiled(mesh: Any) -> None:
    from torch.distributed.tensor import Replicate, Shard

    ours = [distributed(mesh, torch.randn(4, 16), Shard(0)), distributed(mesh, torch.randn(16), Replicate())]
    norm = torch.ops.avo.rms_norm
    whole = torch.compile(lambda x, w: norm(x * 2, [16], w), backend="aot_eager", fullgraph=True)
    y = whole(*ours)
    assert y.placements == (Shard(0),)
    torch.testing.assert_close(y.full_tensor(), norm(ours[0].full_tensor() * 2, [16], ours[1].full_tensor()))
    f = avo_ops.compile(lambda x: torch.sin(x) * 2)
    f(torch.randn(4, 16))
    (name,) = f.variants()[0].operators
    y = getattr(torch.ops.avo_jit, name)(ours[0])
    assert y.placements == (Shard(0),)
    torch.testing.assert_close(y.full_tensor(), torch.sin(ours[0].full_tensor()) * 2)


def refusals(mesh: Any) -> None:
    from torch.distributed.tensor import Shard

    x = distributed(mesh, torch.randn(4, 16), Shard(0))
    with pytest.raises(
        RuntimeError, match="rms_norm: weight must be a DTensor as others are, but is a plain tensor"
    ):
        torch.ops.avo.rms_norm(x, [16], torch.ones(16))
    with pytest.raises(RuntimeError, match=r"rms_norm: normalized_shape must be the last dimensions of x"):
        torch.ops.avo.rms_norm(x, [8])


def test_two_processes() -> None:
    if native_library.runtime() is None:
        pytest.skip("the package is not built")
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "PYTHONPATH": f"{TESTS.parent}:{TESTS}", "OMP_NUM_THREADS": "1"}
        processes = [
            subprocess.Popen(
                [sys.executable, __file__, str(rank), f"{folder}/store"],
                env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for rank in range(PROCESSES)
        ]  # fmt: skip
        outs = [p.communicate(timeout=600) for p in processes]
    assert [p.returncode for p in processes] == [0] * PROCESSES, "\n".join(error[-3000:] for _, error in outs)
    assert outs[0][0].split() == ["operators", "placements", "modules", "compiled", "refusals"]


if __name__ == "__main__":
    worker(int(sys.argv[1]), sys.argv[2])
