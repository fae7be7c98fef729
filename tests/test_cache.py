"""The cache of kernels between processes: one compile for all, damage, a full or read-only folder, kill -9, fork, its commands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from avo_ops import __main__ as command
from avo_ops.generator import emulator, gcc
from avo_ops.registry import cache, native_library
from avo_ops.registry.store import KernelStore

if native_library.runtime() is None:
    pytest.skip("the package is not built", allow_module_level=True)

ROOT = Path(__file__).resolve().parent.parent

PROGRAM = """
import os, sys, threading, torch, warnings
import avo_ops
from avo_ops.generator import gcc
compiled = []
real = gcc.compile_cpu
def counted(text, isa):
    compiled.append(1)
    return real(text, isa)
gcc.compile_cpu = counted
def scale(x, w):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w
f = avo_ops.compile(scale)
x, w = torch.randn(8, 16), torch.randn(16)
def check():
    torch.testing.assert_close(f(x, w), scale(x, w))
"""


def start(folder: Path, body: str, **env: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "AVO_OPS_CACHE": str(folder),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        **env,
    }
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM + textwrap.dedent(body)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, body: str, **env: str) -> str:
    process = start(folder, body, **env)
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    return out


REPORT = """
check()
print(len(compiled), sum("cpu/" in k for k in avo_ops.stats()))
"""


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, REPORT) == "1 1\n"
    assert run(tmp_path, REPORT) == "0 1\n"


def test_a_race_of_processes_and_threads_compiles_once(tmp_path: Path) -> None:
    body = """
    threads = [threading.Thread(target=check) for _ in range(16)]
    for t in threads: t.start()
    for t in threads: t.join()
    print(len(compiled), len(f.variants()))
    """
    racing = [start(tmp_path, body) for _ in range(8)]
    outs = [p.communicate(timeout=300) for p in racing]
    assert [p.returncode for p in racing] == [0] * 8, outs
    found = sorted(out for out, _ in outs)
    assert found == ["0 1\n"] * 7 + ["1 1\n"]


def test_a_damaged_entry_is_made_again(tmp_path: Path) -> None:
    run(tmp_path, REPORT)
    before = {entry.suffix: entry for entry in cache.entries(tmp_path)}
    assert before.keys() == {".so", ".graph", ".key", ".version"}
    for entry in before.values():
        entry.write_bytes(entry.read_bytes()[:-1] + b"?")
    assert run(tmp_path, REPORT) == "1 1\n"
    assert {entry.suffix: entry for entry in cache.entries(tmp_path)} == before
    assert cache.remove_damaged(tmp_path) == []


def test_a_killed_process_leaves_no_lock_and_no_half_entry(tmp_path: Path) -> None:
    process = start(
        tmp_path,
        "gcc.compile_cpu = lambda text, isa: (print('in', flush=True), __import__('time').sleep(600))\ncheck()",
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "in\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    begin = time.monotonic()
    assert run(tmp_path, REPORT) == "1 1\n"
    assert time.monotonic() - begin < 120


def test_without_a_folder_to_write_to_it_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    body = """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check()
        g = avo_ops.compile(lambda x: x * 2)
        g(x)
    print(len(compiled), [str(w.message)[:34] for w in caught if issubclass(w.category, RuntimeWarning)])
    """
    assert run(tmp_path / "file" / "below", body) == "2 ['avo_ops: kernels cannot be kept in']\n"


def test_without_a_compiler_the_definition_runs_after_one_warning(tmp_path: Path) -> None:
    body = """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check()
        g = avo_ops.compile(lambda x: x * 2)
        torch.testing.assert_close(g(x), x * 2)
    print([str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)])
    """
    out = run(tmp_path, body, CXX="no-such-compiler")
    assert out.count("avo_ops:") == 1
    assert "run by plain torch operations: there is no C++ compiler: install g++ or set CXX" in out


def test_a_forked_child_finds_and_makes_kernels(tmp_path: Path) -> None:
    body = """
    check()
    child = os.fork()
    if child == 0:
        check()
        g = avo_ops.compile(lambda x: x * 3)
        torch.testing.assert_close(g(x), x * 3)
        os._exit(0)
    print(os.waitpid(child, 0)[1])
    """
    assert run(tmp_path, body) == "0\n"


def test_a_frozen_process_says_so_where_a_cuda_kernel_is_missing_and_thawed_makes_it(tmp_path: Path) -> None:
    body = """
    f.prepare(x, w)
    avo_ops.freeze()
    with avo_ops.testing.emulate(sms=3):
        for _ in range(2):
            try:
                check()
            except RuntimeError as error:
                print("avo_ops.freeze() was called: warm it up before" in str(error))
        avo_ops.freeze(False)
        check()
    print(sum("cuda/" in k for k in avo_ops.stats()))
    """
    assert run(tmp_path, body) == "True\nTrue\n1\n"


def test_rows_of_several_strides_are_copied_where_nothing_may_be_compiled(tmp_path: Path) -> None:
    body = """
    heads = torch.randn(2, 3, 2, 4, 8)[:, :, 0]
    with avo_ops.testing.emulate(sms=3):
        want = torch.ops.avo.softmax(heads.contiguous(), -1)
        avo_ops.freeze()
        for _ in range(2):
            assert torch.equal(torch.ops.avo.softmax(heads, -1), want)
        avo_ops.freeze(False)
        before = dict(avo_ops.stats())
        assert torch.equal(torch.ops.avo.softmax(heads, -1), want)
    print(*sorted(k.split("/")[-1] for k, n in avo_ops.stats().items() if n != before.get(k)))
    """
    (strided,) = run(tmp_path, body).split()
    assert strided.endswith("_strided")


# ---- its size, and the commands ----


class Maker:
    """Makes units of 100 bytes."""

    def inputs(self, unit: str, arch: str) -> list[bytes]:
        return [unit.encode()]

    def compile(self, unit: str, arch: str) -> bytes:
        return unit.encode().ljust(100)


def fill(folder: Path, units: str, monkeypatch: pytest.MonkeyPatch, limit: str) -> KernelStore:
    monkeypatch.setenv("AVO_OPS_CACHE_SIZE", limit)
    store = KernelStore(None, folder, Maker())
    for i, unit in enumerate(units):
        path = store.resolve(unit, 90)
        assert path is not None
        os.utime(path, (1000 + i, 1000 + i))
    return store


def names(folder: Path) -> str:
    return "".join(sorted(p.read_bytes()[:1].decode() for p in cache.entries(folder)))


def test_what_was_used_least_recently_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fill(tmp_path, "abc", monkeypatch, "300")
    assert names(tmp_path) == "abc"
    KernelStore(None, tmp_path, Maker()).resolve("a", 90)  # used again
    store.resolve("d", 90)
    assert names(tmp_path) == "acd"
    monkeypatch.setenv("AVO_OPS_CACHE_SIZE", "10")
    store.resolve("e", 90)  # the newest stays, however small the limit
    assert names(tmp_path) == "e"


def test_sizes() -> None:
    assert [cache.size_limit(t) for t in ("12", "3k", "2M", "1G")] == [12, 3 * 2**10, 2 * 2**20, 2**30]
    with pytest.raises(ValueError, match="such as 500M"):
        cache.size_limit("much")


def test_a_size_that_is_none_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_DEFAULT", "100")
    with pytest.warns(
        RuntimeWarning, match=r"AVO_OPS_CACHE_SIZE: .* is 'much': it holds 100 at most"
    ) as caught:
        fill(tmp_path, "abc", monkeypatch, "much")
    assert len(caught) == 1
    assert names(tmp_path) == "c"


def test_the_compiler_and_its_flags_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for command_line in ("g++", "g++ -DNDEBUG"):
        monkeypatch.setenv("CXX", command_line)
        found.append((gcc.cpu_inputs("", "base"), emulator.inputs("", sanitized=False)))
    assert found[0][0] != found[1][0]
    assert found[0][1] != found[1][1]


def test_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AVO_OPS_CACHE", str(tmp_path))
    fill(tmp_path, "abcd", monkeypatch, "1G")
    assert command.main(["cache", "info"]) == 0
    assert (
        capsys.readouterr().out == f"{tmp_path}: 4 .cubin; 0.0 MB of at most 1024.0 MB (AVO_OPS_CACHE_SIZE)\n"
    )
    assert command.main(["cache", "prune", "--to", "200"]) == 0
    assert names(tmp_path) == "cd"
    assert command.main(["cache", "verify"]) == 0
    damaged = cache.entries(tmp_path)[0]
    damaged.write_bytes(b"x")
    capsys.readouterr()
    assert command.main(["cache", "verify"]) == 1
    assert capsys.readouterr().out.startswith(f"damaged, removed: {damaged}\n")
    assert command.main(["cache", "clear"]) == 0
    assert cache.entries(tmp_path) == []
