"""avo_ops.nn: the modules against their torch twins, and the replacement of modules in a model."""

from __future__ import annotations

import collections
import copy
import functools
import importlib
import io
import math
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.nn.utils import parametrize

import avo_ops  # noqa: F401  (registers the operators)
from avo_ops import nn as avo
from avo_ops.nn import foreign, functional

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
    "gelu": (nn.GELU, avo.GELU, (), {}),
    "gelu_tanh": (nn.GELU, avo.GELU, ("tanh",), {}),
    "silu": (nn.SiLU, avo.SiLU, (), {}),
    "silu_inplace": (nn.SiLU, avo.SiLU, (), {"inplace": True}),
    "softmax": (nn.Softmax, avo.Softmax, (), {"dim": 1}),
    "softmax_last": (nn.Softmax, avo.Softmax, (-1,), {}),
    "log_softmax": (nn.LogSoftmax, avo.LogSoftmax, (-1,), {}),
    "relu": (nn.ReLU, avo.ReLU, (), {}),
    "relu_inplace": (nn.ReLU, avo.ReLU, (True,), {}),
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
def test_twin_computes_the_same(name):
    a, b = pair(name)
    b.load_state_dict(a.state_dict())
    assert_same_behaviour(a, b, data(a))


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


def test_inplace_silu_overwrites_and_returns_its_input():
    x = torch.randn(4, 16)
    expected = F.silu(x)
    for mode in (torch.enable_grad, torch.no_grad):
        with mode():
            z = x.clone()
            assert avo.SiLU(inplace=True)(z) is z
            torch.testing.assert_close(z, expected)


def test_inplace_silu_of_a_leaf_is_refused_as_by_torch():
    for module in (nn.SiLU(inplace=True), avo.SiLU(inplace=True)):
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
        self.softmax = nn.Softmax(-1)

    def forward(self, x):
        x = self.norm(self.first(x))
        return self.softmax(self.relu(self.again(self.act(x))))


def test_replace_changes_every_supported_module_and_keeps_the_values():
    model = Toy()
    untouched = copy.deepcopy(model)
    report = avo.replace(model)
    assert [r.name for r in report.replaced] == ["first.1", "first.2", "norm", "again", "softmax", "act"]
    assert report.replaced[0] == ("first.1", "torch.nn.LayerNorm", "avo_ops.nn.LayerNorm")
    assert [(x.name, x.cls) for x in report.left] == [("relu", "torch.nn.ReLU")]
    assert type(model.first[1]) is avo.LayerNorm and type(model.softmax) is avo.Softmax
    assert model.norm is model.again and type(model.norm) is avo.RMSNorm
    assert_same_behaviour(untouched, model, torch.randn(8, 16))


