"""Every operator of the catalogue: values and gradients against float64, over dtypes, widths, layouts and patterns."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch
from catalogue import (
    DEVICES,
    DTYPES,
    LAYOUTS,
    OTHERS,
    RECORDS,
    RELATIVE,
    REPRESENTATIVES,
    STEPS,
    Whole,
    as_tuple,
    assert_close,
    build,
    calls,
    differentiable,
    doubled,
    equal,
    gradient_roundings,
    gradients,
    incoming,
    leaves,
    magnified,
    own_gradients,
    real,
    reference,
    result_dtype,
    result_shapes,
    rounds_between,
    run,
    same,
    saves_a_result,
    stated_by_results,
    steps_off,
    tensors,
)

# Around the ends of vectors and of every tier of the schedules.
WIDTHS = [
    1,
    2,
    3,
    7,
    8,
    9,
    10,
    12,
    31,
    33,
    64,
    65,
    127,
    128,
    129,
    255,
    256,
    257,
    512,
    513,
    1000,
    1002,
    1004,
    1024,
    1025,
]
WIDE = [2048, 2049, 4096, 4097, 8192, 8193, 16384, 16385, 32768, 32769, 65536, 65537, 200000]


def check_call(name: str, call: dict[str, Any], dtype: torch.dtype, device: str, scale: float = 1.0) -> None:
    record = RECORDS[name]
    arguments = build(call, dtype, device)
    out = run(record, arguments)
    # A result that another one uses is rounded first, as in the two calls that the operator replaces.
    roundings = 1 if len(record.results) == 1 else 3
    for i, (got, want) in enumerate(zip(out, reference(record, arguments), strict=True)):
        own = result_dtype(record, record.results[i], arguments)
        coarser = RELATIVE[dtype] / RELATIVE[own] if rounds_between(record) and own in RELATIVE else 1.0
        assert_close(
            got,
            want,
            own,
            f"{name} {call} result {i}",
            roundings * magnified(record, got.shape[-1]) * scale * max(1.0, coarser),
            # A sum over the row is as exact as its terms.
            1.0
            if got.shape[-1] == 1 and want.shape != next(iter(tensors(arguments).values())).shape
            else 0.0,
            steps_off(record, dtype),
        )
    names = differentiable(record, arguments)
    grads = [torch.randn(o.shape, dtype=torch.float64).to(o.dtype).to(device) for o in out] if names else []
    results, got_grads, want, want_grads = gradients(record, arguments, grads)
    for a, b in zip(out, results, strict=True):
        assert same(a, b), f"{name} {call}: results with and without gradients differ"
    want_grads = stated_by_results(record, arguments, out, grads) or want_grads
    for key, got in got_grads.items():
        # The gradient of a normalised row of one to three elements is a small difference of large terms, or their rounding.
        few = got.shape and got.shape[-1] <= 3
        assert_close(
            got,
            want_grads[key],
            dtype,
            f"{name} {call} gradient of {key}",
            gradient_roundings(name) * roundings * scale,
            100.0 if few else 0.1,
        )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_values_and_gradients_at_every_width(name: str, dtype: torch.dtype, device: str) -> None:
    torch.manual_seed(0)
    for i, n in enumerate(WIDTHS):
        for m in (5, 1 if i % 2 else 37):
            for call in calls(RECORDS[name], m, n):
                if (m == 37 or n > 200) and any(
                    v is None for k, v in call.items() if k in ("weight", "bias")
                ):
                    continue  # every pattern at small sizes, the full one at all
                check_call(name, call, dtype, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OTHERS)
def test_values_and_gradients(name: str, dtype: torch.dtype, device: str) -> None:
    """Operators whose structure the representatives have."""
    torch.manual_seed(0)
    for m, n in ((5, 1), (1, 33), (37, 257), (2, 1024)):
        for call in calls(RECORDS[name], m, n):
            check_call(name, call, dtype, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_wide_rows(name: str, dtype: torch.dtype, device: str) -> None:
    torch.manual_seed(0)
    for n in WIDE:
        check_call(name, calls(RECORDS[name], 3, n)[-1], dtype, device, scale=2.0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_many_rows(name: str, device: str) -> None:
    torch.manual_seed(0)
    for m, n in ((4099, 40), (1031, 520)):
        check_call(name, calls(RECORDS[name], m, n)[-1], torch.float32, device, scale=4.0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_layouts_give_the_same_bits(name: str, dtype: torch.dtype, device: str) -> None:
    """Whatever the strides of inputs and incoming gradients, the results are those of contiguous ones to the bit."""
    record = RECORDS[name]
    torch.manual_seed(0)
    for m, n in ((5, 24), (6, 37), (9, 264), (37, 70)):  # 37 rows: two panels of the CPU's and a part of one
        call = calls(record, m, n)[-1]
        plain = build(call, dtype, device)
        grads = incoming(record, m, n, dtype, device)
        base, base_grads = own_gradients(record, plain, grads)
        for layout_name, layout in LAYOUTS.items():
            for grad_name, grad_layout in LAYOUTS.items():
                arguments = build(call, dtype, device, layout=layout)
                before = {k: v.clone() for k, v in tensors(arguments).items()}
                out, got = own_gradients(record, arguments, [grad_layout(g) for g in grads])
                where = f"{name} {m}x{n} {layout_name}, gradients {grad_name}"
                for a, b in zip(out, base, strict=True):
                    assert equal(a, b), where
                for key in got:
                    assert equal(got[key], base_grads[key]), f"{where}: gradient of {key}"
                for key, value in before.items():
                    assert equal(arguments[key], value), f"{where}: {key} was overwritten"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_row_does_not_depend_on_its_neighbours(name: str, device: str) -> None:
    record = RECORDS[name]
    for dtype in (torch.float32, torch.bfloat16):
        for n in (40, 257, 1024, 4100):
            arguments = build(calls(record, 67, n)[-1], dtype, device)
            whole = run(record, arguments)
            one = {
                k: v[13:14] if isinstance(v, torch.Tensor) and v.dim() == 2 else v
                for k, v in arguments.items()
            }
            for a, b in zip(run(record, one), whole, strict=True):
                assert equal(a[0], b[13]), f"{name} {dtype} N={n}"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_expanded_gradients(name: str, device: str) -> None:
    """sum() and mean() send gradients with stride 0."""
    record = RECORDS[name]
    arguments = build(calls(record, 6, 40)[-1], torch.float32, device)
    expanded = [torch.full((), 0.7, device=device).expand(s) for s in result_shapes(record, 6, 40)]
    _, got, _, want = gradients(record, arguments, expanded)
    for key in got:
        assert_close(got[key], want[key], torch.float32, f"{name} gradient of {key}", 8.0, floor=0.7)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_gradients_from_views_of_the_result(name: str, device: str) -> None:
    """What cat, transpose, indexing and mean send back: pieces, strides of any kind, zeros where nothing was used."""
    record = RECORDS[name]
    arguments = build(calls(record, 6, 40)[-1], torch.float32, device)
    views = {
        "sum": lambda y: y.sum(),
        "mean": lambda y: y.mean(),
        "cat": lambda y: (torch.cat([y, 2 * y], 1) * weights[:, : 2 * y.shape[1]]).sum(),
        "transpose": lambda y: (y.t().contiguous() * weights[:, : y.shape[1]].t()).sum(),
        "index": lambda y: (y[[1, 1, 4]] * weights[:3, : y.shape[1]]).sum(),
        "slice": lambda y: (y[::2, y.shape[1] // 3 :] * weights[:3, : y.shape[1] - y.shape[1] // 3]).sum(),
        "unbind": lambda y: y.unbind(1)[y.shape[1] // 5].sum(),
    }
    weights = torch.randn(6, 160, device=device)
    for view_name, view in views.items():
        if not differentiable(record, arguments):
            break

        def gradient(function: Any, args: dict[str, Any], view: Any = view) -> tuple[torch.Tensor, ...]:
            names = differentiable(record, args)
            own = leaves(record, args)
            out = as_tuple(function(*own.values()))
            return torch.autograd.grad(sum(view(o) for o in out), [own[n] for n in names])

        got = gradient(getattr(torch.ops.avo, name), arguments)
        want = gradient(record.compute, doubled(arguments))
        for key, g, w in zip(differentiable(record, arguments), got, want, strict=True):
            assert_close(g, w, torch.float32, f"{name} gradient of {key} from {view_name}", 8.0, floor=0.7)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_mixed_dtypes(name: str, device: str) -> None:
    """Each tensor in its own dtype: results in that of their argument, gradients in that of their tensor."""
    record, choose = RECORDS[name], random.Random(name)
    call = calls(record, 5, 48)[-1]
    names = [key for key, value in call.items() if isinstance(value, tuple)]
    if len(names) < 2:
        pytest.skip("one tensor argument")
    mixes = list(itertools.product(DTYPES, repeat=len(names)))
    for mix in choose.sample(mixes, min(len(mixes), 40)):
        arguments = build(call, torch.float32, device)
        for key, dtype in zip(names, mix, strict=True):
            arguments[key] = arguments[key].to(dtype)
        dtypes = [result_dtype(record, r, arguments) for r in record.results]
        shapes = result_shapes(record, 5, 48)
        grads = [torch.randn(s).to(d).to(device) for s, d in zip(shapes, dtypes, strict=True)]
        out, got, want, want_grads = gradients(record, arguments, grads)
        coarse = max(RELATIVE[t.dtype] for t in tensors(arguments).values())
        defined = run(record, arguments, getattr(torch.ops.avo, name).definition)
        for o, p, w, d in zip(out, defined, want, dtypes, strict=True):
            if d in STEPS:
                off = steps_off(record, torch.bfloat16)
                assert_close(o, w, d, f"{name} {mix}", off=off)
                assert_close(p, w, d, f"{name} {mix} by definition", off=off)
                continue
            # One result may be computed from the other, rounded; the definition does not round in between.
            several = 2 * coarse / RELATIVE[d] if len(out) > 1 else 1.0
            assert_close(o, w, d, f"{name} {mix}", several)
            assert_close(p, w, d, f"{name} {mix} by definition", several)
        want_grads = stated_by_results(record, arguments, out, grads) or want_grads
        for key in got:
            own = arguments[key].dtype
            several = coarse / RELATIVE[own] if len(out) > 1 else 1.0
            assert_close(
                got[key], want_grads[key], own, f"{name} {mix} gradient of {key}", 4 * max(1.0, several)
            )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_a_shared_gradient_has_the_precision_of_each_tensor(name: str, device: str) -> None:
    """The gradient of a float32 tensor does not pass through the dtype of a coarser one beside it."""
    record = RECORDS[name]
    call = calls(record, 5, 48)[-1]
    names = [k for k, v in call.items() if v == (5, 48)]
    for fine in names if len(names) > 1 and record.differentiation == "kernels" else ():
        if fine not in differentiable(record, build(call, torch.float32, device)):
            continue
        if record.gradient is not None and saves_a_result(record) and fine != names[0]:
            continue  # stated by the result, which has the dtype of the first
        arguments = build(call, torch.float32, device)
        for key in names:  # values that both dtypes hold, with exact sums
            arguments[key] = (arguments[key] * 8).round().clamp(-64, 64) / 8
            arguments[key] = arguments[key].to(torch.float32 if key == fine else torch.bfloat16)
        grads = [torch.randn(o.shape, device=device).bfloat16().to(o.dtype) for o in run(record, arguments)]
        _, got, _, want = gradients(record, arguments, grads)
        assert_close(got[fine], want[fine], torch.float32, f"{name} gradient of {fine}", 8.0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_empty(name: str, device: str) -> None:
    record = RECORDS[name]
    for m, n in ((0, 8), (3, 0), (0, 0)):
        arguments = build(calls(record, m, n)[-1], torch.float32, device)
        own = leaves(record, arguments)
        out = run(record, own)
        assert [o.shape for o in out] == result_shapes(record, m, n)
        inputs = [own[n] for n in differentiable(record, own)]
        got = torch.autograd.grad(out, inputs, [torch.zeros_like(o) for o in out]) if inputs else ()
        for g, t in zip(got, inputs, strict=True):
            assert g.shape == t.shape and not g.any()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_more_dims(name: str, device: str) -> None:
    """Leading dims that merge, that do not (a transposed batch), several normalised dims, softmax over any dim."""
    record = RECORDS[name]
    torch.manual_seed(0)
    cases: list[dict[str, Any]] = []
    for call in (calls(record, 1, 24)[-1],):
        shapes = ((24,), (3, 24), (2, 3, 24), (2, 3, 4, 24))
        if record.columns.rule == "groups":  # dim 1 has what their weights need
            shapes = ((3, 24),)
        whole = {
            k: v for k, v in call.items() if isinstance(v, Whole) or (isinstance(v, tuple) and len(v) == 2)
        }
        for shape in shapes:
            own = {
                k: Whole((*shape[:-1], v.shape[-1]), v.high) if isinstance(v, Whole) else (*shape[:-1], v[-1])
                for k, v in whole.items()
            }
            cases.append({**call, **own})
        if any(isinstance(v, list) for v in call.values()):
            cases.append(
                {
                    k: {(1, 24): (3, 4, 6), (24,): (4, 6)}.get(v, v)
                    if isinstance(v, tuple)
                    else [4, 6]
                    if v == [24]
                    else v
                    for k, v in call.items()
                }
            )
        if "dim" in call:
            parts = len(record.parts.get("x", ("x",)))
            cases += [
                {
                    **call,
                    "x": tuple(s * (parts if i == d % 3 else 1) for i, s in enumerate((3, 5, 7))),
                    "dim": d,
                }
                for d in (0, 1, 2, -2)
            ]
        if record.columns.rule == "groups":
            cases += [
                {**call, "x": shape, **dict.fromkeys(record.spans, shape[1:2]), record.columns.arg: groups}
                for shape, groups in (
                    ((2, 6, 20), 3),
                    ((3, 4, 5, 7), 4),
                    ((2, 8, 2, 3, 3), 2),
                    ((2, 6, 4, 40), 1),
                )
            ]
    for call in cases:
        check_call(name, call, torch.float32, device)
        arguments = build(call, torch.float32, device)
        first, x = next(iter(tensors(arguments).items()))
        if x.dim() == 4:
            x = x.transpose(1, 2).contiguous().transpose(1, 2)
            for a, b in zip(run(record, {**arguments, first: x}), run(record, arguments), strict=True):
                assert equal(a, b)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_weight_gradients_repeat_to_the_bit(name: str, device: str) -> None:
    record = RECORDS[name]
    arguments = build(calls(record, 3001, 96)[-1], torch.float32, device)
    grads = incoming(record, 3001, 96, device=device)
    _, first = own_gradients(record, arguments, grads)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            _, again = own_gradients(record, arguments, grads)
            assert all(equal(first[k], again[k]) for k in first)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_only_the_wanted_gradients(name: str, device: str) -> None:
    """Any subset of the tensors may require grad; the gradients of rows are those of the full call to the bit."""
    record = RECORDS[name]
    for n in (40, 1536, 12288):
        arguments = build(calls(record, 33, n)[-1], torch.float32, device)
        names = differentiable(record, arguments)
        grads = incoming(record, 33, n, device=device)
        _, full = own_gradients(record, arguments, grads)
        for bits in range(1, 1 << len(names)):
            wanted = [key for i, key in enumerate(names) if bits >> i & 1]
            own = {k: v.detach().requires_grad_(k in wanted) if real(v) else v for k, v in arguments.items()}
            got = torch.autograd.grad(run(record, own), [own[key] for key in wanted], grads)
            for key, g in zip(wanted, got, strict=True):
                if full[key].dim() == 2:
                    assert equal(g, full[key]), f"{name} N={n}: gradient of {key} with {wanted}"
                else:
                    torch.testing.assert_close(g, full[key], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "add_layer_norm"])
def test_gradients_of_very_large_and_very_small_rows(name: str, device: str) -> None:
    """rstd^3 alone would leave the range of float32; the gradient does not."""
    record = RECORDS[name]
    for scale in (1e13, 1e17, 1e-12):
        arguments = build({**calls(record, 7, 64)[-1], "eps": 0.0}, torch.float32, device)
        for key in ("x", "residual"):
            if key in arguments:
                arguments[key] = arguments[key] * scale
        grads = [torch.randn(7, 64, device=device) for _ in record.results[:1]]
        grads += [torch.zeros(7, 64, device=device) for _ in record.results[1:]]
        _, got, _, want = gradients(record, arguments, grads)
        for key in got:
            size = 1 / scale if got[key].dim() == 2 else 1.0
            assert_close(got[key] / size, want[key] / size, torch.float32, f"{name} {key} at {scale}", 16.0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("name", REPRESENTATIVES)
def test_cuda_graph_and_side_stream(name: str) -> None:
    record = RECORDS[name]
    arguments = build(calls(record, 300, 1024)[-1], torch.bfloat16, "cuda")
    want = run(record, arguments)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        side = run(record, arguments)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            captured = run(record, arguments)
    for t in captured:
        t.fill_(float("nan") if t.is_floating_point() else torch.iinfo(t.dtype).min)
    graph.replay()
    torch.cuda.synchronize()
    for a, b, c in zip(want, side, captured, strict=True):
        assert equal(a, b) and equal(a, c)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_cuda_kernels_ran() -> None:
    """No operator fell back to its definition in silence."""
    avo = torch.ops.avo
    import avo_ops

    avo_ops.reset_stats()
    for record in RECORDS.values():
        arguments = build(calls(record, 64, 1024)[-1], torch.bfloat16, "cuda")
        gradients(
            record,
            arguments,
            incoming(record, 64, 1024, torch.bfloat16, "cuda"),
        )
    stats = avo_ops.stats()
    assert not [k for k in stats if "definition" in k], stats
    assert [k for k in stats if "layer_norm_backward_weight_bias__bf16_bf16" in k], stats
    assert as_tuple(avo.silu(torch.ones(3, device="cuda")))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("name", [n for n, r in RECORDS.items() if r.widths])
def test_specialised_and_generic_kernels_give_the_same_bits(name: str) -> None:
    """A kernel for one width and the generic one, which takes the rows that start between two 16-byte chunks."""
    import avo_ops

    record = RECORDS[name]
    torch.manual_seed(0)
    for dtype in (torch.bfloat16,):
        forward, backward = (record.widths.get(d, ()) for d in ("forward", "backward"))
        for n in sorted({*forward, *backward}):
            m = 2500 if n <= 4096 else 9  # more than have kernels for few rows
            plain = {name: options[0] for name, options in record.choices.items()}
            call = [c for c in calls(record, m, n) if {k: c[k] for k in plain} == plain][-1]
            grads = [torch.randn(m, n, device="cuda").to(dtype) for _ in record.results]
            avo_ops.reset_stats()
            out, got, _, _ = gradients(record, build(call, dtype, "cuda"), grads)
            special = [k for k in avo_ops.stats() if k.endswith(f"_n{n}")]
            assert len(special) == (n in forward) + (n in backward), special
            avo_ops.reset_stats()
            odd = build(call, dtype, "cuda", layout=LAYOUTS["odd rows"])
            out_odd, got_odd, _, _ = gradients(record, odd, [LAYOUTS["odd rows"](g) for g in grads])
            assert not [k for k in avo_ops.stats() if k.endswith(f"_n{n}")]
            for a, b in zip(out, out_odd, strict=True):
                assert equal(a, b), f"{name} {dtype} N={n}"
            for key in got:
                assert equal(got[key], got_odd[key]), f"{name} {dtype} N={n}: gradient of {key}"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["layer_norm", "add_layer_norm"])
def test_rows_that_hardly_vary(name: str, device: str) -> None:
    """A constant row is normalised to 0, whatever the rounding of its mean and however small eps is."""
    record = RECORDS[name]
    for n in (64, 768, 5000):
        for value in (1000.1, 0.1, 3e-5):
            call = {k: v for k, v in calls(record, 3, n)[0].items() if k != "eps"}
            arguments = build(call, torch.float32, device)
            for key in ("x", "residual"):
                if key in arguments:
                    arguments[key] = torch.full((3, n), value, device=device)
            for eps in (1e-5, 1e-12):
                y = run(record, {**arguments, "eps": eps})[0]
                assert float(y.abs().max()) <= 1e-3, f"{name} N={n} value={value} eps={eps}"
    x = torch.randn(4, 4096, device=device) + 1e4
    want = torch.nn.functional.layer_norm(x.double(), (4096,))
    got = torch.ops.avo.layer_norm(x, [4096])
    assert float((got - want).abs().max()) < 2e-3
