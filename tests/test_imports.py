"""Who may import whom (the parts of avo_ops and what stands between them), read from the sources by ast."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "avo_ops"

# part -> what it may import beside the standard library and itself. A name allows all that lies under it.
RULES: dict[str, tuple[str, ...]] = {
    "avo_ops.definitions": ("torch",),
    # The record says what an operator is; which operators there are is an argument.
    "avo_ops.generator": (
        "torch",
        "sympy",  # what torch states symbolic sizes in
        "avo_ops.definitions.record",
        "avo_ops.definitions.primitives",
        "avo_ops.definitions.lists",
        "avo_ops.plan_file",
    ),
    "avo_ops.plan_file": (),
    "avo_ops.registry": (
        "torch",
        "avo_ops.definitions",
        "avo_ops.plan_file",
    ),  # and the other files of the generator
    "avo_ops.nn": ("torch", "avo_ops.registry"),
    "avo_ops.optim": ("torch",),
    "avo_ops.jit": ("torch", "avo_ops.generator", "avo_ops.registry", "avo_ops.plan_file"),
    "avo_ops.testing": ("avo_ops.registry", "avo_ops.jit"),
    "avo_ops.__main__": ("avo_ops",),
    "avo_ops": ("torch", "avo_ops.registry", "avo_ops.nn", "avo_ops.optim", "avo_ops.jit", "avo_ops.testing"),
    # These run while the package is built, where torch need not be importable.
    "avo_ops.generator.build": ("avo_ops.generator.nvrtc", "avo_ops.plan_file"),
    "avo_ops.generator.nvrtc": (),
    "avo_ops.generator.gcc": ("avo_ops.generator.build",),
    "avo_ops.generator.emulator": ("avo_ops.generator.build", "avo_ops.generator.gcc", "avo_ops.plan_file"),
    # Below the trace everything is our own graph.
    "avo_ops.generator.simplify": ("avo_ops.generator",),
    "avo_ops.generator.schedule": ("avo_ops.generator",),
    "avo_ops.generator.render": ("avo_ops.generator",),
    "avo_ops.generator.emit_cuda": ("avo_ops.generator", "avo_ops.definitions.record", "avo_ops.plan_file"),
    "avo_ops.generator.emit_cpu": ("avo_ops.generator", "avo_ops.definitions.record"),
    "setup": ("setuptools", "avo_ops.definitions", "avo_ops.generator", "avo_ops.plan_file"),
}
# Rules of single modules: what their part may do is not enough for them.
ALONE = {rule for rule in RULES if rule.startswith("avo_ops.generator.")}


@dataclass(frozen=True)
class Import:
    """One imported name. ``late``: in a function, so it cannot be part of a cycle at import time."""

    module: str
    line: int
    late: bool


def imports_of(source: str, module: str, is_package: bool) -> list[Import]:
    """All that a module imports, by absolute names; ``from a import b`` is a.b: a module, or a name in a."""
    visitor = Imports(module if is_package else module.rpartition(".")[0])
    visitor.visit(ast.parse(source))
    return visitor.found


class Imports(ast.NodeVisitor):
    """Collects the imports of a module that lies in ``package``."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.found: list[Import] = []
        self.late = False

    def visit(self, node: ast.AST) -> None:
        before = self.late
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            self.late = True
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            self.late = True  # never, in fact; an else of such an if would be read as late too
        super().visit(node)
        self.late = before

    def add(self, name: str, node: ast.AST) -> None:
        self.found.append(Import(name, getattr(node, "lineno", 0), self.late))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.add(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        parts = self.package.split(".")[: len(self.package.split(".")) - node.level + 1] if node.level else []
        origin = ".".join([*parts, node.module] if node.module else parts)
        for alias in node.names:
            self.add(f"{origin}.{alias.name}", node)

    def visit_Call(self, node: ast.Call) -> None:
        match node:
            case ast.Call(args=[ast.Constant(value=str(name)), *_], func=func):
                called = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
                if called in ("import_module", "__import__"):
                    self.add(f"{self.package}{name}" if name.startswith(".") else name, node)
        self.generic_visit(node)


def is_under(name: str, parent: str) -> bool:
    return name == parent or name.startswith(f"{parent}.")


def rule_of(module: str) -> str | None:
    """The closest rule for a module; the rule of the package itself is for its __init__ alone."""
    rules = [rule for rule in RULES if is_under(module, rule) and (rule != PACKAGE or module == PACKAGE)]
    return max(rules, key=len, default=None)


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    """What a module imports against its rule."""
    rule = rule_of(module)
    if rule is None:
        return [f"{module}: no rule says what it may import"]
    allowed = RULES[rule] + (() if rule in ALONE or rule == PACKAGE else (rule,))
    wrong = []
    for found in imports_of(source, module, is_package):
        name = found.module
        if name.partition(".")[0] in sys.stdlib_module_names or any(is_under(name, a) for a in allowed):
            continue
        wrong.append(f"{module}:{found.line} imports {name}")
    return wrong


def modules() -> dict[str, tuple[Path, bool]]:
    """The modules of the package and setup.py: name -> file, and whether it is a package."""
    found = {"setup": (ROOT / "setup.py", False)}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = list(path.relative_to(ROOT).with_suffix("").parts)
        if "_generated" in parts:
            continue
        is_package = parts[-1] == "__init__"
        found[".".join(parts[:-1] if is_package else parts)] = (path, is_package)
    return found


@pytest.mark.parametrize("module", modules())
def test_a_part_imports_only_what_it_may(module: str) -> None:
    path, is_package = modules()[module]
    assert violations(module, path.read_text(), is_package) == []


def test_no_cycles() -> None:
    known = modules()
    graph: dict[str, set[str]] = {}
    for module, (path, is_package) in known.items():
        found = [i for i in imports_of(path.read_text(), module, is_package) if not i.late]
        # a.b is the module a.b or a name in the module a
        targets = {i.module if i.module in known else i.module.rpartition(".")[0] for i in found}
        graph[module] = {t for t in targets if t in known and t != module}
    assert graph["avo_ops.generator.pipeline"], "the graph was read"
    assert cycle_in(graph) is None


def cycle_in(graph: dict[str, set[str]]) -> list[str] | None:
    """Some cycle of a graph, or None."""
    done: set[str] = set()

    def walk(module: str, path: list[str]) -> list[str] | None:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return None
        for target in sorted(graph[module]):
            found = walk(target, [*path, module])
            if found is not None:
                return found
        done.add(module)
        return None

    for module in sorted(graph):
        found = walk(module, [])
        if found is not None:
            return found
    return None


@pytest.mark.parametrize(
    ("module", "source", "imported"),
    [
        ("avo_ops.definitions.new", "from ..generator import ir", "avo_ops.generator.ir"),
        ("avo_ops.definitions.new", "import numpy", "numpy"),
        ("avo_ops.generator.new", "from ..definitions import CATALOGUE", "avo_ops.definitions.CATALOGUE"),
        (
            "avo_ops.generator.new",
            "def f():\n    from ..registry.store import lookup",
            "avo_ops.registry.store.lookup",
        ),
        ("avo_ops.generator.new", "import avo_ops.nn", "avo_ops.nn"),
        ("avo_ops.generator.build", "import torch", "torch"),
        ("avo_ops.generator.emit_cuda", "from torch import Tensor", "torch.Tensor"),
        ("avo_ops.registry.new", "from .. import generator", "avo_ops.generator"),
        ("avo_ops.registry.new", "import importlib\nimportlib.import_module('avo_ops.nn')", "avo_ops.nn"),
        ("avo_ops.nn.new", "from ..definitions import CATALOGUE", "avo_ops.definitions.CATALOGUE"),
        ("avo_ops.nn.new", "import transformers", "transformers"),
        ("avo_ops", "from avo_ops.generator import pipeline", "avo_ops.generator.pipeline"),
        ("setup", "import torch", "torch"),
    ],
)
def test_the_check_finds(module: str, source: str, imported: str) -> None:
    (wrong,) = violations(module, source)
    assert wrong.endswith(f" imports {imported}")


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "avo_ops.definitions.new",
            "import math\nimport torch.nn.functional as F\nfrom .record import OpDef",
        ),
        ("avo_ops.generator.new", "import torch\nfrom ..definitions.record import OpDef\nfrom . import ir"),
        ("avo_ops.registry.new", "from ..definitions import CATALOGUE"),
        ("avo_ops.nn.new", "import torch\nfrom ..registry import stats"),
        ("avo_ops.generator.build", "import os\nfrom . import nvrtc"),
    ],
)
def test_the_check_lets_pass(module: str, source: str) -> None:
    assert violations(module, source) == []


def test_the_check_knows_every_module() -> None:
    assert violations("avo_ops.elsewhere", "import os") == [
        "avo_ops.elsewhere: no rule says what it may import"
    ]


def test_the_check_finds_cycles() -> None:
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert cycle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None
