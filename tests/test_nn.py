"""avo_ops.nn: the modules against their torch twins, and the replacement of modules in a model."""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import importlib
import inspect
import io
import pickle
import types
import warnings
import weakref

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.nn.utils import parametrize

import avo_ops  # noqa: F401  (registers the operators)
from avo_ops import nn as avo
from avo_ops.nn import foreign, functional, fused, modules, rewrite
from avo_ops.nn.formula import formula_of
from avo_ops.nn.source import source_of


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """What is tiny is only slowed down by threads, by a hundred times where others use the cores too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# torch twin, ours, constructor arguments
TWINS = {
    "layer_norm": (nn.LayerNorm, avo.LayerNorm, (16,), {}),
    "layer_norm_two_dims": (nn.LayerNorm, avo.LayerNorm, ((3, 16),), {"eps": 1e-3}),
    "layer_norm_no_affine": (nn.LayerNorm, avo.LayerNorm, (16,), {"elementwise_affine": False}),
    "layer_norm_no_bias": (nn.LayerNorm, avo.LayerNorm, (16,), {"bias": False}),
    "layer_norm_f64": (nn.LayerNorm, avo.LayerNorm, (16,), {"device": "cpu", "dtype": torch.float64}),
    "rms_norm": (nn.RMSNorm, avo.RMSNorm, (16,), {}),
    "rms_norm_eps": (nn.RMSNorm, avo.RMSNorm, ([3, 16],), {"eps": 1e-2}),
    "rms_norm_no_affine": (nn.RMSNorm, avo.RMSNorm, (16,), {"elementwise_affine": False}),
    "rms_norm_f64": (nn.RMSNorm, avo.RMSNorm, (16,), {"dtype": torch.float64}),
    "group_norm": (nn.GroupNorm, avo.GroupNorm, (3, 3), {}),
    "group_norm_one": (nn.GroupNorm, avo.GroupNorm, (1, 3, 1e-3), {}),
    "group_norm_no_affine": (nn.GroupNorm, avo.GroupNorm, (3, 3), {"affine": False}),
    "group_norm_f64": (nn.GroupNorm, avo.GroupNorm, (3, 3), {"dtype": torch.float64}),
    "gelu": (nn.GELU, avo.GELU, (), {}),
    "gelu_tanh": (nn.GELU, avo.GELU, ("tanh",), {}),
    "silu": (nn.SiLU, avo.SiLU, (), {}),
    "silu_inplace": (nn.SiLU, avo.SiLU, (), {"inplace": True}),
    "softmax": (nn.Softmax, avo.Softmax, (), {"dim": 1}),
    "softmax2d": (nn.Softmax2d, avo.Softmax2d, (), {}),
    "softmax_last": (nn.Softmax, avo.Softmax, (-1,), {}),
    "log_softmax": (nn.LogSoftmax, avo.LogSoftmax, (-1,), {}),
    "relu": (nn.ReLU, avo.ReLU, (), {}),
    "relu_inplace": (nn.ReLU, avo.ReLU, (True,), {}),
    "relu6": (nn.ReLU6, avo.ReLU6, (), {}),
    "relu6_inplace": (nn.ReLU6, avo.ReLU6, (True,), {}),
    "leaky_relu": (nn.LeakyReLU, avo.LeakyReLU, (0.2,), {}),
    "elu": (nn.ELU, avo.ELU, (0.7,), {}),
    "selu": (nn.SELU, avo.SELU, (), {}),
    "celu": (nn.CELU, avo.CELU, (0.7,), {"inplace": True}),
    "hardtanh": (nn.Hardtanh, avo.Hardtanh, (-0.5, 0.25), {}),
    "hardsigmoid": (nn.Hardsigmoid, avo.Hardsigmoid, (), {}),
    "hardswish": (nn.Hardswish, avo.Hardswish, (), {}),
    "mish": (nn.Mish, avo.Mish, (), {}),
    "sigmoid": (nn.Sigmoid, avo.Sigmoid, (), {}),
    "tanh": (nn.Tanh, avo.Tanh, (), {}),
    "logsigmoid": (nn.LogSigmoid, avo.LogSigmoid, (), {}),
    "softplus_default": (nn.Softplus, avo.Softplus, (), {}),
    "softplus": (nn.Softplus, avo.Softplus, (2.0, 1.0), {}),
    "glu": (nn.GLU, avo.GLU, (), {}),
}
twins = pytest.mark.parametrize("name", TWINS)


def pair(name):
    theirs, ours, args, kwargs = TWINS[name]
    a, b = theirs(*args, **kwargs), ours(*args, **kwargs)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in a.parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
    return a, b


def data(module, *shape):
    dtype = next((p.dtype for p in module.parameters()), torch.float32)
    return torch.randn(*(shape or (5, 3, 16)), generator=torch.Generator().manual_seed(2), dtype=dtype)


def assert_same_behaviour(a, b, x, rtol=None, atol=None):
    """Outputs and the gradients of the input and of all parameters."""
    xs = [x.clone().requires_grad_() for _ in range(2)]
    ys = [m(leaf * 1.0) for m, leaf in zip((a, b), xs, strict=True)]
    assert ys[0].dtype == ys[1].dtype
    torch.testing.assert_close(ys[1], ys[0], rtol=rtol, atol=atol)
    grads = []
    for m, leaf, y in zip((a, b), xs, ys, strict=True):
        wanted = [leaf, *m.parameters()]
        grads.append(torch.autograd.grad((y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum(), wanted))
    assert len(grads[0]) == len(grads[1]) >= 1
    for g, h in zip(*grads, strict=True):
        torch.testing.assert_close(h, g, rtol=rtol, atol=atol)


# --- the modules ---


@twins
def test_twin_has_the_same_repr_and_is_an_instance(name):
    a, b = pair(name)
    assert repr(b) == repr(a)
    assert isinstance(b, type(a)) and type(b) is not type(a)


@twins
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_twin_computes_the_same(name, dtype):
    a, b = pair(name)
    b.load_state_dict(a.state_dict())
    if next(a.parameters(), torch.empty(0)).dtype == torch.float64:
        dtype = torch.float64
    x = data(a).to(dtype)
    x[0, 0, :4] = torch.tensor([0.0, 6.0, -3.0, 3.0])  # kinks
    if dtype == torch.bfloat16:  # against float32: torch's own rounds in between
        assert_same_behaviour(_InFloat32(copy.deepcopy(a)), b.to(dtype), x, rtol=2**-7, atol=2**-7)
    else:
        assert_same_behaviour(a, b, x)


class _InFloat32(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module.to(torch.bfloat16)

    def forward(self, x):
        weights = {k: v.float() for k, v in self.module.named_parameters()}
        return torch.func.functional_call(self.module, weights, (x.float(),)).to(x.dtype)


# ours, what it computes
OWN = {
    "QuickGELU()": (avo.QuickGELU(), lambda x: x * torch.sigmoid(1.702 * x)),
    "SquaredReLU()": (avo.SquaredReLU(), lambda x: F.relu(x).square()),
    "ReGLU()": (avo.ReGLU(), lambda x: F.relu(x[..., :8]) * x[..., 8:]),
    "GEGLU(approximate='none')": (avo.GEGLU(), lambda x: F.gelu(x[..., :8]) * x[..., 8:]),
    "GEGLU(approximate='tanh')": (
        avo.GEGLU("tanh"),
        lambda x: F.gelu(x[..., :8], approximate="tanh") * x[..., 8:],
    ),
    "SwiGLU()": (avo.SwiGLU(), lambda x: F.silu(x[..., :8]) * x[..., 8:]),
    "SwiGLUOAI(alpha=1.5, limit=1.0)": (
        avo.SwiGLUOAI(1.5, limit=1.0),
        lambda x: (x[..., 1::2].clamp(-1, 1) + 1) * (g := x[..., 0::2].clamp(max=1)) * torch.sigmoid(1.5 * g),
    ),
}


class _Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize("text", OWN)
def test_modules_that_torch_has_not(text):
    module, function = OWN[text]
    assert repr(module) == text and not module.state_dict()
    assert repr(pickle.loads(pickle.dumps(module))) == text
    assert_same_behaviour(_Function(function), module, data(module))
    with pytest.raises(TypeError):
        type(module)(1.0, 2.0, 3.0)


# --- losses ---

# torch twin, ours, constructor arguments
LOSSES = {
    "cross_entropy": (nn.CrossEntropyLoss, avo.CrossEntropyLoss, {}),
    "cross_entropy_weight": (nn.CrossEntropyLoss, avo.CrossEntropyLoss, {"weight": torch.rand(16) + 0.1}),
    "cross_entropy_smooth": (
        nn.CrossEntropyLoss, avo.CrossEntropyLoss, {"ignore_index": 3, "label_smoothing": 0.1, "reduction": "sum"},
    ),
    "cross_entropy_none": (nn.CrossEntropyLoss, avo.CrossEntropyLoss, {"reduction": "none"}),
    "cross_entropy_legacy": (nn.CrossEntropyLoss, avo.CrossEntropyLoss, {"size_average": False}),
    "mse": (nn.MSELoss, avo.MSELoss, {}),
    "mse_none": (nn.MSELoss, avo.MSELoss, {"reduction": "none"}),
    "huber": (nn.HuberLoss, avo.HuberLoss, {"reduction": "sum", "delta": 0.5}),
    "kl_div": (nn.KLDivLoss, avo.KLDivLoss, {"reduction": "batchmean"}),
    "kl_div_log": (nn.KLDivLoss, avo.KLDivLoss, {"reduction": "sum", "log_target": True}),
    "kl_div_none": (nn.KLDivLoss, avo.KLDivLoss, {"reduction": "none", "log_target": True}),
    "bce": (nn.BCEWithLogitsLoss, avo.BCEWithLogitsLoss, {}),
    "bce_weight": (nn.BCEWithLogitsLoss, avo.BCEWithLogitsLoss, {"weight": torch.rand(16)}),
    "bce_pos_weight": (nn.BCEWithLogitsLoss, avo.BCEWithLogitsLoss, {"pos_weight": torch.rand(16)}),
}  # fmt: skip
losses = pytest.mark.parametrize("name", LOSSES)


def loss_pair(name):
    theirs, ours, kwargs = LOSSES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # size_average
        return theirs(**kwargs), ours(**kwargs)


def loss_data(name, dtype=torch.float32):
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(6, 16, generator=generator).to(dtype)
    if name.startswith("cross"):
        return x, torch.randint(16, (6,), generator=generator)
    return x, torch.rand(6, 16, generator=generator).to(dtype)


@losses
def test_losses_are_their_twins(name):
    a, b = loss_pair(name)
    assert repr(b) == repr(a) and isinstance(b, type(a)) and type(b) is not type(a)
    assert a.state_dict().keys() == b.state_dict().keys()
    b.load_state_dict(a.state_dict())
    assert type(pickle.loads(pickle.dumps(b))) is type(b)
    replaced = copy.deepcopy(a)
    assert [r.new for r in avo.replace(replaced).replaced] == [f"avo_ops.nn.{type(a).__name__}"]
    assert type(replaced) is type(b) and avo.restore(replaced) == 1 and type(replaced) is type(a)


@losses
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_losses_compute_the_same(name, dtype, monkeypatch):
    a, b = loss_pair(name)
    x, target = loss_data(name, dtype)
    used = []
    monkeypatch.setattr(modules, "call", lambda op, *args: used.append(op) or functional.call(op, *args))
    xs = [x.clone().requires_grad_() for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ys = [
            a(xs[0].float(), target.float() if target.is_floating_point() else target).to(dtype), b(xs[1], target)
        ]  # fmt: skip
    close = {"rtol": 2**-7, "atol": 2**-7} if dtype == torch.bfloat16 else {}
    assert ys[0].dtype == ys[1].dtype and bool(used) == (
        "weight" not in name or name == "cross_entropy_weight"
    )
    torch.testing.assert_close(ys[1], ys[0], **close)
    grads = [torch.autograd.grad(y.sum(), leaf)[0] for y, leaf in zip(ys, xs, strict=True)]
    torch.testing.assert_close(grads[1], grads[0], **close)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            torch.testing.assert_close(b(x, target), ys[1].detach())


@losses
def test_losses_under_autocast(name):
    a, b = loss_pair(name)
    x, target = loss_data(name, torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        want, got = a(x, target), b(x, target)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, want.float(), rtol=2**-7, atol=2**-7)


# Modules, and an input for each.
AUTOCAST_MODULES = [
    (nn.LayerNorm(8), avo.LayerNorm(8)), (nn.RMSNorm(8), avo.RMSNorm(8)), (nn.GroupNorm(2, 4), avo.GroupNorm(2, 4)),
    (nn.Softmax(-1), avo.Softmax(-1)), (nn.LogSoftmax(-1), avo.LogSoftmax(-1)), (nn.Softmax2d(), avo.Softmax2d()),
    (nn.Softplus(), avo.Softplus()), (nn.GELU(), avo.GELU()), (nn.SiLU(), avo.SiLU()), (nn.LogSigmoid(), avo.LogSigmoid()),
]  # fmt: skip
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("theirs", "ours"), AUTOCAST_MODULES, ids=lambda m: type(m).__name__)
def test_autocast_gives_the_dtypes_of_torch(theirs, ours, device):
    theirs, ours = copy.deepcopy(theirs).to(device), copy.deepcopy(ours).to(device)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        x = torch.randn(2, 4, 3, 8, device=device).to(dtype).requires_grad_()
        with torch.autocast(device, torch.bfloat16):
            want, got = theirs(x), ours(x)
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=2**-6, atol=2**-6)
        assert torch.autograd.grad(got.sum(), x)[0].dtype == dtype


def test_autocast_where_torch_computes_in_float32(monkeypatch):
    """As on CUDA, where torch widens more than on the CPU."""
    assert {"layer_norm", "group_norm", "softmax", "log_softmax", "softplus"} <= {
        name for name, device in functional._WIDENED if device == "cuda"
    }
    monkeypatch.setattr(functional, "_WIDENED", {(name, "cpu") for name in functional.AUTOCAST})
    x = torch.randn(2, 4, 3, 8).bfloat16()
    norm = nn.Sequential(avo.GroupNorm(2, 4), avo.SiLU())
    layer = avo.LayerNorm(8)
    with torch.autocast("cpu", torch.bfloat16):
        for _, ours in AUTOCAST_MODULES:
            widened = type(ours).__name__ not in ("GELU", "SiLU", "LogSigmoid")
            if isinstance(ours, avo.RMSNorm):  # which torch 2.11 leaves as it is
                widened = "rms_norm" in functional.AUTOCAST
            y = ours(x)
            assert y.dtype == (torch.float32 if widened else torch.bfloat16)
            torch.testing.assert_close(y, ours(x.float()).to(y.dtype))
        assert fused.norm_act(*norm, x).dtype == functional.softplus(x).dtype == torch.float32
        y, total = fused.add_norm(layer, x, x)
        assert (y.dtype, total.dtype) == (torch.float32, torch.bfloat16)
        torch.testing.assert_close(y, layer((x + x).float()))
        compiled = torch.compile(layer, fullgraph=True, backend="eager")
        assert compiled(x).dtype == torch.float32
    assert layer(x).dtype == torch.bfloat16 and fused.add_norm(layer, x, x)[0].dtype == torch.bfloat16


@losses
def test_losses_on_meta(name):
    """Which has no autocast to ask for."""
    a, b = (loss.to("meta") for loss in loss_pair(name))
    x, target = (t.to("meta") for t in loss_data(name))
    want, got = a(x, target), b(x, target)
    assert got.device.type == "meta" and got.shape == want.shape and got.dtype == want.dtype


def test_calls_of_losses_that_are_left_to_torch(monkeypatch):
    monkeypatch.setattr(modules, "call", lambda *_: pytest.fail("called an operator"))
    x = torch.randn(4, 5)
    probabilities = torch.rand(4, 5)
    want = nn.CrossEntropyLoss()(x, probabilities)
    torch.testing.assert_close(avo.CrossEntropyLoss()(x, probabilities), want)
    with pytest.raises(ValueError, match="batch_size"):
        avo.CrossEntropyLoss()(x, torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="Target size"):
        avo.BCEWithLogitsLoss()(x, x[0])
    with pytest.warns(UserWarning, match="different to the input size"):
        torch.testing.assert_close(avo.MSELoss()(x, x[:1]), F.mse_loss(x, x[:1].expand(4, 5)))


@losses
def test_losses_compile_as_one_graph(name):
    torch._dynamo.reset()
    _, b = loss_pair(name)
    x, target = loss_data(name)
    torch.testing.assert_close(torch.compile(b, fullgraph=True, backend="eager")(x, target), b(x, target))


def test_dropout():
    ours = avo.Dropout(0.25)
    assert repr(ours) == repr(nn.Dropout(0.25)) and isinstance(ours, nn.Dropout)
    x = torch.ones(50, 40, requires_grad=True)
    torch.manual_seed(5)
    y = ours(x)
    torch.manual_seed(5)
    assert torch.equal(ours(x), y) and not torch.equal(ours(x), y)
    assert sorted(y.unique().tolist()) == [0.0, pytest.approx(1 / 0.75)]
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], y)
    torch.manual_seed(5)
    inplace, z = avo.Dropout(0.25, inplace=True), torch.ones(50, 40)
    assert inplace(z) is z and torch.equal(z, y)
    assert ours.eval()(x) is x and avo.Dropout(0.0)(x) is x
    assert not avo.Dropout(1)(x).any()
    with pytest.raises(ValueError, match="probability"):
        avo.Dropout(1.5)
    torch._dynamo.reset()
    compiled = torch.compile(ours.train(), fullgraph=True, backend="aot_eager")
    torch.manual_seed(5)
    assert torch.equal(compiled(x), y)


def test_dropout_is_replaced_where_it_is_asked_for():
    model = nn.Sequential(nn.Dropout(), nn.Dropout(inplace=True), nn.GELU())
    assert [r.name for r in avo.replace(model).replaced] == ["2"] and type(model[0]) is nn.Dropout
    report = avo.replace(model, dropout=True)
    assert [r.name for r in report.replaced] == ["0"] and type(model[0]) is avo.Dropout
    assert [x.name for x in report.left] == ["1"] and "one more copy" in report.left[0].reason
    assert avo.restore(model) == 2 and type(model[0]) is nn.Dropout


FUNCTION_CALLS = {
    "relu": [(), (True,), {"inplace": True}],
    "leaky_relu": [(0.3,), {"negative_slope": 0.2, "inplace": True}, (0.2, True)],
    "hardtanh": [(-0.5,), {"max_val": 0.2}],
    "celu": [(0.5,)],
    "softplus": [(2.0,), {"threshold": 0.5}],
    "gelu": [{"approximate": "tanh"}],
    "glu": [(1,), {"dim": 0}],
}


@pytest.mark.parametrize("theirs", functional.FUNCTIONS, ids=lambda f: f"{f.__module__}.{f.__name__}")
def test_functions_that_stand_in(theirs):
    ours = functional.FUNCTIONS[theirs]
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(3))
    for call in [(), *(FUNCTION_CALLS.get(ours.__name__, []) if theirs.__module__ != "torch" else [])]:
        args, kwargs = ((), call) if isinstance(call, dict) else (call, {})
        inputs = [x.clone(), x.clone()]
        a, b = (f(i, *args, **kwargs) for f, i in zip((theirs, ours), inputs, strict=True))
        torch.testing.assert_close(b, a)
        assert (b is inputs[1]) == (a is inputs[0])
        torch.testing.assert_close(inputs[1], inputs[0])
    for wrong in ((1.0, 2.0, 3.0, 4.0), {"unknown": 1}):
        args, kwargs = ((), wrong) if isinstance(wrong, dict) else (wrong, {})
        with pytest.raises(TypeError):
            ours(x, *args, **kwargs)
    assert pickle.loads(pickle.dumps(ours)) is ours


@twins
def test_state_dict_goes_both_ways(name):
    a, b = pair(name)
    assert [(k, v.shape, v.dtype) for k, v in a.state_dict().items()] == [
        (k, v.shape, v.dtype) for k, v in b.state_dict().items()
    ]
    b.load_state_dict(a.state_dict(), strict=True)
    c = type(a)(*TWINS[name][2], **TWINS[name][3])
    c.load_state_dict(b.state_dict(), strict=True)
    assert [k for k, _ in b.named_parameters()] == [k for k, _ in a.named_parameters()]
    for p, q in zip(a.parameters(), c.parameters(), strict=True):
        assert torch.equal(p, q)


@twins
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_the_autograd_key_is_skipped(name, mode, monkeypatch):
    a, b = pair(name)
    b.load_state_dict(a.state_dict())
    x = data(a)
    monkeypatch.setattr(functional, "_usual", lambda *_: pytest.fail("passed the Autograd key"))
    with mode():
        torch.testing.assert_close(b(x.clone()), a(x.clone()))


def test_what_is_not_plain_takes_the_usual_way(monkeypatch):
    names = []
    usual = functional._usual
    monkeypatch.setattr(functional, "_usual", lambda name, args: names.append(name) or usual(name, args))
    x = torch.randn(2, 16)
    subclass = type("Sub", (torch.Tensor,), {})
    with torch.no_grad():
        avo.GELU()(x)
        assert names == []
        torch.func.vmap(avo.GELU())(x)
        avo.SiLU()(nn.Buffer(x).as_subclass(subclass))
        with forward_ad.dual_level():
            avo.Softmax(-1)(forward_ad.make_dual(x, x))
        torch.jit.trace(avo.RMSNorm(16), x, check_trace=False)
    assert names == ["gelu", "silu", "softmax", "rms_norm"]


def test_forward_mode_is_kept_under_no_grad():
    x, t = torch.randn(2, 4, 16)
    with torch.no_grad(), torch.autograd.forward_ad.dual_level():
        y = avo.GELU()(torch.autograd.forward_ad.make_dual(x, t))
        tangent = torch.autograd.forward_ad.unpack_dual(y).tangent
    torch.testing.assert_close(tangent, torch.func.jvp(F.gelu, (x,), (t,))[1])


def test_func_grad_through_functional_call():
    a, b = (m.double() for m in pair("layer_norm"))  # in float64, where the order of a sum does not show
    x = data(a).double()
    weights = {k: v.detach() for k, v in a.named_parameters()}

    def loss(module, weights):
        return torch.func.functional_call(module, weights, (x,)).square().sin().sum()

    torch.testing.assert_close(
        torch.func.grad(functools.partial(loss, b))(weights),
        torch.func.grad(functools.partial(loss, a))(weights),
    )


@pytest.mark.parametrize("grad", [True, False])
def test_compiles_as_one_graph(grad):
    torch._dynamo.reset()
    model = nn.Sequential(avo.LayerNorm(16), avo.GELU(), avo.RMSNorm(16), avo.SiLU(), avo.Softmax(-1))
    seen = []

    def backend(graph, inputs):
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph

    x = torch.randn(4, 16)
    with torch.set_grad_enabled(grad):
        y = torch.compile(model, fullgraph=True, backend=backend)(x)
        torch.testing.assert_close(y, model(x))
    assert y.requires_grad == grad
    assert [s.split(".")[1] for s in seen if s.startswith("avo.")] == [
        "layer_norm", "gelu", "rms_norm", "silu", "softmax"
    ]  # fmt: skip


@pytest.mark.parametrize("shape", [(), (4,), (4, 5), (3, 4, 5), (2, 3, 4, 5)])
def test_softmax_without_dim_chooses_torchs_and_warns(shape):
    x = torch.randn(shape)
    with warnings.catch_warnings(record=True) as expected:
        warnings.simplefilter("always")
        y = nn.Softmax()(x)
    with pytest.warns(UserWarning, match="Implicit dimension choice for softmax") as got:
        torch.testing.assert_close(avo.Softmax()(x), y)
    assert str(got[0].message) == str(expected[0].message)
    assert got[0].filename == __file__


IN_PLACE = [t for t in modules.TWINS if "inplace" in inspect.signature(t).parameters]


@pytest.mark.parametrize("ours", [t for t in IN_PLACE if t is not avo.Dropout])
def test_in_place_overwrites_and_returns_its_input(ours):
    x = torch.randn(4, 16)
    expected = ours.__bases__[0]()(x)
    for mode in (torch.enable_grad, torch.no_grad):
        with mode():
            z = x.clone()
            assert ours(inplace=True)(z) is z
            torch.testing.assert_close(z, expected)


@pytest.mark.parametrize("ours", IN_PLACE)
def test_in_place_of_a_leaf_is_refused_as_by_torch(ours):
    for module in (ours.__bases__[0](inplace=True), ours(inplace=True)):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            module(torch.randn(4, requires_grad=True))


def test_meta_and_half_factory_arguments():
    assert avo.LayerNorm(16, device="meta").weight.is_meta
    m = avo.LayerNorm(16, dtype=torch.bfloat16)
    assert m.bias.dtype == torch.bfloat16
    y = m(torch.randn(4, 16).bfloat16())
    assert y.dtype == torch.bfloat16


@pytest.mark.parametrize("how", ["parametrize", "weight_norm"])
def test_a_reparametrised_weight_is_used(how):
    a, b = pair("layer_norm")
    b.load_state_dict(a.state_dict())
    for m in (a, b):
        if how == "parametrize":
            parametrize.register_parametrization(m, "weight", nn.Tanh())
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                nn.utils.weight_norm(m, dim=None)
            with torch.no_grad():
                m.weight_g.mul_(3)
    assert_same_behaviour(a, b, data(a))


# --- replace ---


class Toy(nn.Module):
    """Each supported module, one that is shared, and some that must be left."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU())
        self.norm = nn.RMSNorm(16)
        self.again = self.norm
        self.act = F.silu
        self.relu = nn.ReLU()
        self.tanhshrink = nn.Tanhshrink()
        self.softmax = nn.Softmax(-1)

    def forward(self, x):
        x = self.norm(self.first(x))
        return self.softmax(self.tanhshrink(self.relu(self.again(self.act(x)))))


