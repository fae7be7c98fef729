"""How often which path ran: the runtime's counters and those of the definitions that Python runs."""

from __future__ import annotations

from collections import Counter

_definitions: Counter[str] = Counter()


def count_definition(name: str) -> None:
    """Note that Python ran the op ``name`` by its definition: no runtime for the device, or a vmap."""
    _definitions[name] += 1


def stats() -> dict[str, int]:
    """Calls by op and path since the start or the last reset: ``{"avo::gelu / definition": 3, ...}``."""
    from . import native_library

    counts = Counter({f"{name} / definition": count for name, count in _definitions.items()})
    counts.update(native_library.counters())
    return dict(counts)


def reset_stats() -> None:
    """Set every counter to zero."""
    from . import native_library

    _definitions.clear()
    native_library.reset_counters()