def test_report_counts_and_prints():
    report = avo.replace(Toy())
    assert report and len(report) == 6
    text = str(report)
    assert "replaced 6, left 1" in text
    assert "torch.nn.functional.silu -> avo_ops.nn.functional.silu" in text
    assert "relu" in text and "torch's own is one pass over memory too" in text
    # A class that only descends from one with a twin has none itself.
    assert "no avo_ops operator is known to compute the same" in str(avo.replace(nn.Sequential(nn.ReLU6())))
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
    assert not again and [x.name for x in again.left] == ["relu"]


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
    assert [r.name for r in report.replaced] == ["first.1", "softmax", "act"]
    assert [(x.name, x.reason) for x in report.left if x.name != "relu"] == [
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
    assert len(report) == 9 and report.left == []  # 2 + 3 norms in the layers, 2 at the ends, 2 functions
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
    assert avo.restore(model) == 5  # 4 modules and the one that holds the function
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
    assert avo.restore(other) == 5 and type(other.norm) is nn.RMSNorm and type(model.norm) is avo.RMSNorm


# --- transformers ---


def foreign_module(qualified):
    """A module of that class, with weights that are not all ones; skips if this transformers has none."""
    pytest.importorskip("transformers")
    path, name = qualified.rsplit(".", 1)
    try:
        cls = getattr(importlib.import_module(path), name)
    except (ImportError, AttributeError):
        pytest.skip(f"this transformers has no {qualified}")
    if cls.__qualname__ != name:
        pytest.skip(f"{qualified} is {cls.__qualname__} in this transformers")
    if path == "transformers.activations":
        return cls()
    module = cls(32, eps=1e-3) if "Cohere" not in name else cls(hidden_size=32, eps=1e-3)
    with torch.no_grad():
        module.weight.copy_(torch.linspace(-1.5, 2.0, 32))
    return module


table = pytest.mark.parametrize("qualified", foreign.TRANSFORMERS_RULES, ids=lambda q: q.rsplit(".", 1)[1])


@table
def test_transformers_class_computes_the_same(qualified):
    ours = foreign_module(qualified)
    theirs = copy.deepcopy(ours)
    report = avo.replace(ours)
    assert len(report) == 1 and report.replaced[0].old == qualified and not report.left
    assert isinstance(ours, (avo.GELU, avo.SiLU, avo.RMSNorm, avo.LayerNorm))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert_same_behaviour(theirs, ours, 3 * torch.randn(6, 32), rtol=1e-5, atol=1e-5)
    avo.restore(ours)
    assert type(ours) is type(theirs) and list(vars(ours)) == list(vars(theirs))


@table
@pytest.mark.parametrize("x_dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_transformers_class_keeps_its_result_dtype(qualified, x_dtype, weight_dtype):
    theirs = foreign_module(qualified).to(weight_dtype)
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
    cohere = foreign_module("transformers.models.cohere.modeling_cohere.CohereLayerNorm")
    heads = type(cohere)(hidden_size=(4, 8))
    llama = foreign_module("transformers.models.llama.modeling_llama.LlamaRMSNorm")
    llama.normalized_shape = (7,)
    gemma4 = type(foreign_module("transformers.models.gemma4.modeling_gemma4.Gemma4RMSNorm"))
    quick = foreign_module("transformers.activations.GELUActivation")
    model = nn.ModuleList([heads, llama, gemma4(32, with_scale=False)])
    report = avo.replace(model)
    assert not report
    for left, expected in zip(
        report.left, ("2 dimensions", "as expected of its class", "no weight"), strict=True
    ):
        assert expected in left.reason
    report = avo.replace(nn.ModuleList([quick]), exclude=type(quick))
    assert [x.name for x in report.left] == ["0"]  # and not the function that it holds


def tiny_bert(transformers):
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=16, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
    )  # fmt: skip
    return transformers.BertModel(config), 8 - 1  # norms and activations in two layers and the embeddings


def tiny_llama(transformers):
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=64, max_position_embeddings=16,
    )  # fmt: skip
    return transformers.LlamaModel(config), 7


def tiny_t5(transformers):
    config = transformers.T5Config(
        vocab_size=50, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2,
        feed_forward_proj="gated-gelu",
        dropout_rate=0.0,
    )  # fmt: skip
    return transformers.T5EncoderModel(config), 7


@pytest.mark.parametrize("make", [tiny_bert, tiny_llama, tiny_t5])
def test_transformers_model_forward_and_backward(make):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model, count = make(transformers)
    untouched = copy.deepcopy(model)
    report = avo.replace(model)
    assert len(report) == count and not any("Norm" in x.cls for x in report.left), str(report)
    tokens = torch.randint(50, (3, 11))
    results = []
    for each in (untouched.train(), model.train()):
        torch.manual_seed(1)  # the same dropout: our operators draw nothing
        y = each(tokens).last_hidden_state
        wanted = [(n, p) for n, p in each.named_parameters() if "pooler" not in n]
        grads = torch.autograd.grad(y.pow(3).mean(), [p for _, p in wanted])
        results.append((y, dict(zip((n for n, _ in wanted), grads, strict=True))))
    torch.testing.assert_close(results[1][0], results[0][0], rtol=1e-4, atol=1e-5)
    assert results[0][1].keys() == results[1][1].keys()
    for name, g in results[0][1].items():
        torch.testing.assert_close(results[1][1][name], g, rtol=1e-3, atol=1e-5 + 1e-3 * g.abs().max().item())
    assert math.isfinite(results[1][0].sum().item())


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
