"""``python -m benchmarks COMMAND``: run, report, compare, tune, calls or accuracy; each has --help."""

from __future__ import annotations

import importlib
import sys

COMMANDS = {
    "run": "run",
    "report": "report",
    "compare": "compare",
    "tune": "tune",
    "calls": "call_cost",
    "accuracy": "accuracy",
}


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        print(__doc__, file=sys.stderr)
        return 2
    command = sys.argv.pop(1)
    return int(importlib.import_module(f".{COMMANDS[command]}", __package__).main() or 0)


if __name__ == "__main__":
    sys.exit(main())
