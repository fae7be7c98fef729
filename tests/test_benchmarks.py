"""The benchmarks: what is counted, measured, resumed and reported. Their figures are nobody's business here."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import compare, peers, report, results, run, timing, tune
from benchmarks.list_workloads import list_workloads
from benchmarks.peers import Implementation
from benchmarks.workloads import DTYPES, Arena, every_workload, workloads

ROOT = Path(__file__).resolve().parent.parent
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "Cpu", lambda: timing.Cpu(seconds=1e-3, rounds=3))


def bench(out: Path, *options: str) -> int:
    return run.main(["--device", "cpu", "--dtypes", "float32", "--out", str(out), *options])


def lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# ---- bytes ----

M, N = 64, 40
BIG, COLUMN = 2 * M * N, 2 * N  # bytes of an (M, N) and of an (N) tensor in bfloat16


@pytest.mark.parametrize(
    ("op", "direction", "bytes"),
    [
        ("gelu", "forward", 2 * BIG),  # x; y
        ("gelu", "backward", 3 * BIG),  # grad, x; dx
        ("gelu", "both", 4 * BIG),  # x, grad; y, dx
        ("bias_gelu", "backward", 3 * BIG + 2 * COLUMN),  # grad, x, bias; dx, dbias
        ("layer_norm", "forward", 2 * BIG + 2 * COLUMN),  # x, weight, bias; y
        ("layer_norm", "backward", 3 * BIG + 3 * COLUMN),  # grad, x, weight; dx, dweight, dbias
        ("softmax", "backward", 3 * BIG),  # grad, y; dx
        # Both gradients, residual_out, weight; one gradient for x and residual, dweight, dbias.
        ("add_layer_norm", "backward", 4 * BIG + 3 * COLUMN),
        # x, residual, weight, bias, both gradients; y, residual_out, one gradient, dweight, dbias.
        ("add_layer_norm", "both", 7 * BIG + 4 * COLUMN),
    ],
)
def test_bytes_of_a_call(op: str, direction: str, bytes: int) -> None:
    assert workloads(M, N)[op].bytes(direction, torch.bfloat16) == bytes


def test_every_operator_can_be_measured() -> None:
    for name, workload in every_workload(3, 16).items():
        reference = run.Reference(workload, "cpu", torch.float32)
        values = workload.arguments(lambda shape, _: torch.empty(shape))
        assert reference.error(workload.avo, values) < 1e-5, name
        for direction in run.DIRECTIONS if workload.has_backward else run.DIRECTIONS[:1]:
            assert workload.bytes(direction, torch.float32) > 0, name


@pytest.mark.parametrize("name", ["fused", "foreach"])
def test_torch_beside_operators_over_lists(name: str) -> None:
    """They are called with the same arguments: their steps are right too."""
    torch.manual_seed(0)
    found = {op: w for op, w in list_workloads(3, 16).items() if peers.has(name, w, "cpu")}
    assert {"adamw_", "adamw_amsgrad_", "sgd_", "sgd_momentum_"} <= {*found}
    for op, workload in found.items():
        reference = run.Reference(workload, "cpu", torch.float32)
        values = workload.arguments(lambda shape, _: torch.empty(shape))
        assert reference.error(peers.implementation(name, workload).function, values) < 1e-5, op
    adamw = found["adamw_"]
    # Params, gradients and both averages; all but the gradients are written.
    assert adamw.bytes("forward", torch.bfloat16) == 7 * 2 * 3 * 16


def test_tensors_of_an_arena_do_not_overlap() -> None:
    arena = Arena("cpu", torch.float32)
    for layout in ("contiguous", "sliced", "offset"):
        arena.reset()
        taken = [arena.take((3, 5), layout) for _ in range(4)]
        for i, t in enumerate(taken):
            t.fill_(i)
        assert [t.unique().tolist() for t in taken] == [[0], [1], [2], [3]]
    arena.reset()
    assert arena.take((3, 5), "sliced").stride() == (15, 1)
    arena.reset()
    assert arena.take((3, 5), "offset").data_ptr() % 16 == 4


# ---- the runner ----


def test_run_and_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results.jsonl"
    options = ("--ops", "gelu,layer_norm", "--shapes", "4x64", "--implementations", "avo,eager")
    assert bench(out, *options) == 0
    rows = lines(out)
    assert [(r["op"], r["direction"], r["implementation"]) for r in rows] == [
        (op, direction, name)
        for op in ("gelu", "layer_norm")
        for direction in ("forward", "backward")
        for name in ("avo", "eager")
    ]
    for r in rows:
        assert (r["m"], r["n"], r["dtype"], r["device"], r["method"]) == (4, 64, "float32", "cpu", "wall")
        assert 0 < r["us_low"] <= r["us"] <= r["us_high"] and r["copy_us"] > 0
        assert r["of_copy"] == pytest.approx(r["copy_us"] / r["us"], rel=0.01, abs=1e-3)
        assert (
            0 <= r["error"] < 1e-5
            and r["versions"]["torch"] == torch.__version__
            and r["commit"]
            and r["date"]
        )

    # A run that was killed while it wrote: the line that it cut off is measured again, and nothing else.
    whole = out.read_text()
    out.write_text(whole[:-40])
    assert bench(out, *options) == 0
    keys = list(results.read([out]))
    assert len(out.read_text().splitlines()) == len(rows) + 1 and sorted(map(str, keys)) == sorted(
        str(results.key_of(r)) for r in rows
    )
    before = out.read_text()
    assert bench(out, *options) == 0 and out.read_text() == before

    # No time left: nothing is begun, and that is said.
    assert bench(out, "--ops", "silu", "--shapes", "4x64", "--implementations", "avo", "--seconds", "-1") == 0
    assert "2 cells left" in capsys.readouterr().out and out.read_text() == before


def test_layouts_and_directions(tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    options = ("--ops", "softmax", "--shapes", "4x33", "--implementations", "avo")
    assert bench(out, *options, "--layouts", "sliced,offset", "--directions", "both") == 0
    assert [(r["layout"], r["direction"]) for r in lines(out)] == [("sliced", "both"), ("offset", "both")]


@pytest.mark.parametrize("name", ["avo", "eager"])
def test_what_is_wrong_is_not_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    right = peers.implementation

    def planted(which: str, workload: Any) -> Implementation:
        function = right(which, workload).function
        return Implementation(lambda *a: function(*a) * 1.5) if which == name else Implementation(function)

    monkeypatch.setattr(peers, "implementation", planted)
    out = tmp_path / "results.jsonl"
    status = bench(out, "--ops", "silu", "--shapes", "4x64", "--implementations", "avo,eager")
    assert status == (name == "avo")
    for r in lines(out):
        assert ("us" in r) == (r["implementation"] != name)
        assert r["implementation"] != name or "relative error 5.0e-01" in r["failed"]


def test_refusals(tmp_path: Path) -> None:
    for options in (["--ops", "nonsense"], ["--dtypes", "float8"], ["--implementations", "avo,nobody"]):
        with pytest.raises(SystemExit, match=r"there are|is not one of"):
            run.main(["--device", "cpu", *options])
    other = tmp_path / "other.jsonl"
    other.write_text('{"op": "gelu"}\n')
    with pytest.raises(SystemExit, match=r"other.jsonl:1 is no result"):
        results.read([other])


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_run_on_a_gpu(tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    options = ["--shapes", "2048x1024", "--implementations", "avo,eager", "--out", str(out)]
    assert run.main(["--device", "cuda", *options]) == 0
    rows = lines(out)
    known = workloads(2, 8).values()
    directions = {w.name: 3 if w.kind == "loss" else 1 + w.has_backward for w in known}
    cells = sum(directions[w.name] * (1 + (w.twin is not None)) for w in known)
    assert len(rows) == cells + len(list_workloads(2, 8)) and not any("failed" in r for r in rows)
    for r in rows:
        assert r["method"] == "graph" and r["cpu_us"] > 0 and r["peak_bytes"] > 0
        assert 0.01 < r["of_copy"] < 1.5 and r["bytes"] / r["copy_us"] < 10e6


# ---- reports ----


def row(
    name: str, us: float, *, op: str = "gelu", n: int = 4096, direction: str = "forward", **more: Any
) -> Row:
    return {
        "device": "cuda", "op": op, "direction": direction, "dtype": "bfloat16", "m": 8192, "n": n, "layout": "contiguous",
        "implementation": name, "us": us, "us_low": us * 0.99, "us_high": us * 1.01, "copy_us": 32.0, "of_copy": 32.0 / us,
        "bytes": 4 * 8192 * n, "cpu_us": 8.0, "peak_bytes": 2 * 8192 * n, "error": 2e-3, "method": "graph",
        "card": "NVIDIA H200", "driver": "580", "versions": {"torch": "2.11.0"}, "commit": "abc", "date": "2026-11-29", **more,
    }  # fmt: skip


def failed(name: str, why: str) -> Row:
    return {
        k: v for k, v in {**row(name, 1.0), "failed": why}.items() if not k.startswith(("us", "copy", "of"))
    }


def write(path: Path, rows: list[Row]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def test_report(tmp_path: Path) -> None:
    rows = [row("avo", 40.0), row("eager", 80.0), row("compile", 44.0), failed("quack", "odd | N")]
    rows += [row("avo", 50.0, op="silu"), row("eager", 40.0, op="silu"), row("compile", 45.0, op="silu")]
    rows += [row("avo", 33.0, n=1000, op="rms_norm", direction="backward")]
    old = write(tmp_path / "old.jsonl", [row("avo", 400.0), row("avo", 99.0, op="silu", layout="sliced")])
    out = tmp_path / "report"
    assert report.main([str(old), str(write(tmp_path / "new.jsonl", rows)), "--out", str(out)]) == 0
    text = (out / "report.md").read_text()
    # Best peers take 44/40 and 40/50 of our time, eager 80/40 and 40/50: means 0.938 and 1.265; one cell is behind.
    assert "| cuda | bfloat16 | forward | 2 | 0.94 | 1.26 | 1 | 1.56 | 1.56 |" in text
    assert "| cuda | silu | forward | bfloat16 | 8192x4096 | 50.00 | eager 40.00 | 1.25 |" in text
    assert "| gelu | 0.80, 1.10 compile |" in text  # 32/40 of a copy's time
    assert "| cuda | compile | 2 | 1 | 0.99 | 0.90 at silu forward bfloat16 8192x4096 |" in text
    assert "| gelu forward | 1.02 copies | 1 | 1 | 1.25 at gelu forward bfloat16 8192x4096 |" in text
    assert "| norms backward at N = 1000, 4097, 50257 | 1.30 copies | 1 | 0 | 1.03 at rms_norm" in text
    assert "| rows with stride 3N, one-element offset | 1.10 of contiguous | 1 | 1 | 1.98 at silu" in text
    assert "| cuda | quack | gelu | bfloat16 | 8192x4096 forward | odd \\| N |" in text
    assert "NVIDIA H200, driver 580; torch 2.11.0; commit abc, 2026-11-29" in text
    pictures = sorted(p.name for p in out.glob("*.png"))
    if importlib.util.find_spec("matplotlib"):
        assert pictures == [f"{kind}-cuda-bfloat16.png" for kind in ("ratio", "roofline", "share")]
    assert all(f"({name})" in text for name in pictures) and text.count(".png)") == len(pictures)


def test_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = write(tmp_path / "a", [row("avo", 40.0), row("avo", 60.0, op="silu"), row("eager", 10.0)])

    def status(*rows: Row) -> int:
        return compare.main([str(before), str(write(tmp_path / "b", list(rows)))])

    assert (
        status(row("avo", 40.5), row("avo", 50.0, op="silu"), row("eager", 20.0)) == 0
    )  # within; faster; not ours
    assert "2 cells: 0 slower, 1 faster" in capsys.readouterr().out
    assert status(row("avo", 44.0), row("avo", 60.0, op="silu")) == 1
    assert "1.100 |\n\n2 cells: 1 slower" in capsys.readouterr().out
    assert status(row("avo", 44.0, us_low=40.0)) == 0  # slower by less than the spread
    assert status(failed("avo", "wrong")) == 1
    assert status(row("avo", 40.0, op="mish")) == 1  # nothing to compare


def test_commands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "nonsense"])
    assert command.main() == 2 and "run, report, compare, tune" in capsys.readouterr().err
    for name in command.COMMANDS:
        monkeypatch.setattr(sys, "argv", ["benchmarks", name, "--help"])
        with pytest.raises(SystemExit) as end:
            command.main()
        assert end.value.code == 0 and f"usage: python -m benchmarks {name}" in capsys.readouterr().out


# ---- tuning ----


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_tune_in_the_emulator(tmp_path: Path) -> None:
    # A process of its own: it answers the runtime's questions for kernels, for good.
    out = tmp_path / "tune.jsonl"
    options = [
        "--ops=rms_norm",
        "--shapes=20x136",
        "--directions=backward",
        "--kinds=row,column",
        "--limit=1",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "tune", "--emulate", "--jobs", "2", *options, "--out", str(out)],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = lines(out)  # one fused with the weight's gradient, and one for that beside a loop
    assert len({r["candidate"] for r in rows}) == len(rows) == 2 and not any("failed" in r for r in rows)
    assert all(0 < r["error"] < 1e-2 and r["tile"]["threads"] for r in rows)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_tune_tries_tiles_that_keep_values_and_single_elements(tmp_path: Path) -> None:
    out = tmp_path / "tune.jsonl"
    options = ["--ops=softmax", "--shapes=3x3001", "--directions=forward", "--kinds=cluster", "--limit=8"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "tune", "--emulate", "--jobs", "2", *options, "--out", str(out)],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = lines(out)
    assert len(rows) == 8 and all(r["error"] < 1e-2 for r in rows), rows
    for option in (" keep", " odd"):
        assert {option in r["candidate"] for r in rows} == {True, False}


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_tune_rejects_what_is_wrong(direction: str) -> None:
    problem = tune.Problem(workloads(3, 40)["layer_norm"], direction, "float32")
    one = tune.Bench(problem, None)
    shipped: Callable[..., Any] = getattr(torch.ops.avo, problem.op.name).definition
    assert one.row(shipped)["error"] < 1e-6
    assert one.row(lambda *a: [o if o is None else o * 1.01 for o in shipped(*a)])["failed"].startswith(
        "wrong"
    )


def test_the_space_of_tiles() -> None:
    for kind, n, columns, sums in (("row", 1000, 1, 0), ("row", 4096, 1, 2), ("cluster", 16384, 1, 2)):
        tiles = list(tune.space(kind, n, 8, 2, columns, sums))
        assert len(set(tiles)) == len(tiles) > 5
        for t in tiles:
            assert (
                t.max_n >= n and t.threads * (t.vectors - 1) * 8 < n
            )  # it holds the row, and not a vector more
            assert t.block * t.min_blocks <= 2048 and (t.persist > 0 or not sums)
            assert t.block % t.threads == 0 or (kind == "cluster" and t.threads % t.block == 0)


def test_dtypes_have_bounds() -> None:
    assert set(run.BOUNDS) == set(DTYPES) == set(tune.SHORT)