def test_replace_changes_every_supported_module_and_keeps_the_values():
    model = Toy()
    untouched = copy.deepcopy(model)
    report = avo.replace(model)
    assert [r.name for r in report.replaced] == [
        "first.1",
        "first.2",
        "norm",
        "again",
        "relu",
        "softmax",
        "act",
    ]
    assert report.replaced[0] == ("first.1", "torch.nn.LayerNorm", "avo_ops.nn.LayerNorm")
    assert [(x.name, x.cls) for x in report.left] == [("tanhshrink", "torch.nn.Tanhshrink")]
    assert type(model.first[1]) is avo.LayerNorm and type(model.softmax) is avo.Softmax
    assert model.norm is model.again and type(model.norm) is avo.RMSNorm
    assert_same_behaviour(untouched, model, torch.randn(8, 16))


def test_report_counts_and_prints():
    report = avo.replace(Toy())
    assert report and len(report) == 7
    text = str(report)
    assert "replaced 7, left 1" in text
    assert "torch.nn.functional.silu -> avo_ops.nn.functional.silu" in text
    assert "tanhshrink" in text and "no avo_ops operator is known to compute the same" in text
    assert "faster over a dim that is not the last" in str(avo.replace(nn.Sequential(nn.Softmax2d())))
    blocks = avo.replace(nn.Sequential(*[nn.Sequential(nn.LayerNorm(4)) for _ in range(12)]))
    assert "12 x  *.*" in str(blocks) and len(str(blocks).splitlines()) == 2


