"""Random numbers that depend on nothing but a row's seed and a column's number: what dropout draws, and draws again.

Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). The key is the seed, the counter is
the column's number over 4, and the remainder says which of the four results it has.
"""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10

_MASK = 0xFFFFFFFF


def _product(a: Tensor, constant: int) -> tuple[Tensor, Tensor]:
    """The high and the low 32 bits of a product of 32-bit numbers, in int64."""
    low, high = a * (constant & 0xFFFF), a * (constant >> 16)
    middle = high + (low >> 16)
    return middle >> 16, ((middle & 0xFFFF) << 16) | (low & 0xFFFF)


def philox(seed: Tensor, counter: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four 32-bit numbers for each counter, in int64; ``seed`` and ``counter`` are int64 and broadcast."""
    keys = [seed & _MASK, (seed >> 32) & _MASK]
    zero = torch.zeros_like(counter)
    words = (counter & _MASK, (counter >> 32) & _MASK, zero, zero)
    for _ in range(ROUNDS):
        (high0, low0), (high1, low1) = _product(words[0], MULTIPLIERS[0]), _product(words[2], MULTIPLIERS[1])
        words = (high1 ^ words[1] ^ keys[0], low1, high0 ^ words[3] ^ keys[1], low0)
        keys = [(k + w) & _MASK for k, w in zip(keys, WEYL, strict=True)]
    return words


def _uniform(seed: Tensor, column: Tensor) -> Tensor:
    if column.dim() == 1 and (not seed.dim() or seed.shape[-1] == 1):
        # One seed for all columns: each counter once, not for every column that shares it.
        counters, place = torch.unique_consecutive(column >> 2, return_inverse=True)
        words = torch.stack(philox(seed, counters), -1).flatten(-2)
        chosen = words[..., 4 * place + (column & 3)]
    else:
        four = torch.stack(philox(seed, column >> 2))
        chosen = four.gather(0, (column & 3).expand(four.shape[1:]).unsqueeze(0)).squeeze(0)
    # 24 bits, which every dtype of the math holds: float32 and float64 draw the same.
    return (chosen >> 8).to(torch.float64) * 2.0**-24


_library = torch.library.Library("avo_random", "DEF")  # type: ignore[no-untyped-call]
_library.define("uniform(Tensor seed, Tensor column) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))  # type: ignore[no-untyped-call]
_library.impl("uniform", _uniform, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]


@torch.library.register_fake("avo_random::uniform", lib=_library)
def _fake(seed: Tensor, column: Tensor) -> Tensor:
    shape = torch.broadcast_shapes(seed.shape, column.shape)  # type: ignore[no-untyped-call]
    return seed.new_empty(shape, dtype=torch.float64)


@torch.library.register_vmap("avo_random::uniform", lib=_library)
def _batched(info: Any, in_dims: tuple[int | None, ...], seed: Tensor, column: Tensor) -> tuple[Tensor, int]:
    rank = max(t.dim() - (d is not None) for t, d in zip((seed, column), in_dims, strict=True))
    moved = []
    for t, d in zip((seed, column), in_dims, strict=True):
        if d is not None:
            t = t.movedim(d, 0)
            t = t.reshape(t.shape[0], *(1,) * (rank + 1 - t.dim()), *t.shape[1:])
        moved.append(t)
    return torch.ops.avo_random.uniform(*moved), 0


def uniform(seed: Tensor, column: Tensor) -> Tensor:
    """Numbers in [0, 1), multiples of 2**-24, float64.

    Args:
        seed: int64, one for each row.
        column: int64, the number of each column; the two broadcast.
    """
    out: Tensor = torch.ops.avo_random.uniform(seed, column)
    return out
