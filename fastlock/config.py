"""Every setting of a node, once: its name, type, default, bounds and meaning, and where values come from.

From weakest to strongest: the default, the TOML file of `--config`, `FASTLOCK_…` variables,
`--set key=value`, and the flags that a setting has of its own. A key nobody knows and a value that makes
no sense are refused, with the place where they stand and what was probably meant.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from fastlock.errors import ConfigError

__all__ = ["Address", "Config", "Setting", "load_config", "parse_members", "settings", "variable_of"]

PORT_MAX = 65_535
VARIABLE_PREFIX = "FASTLOCK_"
# Variables that mean something to other parts: the build, the fuzzers, children of `fastlock lock`.
OTHER_VARIABLES = frozenset(
    f"{VARIABLE_PREFIX}{name}"
    for name in ("DEBUG", "SANITIZE", "FUZZ_SECONDS", "FUZZ_SEED", "TOKEN", "KEY", "ENDPOINTS")
)
_LOOPBACK = ("localhost", "127.", "::1")


class Address(NamedTuple):
    """Where something listens. Port 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        return self.host.startswith(_LOOPBACK)

    @classmethod
    def parse(cls, text: str) -> Address:
        """ValueError unless it is HOST:PORT or [IPV6]:PORT."""
        host, colon, port = text.strip().rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError(f"{text!r} is not HOST:PORT (an IPv6 host stands in brackets)")
        if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > PORT_MAX:
            raise ValueError(f"{text!r} is not HOST:PORT with a port from 0 to {PORT_MAX}")
        return cls(host, int(port))


Members = tuple[tuple[int, Address], ...]


def parse_members(text: str) -> Members:
    """`1=HOST:PORT,2=HOST:PORT,…` by node id; ValueError unless every id and address is there once."""
    members: dict[int, Address] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        number, equals, address = part.partition("=")
        if not equals or not number.strip().isdecimal() or int(number) == 0:
            raise ValueError(f"{part!r} is not NODE=HOST:PORT with a node id from 1 up")
        if int(number) in members:
            raise ValueError(f"node {int(number)} is named twice")
        members[int(number)] = Address.parse(address)
    if len(set(members.values())) != len(members):
        raise ValueError("two nodes have the same address")
    return tuple(sorted(members.items()))


def _setting(
    default: Any, meaning: str, low: int | None = None, high: int | None = None, flag: str | None = None
) -> Any:
    return field(default=default, metadata={"meaning": meaning, "low": low, "high": high, "flag": flag})


@dataclass(frozen=True, slots=True)
class NodeSection:
    """Who this node is."""

    id: int = _setting(1, "The node's number in its cluster; never reused.", 1, 2**32, flag="--node-id")
    data_dir: str = _setting("fastlock-data", "Where the node keeps its state.", flag="--data-dir")


@dataclass(frozen=True, slots=True)
class ListenSection:
    """Where the node listens. Loopback unless told otherwise."""

    native: Address = _setting(
        Address("127.0.0.1", 7400), "Clients with the native protocol.", flag="--native"
    )
    peer: Address = _setting(Address("127.0.0.1", 7401), "The other members.", flag="--peer")
    http: Address = _setting(Address("127.0.0.1", 7402), "Health, readiness, status.", flag="--http")
    resp: Address = _setting(
        Address("127.0.0.1", 7403), "Redis clients. Named to others, not served yet.", flag="--resp"
    )
    advertise: str = _setting(
        "", "The host others reach this node by; empty: the host of each address.", flag="--advertise"
    )


