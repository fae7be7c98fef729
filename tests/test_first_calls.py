"""What importing leaves to the first call of an operator, and plan.json, from which it is made."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from avo_ops import plan_file
from avo_ops.registry import native, native_library
from avo_ops.registry.plan import generated_folder

FOLDER = generated_folder()
assert FOLDER is not None
DATA: dict[str, Any] = json.loads((FOLDER / "plan.json").read_text())

both_ways = pytest.mark.parametrize("accelerator", ["0", "1"])


def run(code: str, accelerator: str) -> list[str]:
    environment = {**os.environ, "AVO_OPS_ACCELERATOR": accelerator, "AVO_OPS_EMULATE": "0"}
    program = "import collections, os, threading, warnings, torch, avo_ops\n" + code
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# ---- the file ----


def test_the_file_says_each_thing_once() -> None:
    for name in ("tables", "kernels"):
        assert len(set(map(json.dumps, DATA[name]))) == len(DATA[name])
    used = {i for kernels in DATA["kernels"] for i, *_ in kernels.values()}
    assert used == set(range(len(DATA["tables"])))
    assert {f["kernels"] for f in DATA["families"].values()} == set(range(len(DATA["kernels"])))
    own = {operator["name"]: operator["graphs"] for operator in DATA["operators"]}
    for operator in DATA["operators"]:
        if isinstance(operator["graphs"], str):  # all of them are another's
            operator = {**operator, "graphs": own[operator["graphs"]]}
        graphs = [json.dumps(graph) for graph in operator["graphs"]]
        assert len(set(graphs)) == len(graphs)
        cases = [case for op in operator["ops"] for case in op.get("cases", ())]
        assert {int(case.split()[-1]) for case in cases} == set(range(len(graphs)))
        for before, op in itertools.pairwise(operator["ops"]):
            assert not [key for key, value in op.items() if before.get(key) == value]
    assert all(
        tuple(DATA["columns"]) == plan_file.COLUMNS and len(r) <= len(plan_file.COLUMNS) and r[-1] != 0
        for t in DATA["tables"]
        for r in t
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    plan = plan_file.load(FOLDER)
    cases = plan["operators"][0]["ops"][0]["cases"]
    assert cases[:1] == [cases[0]] and cases == list(cases) and cases != cases[:0] and cases != 1
    (tmp_path / "plan.json").write_text(plan_file.text(plan["operators"], plan["families"], plan["lists"]))
    assert (tmp_path / "plan.json").read_text() == (FOLDER / "plan.json").read_text()


def test_a_table_of_two_units_is_refused() -> None:
    plan = plan_file.load(FOLDER)
    name = next(n for n, f in plan["families"].items() if len(f["variants"].get("f32", ())) > 1)
    family = plan["families"][name]
    first, *others = family["variants"]["f32"]
    moved = [{**first, "unit": f"{name}__elsewhere"}, *({**v, "unit": None} for v in others)]
    families = {**plan["families"], name: {**family, "variants": {"f32": moved}}}
    with pytest.raises(AssertionError, match=f"^{name}: its variants for f32 are in several units"):
        plan_file.text(plan["operators"], families)


@pytest.mark.parametrize("change", [{"rows": 3}, {"symbol": "other"}])
def test_a_variant_is_what_its_arguments_say(change: dict[str, Any]) -> None:
    plan = plan_file.load(FOLDER)
    name, family = next(iter(plan["families"].items()))
    changed = {**family, "variants": {"f32": [{**family["variants"]["f32"][0], **change}]}}
    with pytest.raises(
        AssertionError, match=r"is not the name of a kernel|: a kernel of 128, .* has \{'block': 128"
    ):
        plan_file.text(plan["operators"], {**plan["families"], name: changed})


def test_expressions_are_lines() -> None:
    nodes: list[list[Any]] = [
        ["load", [], "x"],
        ["const", [], 2.0],
        ["mul", [0, 1]],
        ["const", [], "inf"],
        ["max", [2, 3]],
        ["scalar", [], "nan"],
        ["load", [], "nan"],  # would be taken for a number
        ["fma", [4, 5, 6]],
        ["sum", [7], "M"],
        ["const", [], 3],  # not the third line
        ["sub", [8, 9]],
        ["const", [], 1],
    ]
    results = {"y": 10, "same": 0, "one": 11}
    lines = plan_file._expression_to(nodes, results)
    assert lines["nodes"] == [
        "load:x", "mul 0 2.0", "max 1 inf", "load:nan", "fma 2 $nan 3", "sum:M 4", "sub 5 3.0", "const:1.0",
    ]  # fmt: skip
    assert lines["results"] == {"y": 6, "same": 0, "one": 7}
    known = plan_file._expression_of(**lines)
    assert sorted(map(repr, (n[0] for n in known["nodes"]))) == sorted(map(repr, (n[0] for n in nodes)))
    assert plan_file._expression_to(**known) == lines
    with pytest.raises(AssertionError, match="an attribute that a line cannot say: round:True"):
        plan_file._expression_to([["load", [], "x"], ["round", [0], True]], {"y": 1})


def test_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps({"version": 1, "operators": [], "families": {}}))
    with pytest.raises(RuntimeError, match=r"plan\.json has version 1; this package reads 5$"):
        plan_file.load(tmp_path)


# ---- first calls ----

WATCHED = """
from avo_ops.registry import native
made = []
usual = native.table_text
def watched(operator, *rest):
    made.append(operator["name"])
    return usual(operator, *rest)
