"""avo_ops.optim beside torch.optim: the same trajectories, the same state, and what a training loop does to an optimizer."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

import avo_ops
from avo_ops import optim, testing

Tensor = torch.Tensor
Make = Callable[[Any], torch.optim.Optimizer]

SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "adamw": ("AdamW", {}),
    "adamw with settings": ("AdamW", {"lr": 1e-2, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}),
    "adamw to maximize": ("AdamW", {"lr": 1e-2, "maximize": True}),
    "adamw with amsgrad": ("AdamW", {"lr": 1e-2, "amsgrad": True}),
    "sgd": ("SGD", {"lr": 0.1, "weight_decay": 0.1}),
    "sgd with momentum": ("SGD", {"lr": 0.1, "momentum": 0.9}),
    "sgd with dampening": ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    "sgd by nesterov": ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True}),
}
each_setting = pytest.mark.parametrize("setting", SETTINGS)


def maker(module: Any, setting: str, **more: Any) -> Make:
    name, settings = SETTINGS[setting]
    return lambda params: getattr(module, name)(params, **settings, **more)


def model(dtype: torch.dtype = torch.float32) -> torch.nn.Sequential:
    torch.manual_seed(1)
    parts = [torch.nn.Linear(17, 23), torch.nn.LayerNorm(23), torch.nn.Linear(23, 5)]
    return torch.nn.Sequential(*parts).to(dtype)


def train(net: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    dtype = next(net.parameters()).dtype
    for _ in range(steps):
        x = torch.randn(11, 17, generator=generator, dtype=torch.float64).to(dtype)
        optimizer.zero_grad()
        (net(x) ** 2).mean().backward()
        optimizer.step()


def trained(make: Make, dtype: torch.dtype = torch.float32, steps: int = 20) -> list[Tensor]:
    net = model(dtype)
    train(net, make(net.parameters()), steps)
    return list(net.parameters())


def distance(a: Iterable[Tensor], b: Iterable[Tensor]) -> float:
    return max((x - y).abs().max().item() for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@each_setting
def test_twenty_steps(setting: str, dtype: torch.dtype) -> None:
    with avo_ops.strict(copies=True):
        ours = trained(maker(optim, setting), dtype)
    most = 3e-6 if dtype == torch.float32 else 1e-14
    assert distance(ours, trained(maker(torch.optim, setting, foreach=False), dtype)) < most
    assert distance(ours, model(dtype).parameters()) > 1e-3


@pytest.mark.parametrize("setting", ["adamw with settings", "adamw with amsgrad", "sgd by nesterov"])
def test_twenty_steps_by_the_kernels_for_cuda(setting: str) -> None:
    with testing.emulate(sms=4):
        ours = trained(maker(optim, setting))
    assert distance(ours, trained(maker(torch.optim, setting, foreach=False))) < 3e-6


def test_bfloat16_with_state_in_float32() -> None:
    """Every step is the one of float32 from the rounded parameter."""
    net = model(torch.bfloat16)
    optimizer = optim.AdamW(net.parameters(), lr=1e-2, state_dtype=torch.float32)
    for step in range(3):
        wide = [p.detach().float().requires_grad_() for p in net.parameters()]
        twin = torch.optim.AdamW(wide, lr=1e-2, foreach=False)
        states = [copy.deepcopy(optimizer.state[p]) for p in net.parameters()]
        train(net, optimizer, 1, seed=step)
        for p, w, state in zip(net.parameters(), wide, states, strict=True):
            w.grad = p.grad.float()
            twin.state[w] = state
        twin.step()
        for p, w in zip(net.parameters(), wide, strict=True):
            assert optimizer.state[p]["exp_avg"].dtype == torch.float32
            assert (p.float() - w).abs().max() <= 2.0**-8 * w.abs().max()


def test_lion() -> None:
    """Against its formula, in float64."""
    p = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64))
    optimizer = optim.Lion([p], lr=0.1, betas=(0.9, 0.99), weight_decay=0.5)
    want, m = p.detach().clone(), torch.zeros(3, dtype=torch.float64)
    for i in range(5):
        p.grad = torch.tensor([1.0, -1.0, (-1.0) ** i * (i + 1)], dtype=torch.float64)
        optimizer.step()
        update = torch.sign(0.9 * m + 0.1 * p.grad)
        want = want * (1 - 0.1 * 0.5) - 0.1 * update
        m = 0.99 * m + 0.01 * p.grad
    torch.testing.assert_close(p.detach(), want, rtol=1e-12, atol=0)
    torch.testing.assert_close(optimizer.state[p]["exp_avg"], m, rtol=1e-12, atol=0)


# ---- the state ----


@each_setting
def test_state_goes_to_torch_and_back(setting: str) -> None:
    ours, theirs = model(), model()
    mine = maker(optim, setting)(ours.parameters())
    twin = maker(torch.optim, setting, foreach=False)(theirs.parameters())
    train(ours, mine, 3)
    train(theirs, twin, 3)
    buffer = io.BytesIO()
    torch.save([mine.state_dict(), twin.state_dict()], buffer)
    buffer.seek(0)
    saved, of_twin = torch.load(buffer, weights_only=True)
    mine.load_state_dict(of_twin)
    twin.load_state_dict(saved)
    train(ours, mine, 3, seed=5)
    train(theirs, twin, 3, seed=5)
    assert distance(ours.parameters(), theirs.parameters()) < 1e-6


def test_state_of_another_dtype_survives_saving() -> None:
    net = model(torch.bfloat16)
    optimizer = optim.AdamW(net.parameters(), state_dtype=torch.float32)
    train(net, optimizer, 2)
    other = optim.AdamW(copy.deepcopy(net).parameters(), state_dtype=torch.float32)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    a, b = (o.state_dict()["state"] for o in (optimizer, other))
    assert a.keys() == b.keys()
    for i in a:
        assert all(torch.equal(a[i][k], b[i][k]) and a[i][k].dtype == b[i][k].dtype for k in a[i])
    assert copy.deepcopy(optimizer).param_groups[0]["state_dtype"] == torch.float32


def test_a_state_with_amsgrad_is_refused() -> None:
    net = model()
    twin = torch.optim.AdamW(net.parameters(), amsgrad=True)
    train(net, twin, 1)
    with pytest.raises(ValueError, match="Lion has no amsgrad"):
        optim.Lion(net.parameters()).load_state_dict(twin.state_dict())


# ---- a training loop ----


def test_groups_and_parameters_without_gradients() -> None:
    def run(module: Any) -> list[Tensor]:
        net = model()
        groups = [
            {"params": net[0].parameters(), "lr": 0.05},
            {"params": [*net[1].parameters(), *net[2].parameters()]},
        ]
        net[1].requires_grad_(False)
        optimizer = module.AdamW(groups, lr=0.01)
        train(net, optimizer, 3)
        net[1].requires_grad_(True)
        train(net, optimizer, 3)
        return list(net.parameters())

    assert distance(run(optim), run(torch.optim)) < 3e-6


def test_a_learning_rate_that_is_a_tensor() -> None:
    def run(lr: Any) -> list[Tensor]:
        net = model()
        optimizer = optim.AdamW(net.parameters(), lr=lr)
        train(net, optimizer, 2)
        if isinstance(lr, Tensor):
            lr.mul_(0.5)
        else:
            optimizer.param_groups[0]["lr"] *= 0.5
        train(net, optimizer, 2)
        return list(net.parameters())

    assert distance(run(torch.tensor(2.0**-7)), run(2.0**-7)) == 0


def test_a_scheduler_and_a_closure() -> None:
    p = torch.nn.Parameter(torch.ones(3))
    optimizer = optim.SGD([p], lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = p.sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 3.0
    scheduler.step()
    optimizer.step(closure)
    assert p.tolist() == [-0.5] * 3


@pytest.mark.parametrize("setting", ["adamw with settings", "sgd with momentum", "sgd with dampening"])
def test_a_grad_scaler(setting: str) -> None:
    """An infinite gradient in the first and the third step: skipped, without a copy of the gradients."""

    def run(module: Any, **more: Any) -> tuple[list[Tensor], torch.optim.Optimizer]:
        net = model()
        optimizer = maker(module, setting, **more)(net.parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
        generator = torch.Generator().manual_seed(0)
        for i in range(6):
            optimizer.zero_grad()
            scaler.scale((net(torch.randn(11, 17, generator=generator)) ** 2).mean()).backward()
            if i in (0, 2):
                net[0].weight.grad[1, 1] = torch.inf
            before = [p.grad.clone() for p in net.parameters()]
            scaler.step(optimizer)
            if module is optim:
                assert all(torch.equal(p.grad, g) for p, g in zip(net.parameters(), before, strict=True))
            scaler.update()
        return list(net.parameters()), optimizer

    (ours, mine), (theirs, _) = run(optim), run(torch.optim, foreach=False)
    assert distance(ours, theirs) < 3e-6
    assert not hasattr(mine, "grad_scale") and all(s.get("step", 4.0) == 4.0 for s in mine.state.values())


def test_clipping() -> None:
    def run(ours: bool) -> list[Tensor]:
        net = model()
        module: Any = optim if ours else torch.optim
        optimizer = module.AdamW(net.parameters(), lr=1e-2)
        for i in range(4):
            optimizer.zero_grad()
            (net(torch.full((3, 17), 1.0 + i)) ** 2).sum().backward()
            if ours:
                optimizer.step(clip=optim.clip_factor(net.parameters(), 0.5))
            else:
                torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                optimizer.step()
        return list(net.parameters())

    assert distance(run(True), run(False)) < 3e-6


def test_the_factor_that_clips() -> None:
    p, q = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(3))
    assert optim.clip_factor([p], 1.0).item() == 1.0
    p.grad = torch.tensor([3.0, 4.0])
    assert optim.clip_factor(iter([p, q]), 2.5).item() == pytest.approx(0.5, rel=1e-6)
    assert optim.clip_factor(p, 10.0).item() == 1.0
    assert optim.clip_factor([p], 2.5, grad_scale=torch.tensor(4.0)).item() == 1.0
    with pytest.raises(ValueError, match="max_norm must not be negative"):
        optim.clip_factor([p], -1.0)


def test_parameters_that_processes_share() -> None:
    """DTensors, of one process: the same steps as of plain parameters."""
    dist = pytest.importorskip("torch.distributed")
    if not dist.is_available() or not dist.is_gloo_available() or dist.is_initialized():
        pytest.skip("no process group can be made here")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        plain = torch.nn.Parameter(torch.arange(12.0).view(4, 3))
        shared = torch.nn.Parameter(distribute_tensor(plain.detach().clone(), mesh, [Shard(0)]))
        pairs = [(p, optim.AdamW([p], lr=0.1, state_dtype=torch.float64)) for p in (plain, shared)]
        for step in range(3):
            grad = torch.full((4, 3), 1.0 + step)
            plain.grad = grad
            shared.grad = distribute_tensor(grad, mesh, [Replicate()] if step else [Shard(0)])
            for p, optimizer in pairs:
                optimizer.step(clip=optim.clip_factor([p], 1.0))
        assert torch.equal(shared.full_tensor(), plain)
        assert isinstance(pairs[1][1].state[shared]["exp_avg"], DTensor)
    finally:
        dist.destroy_process_group()


# ---- refusals ----


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("AdamW", {"lr": -1.0}, "lr must not be negative, but is -1.0"),
        ("AdamW", {"lr": torch.ones(2)}, "lr must be a float or a tensor of one number"),
        ("AdamW", {"betas": (0.9, 1.0)}, r"betas\[1\] must be in \[0, 1\), but is 1.0"),
        ("AdamW", {"eps": -1.0}, "eps must not be negative"),
        ("AdamW", {"differentiable": True}, "differentiable is not supported"),
        ("AdamW", {"state_dtype": torch.int8}, "state_dtype must be a floating-point dtype"),
        ("SGD", {"nesterov": True}, "nesterov needs a momentum above 0"),
        ("SGD", {"differentiable": True}, "differentiable is not supported"),
        ("Lion", {"weight_decay": -0.1}, "weight_decay must not be negative"),
    ],
)
def test_refused_settings(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        getattr(optim, name)([torch.nn.Parameter(torch.ones(1))], **settings)


def test_refused_gradients() -> None:
    p = torch.nn.Parameter(torch.ones(3))
    p.grad = torch.ones(3).to_sparse()
    with pytest.raises(RuntimeError, match="AdamW does not support sparse gradients"):
        optim.AdamW([p]).step()
    q = torch.nn.Parameter(torch.ones(3, dtype=torch.complex64))
    q.grad = torch.ones(3, dtype=torch.complex64)
    with pytest.raises(
        RuntimeError, match=r"sgd_: params\[0\] must be a floating-point tensor .* but is complex64"
    ):
        optim.SGD([q], lr=0.1).step()
