"""Tensors of more than 2^32 elements, and strides beyond 2^31: rows among them have the bits of the same rows alone.

On a GPU with 100 GB of free memory; elsewhere offsets of that size are planned in test_runtime.py and not executed.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from catalogue import RECORDS, REPRESENTATIVES, as_tuple, equal

import avo_ops
from avo_ops.definitions import OpDef
from avo_ops.definitions.record import Narrow, Whole
from benchmarks.accuracy import calls, differentiable

N = 4096
M = 2**20 + 2  # M * N is above 2^32, and row 2^19 begins at element 2^31
ROWS = [0, 1, 2**19 - 1, 2**19, 2**19 + 1, 2**20 - 1, 2**20, 2**20 + 1]


def has_room() -> bool:
    return torch.cuda.is_available() and torch.cuda.mem_get_info()[0] > 100e9


pytestmark = [
    pytest.mark.skipif(not has_room(), reason="needs a GPU with 100 GB of free memory"),
    pytest.mark.xdist_group("large"),  # one at a time
]


def make(a: Any) -> Any:
    if isinstance(a, Whole):
        return torch.randint(a.low, a.high, a.shape, device="cuda")
    if isinstance(a, Narrow):
        return (30 * torch.randn(a.shape, device="cuda", dtype=torch.bfloat16)).to(a.dtype)
    if a == ():
        return torch.full((), 0.05, device="cuda")
    if not isinstance(a, tuple):
        return a
    of_row = len(a) == 2 and a[1] == 1  # taken in float32
    return torch.randn(a, device="cuda", dtype=torch.float32 if of_row else torch.bfloat16)


def arguments_of(record: OpDef, m: int) -> list[dict[str, Any]]:
    """Every variant of an operator's calls, on bfloat16 tensors. Packed operands have N columns in all."""
    n = N // 2 if record.parts else N
    return [{key: make(a) for key, a in call.items()} for _, call in calls(record, m, n)]


def of_rows(a: Any, m: int) -> Any:
    return a[ROWS] if isinstance(a, torch.Tensor) and a.dim() and a.shape[0] == m else a


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_more_than_two_to_the_32_elements(name: str) -> None:
    op, wanted = getattr(torch.ops.avo, name), differentiable(name)
    for arguments in arguments_of(RECORDS[name], M):
        few = {key: of_rows(a, M) for key, a in arguments.items()}
        for key in wanted:
            arguments[key].requires_grad_(), few[key].requires_grad_()
        with avo_ops.strict(copies=not RECORDS[name].interleaved):  # interleaved pairs are taken apart first
            out, few_out = as_tuple(op(*arguments.values())), as_tuple(op(*few.values()))
            for a, b in zip(out, few_out, strict=True):
                assert equal(a[ROWS], b)
            if not wanted:
                continue
            grads = [torch.randn_like(o) for o in out]
            rows = [key for key in wanted if arguments[key].shape[0] == M]
            found = torch.autograd.grad(out, [arguments[key] for key in rows], grads)
            few_found = torch.autograd.grad(few_out, [few[key] for key in rows], [g[ROWS] for g in grads])
        for a, b in zip(found, few_found, strict=True):
            assert equal(a[ROWS], b)
        del out, grads, found, arguments


@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_stride_beyond_two_to_the_31(name: str) -> None:
    op = getattr(torch.ops.avo, name)
    for arguments in arguments_of(RECORDS[name], 2):
        far = []
        for a in arguments.values():
            if isinstance(a, torch.Tensor) and a.dim() == 2:
                memory = torch.empty(2**31 + 64 + a.shape[1], device="cuda", dtype=a.dtype)
                a = memory.as_strided(a.shape, (2**31 + 64, 1)).copy_(a)
            far.append(a)
        for a, b in zip(as_tuple(op(*far)), as_tuple(op(*arguments.values())), strict=True):
            assert equal(a, b)