@dataclass(frozen=True, slots=True)
class ClusterSection:
    """How a cluster begins. Decided once, when its directories are empty."""

    members: Members = _setting(
        (), "Founding members as NODE=HOST:PEERPORT,…; empty: this node alone.", flag="--cluster"
    )
    partitions: int = _setting(
        0, "Data groups; 0: as many as founding members.", 0, 1024, flag="--partitions"
    )
    founding_timeout_ms: int = _setting(
        120_000,
        "How long an empty node looks for the other founding members before it gives up.",
        100,
        86_400_000,
    )
    leader_return_ms: int = _setting(
        3_000, "How long a group's preferred leader must be well before it is given the lead back; 0: never.",
        0, 3_600_000,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class RaftSection:
    """Elections and replication. For a local network 150, 300 and 50 ms do well."""

    election_ms_min: int = _setting(1_000, "Silence of the leader before an election, at least.", 20, 600_000)
    election_ms_max: int = _setting(2_000, "Silence of the leader before an election, at most.", 20, 600_000)
    heartbeat_ms: int = _setting(200, "How often an idle leader speaks.", 5, 60_000)
    append_bytes_max: int = _setting(1 << 20, "Entries in one message to a member.", 4096, 8 << 20)
    inflight_messages_max: int = _setting(32, "Unacknowledged messages to a member.", 1, 65_536)
    inflight_bytes_max: int = _setting(4 << 20, "Unacknowledged bytes to a member.", 4096, 1 << 30)
    window_batches: int = _setting(2, "Batches under way; all but the first must be large.", 1, 1024)
    window_large_bytes: int = _setting(16 << 10, "What makes a batch large.", 0, 256 << 10)
    reads_pending_max: int = _setting(65_536, "Reads of a group that wait for confirmation.", 1, 1 << 24)


@dataclass(frozen=True, slots=True)
class GroupSection:
    """What each group keeps and how often it tidies up."""

    expiry_poll_ms: int = _setting(20, "How often a leader looks for leases that ran out.", 1, 10_000)
    checkpoint_dirty_rows: int = _setting(2_048, "Changed rows that start a checkpoint.", 1, 1 << 24)
    checkpoint_slice_rows: int = _setting(256, "Rows of a checkpoint written in one turn.", 1, 65_536)
    log_keep_entries: int = _setting(4_096, "Log entries kept behind a checkpoint.", 0, 1 << 24)
    history_events_max: int = _setting(65_536, "Events kept for watchers.", 1, 1 << 26)
    history_bytes_max: int = _setting(16 << 20, "Bytes of events kept for watchers.", 4096, 1 << 36)


@dataclass(frozen=True, slots=True)
class StorageSection:
    """How large the files may become, and the room that is kept free for what frees space."""

    log_bytes_max: int = _setting(16 << 30, "The log.", 1 << 26, 1 << 46)
    table_bytes_max: int = _setting(64 << 30, "The checkpoints.", 1 << 26, 1 << 46)
    map_reserve_bytes: int = _setting(256 << 20, "Room kept in both.", 0, 1 << 40)
    disk_reserve_bytes: int = _setting(512 << 20, "Room kept on the disk.", 0, 1 << 40)


@dataclass(frozen=True, slots=True)
class ServerSection:
    """What one connection, and all of them, may cost."""

    connections_max: int = _setting(16_384, "Client connections.", 1, 1 << 20)
    hello_timeout_ms: int = _setting(5_000, "From the connection to its hello.", 10, 600_000)
    idle_timeout_ms: int = _setting(
        0, "Silence after which a client connection is closed; 0: never.", 0, 86_400_000
    )
    frame_bytes_max: int = _setting(1 << 20, "One request.", 4096, 8 << 20)
    reply_bytes_pause: int = _setting(
        256 << 10, "Answers a client has not read at which its requests are no longer read.", 4096, 1 << 30
    )
    reply_bytes_max: int = _setting(
        8 << 20, "Answers a client has not read at which it is disconnected.", 65_536, 1 << 32
    )
    watches_per_connection_max: int = _setting(1_024, "Watches of one connection.", 1, 1 << 20)
    drain_ms: int = _setting(
        2_000, "How long a stopping node waits for its leads to be taken over.", 0, 600_000
    )


@dataclass(frozen=True, slots=True)
class LinksSection:
    """The connections between members."""

    retry_ms_min: int = _setting(20, "First pause before a lost link is tried again.", 1, 60_000)
    retry_ms_max: int = _setting(500, "Longest pause before a lost link is tried again.", 1, 600_000)
    hello_timeout_ms: int = _setting(2_000, "From the connection to the other's hello.", 10, 600_000)
    dead_ms: int = _setting(10_000, "Silence of the network after which a link is given up.", 100, 600_000)
    queue_bytes_max: int = _setting(
        64 << 20, "Bytes a member has not taken; Raft repeats what is dropped beyond.", 65_536, 1 << 34
    )


@dataclass(frozen=True, slots=True)
class LogSection:
    """What the node says while it runs, on standard error."""

    level: str = _setting("info", "debug, info, warning or error.")


@dataclass(frozen=True, slots=True)
class Config:
    """Everything, by section. `load_config` makes one; the defaults are a single node on loopback."""

    node: NodeSection = field(default_factory=NodeSection)
    listen: ListenSection = field(default_factory=ListenSection)
    cluster: ClusterSection = field(default_factory=ClusterSection)
    raft: RaftSection = field(default_factory=RaftSection)
    group: GroupSection = field(default_factory=GroupSection)
    storage: StorageSection = field(default_factory=StorageSection)
    server: ServerSection = field(default_factory=ServerSection)
    links: LinksSection = field(default_factory=LinksSection)
    log: LogSection = field(default_factory=LogSection)


class Setting(NamedTuple):
    """One setting as its section declares it."""

    section: str
    field: Field[Any]
    type: Any

    @property
    def key(self) -> str:
        return f"{self.section}.{self.field.name}"

    @property
    def default(self) -> Any:
        return self.field.default

    @property
    def meaning(self) -> str:
        return str(self.field.metadata["meaning"])

    @property
    def bounds(self) -> tuple[int, int] | None:
        low, high = self.field.metadata["low"], self.field.metadata["high"]
        return None if low is None else (low, high)

    @property
    def flag(self) -> str | None:
        flag: str | None = self.field.metadata["flag"]
        return flag

    def read(self, value: Any) -> Any:
        """The value as this setting's type, from text or from TOML; ValueError with what would do."""
        if self.type is Address:
            return value if isinstance(value, Address) else Address.parse(_text(value, "HOST:PORT"))
        if self.type == Members:
            return value if isinstance(value, tuple) else parse_members(_members_text(value))
        if self.type is int:
            return self._whole(value)
        if self.key == "log.level" and value not in ("debug", "info", "warning", "error"):
            raise ValueError(f"{value!r} is not debug, info, warning or error")
        return _text(value, "text")

    def _whole(self, value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"[+-]?\d[\d_]*", value.strip()):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{value!r} is not a whole number")
        low, high = self.bounds or (value, value)
        if not low <= value <= high:
            raise ValueError(f"{value} is not between {low} and {high}")
        return value


def _text(value: Any, wanted: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not {wanted}")
    return value


def _members_text(value: Any) -> str:
    """In TOML members may also be a table: `members = { 1 = "HOST:PORT", … }`."""
    if isinstance(value, dict):
        return ",".join(f"{number}={address}" for number, address in value.items())
    return _text(value, "NODE=HOST:PORT,…")


def settings() -> Iterator[Setting]:
    """Every setting there is, in the order of the documentation."""
    for section in fields(Config):
        assert section.default_factory is not MISSING
        kind = section.default_factory
        hints = get_type_hints(kind)
        for item in fields(kind):  # type: ignore[arg-type]  # every factory here is a dataclass
            yield Setting(section.name, item, hints[item.name])


def variable_of(setting: Setting) -> str:
    return VARIABLE_PREFIX + setting.key.upper().replace(".", "_")


class _Collected:
    """Values by key, the strongest source last."""

    def __init__(self) -> None:
        self._known = {setting.key: setting for setting in settings()}
        self._values: dict[str, Any] = {}
        self._places: dict[str, str] = {}

    def put(self, key: str, value: Any, place: str) -> None:
        setting = self._known.get(key)
        if setting is None:
            raise ConfigError(f"{place}: there is no setting {key!r}{_suggestion(key, self._known)}")
        try:
            self._values[key] = setting.read(value)
        except ValueError as error:
            raise ConfigError(f"{place}: {key}: {error}") from None
        self._places[key] = place

    def place(self, *keys: str) -> str:
        return next((self._places[key] for key in keys if key in self._places), "defaults")

    def config(self) -> Config:
        sections = {}
        for section in fields(Config):
            assert section.default_factory is not MISSING
            prefix = section.name + "."
            given = {
                key.removeprefix(prefix): value
                for key, value in self._values.items()
                if key.startswith(prefix)
            }
            sections[section.name] = section.default_factory(**given)
        return Config(**sections)


def _suggestion(key: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(key, names, 1, 0.6)
    # A name without its section, or in a wrong one.
    tail = key.rpartition(".")[2]
    close = close or [name for name in names if name.rpartition(".")[2] == tail]
    return f"; did you mean {close[0]!r}?" if close else "; docs/CONFIGURATION.md lists them all"


def load_config(
    file: Path | str | None = None,
    variables: Mapping[str, str] | None = None,
    assignments: Sequence[str] = (),
    flags: Mapping[str, Any] | None = None,
) -> Config:
    """The settings from all sources; ConfigError says where something is wrong and what to do.

    `assignments` are the `key=value` of `--set`; `flags` has the values of settings with a flag of their
    own, by key, None where the flag was not given.
    """
    collected = _Collected()
    if file is not None:
        _read_file(Path(file), collected)
    _read_variables(variables or {}, collected)
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError(f"--set {assignment}: write it as key=value, as in --set raft.heartbeat_ms=50")
        collected.put(key.strip(), value.strip(), f"--set {assignment}")
    names = {setting.key: setting.flag for setting in settings()}
    for key, value in (flags or {}).items():
        if value is not None:
            collected.put(key, value, names.get(key) or key)
    config = collected.config()
    _check_together(config, collected)
    return config


def _read_file(path: Path, collected: _Collected) -> None:
    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error
    for key, value in _leaves(content):
        collected.put(key, value, f"{path}:{_line_of(text, key)}")


def _leaves(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Keys of two parts and their values; anything else as it stands, to be refused by its name."""
    for name, value in content.items():
        if isinstance(value, dict) and value:
            for inner, inner_value in value.items():
                yield f"{name}.{inner}", inner_value
        elif not isinstance(value, dict):
            yield name, value


def _line_of(text: str, key: str) -> int:
    """The line on which a key is given, or its section; tomllib does not tell."""
    section = ""
    found = 1
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\s*([\w.\-]+)\s*\]", line):
            section = header[1]
            if key.startswith(section + "."):
                found = number
        elif given := re.match(r"""\s*([\w.\-"' ]+?)\s*=""", line):
            name = re.sub(r"""["' ]""", "", given[1])
            full = f"{section}.{name}" if section else name
            if full == key or full.startswith(key + "."):
                return number
    return found


def _read_variables(variables: Mapping[str, str], collected: _Collected) -> None:
    known = {variable_of(setting): setting.key for setting in settings()}
    for name in sorted(variables):
        if not name.startswith(VARIABLE_PREFIX) or name in OTHER_VARIABLES:
            continue
        if name not in known:
            raise ConfigError(f"environment: there is no variable {name}{_suggestion(name, known)}")
        collected.put(known[name], variables[name], f"environment variable {name}")


def _check_together(config: Config, collected: _Collected) -> None:
    """What no setting can see alone."""
    raft = config.raft
    if raft.election_ms_max < raft.election_ms_min:
        raise ConfigError(
            f"{collected.place('raft.election_ms_max', 'raft.election_ms_min')}: raft.election_ms_max "
            f"({raft.election_ms_max}) is below raft.election_ms_min ({raft.election_ms_min})"
        )
    if raft.heartbeat_ms * 2 > raft.election_ms_min:
        raise ConfigError(
            f"{collected.place('raft.heartbeat_ms', 'raft.election_ms_min')}: raft.heartbeat_ms "
            f"({raft.heartbeat_ms}) must be at most half of raft.election_ms_min ({raft.election_ms_min}), "
            "or one lost heartbeat starts an election"
        )
    if config.server.reply_bytes_max < config.server.reply_bytes_pause:
        raise ConfigError(
            f"{collected.place('server.reply_bytes_max', 'server.reply_bytes_pause')}: "
            "server.reply_bytes_max is below server.reply_bytes_pause"
        )
    members = dict(config.cluster.members)
    if members and config.node.id not in members:
        raise ConfigError(
            f"{collected.place('cluster.members')}: node {config.node.id} is not among the members "
            f"{', '.join(map(str, members))}: name it in --cluster, or choose another --node-id"
        )
