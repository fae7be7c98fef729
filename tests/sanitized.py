"""Commands of Python under the sanitizers, by a process that has imported torch and forks for each of them.

Where AddressSanitizer watches, an import of torch takes as long as many a test. The server reads requests, a line of JSON each,
and answers with the exit status of the child, which has run as ``python ARGUMENT ...`` would.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from avo_ops import testing

ROOT = Path(__file__).resolve().parent.parent


def run(*args: str, timeout: int = 600) -> subprocess.CompletedProcess[str]:
    """Run ``python *args`` in the root of the repository, with what the environment says of avo_ops."""
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        own = {name: value for name, value in os.environ.items() if name.startswith("AVO_OPS_")}
        request = {"args": args, "out": str(out), "err": str(err), "timeout": timeout, "environment": own}
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        if not answer:
            raise RuntimeError("the server of sanitized processes has ended")
        return subprocess.CompletedProcess(args, int(answer), out.read_text(), err.read_text())


@lru_cache(maxsize=1)
def _server() -> subprocess.Popen[str]:
    """It ends when this process does, and its standard input with it."""
    environment = testing.sanitizer_environment()
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    return subprocess.Popen(
        [sys.executable, __file__], env=environment, cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip


def serve() -> None:
    # What the commands need; it must not start a thread, which a fork would leave behind.
    import hypothesis  # noqa: F401
    import pytest  # noqa: F401
    import torch
    from catalogue import RECORDS  # noqa: F401

    torch.set_num_threads(1)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(request)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _become(request: dict[str, Any]) -> None:
    """Run a request and end this process."""
    for path, target in ((os.devnull, 0), (request["out"], 1), (request["err"], 2)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), target)
    for name in [name for name in os.environ if name.startswith("AVO_OPS_")]:
        del os.environ[name]
    os.environ.update(request["environment"])
    signal.alarm(request["timeout"])
    status = 0
    try:
        _command(request["args"])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _command(args: list[str]) -> None:
    match args:
        case ["-c", program, *more]:
            sys.argv = ["-c", *more]
            exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
        case ["-m", module, *more]:
            sys.argv = [module, *more]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case [path, *more]:
            sys.argv = [path, *more]
            runpy.run_path(path, run_name="__main__")


if __name__ == "__main__":
    serve()