def test_a_model_without_anything_for_us_gives_an_empty_report():
    report = avo.replace(nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Embedding(3, 4)))
    assert not report and len(report) == 0 and report.left == []
    with pytest.raises(TypeError, match="must be a torch"):
        avo.replace([nn.GELU()])


def test_the_root_itself_is_changed():
    model = nn.LayerNorm(16)
    assert [r.name for r in avo.replace(model).replaced] == ["(the model itself)"]
    assert type(model) is avo.LayerNorm


def test_a_second_replace_finds_nothing():
    model = Toy()
    avo.replace(model)
    again = avo.replace(model)
    assert not again and [x.name for x in again.left] == ["tanhshrink"]
    ours = [m for m in [*modules.TWINS, *modules.OWN] if m not in (avo.LayerNorm, avo.RMSNorm, avo.GroupNorm)]
    norms = avo.LayerNorm(4), avo.RMSNorm(4), avo.GroupNorm(2, 4)
    made = nn.Sequential(*norms, foreign.BareRMSNorm(), *(m() for m in ours))
    assert str(avo.replace(made)) == "replaced 0, left 0"


def test_parameters_buffers_flags_and_the_optimizer_stay():
    model = nn.Sequential(nn.LayerNorm(16), nn.RMSNorm(16)).to(torch.float64)
    model[0].register_buffer("calls", torch.zeros(1))
    model[0].weight.requires_grad_(False)
    model[1].eval()
    parameters, buffer = list(model.parameters()), model[0].calls
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    assert len(avo.replace(model)) == 2
    assert all(p is q for p, q in zip(parameters, model.parameters(), strict=True))
    assert model[0].calls is buffer and list(model.state_dict()) == [
        "0.weight",
        "0.bias",
        "0.calls",
        "1.weight",
    ]
    assert model[0].training and not model[1].training and not model[0].weight.requires_grad
    before = model[1].weight.clone()
    (model(torch.randn(4, 16, dtype=torch.float64)) ** 3).sum().backward()
    assert model[0].weight.grad is None and model[0].bias.grad is not None
    optimizer.step()
    assert not torch.equal(before, model[1].weight)


