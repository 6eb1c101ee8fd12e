"""Writes docs/CONFIGURATION.md from fastlock/config.py, so that the page and the code cannot differ."""

from __future__ import annotations

from dataclasses import fields
from itertools import groupby
from pathlib import Path
from typing import Any

from fastlock.config import Address, Config, Setting, settings, variable_of

PAGE = Path(__file__).parents[1] / "docs" / "CONFIGURATION.md"

HEAD = """\
# Configuration

Written by `tools/configuration_page.py` from `fastlock/config.py`; a test fails when it is stale.

A value comes from, weakest first:

1. the default below,
2. the TOML file named by `--config`,
3. a `FASTLOCK_…` variable,
4. `--set key=value`,
5. the flag that a setting has of its own.

A key that does not exist and a value that makes no sense are refused at start, with the file and line (or the
variable or flag) and what was probably meant. Nothing is ignored.

```toml
# fastlock.toml, for `fastlock serve --config fastlock.toml`
[node]
id = 1
data_dir = "/var/lib/fastlock"

[listen]
native = "10.0.0.1:7400"
peer = "10.0.0.1:7401"

[cluster]
members = { 1 = "10.0.0.1:7401", 2 = "10.0.0.2:7401", 3 = "10.0.0.3:7401" }

[raft]
election_ms_min = 150
election_ms_max = 300
heartbeat_ms = 50
```

Limits of the lock table (lengths of keys and values, numbers of locks, TTLs) are not here: they are
replicated settings of each group, see [LOCKS.md](LOCKS.md).
"""


def page() -> str:
    kinds: dict[str, Any] = {section.name: section.default_factory for section in fields(Config)}
    parts = [HEAD]
    for section, inside in groupby(settings(), lambda setting: setting.section):
        parts.append(f"## [{section}]\n\n{kinds[section].__doc__}\n")
        parts.append("| key | default | bounds | meaning | flag, variable |\n|---|---|---|---|---|")
        parts.extend(map(_row, inside))
        parts.append("")
    return "\n".join(parts)


def _row(setting: Setting) -> str:
    default = setting.default
    shown = (
        ""
        if default in ("", ())
        else f"`{default}`"
        if isinstance(default, (Address, str))
        else f"{default:,}"
    )
    bounds = "" if setting.bounds is None else f"{setting.bounds[0]:,} … {setting.bounds[1]:,}"
    names = ", ".join(f"`{name}`" for name in (setting.flag, variable_of(setting)) if name)
    return f"| `{setting.key}` | {shown} | {bounds} | {setting.meaning} | {names} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