native.table_text = watched
x = torch.randn(3, 8)
"""


@both_ways
def test_tables_are_made_at_the_first_call_alone(accelerator: str) -> None:
    code = WATCHED + (
        "torch.ops.avo.silu(x); torch.ops.avo.silu(x); print(made)\n"
        "y = torch.ops.avo.gelu(x.requires_grad_()); print(made)\n"
        "y.sum().backward(); print(made)\n"
        "avo_ops.explain(torch.ops.avo.softmax, x, -1); print(made)\n"
        "torch.ops.avo.softmax(x, -1); print(made)\n"
        "print(avo_ops.stats()['avo::silu / definition'] if 'avo::silu / definition' in avo_ops.stats() else 0)"
    )
    one, two, three = "['silu']", "['silu', 'gelu']", "['silu', 'gelu', 'softmax']"
    assert run(code, accelerator) == [one, two, two, three, three, "0"]


@both_ways
def test_first_calls_from_many_threads(accelerator: str) -> None:
    """All threads ask for the tables of one operator at once; each call is right, and counted."""
    code = WATCHED + (
        "import sys; sys.setswitchinterval(1e-6)\n"
        "barrier, wrong = threading.Barrier(8), []\n"
        "w = torch.ones(8)\n"
        "def work():\n"
        "    barrier.wait()\n"
        "    for _ in range(20):\n"
        "        y = torch.ops.avo.layer_norm(x, [8], w)\n"
        "        if (y - torch.nn.functional.layer_norm(x, [8], w)).abs().max() > 1e-5: wrong.append(1)\n"
        "threads = [threading.Thread(target=work) for _ in range(8)]\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    [t.start() for t in threads]; [t.join() for t in threads]\n"
        "print(len(wrong), len(seen), set(made), *avo_ops.stats().values())"
    )
    assert run(code, accelerator) == ["0 0 {'layer_norm'} 160"]


@both_ways
def test_first_calls_in_forked_children(accelerator: str) -> None:
    """Children that are forked while another thread makes first calls make their own."""
    code = (
        "x = torch.randn(3, 8)\n"
        "torch.set_num_threads(1)\n"
        "names = ['silu', 'relu', 'gelu', 'mish', 'elu', 'celu', 'selu', 'tanh', 'sigmoid', 'softplus']\n"
        "def work():\n"
        "    for name in names: getattr(torch.ops.avo, name)(x)\n"
        "thread = threading.Thread(target=work)\n"
        "thread.start()\n"
        "codes = []\n"
        "for name in names:\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        torch.ops.avo.softmax(x, -1); getattr(torch.ops.avo, name)(x)\n"
        "        os._exit(len(avo_ops.stats().by_op()['avo::softmax'].kernels) - 1)\n"
        "    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "thread.join()\n"
        "print(codes)"
    )
    assert run(code, accelerator) == [str([0] * 10)]


@both_ways
def test_an_operator_whose_table_is_refused_runs_by_its_definition(accelerator: str) -> None:
    """With one warning, counted, and refused in strict mode."""
    code = (
        "from avo_ops.registry import native\n"
        "native._family_lines = lambda name, family: ['family ' + name + ' nonsense 0']\n"
        "x = torch.randn(8)\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    y = torch.ops.avo.silu(x); torch.ops.avo.silu(x)\n"
        "print(torch.allclose(y, torch.nn.functional.silu(x)), len(seen), seen[0].message)\n"
        "print(avo_ops.stats())\n"
        "try:\n"
        "    with avo_ops.strict(): torch.ops.avo.silu(x)\n"
        "except RuntimeError as error: print(str(error).splitlines()[0])"
    )
    first, counts, strict = run(code, accelerator)
    assert re.fullmatch(r"True 1 avo_ops: silu runs by its definition: .*unknown class 'nonsense'.*", first)
    assert re.fullmatch(r"avo::silu +definition +2", counts)
    assert strict.startswith("silu: strict mode: the definition would run, not a kernel: ")


@both_ways
def test_an_operator_without_any_table_is_an_error(accelerator: str) -> None:
    code = (
        "from avo_ops.registry import native\n"
        "def broken(*args): raise ValueError('on purpose')\n"
        "native.table_text = broken\n"
        "with warnings.catch_warnings(record=True) as seen:\n"
        "    warnings.simplefilter('always')\n"
        "    try: torch.ops.avo.silu(torch.ones(3))\n"
        "    except RuntimeError as error: print(str(error).splitlines()[0])\n"
        "print(*(one.message for one in seen))"
    )
    assert run(code, accelerator) == [
        "avo::silu has no operator table",
        "avo_ops: no table of avo::silu: on purpose",
    ]


def test_an_unknown_op_is_asked_for_and_not_found() -> None:
    runtime = native_library.runtime()
    assert runtime is not None
    with pytest.raises(native.NativeError, match=r"^there is no operator avo::nothing$"):
        runtime.describe("avo::nothing")
    with pytest.raises(native.NativeError, match=r"^'nothing' has no namespace$"):
        runtime.declare("nothing")


def test_registration_leaves_the_collector_as_it_was() -> None:
    for before, after in (("", "True"), ("gc.disable();", "False")):
        code = f"import gc, torch; {before} import avo_ops; print(gc.isenabled())"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == f"{after}\n"


def test_a_word_of_a_table() -> None:
    assert [native._word(v) for v in ("a/b:c", "", "50%", "a b", "é", "!~", 3)] == [
        "a/b:c", "%", "50%25", "a%20b", "%C3%A9", "!~", "3",
    ]  # fmt: skip


def test_a_line_of_a_table() -> None:
    lines = [
        ("op", "gelu", 3),
        ("op", "a b"),
        ("op", ""),
        ("", "op"),
        ("op", "50%", -1),
        ("op", "é"),
        ("a\n",),
        (),
    ]
    assert [native._line(*words) for words in lines] == [
        "op gelu 3", "op a%20b", "op %", "% op", "op 50%25 -1", "op %C3%A9", "a%0A", "",
    ]  # fmt: skip