def test_hooks_survive():
    model = nn.Sequential(nn.LayerNorm(16))
    calls = collections.Counter()
    norm = model[0]
    norm.register_forward_pre_hook(lambda m, args: calls.update(pre=1))
    norm.register_forward_hook(lambda m, args, y: calls.update(forward=m is model[0]) or y * 2)
    norm.register_full_backward_hook(lambda m, gi, go: calls.update(backward=1))
    norm.register_state_dict_post_hook(lambda *_: calls.update(state=1))
    untouched = nn.LayerNorm(16)
    assert avo.replace(model)
    x = torch.randn(4, 16, requires_grad=True)
    y = model(x)
    y.sum().backward()
    model.state_dict()
    assert calls == {"pre": 1, "forward": 1, "backward": 1, "state": 1}
    torch.testing.assert_close(y, 2 * untouched(x))


class Renamed(nn.LayerNorm):
    """Only a constructor."""

    def __init__(self, n):
        super().__init__(n, eps=0.5)


class Shifted(nn.LayerNorm):
    def forward(self, input):
        return super().forward(input) + 1


class Verbose(nn.GELU):
    def extra_repr(self):
        return "verbose"


def test_subclasses_are_taken_only_if_they_are_a_constructor():
    model = nn.ModuleList([Renamed(16), Shifted(16), Verbose()])
    untouched = copy.deepcopy(model)
    report = avo.replace(model)
    assert [r.name for r in report.replaced] == ["0"]
    assert [(x.name, x.reason) for x in report.left] == [
        ("1", "a subclass of LayerNorm with a forward of its own"),
        ("2", "a subclass of GELU that defines extra_repr"),
    ]
    x = torch.randn(4, 16)
    for a, b in zip(untouched, model, strict=True):
        assert_same_behaviour(a, b, x)


def test_what_is_left_and_why():
    patched = nn.GELU()
    patched.forward = lambda x: x
    parametrized = parametrize.register_parametrization(nn.LayerNorm(4), "weight", nn.Tanh())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = torch.jit.script(nn.GELU())
    model = nn.ModuleDict(
        {"patched": patched, "inplace": nn.SiLU(inplace=True), "parametrized": parametrized, "script": script,
         "batch": nn.BatchNorm1d(4), "attention": nn.MultiheadAttention(4, 2)}
    )  # fmt: skip
    classes = {name: type(module) for name, module in model.items()}
    report = avo.replace(model)
    assert not report
    words = {"patched": "forward of its own", "inplace": "one more copy", "parametrized": "is parametrized",
             "script": "TorchScript", "batch": "no avo_ops operator"}  # fmt: skip
    left = {x.name: x.reason for x in report.left}
    assert left.keys() == words.keys()
    for name, word in words.items():
        assert word in left[name]
    assert {name: type(module) for name, module in model.items()} == classes


def test_functions_held_as_attributes():
    model = nn.Linear(4, 4)
    model.a, model.b, model.c = F.gelu, functools.partial(F.gelu, approximate="tanh"), F.softmax
    report = avo.replace(model)
    assert [r.name for r in report.replaced] == ["a"] and model.a is functional.gelu
    assert [x.name for x in report.left] == ["b", "c"] and model.c is F.softmax
    x = torch.randn(4, 4)
    torch.testing.assert_close(model.a(x, approximate="tanh"), F.gelu(x, approximate="tanh"))
    torch.testing.assert_close(functional.silu(x), F.silu(x))
    other = nn.Linear(4, 4)
    other.a = F.gelu
    assert [x.reason for x in avo.replace(other, exclude=nn.Linear).left] == ["excluded by the caller"]
    assert not avo.replace(other, functions=False) and other.a is F.gelu


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (nn.LayerNorm, ["first.1"]),
        ([nn.GELU, "norm"], ["first.2", "norm", "again"]),
        ("first", ["first.1", "first.2"]),
        ("first.*", ["first.1", "first.2"]),
        (["softmax"], ["softmax"]),
    ],
)
def test_only(only, expected):
    report = avo.replace(Toy(), only=only)
    assert [r.name for r in report.replaced] == expected
    assert report.left == []


def test_exclude():
    report = avo.replace(Toy(), exclude=("again", nn.GELU))
    assert [r.name for r in report.replaced] == ["first.1", "relu", "softmax", "act"]
    assert [(x.name, x.reason) for x in report.left if x.name != "tanhshrink"] == [
        (name, "excluded by the caller") for name in ("first.2", "norm", "again")
    ]


def test_a_name_that_matches_nothing_is_refused_before_any_change():
    model = Toy()
    for kwargs in ({"only": "fist"}, {"exclude": ["norm", "*.7"]}):
        with pytest.raises(ValueError, match="matches no module"):
            avo.replace(model, **kwargs)
    with pytest.raises(TypeError, match="names and module classes"):
        avo.replace(model, only=[3])
    assert type(model.norm) is nn.RMSNorm


@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer_layers(norm_first):
    torch.manual_seed(0)
    model = nn.Transformer(
        16, 2, 1, 1, 32, dropout=0.0, activation="gelu", batch_first=True, norm_first=norm_first
    )
    untouched = copy.deepcopy(model)
    report = avo.replace(model)
    # 2 + 3 norms in the layers, 2 at the ends, 2 functions, and x + residual before the norms of the layers
    assert len(report) == 11 and report.left == []
    assert ("encoder.layers.*" in report.notes[0]) and len(report.notes) == 1
    x = torch.randn(3, 5, 16)
    twice = [lambda x, m=m: m(x, x) for m in (untouched, model)]
    torch.testing.assert_close(twice[1](x), twice[0](x), rtol=1e-4, atol=1e-5)
    grads = [torch.autograd.grad(m(x, x).square().sum(), list(m.parameters())) for m in (untouched, model)]
    for g, h in zip(*grads, strict=True):
        torch.testing.assert_close(h, g, rtol=1e-3, atol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(x, x), untouched.eval()(x, x), rtol=1e-4, atol=1e-5)


