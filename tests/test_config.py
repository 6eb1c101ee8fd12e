"""Settings: where values come from, and that nothing wrong is taken silently."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from fastlock.config import Address, Config, load_config, parse_members, settings, variable_of
from fastlock.errors import ConfigError

ROOT = Path(__file__).parents[1]


def refusal(**sources: object) -> str:
    with pytest.raises(ConfigError) as refused:
        load_config(**sources)  # type: ignore[arg-type]
    return str(refused.value)


def test_defaults_are_a_single_node_on_loopback() -> None:
    config = load_config()
    assert config == Config()
    assert config.cluster.members == ()
    assert all(
        address.is_loopback for address in (config.listen.native, config.listen.peer, config.listen.http)
    )


def test_flags_beat_assignments_beat_variables_beat_the_file(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("[node]\nid = 2\n[raft]\nheartbeat_ms = 21\nelection_ms_min = 60\nwindow_batches = 5\n")
    config = load_config(
        file,
        {"FASTLOCK_RAFT_HEARTBEAT_MS": "22", "FASTLOCK_RAFT_ELECTION_MS_MIN": "70", "FASTLOCK_NODE_ID": "3"},
        ["raft.heartbeat_ms=23", "node.id=4"],
        {"node.id": 5, "node.data_dir": None},
    )
    assert (config.node.id, config.raft.heartbeat_ms) == (5, 23)
    assert (config.raft.election_ms_min, config.raft.window_batches) == (70, 5)
    assert config.node.data_dir == Config().node.data_dir


def test_a_file_is_refused_with_its_line_and_what_was_probably_meant(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('# a comment\n\n[raft]\nwindow_batches = 1\nhartbeat_ms = 50\n[log]\nlevel = "info"\n')
    assert (
        refusal(file=file)
        == f"{file}:5: there is no setting 'raft.hartbeat_ms'; did you mean 'raft.heartbeat_ms'?"
    )


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("[raft]\nheartbeat_ms = 0\n", 2, "0 is not between 5 and 60000"),
        ("[raft]\nheartbeat_ms = true\n", 2, "True is not a whole number"),
        ("[raft]\nheartbeat_ms = 1.5\n", 2, "1.5 is not a whole number"),
        ('\n[listen]\nnative = "here"\n', 3, "'here' is not HOST:PORT"),
        ("[listen]\nnative = 7400\n", 2, "7400 is not HOST:PORT"),
        ('[cluster]\nmembers = "1=a:1,1=b:2"\n', 2, "node 1 is named twice"),
        ('[log]\n\nlevel = "loud"\n', 3, "'loud' is not debug, info, warning or error"),
        ("heartbeat_ms = 50\n", 1, "did you mean 'raft.heartbeat_ms'?"),
        ("[rafts]\nheartbeat_ms = 50\n", 2, "did you mean 'raft.heartbeat_ms'?"),
        ("raft.heartbeat_ms = 1\n", 1, "1 is not between"),
        (
            "[raft]\n\nelection_ms_min = 500\nelection_ms_max = 100\nheartbeat_ms = 10\n",
            4,
            "below raft.election_ms_min",
        ),
        ("[raft]\nheartbeat_ms = 900\n", 2, "at most half"),
        ('[cluster]\nmembers = { 7 = "h:1" }\n', 2, "node 1 is not among the members 7"),
    ],
)
def test_a_bad_value_is_refused_at_its_line(tmp_path: Path, text: str, line: int, says: str) -> None:
    file = tmp_path / "node.toml"
    file.write_text(text)
    message = refusal(file=file)
    assert message.startswith(f"{file}:{line}: ")
    assert says in message


def test_broken_and_missing_files_are_named(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    assert "cannot be read" in refusal(file=file)
    file.write_text("[raft\n")
    assert "line 1" in refusal(file=file)


def test_unknown_variables_are_refused_and_those_of_other_parts_are_not() -> None:
    message = refusal(variables={"FASTLOCK_RAFT_HEARTBEATMS": "1"})
    assert message.endswith("did you mean 'FASTLOCK_RAFT_HEARTBEAT_MS'?")
    assert "FASTLOCK_NODE_ID" in refusal(variables={"FASTLOCK_NODE_ID": "none"})
    assert load_config(variables={"FASTLOCK_DEBUG": "1", "FASTLOCK_TOKEN": "7", "PATH": "x"}) == Config()


def test_assignments_and_flags_are_refused_by_their_name() -> None:
    assert refusal(assignments=["raft.heartbeat_ms"]).startswith(
        "--set raft.heartbeat_ms: write it as key=value"
    )
    assert refusal(assignments=["raft.heartbeat=5"]).startswith("--set raft.heartbeat=5: there is no setting")
    assert refusal(flags={"listen.native": "x:y"}).startswith(
        "--native: listen.native: 'x:y' is not HOST:PORT"
    )


def test_addresses() -> None:
    assert Address.parse("[::1]:7400") == Address("::1", 7400)
    assert str(Address("::1", 7400)) == "[::1]:7400"
    for text in ("", ":1", "a", "a:", "a:b", "a:65536", "::1:7400", "a:-1", "a:1²"):
        with pytest.raises(ValueError):
            Address.parse(text)


def test_members() -> None:
    assert parse_members("2=b:2, 1=a:1") == ((1, Address("a", 1)), (2, Address("b", 2)))
    for text in ("a:1", "0=a:1", "1=a", "1=a:1,2=a:1", "x=a:1"):
        with pytest.raises(ValueError):
            parse_members(text)


def test_every_setting_has_a_meaning_and_a_default_that_it_takes_itself() -> None:
    variables = set()
    for setting in settings():
        assert setting.meaning.endswith(".")
        assert setting.read(setting.default) == setting.default
        variables.add(variable_of(setting))
    assert len(variables) == len(list(settings()))


def test_the_page_about_configuration_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location(
        "configuration_page", ROOT / "tools" / "configuration_page.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "CONFIGURATION.md").read_text() == module.page(), (
        "run: python tools/configuration_page.py"
    )