def test_restore_undoes_it():
    model = Toy()
    state = [dict(vars(m)) for m in model.modules()]
    classes = [type(m) for m in model.modules()]
    avo.replace(model)
    assert avo.restore(model) == 6  # 5 modules and the one that holds the function
    assert [type(m) for m in model.modules()] == classes
    assert [dict(vars(m)) for m in model.modules()] == state and model.act is F.silu
    assert avo.restore(model) == 0
    made = nn.Sequential(avo.GELU())
    assert avo.restore(made) == 0 and type(made[0]) is avo.GELU
    assert avo.replace(model)  # and once more


def through_save(model):
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.mark.parametrize(
    "way",
    [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), through_save],
    ids=["deepcopy", "pickle", "save"],
)
def test_copies_of_a_changed_model(way):
    model = Toy()
    avo.replace(model)
    other = way(model)
    assert type(other.norm) is avo.RMSNorm and other.norm is other.again and other.norm is not model.norm
    assert_same_behaviour(model, other, torch.randn(4, 16), rtol=0, atol=0)
    assert avo.restore(other) == 6 and type(other.norm) is nn.RMSNorm and type(model.norm) is avo.RMSNorm


# --- forwards with fused operators ---


class Block(nn.Module):
    """What the forwards below are made of."""

    act_class = nn.SiLU

    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.both = nn.Linear(16, 32)
        self.act, self.norm, self.sigmoid = self.act_class(), nn.LayerNorm(16), nn.Sigmoid()
        self.limit = 2.0


class OneLine(Block):
    fused = ("swiglu",)

    def forward(self, x):
        return self.down(self.act(self.gate(x)) * self.up(x))


class UpFirst(Block):
    act_class = nn.GELU
    fused = ("geglu",)

    def forward(self, x):
        out: torch.Tensor = self.up(x) * self.act(self.gate(x))
        return self.down(out)


class Locals(Block):
    act_class = nn.ReLU
    fused = ("reglu",)

    def forward(self, x):
        hidden = self.act(self.gate(x))
        linear = self.up(x)
        x = hidden * linear
        return self.down(x)


class Rebound(Block):
    fused = ("swiglu",)

    def forward(self, x):
        g = self.gate(x)
        u = self.up(x)
        g = self.act(g)
        g = u * g
        for _ in range(2):
            h = self.act(self.gate(g))
            h = h * u
            g = g + h
        return g


class Halves(Block):
    fused = ("swiglu_packed",)

    def forward(self, x):
        """With a docstring."""
        if x.dim() > 1:
            gate, up = self.both(x).chunk(2, dim=-1)
            return self.down(up * self.act(gate))
        return x


class HalvesOfFunction(Block):
    fused = ("geglu_packed", "glu")

    def forward(self, x):
        x = self.both(x)
        x, y = torch.chunk(x, 2, -1)
        x = F.gelu(x) * y
        first, second = self.both(x).chunk(2, -1)
        return first * self.sigmoid(second)


class HalvesAgain(Block):
    fused = ("swiglu", "swiglu_packed")  # the second has no operator of halves in this order

    def forward(self, x):
        gate, up = self.both(x).chunk(2, dim=-1)
        x = self.act(gate) * up + gate
        up, gate = self.both(x).chunk(2, dim=-1)
        x = self.act(gate) * up
        gate, up = self.both(x).chunk(2, dim=-1)
        x = F.silu(gate) * up
        parts = self.both(x).chunk(2, dim=-1)
        return self.act(parts[0]) * parts[1]


class PostNorm(Block):
    fused = ("add_layer_norm",)

    def forward(self, x, residual=None):
        x = self.norm(self.down(x) + x)
        total = x + self.up(x)
        return self.norm(total) * total


class PreNorm(Block):
    fused = ("add_layer_norm", "swiglu")

    def forward(self, x):
        residual = x
        x = self.gate(x)
        x = residual + x
        # a comment
        residual = x
        x = self.norm(x)
        x = self.down(self.act(self.gate(x)) * self.up(x))
        return residual + x


class TwoPreNorms(Block):
    fused = ("add_layer_norm",)

    def forward(self, x):
        x = x + self.down(self.gate(self.norm(x)))
        x = x + self.up(self.norm(x)) * 2
        return x * 0.5 + self.norm(x)


class WithSuper(OneLine):
    fused = ("add_layer_norm",)  # that of super() is another function

    def forward(self, x, *, scale=1.5):
        return self.norm(x + super().forward(x) * scale)


def through(function):
    @functools.wraps(function)
    def wrapper(self, *args, **kwargs):
        return function(self, *args, **kwargs) + 1

    return wrapper


class Decorated(Block):
    fused = ("swiglu",)

    @through
    @torch.enable_grad()
    def forward(self, x):
        return self.act(self.gate(x)) * self.up(x)


class Registered(Block):
    fused = ("swiglu",)

    def __init_subclass__(cls, **kwargs):  # as transformers' layers wrap theirs for gradient checkpointing
        super().__init_subclass__(**kwargs)
        cls.forward = through(cls.forward)


class OfRegistered(Registered):
    def forward(self, x):
        return self.act(self.gate(x)) * self.up(x)


FUSED = [OneLine, UpFirst, Locals, Rebound, Halves, HalvesOfFunction, HalvesAgain, PostNorm, PreNorm, TwoPreNorms, WithSuper,
         Decorated, OfRegistered]  # fmt: skip


class UsedAgain(Block):
    def forward(self, x):
        h = self.act(self.gate(x))
        y = h * self.up(x)
        return y + h


class UsedInAnotherIteration(Block):
    def forward(self, x):
        h = x
        for _ in range(2):
            y = self.up(x + h)
            h = self.act(self.gate(x))
            x = h * y
        return x


class UsedByAFunction(Block):
    def forward(self, x):
        def again():
            return h

        h = self.act(self.gate(x))
        y = h * self.up(x)
        return y + again()


class UpMightChangeTheGate(Block):
    def forward(self, x):
        x = x * 1.0
        y = self.act(x) * self.change(x)
        h = self.act(x)
        z = self.change(x)
        return y + h * z

    def change(self, x):
        return self.up(x.mul_(2))


class ChangedBeforeTheNorm(Block):
    def forward(self, x):
        total = x + self.up(x)
        total = total.mul_(2)
        other = x + x
        total = self.norm(total)
        return total + other


class AnotherSum(Block):
    def forward(self, x):
        total = x + self.up(x)
        other = total
        total = x
        y = self.norm(total)
        return y + other


class CalledBeforeTheNorm(Block):
    def forward(self, x):
        total = x + self.up(x)
        y = self.change(total) + self.norm(total)
        total = x + y
        y = self.norm(total) if self.limit > 9 else total
        total = x + y
        return self.change(total) + y

    def change(self, x):
        return x.mul_(2)


class Shadowed(Block):
    def forward(self, x):
        F = types.SimpleNamespace(silu=torch.tanh)
        return F.silu(self.gate(x)) * self.up(x)


class InTry(Block):
    def forward(self, x):
        try:
            x = self.act(self.gate(x)) * self.up(x)
        finally:
            return x  # noqa: B012


class InTryOfGroups(Block):
    def forward(self, x):
        try:
            h = self.act(self.gate(x))
            x = h * self.up(x)
        except* ValueError:
            pass
        return x


class InAComprehension(Block):
    def forward(self, x):
        return sum(self.act(self.gate(x)) * self.up(x) for _ in range(2))


class WithMeta(type):
    pass


class OfMeta(Block, metaclass=WithMeta):
    def forward(self, x):
        return self.act(self.gate(x)) * self.up(x)


class Intrusive(Block):
    def __init_subclass__(cls, **kwargs):
        cls.limit = [cls]


class OfIntrusive(Intrusive):
    def forward(self, x):
        return self.act(self.gate(x)) * self.up(x)


exec(  # without a source
    """class Unread(Block):
    def forward(self, x):
        return self.act(self.gate(x)) * self.up(x)"""
)


class Edited(Block):
    def forward(self, x):
        return self.act(self.gate(x)) * self.up(x)


Edited.forward.__code__ = Edited.forward.__code__.replace(co_consts=(None, 2))  # not what the source says

LEFT = [UsedAgain, UsedInAnotherIteration, UsedByAFunction, UpMightChangeTheGate, ChangedBeforeTheNorm,
        AnotherSum, CalledBeforeTheNorm, Shadowed, InTry, InTryOfGroups, InAComprehension, OfMeta,
        OfIntrusive, Unread, Edited]  # fmt: skip  # noqa: F821


@pytest.fixture
def operators(monkeypatch):
    """The names of the operators that rewritten forwards call."""
    names = []
    monkeypatch.setattr(fused, "call", lambda name, *args: names.append(name) or functional.call(name, *args))
    return names


def calls_of(model):
    """The submodules of a model in the order in which it calls them, except those that an operator may take in."""
    order = []
    for name, module in model.named_children():
        if name not in ("act", "norm", "sigmoid"):
            module.register_forward_hook(lambda *_, name=name: order.append(name))
    return order


@pytest.mark.parametrize("cls", FUSED)
def test_fused_forms(cls, operators):
    torch.manual_seed(0)
    model = cls()
    untouched = copy.deepcopy(model)
    report = avo.replace(model)
    assert type(model) is not cls and isinstance(model, cls) and type(model).__name__ == cls.__name__
    assert repr(model) == repr(untouched) and list(model.state_dict()) == list(untouched.state_dict())
    entry = next(r for r in report.replaced if r.name == "(the model itself)")
    assert entry.new == f"{cls.__name__} with {', '.join(sorted(cls.fused))}" and not report.left
    orders = [calls_of(m) for m in (untouched, model)]
    x = torch.randn(3, 5, 16)
    assert_same_behaviour(_Bare(untouched), _Bare(model), x, rtol=1e-4, atol=1e-5)
    assert orders[0] == orders[1] and orders[0]
    assert set(operators) == set(cls.fused)
    assert not avo.replace(model)
    avo.restore(model)
    assert type(model) is cls and list(vars(model)) == list(vars(untouched))


class _Bare(nn.Module):
    """A model with those of its parameters that have a gradient."""

    def __init__(self, model):
        super().__init__()
        self.model = [model]
        self.forward = model.__call__
        model(torch.ones(1, 2, 16)).sum().backward()
        for i, p in enumerate(p for p in model.parameters() if p.grad is not None):
            self.register_parameter(str(i), p)


@pytest.mark.parametrize("cls", LEFT)
def test_forms_that_are_left(cls):
    torch.manual_seed(0)
    model = cls()
    untouched = copy.deepcopy(model)
    avo.replace(model)
    assert type(model) is cls and type(model.act) is avo.SiLU
    x = torch.randn(4, 5, 16)
    torch.testing.assert_close(model(x), untouched(x), rtol=1e-4, atol=1e-5)


def test_what_cannot_be_subclassed_unnoticed_is_reported():
    report = avo.replace(nn.ModuleList([OfIntrusive(), OfMeta()]))
    assert [x.reason for x in report.left] == [
        "its forward cannot be exchanged alone (a metaclass, a decorator)"
    ] * 2


def test_a_forward_that_was_exchanged_on_the_class_is_read_again(monkeypatch, operators):
    class Patched(OneLine):
        def forward(self, x):
            return self.act(self.gate(x)) * self.up(x)

    model = Patched()
    avo.replace(model)
    avo.restore(model)
    monkeypatch.setattr(Patched, "forward", UpFirst.forward)
    x = torch.randn(3, 16)
    expected = model(x)
    assert any("with swiglu" in r.new for r in avo.replace(model).replaced)
    torch.testing.assert_close(model(x), expected)
    avo.restore(model)
    monkeypatch.setattr(Patched, "forward", lambda self, x: 2 * x)
    avo.replace(model)
    assert torch.equal(model(x), 2 * x) and operators == ["swiglu"]
    llama = type(foreign_module("llama.LlamaRMSNorm"))
    assert avo.replace(llama(32))
    monkeypatch.setattr(llama, "forward", lambda self, x: 2 * x)
    assert not avo.replace(llama(32))


def test_an_activation_without_a_fused_operator_is_reported():
    class Tanh(OneLine):
        act_class = nn.Tanh

    report = avo.replace(Tanh())
    assert [x.reason for x in report.left] == ["no fused operator for its act, avo_ops.nn.Tanh"]
    report = avo.replace(OneLine(), exclude=OneLine)
    assert [(x.name, x.reason) for x in report.left] == [("(the model itself)", "excluded by the caller")]
    assert not any("with" in r.new for r in avo.replace(OneLine(), exclude="act").replaced)


def test_a_block_is_chosen_with_what_it_is_fused_with():
    model = nn.Sequential(PreNorm(), nn.SiLU())
    report = avo.replace(model, only=PreNorm)
    assert sorted(r.name for r in report.replaced) == ["0", "0.act", "0.norm"] and type(model[1]) is nn.SiLU
    assert not any("with" in r.new for r in avo.replace(PreNorm(), forwards=False).replaced)
    patched = PreNorm()
    patched.forward = functools.partial(PreNorm.forward, patched)
    assert [x.reason for x in avo.replace(patched).left] == ["has a forward of its own, set on the object"]
    shared = nn.ModuleList([OneLine()] * 2)
    assert [r.name for r in avo.replace(shared).replaced if "with" in r.new] == ["0", "1"]


def hooked(block, kind):
    if kind == "hook":
        block.act.register_forward_hook(lambda m, args, y: 2 * y)
        block.norm.register_forward_pre_hook(lambda m, args: (args[0] * 3,))
    elif kind == "forward":
        block.act.forward, block.norm.forward = torch.sin, torch.cos
    elif kind == "exchanged":
        block.act, block.norm = nn.Tanh(), nn.LayerNorm(16, eps=3.0)
    elif kind == "parametrized":
        parametrize.register_parametrization(block.norm, "weight", nn.Sigmoid())
        block.act.inplace = True
    elif kind == "compiled":
        for module in (block.act, block.norm):
            module._compiled_call_impl = lambda x: 2 * x  # what module.compile() sets
    return block


@pytest.mark.parametrize("kind", ["hook", "forward", "exchanged", "parametrized", "compiled"])
def test_what_is_done_to_a_part_afterwards_counts(kind, operators):
    torch.manual_seed(0)
    model = PreNorm()
    untouched = hooked(copy.deepcopy(model), kind)
    avo.replace(model)
    hooked(model, kind)
    x = torch.randn(3, 16)
    torch.testing.assert_close(model(x), untouched(x), rtol=1e-4, atol=1e-5)
    assert operators == []


def test_global_hooks_see_every_module(operators):
    model = PreNorm()
    avo.replace(model)
    seen = []
    handle = nn.modules.module.register_module_forward_hook(lambda m, *_: seen.append(m))
    try:
        model(torch.randn(3, 16))
    finally:
        handle.remove()
    assert model.act in seen and model.norm in seen and operators == []


class _Sub(torch.Tensor):
    pass


@pytest.mark.parametrize(
    ("gate", "up"),
    [
        (torch.randn(3, 4), torch.randn(4)),
        (torch.randn(3, 4), torch.randn(3, 4).double()),
        (torch.randn(3, 4), 2.0),
        (torch.randn(3, 4).as_subclass(_Sub), torch.randn(3, 4)),
        (torch.arange(4), torch.arange(4)),
    ],
    ids=["broadcast", "promoted", "number", "subclass", "integer"],
)
def test_operands_that_do_not_fit_take_the_way_that_was_written(gate, up, operators):
    act = avo.ReLU() if not gate.is_floating_point() else avo.SiLU()
    relu = type(act).__bases__[0]()
    if gate.is_floating_point():
        torch.testing.assert_close(fused.gated(act, gate, up), relu(gate) * up)
        norm = avo.LayerNorm(4)
        _, total = fused.add_norm(norm, gate, up)
        torch.testing.assert_close(total, gate + up)
    else:
        with contextlib.suppress(RuntimeError):  # as ReLU on integers itself
            fused.gated(act, gate, up)
    assert operators == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("grad", [True, False])
def test_fused_forms_compile_as_one_graph(grad, dtype):
    torch._dynamo.reset()
    model = nn.Sequential(PreNorm(), Halves()).to(dtype)
    avo.replace(model)
    seen = []

    def backend(graph, inputs):
        seen.extend(
            str(n.target).split(".")[1] for n in graph.graph.nodes if str(n.target).startswith("avo.")
        )
        return graph

    x = torch.randn(3, 16, dtype=dtype)
    with torch.set_grad_enabled(grad):
        torch.testing.assert_close(torch.compile(model, fullgraph=True, backend=backend)(x), model(x))
    assert seen == ["add_layer_norm", "swiglu", "swiglu_packed"]


def test_fused_forms_export():
    model = nn.Sequential(PreNorm(), Halves())
    avo.replace(model)
    x = torch.randn(3, 16)
    exported = torch.export.export(model, (x,))
    called = [str(n.target).split(".")[1] for n in exported.graph.nodes if str(n.target).startswith("avo.")]
    assert called == ["add_layer_norm", "swiglu", "swiglu_packed"]
    torch.testing.assert_close(exported.module()(x), model(x))


def test_a_changed_class_is_made_again_from_its_name(monkeypatch):
    model = PreNorm()
    avo.replace(model)
    saved = pickle.dumps(model)
    assert type(copy.deepcopy(model)) is type(pickle.loads(saved)) is type(model)
    monkeypatch.setattr(rewrite, "_rewritten", weakref.WeakKeyDictionary())  # another process
    other = pickle.loads(saved)
    assert type(other) is not type(model) and isinstance(other, PreNorm)
    x = torch.randn(3, 16)
    assert torch.equal(other(x), model(x))
    assert avo.restore(other) and type(other) is PreNorm
    for wrong in ("a:b", "tests:Nothing:0", f"{__name__}:PreNorm:9", f"{__name__}:Block:0"):
        with pytest.raises(AttributeError):
            getattr(rewrite, wrong)


# --- transformers ---


def foreign_class(name, package="models"):
    """``llama.LlamaMLP``; skips if this transformers has none."""
    pytest.importorskip("transformers")
    model, cls = name.split(".")
    path = f"transformers.models.{model}.modeling_{model}" if package == "models" else f"transformers.{model}"
    try:
        found = getattr(importlib.import_module(path), cls)
    except (ImportError, AttributeError):
        pytest.skip(f"this transformers has no {path}.{cls}")
    if found.__qualname__ != cls:
        pytest.skip(f"{path}.{cls} is {found.__qualname__} in this transformers")
    return found


# by formula; those of a group differ in the name of their class and in where they keep epsilon
NORMS = {
    "PromotedRMSNorm": "llama.LlamaRMSNorm qwen2.Qwen2RMSNorm qwen3.Qwen3RMSNorm mistral.MistralRMSNorm phi3.Phi3RMSNorm "
    "mamba.MambaRMSNorm mamba2.Mamba2RMSNorm pixtral.PixtralRMSNorm aimv2.Aimv2RMSNorm llama4.Llama4TextRMSNorm",
    "RMSNorm": "olmo2.Olmo2RMSNorm gpt_oss.GptOssRMSNorm helium.HeliumRMSNorm moshi.MoshiRMSNorm gemma4.Gemma4RMSNorm "
    "gemma3n.Gemma3nRMSNorm",
    "OffsetRMSNorm": "gemma.GemmaRMSNorm gemma2.Gemma2RMSNorm gemma3.Gemma3RMSNorm qwen3_next.Qwen3NextRMSNorm",
    "T5RMSNorm": "t5.T5LayerNorm umt5.UMT5LayerNorm longt5.LongT5LayerNorm idefics.IdeficsRMSNorm",
    "BareRMSNorm": "llama4.Llama4TextL2Norm falcon_mamba.FalconMambaWeightlessRMSNorm",
    "LayerNorm": "cohere.CohereLayerNorm cohere2.Cohere2LayerNorm",
}
NORM_CASES = [(name, ours) for ours, names in NORMS.items() for name in names.split()]
ACTIVATIONS = [q.rsplit(".", 1)[1] for q in foreign.ACTIVATION_RULES]


def foreign_module(name):
    """A norm or an activation, with weights that are not all ones."""
    if name in ACTIVATIONS:
        return foreign_class(f"activations.{name}", "")()
    cls = foreign_class(name)
    names = list(inspect.signature(cls).parameters)
    module = (
        cls(**{"hidden_size" if "hidden_size" in names else names[0]: 32, "eps": 1e-3})
        if len(names) > 1
        else cls(1e-3)
    )
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(torch.linspace(-1.5, 2.0, 32))
    return module


table = pytest.mark.parametrize("name", [name for name, _ in NORM_CASES] + ACTIVATIONS)


@table
def test_transformers_class_computes_the_same(name):
    ours = foreign_module(name)
    theirs = copy.deepcopy(ours)
    report = avo.replace(ours)
    assert len(report) == 1 and report.replaced[0].old.endswith(name.split(".")[-1]) and not report.left
    if name not in ACTIVATIONS:
        assert type(ours).__name__ == dict(NORM_CASES)[name]
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert_same_behaviour(theirs, ours, 3 * torch.randn(6, 32), rtol=1e-5, atol=1e-5)
    avo.restore(ours)
    assert type(ours) is type(theirs) and list(vars(ours)) == list(vars(theirs))


def test_every_known_formula_is_that_of_a_class():
    found = {foreign.rule_of_formula(foreign_class(name)).new.__name__ for name, _ in NORM_CASES}
    assert found == set(NORMS)
    used = {
        formula for name, _ in NORM_CASES for formula in [foreign.spelled(formula_of(foreign_class(name)))]
    }
    assert used == set(foreign.FORMULAS)


class OtherEps(nn.Module):
    """Llama's norm but for a detail that its source shows."""

    def __init__(self):
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.ones(32)), 1e-3

    def forward(self, hidden_states):
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance - self.variance_epsilon)
        return self.weight * hidden_states.to(input_dtype)


def test_a_formula_is_of_torch_itself():
    llama = foreign_class("llama.LlamaRMSNorm")
    other = types.SimpleNamespace(float32=torch.float32, rsqrt=torch.sqrt)
    changed = types.FunctionType(llama.forward.__code__, {"torch": other}, "forward")
    changed.__qualname__ = llama.forward.__qualname__
    cls = type("Changed", (llama,), {"forward": changed})
    assert source_of(changed) is not None and formula_of(cls) is None
    assert formula_of(type("Same", (llama,), {})) == formula_of(llama)


def test_another_formula_is_left():
    report = avo.replace(nn.Sequential(collections.OrderedDict(norm=OtherEps())))
    assert not report and formula_of(OtherEps) is not None


@table
@pytest.mark.parametrize("x_dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_transformers_class_keeps_its_result_dtype(name, x_dtype, weight_dtype):
    theirs = foreign_module(name).to(weight_dtype)
    ours = copy.deepcopy(theirs)
    avo.replace(ours)
    x = (3 * torch.randn(6, 32)).to(x_dtype)
    y, z = theirs(x), ours(x)
    assert z.dtype == y.dtype
    # Against their own math in float64: theirs rounds several times in the narrowest of these types, and its 1 + erf cancels.
    exact = copy.deepcopy(theirs).double()(x.double()).double()
    eps = max(torch.finfo(d).eps for d in (x_dtype, weight_dtype, y.dtype))
    torch.testing.assert_close(z.double(), exact, rtol=2 * eps, atol=2 * eps)


class NoWeight(nn.Module):
    pass


def test_transformers_norms_that_do_not_fit_are_left():
    cohere = foreign_class("cohere.CohereLayerNorm")
    heads = cohere(hidden_size=(4, 8))
    llama = foreign_module("llama.LlamaRMSNorm")
    llama.normalized_shape = (7,)
    gemma4 = foreign_class("gemma4.Gemma4RMSNorm")
    gelu = foreign_module("GELUActivation")
    twice = foreign_module("qwen2.Qwen2RMSNorm")
    twice.eps = 0.5
    model = nn.ModuleList([heads, llama, gemma4(32, with_scale=False), twice])
    report = avo.replace(model)
    assert not report
    words = ("2 dimensions", "as expected of its class", "no weight", "epsilon is not one number")
    for left, expected in zip(report.left, words, strict=True):
        assert expected in left.reason
    report = avo.replace(nn.ModuleList([gelu]), exclude=type(gelu))
    assert [x.name for x in report.left] == ["0"]  # and not the function that it holds


# class: config, its arguments, the operator
SMALL = {"hidden_size": 32, "intermediate_size": 64}
T5_SMALL = {"d_model": 32, "d_ff": 64, "feed_forward_proj": "gated-gelu", "dropout_rate": 0.1}
MLPS = {
    "llama.LlamaMLP": ("LlamaConfig", SMALL, "swiglu"),
    "mistral.MistralMLP": ("MistralConfig", SMALL, "swiglu"),
    "qwen2.Qwen2MLP": ("Qwen2Config", SMALL, "swiglu"),
    "qwen3.Qwen3MLP": ("Qwen3Config", SMALL, "swiglu"),
    "gemma.GemmaMLP": ("GemmaConfig", SMALL, "geglu"),
    "gemma2.Gemma2MLP": ("Gemma2Config", SMALL, "geglu"),
    "gemma3.Gemma3MLP": ("Gemma3TextConfig", SMALL, "geglu"),
    "phi3.Phi3MLP": ("Phi3Config", {**SMALL, "pad_token_id": 0}, "swiglu_packed"),
    "glm.GlmMLP": ("GlmConfig", SMALL, "swiglu_packed"),
    "t5.T5DenseGatedActDense": ("T5Config", T5_SMALL, "geglu"),
    "mt5.MT5DenseGatedActDense": ("MT5Config", T5_SMALL, "geglu"),
    "umt5.UMT5DenseGatedActDense": ("UMT5Config", T5_SMALL, "geglu"),
    "longt5.LongT5DenseGatedActDense": ("LongT5Config", T5_SMALL, "geglu"),
    "t5gemma.T5GemmaMLP": ("T5GemmaModuleConfig", {**SMALL, "dropout_rate": 0.1}, "geglu"),
    "recurrent_gemma.RecurrentGemmaMlp": ("RecurrentGemmaConfig", SMALL, "geglu"),
    "lfm2.Lfm2MLP": ("Lfm2Config", SMALL, "swiglu"),
    "seed_oss.SeedOssMLP": ("SeedOssConfig", SMALL, "swiglu"),
    "modernbert.ModernBertMLP": ("ModernBertConfig", SMALL, "geglu_packed"),
    "dinov2.Dinov2SwiGLUFFN": ("Dinov2Config", {"hidden_size": 32}, "swiglu"),
    "granite.GraniteMLP": ("GraniteConfig", SMALL, "swiglu"),
    "cohere.CohereMLP": ("CohereConfig", SMALL, "swiglu"),
    "deepseek_v3.DeepseekV3MLP": ("DeepseekV3Config", SMALL, "swiglu"),
    "jamba.JambaMLP": ("JambaConfig", SMALL, "swiglu"),
}
MLP_CASES = [(name, None, *case) for name, case in MLPS.items()] + [
    ("llama.LlamaMLP", act, "LlamaConfig", {**SMALL, "hidden_act": act}, operator)
    for act, operator in {
        "relu": "reglu", "gelu": "geglu", "gelu_new": "geglu", "sigmoid": "sigmoid_gate", "swish": "swiglu"
    }.items()
]  # fmt: skip


def packed_where(model, operators):
    """Dinov2's gate and up projections are one layer until transformers 5.17, and two later."""
    packed = any(name.endswith("weights_in") for name, _ in model.named_modules())
    return operators.replace("swiglu", "swiglu_packed") if packed else operators


@pytest.mark.parametrize(("name", "act", "config", "arguments", "operator"), MLP_CASES)
def test_transformers_mlp(name, act, config, arguments, operator, operators):
    transformers = pytest.importorskip("transformers")
    cls = foreign_class(name)
    config = getattr(importlib.import_module(cls.__module__), config, None) or getattr(transformers, config)
    torch.manual_seed(0)
    ours = cls(config(**arguments))
    operator = packed_where(ours, operator)
    theirs = copy.deepcopy(ours)
    report = avo.replace(ours)
    assert f"{cls.__name__} with {operator}" in [r.new for r in report.replaced] and not report.left
    x = torch.randn(3, 5, 32)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 3e-2)):
        theirs.to(dtype), ours.to(dtype)
        results = []
        for each in (theirs, ours):
            torch.manual_seed(1)  # the same dropout
            leaf = x.to(dtype, copy=True).requires_grad_()
            y = each(leaf)
            results.append((y, *torch.autograd.grad(y.float().square().sum(), [leaf, *each.parameters()])))
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(b, a, rtol=tolerance, atol=tolerance * max(1e-3, a.abs().max().item()))
    assert operators == [operator] * 2
    assert avo.restore(ours) and type(ours) is cls and list(vars(ours)) == list(vars(theirs))


# --- models of transformers ---

WIDTH = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
TEXT = {"vocab_size": 50, "max_position_embeddings": 16, "pad_token_id": 0}
LLAMA = {**WIDTH, **TEXT, "num_key_value_heads": 1}
MODELS = {
    # the model, its config, and the operators in rewritten forwards
    "llama": ("LlamaForCausalLM", "LlamaConfig", LLAMA, "add_rms_norm swiglu"),
    "mistral": ("MistralForCausalLM", "MistralConfig", LLAMA, "add_rms_norm swiglu"),
    "mixtral": (
        "MixtralForCausalLM", "MixtralConfig",
        {**LLAMA, "num_local_experts": 2, "experts_implementation": "eager"}, "add_rms_norm swiglu_packed",
    ),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", LLAMA, "add_rms_norm swiglu"),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**LLAMA, "head_dim": 16}, "add_rms_norm swiglu"),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", LLAMA, "add_rms_norm swiglu_packed"),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", {**LLAMA, "head_dim": 16}, "geglu"),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", {**LLAMA, "head_dim": 16}, "geglu"),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {**LLAMA, "head_dim": 16}, "geglu"),
    "t5": (
        "T5ForConditionalGeneration", "T5Config",
        {**T5_SMALL, "vocab_size": 50, "d_kv": 16, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0},
        "geglu",
    ),
    "bert": ("BertForMaskedLM", "BertConfig", {**WIDTH, **TEXT}, "add_layer_norm"),
    "modernbert": ("ModernBertForMaskedLM", "ModernBertConfig", {**WIDTH, **TEXT}, "add_layer_norm geglu_packed"),
    "gpt2": (
        "GPT2LMHeadModel", "GPT2Config",
        {"vocab_size": 50, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 2, "bos_token_id": 0, "eos_token_id": 0},
        "",  # a branch stands between its sum and its norm
    ),
    "vit": ("ViTForImageClassification", "ViTConfig", {**WIDTH, "image_size": 16, "patch_size": 8}, "add_layer_norm"),
    "dinov2": (
        "Dinov2ForImageClassification", "Dinov2Config",
        {**WIDTH, "image_size": 16, "patch_size": 8, "use_swiglu_ffn": True}, "add_layer_norm swiglu",
    ),
    "whisper": (
        "WhisperForConditionalGeneration", "WhisperConfig",
        {"vocab_size": 50, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
         "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_source_positions": 8,
         "num_mel_bins": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
         "dropout": 0.1},
        "add_layer_norm",
    ),
    "mamba": (
        "MambaForCausalLM", "MambaConfig",
        {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "pad_token_id": 0}, "",
    ),
}  # fmt: skip


def tiny_model(name):
    """A model with random weights, and inputs with labels."""
    transformers = pytest.importorskip("transformers")
    model, config, arguments, _ = MODELS[name]
    if not hasattr(transformers, model):
        pytest.skip(f"this transformers has no {model}")
    torch.manual_seed(0)
    made = getattr(transformers, model)(getattr(transformers, config)(**arguments))
    tokens = torch.randint(3, 50, (3, 11))
    if "Image" in model:
        return made, {"pixel_values": torch.randn(3, 3, 16, 16), "labels": torch.tensor([0, 1, 0])}
    if name == "whisper":
        return made, {"input_features": torch.randn(3, 8, 16), "labels": tokens}
    return made, {"input_ids": tokens, "labels": tokens}


def train(model, inputs, steps):
    """The losses of some steps, and the gradients of the first."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses, first = [], {}
    for step in range(steps):
        torch.manual_seed(step)  # the same dropout: our operators draw nothing
        loss = model.train()(**inputs).loss
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            first = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        optimizer.step()
        losses.append(loss.item())
    return losses, first


@pytest.mark.parametrize("name", MODELS)
def test_transformers_model_trains_the_same(name, operators):
    model, inputs = tiny_model(name)
    untouched = copy.deepcopy(model)
    report = avo.replace(model)
    norms = [m for m in untouched.modules() if "Norm" in type(m).__name__]
    assert not any("Norm" in x.cls for x in report.left), str(report)
    assert sum("Norm" in r.old for r in report.replaced) == len(norms) > 0
    torch.testing.assert_close(
        model.eval()(**inputs).logits, untouched.eval()(**inputs).logits, rtol=1e-4, atol=1e-4
    )
    assert set(operators) == set(packed_where(untouched, MODELS[name][3]).split())
    (expected, expected_grads), (losses, grads) = (train(m, inputs, 20) for m in (untouched, model))
    assert expected_grads.keys() == grads.keys()
    for key, g in expected_grads.items():
        torch.testing.assert_close(grads[key], g, rtol=1e-3, atol=1e-6 + 1e-3 * g.abs().max().item())
    assert expected[-1] < expected[0]
    torch.testing.assert_close(losses, expected, rtol=2e-4, atol=1e-5)
    avo.restore(model)
    assert [type(m) for m in model.modules()] == [type(m) for m in untouched.modules()]
    assert [list(vars(m)) for m in model.modules()] == [list(vars(m)) for m in untouched.modules()]


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_gradient_checkpointing_of_a_replaced_model(name, operators, monkeypatch):
    model, inputs = tiny_model(name)
    untouched = copy.deepcopy(model)
    for m in (untouched, model):
        m.gradient_checkpointing_enable({"use_reentrant": False})
    avo.replace(model)
    expected, grads = (train(m, inputs, 1) for m in (untouched, model))
    torch.testing.assert_close(grads[0], expected[0])
    for key, g in expected[1].items():
        torch.testing.assert_close(grads[1][key], g, rtol=1e-3, atol=1e-6 + 1e-3 * g.abs().max().item())
    fused_calls = len(operators)
    model.gradient_checkpointing_disable()
    train(model, inputs, 1)
    # The layers ran twice.
    assert fused_calls == 2 * (len(operators) - fused_calls) > 0


def test_sharing_across_layers_of_a_transformers_model():
    transformers = pytest.importorskip("transformers")
    config = transformers.AlbertConfig(
        vocab_size=50, embedding_size=16, hidden_size=32, num_attention_heads=2, intermediate_size=64,
        num_hidden_layers=3, max_position_embeddings=16, hidden_act="gelu_new",
    )  # fmt: skip
    model = transformers.AlbertModel(config).eval()
    untouched = copy.deepcopy(model)
    assert avo.replace(model)
    tokens = torch.randint(50, (2, 9))
    with torch.inference_mode():
        torch.testing.assert_close(model(tokens)[0], untouched(tokens)[0], rtol=1e-4, atol=1e-5)
