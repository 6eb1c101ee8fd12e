"""How empty directories become a cluster: the decisions, and what directories remember."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastlock.errors import ConfigError, DirectoryInUse, ForeignDirectory, FoundingRefused
from fastlock.node.bootstrap import Introduced, Step, first_identity, founding_of, next_step, slot_range
from fastlock.schema.enums import Stage
from fastlock.storage import StorageDamaged
from fastlock.storage.directory import Identity
from fastlock.storage.environment import Environment
from fastlock.storage.founding import Founding, FoundingDirectory
from fastlock.storage.lmdb import LmdbStorage

FOUNDING = Founding(((1, "a:1"), (2, "b:1"), (3, "c:1")), 3)
CLUSTER = 77


def member(
    node: int, stage: Stage = Stage.empty, cluster: int = 0, founding: Founding = FOUNDING
) -> Introduced:
    return Introduced(node, stage, cluster, founding)


def others(*members: Introduced) -> dict[int, Introduced]:
    return {other.node: other for other in members}


def test_the_lowest_node_draws_the_id_once_all_are_there_and_empty() -> None:
    assert next_step(member(1), others(member(2))) == (Step.WAIT, 0)
    assert next_step(member(1), others(member(2), member(3))) == (Step.FOUND, 0)
    assert next_step(member(2), others(member(1), member(3))) == (Step.WAIT, 0)


def test_the_others_take_the_id_over() -> None:
    founded = member(1, Stage.founded, CLUSTER)
    assert next_step(member(2), others(founded, member(3))) == (Step.FOUND, CLUSTER)
    assert next_step(founded, others(member(2), member(3))) == (Step.WAIT, 0)


def test_nobody_starts_before_all_are_founded() -> None:
    founded = [member(node, Stage.founded, CLUSTER) for node in (1, 2, 3)]
    assert next_step(founded[0], others(founded[1], member(3))) == (Step.WAIT, 0)
    assert next_step(founded[0], others(founded[1])) == (Step.WAIT, 0)
    assert next_step(founded[0], others(*founded[1:])) == (Step.START, CLUSTER)
    assert next_step(founded[2], others(founded[0], member(2, Stage.started, CLUSTER))) == (
        Step.START,
        CLUSTER,
    )


def test_a_started_member_waits_for_nobody() -> None:
    assert next_step(member(2, Stage.started, CLUSTER), {}) == (Step.START, CLUSTER)


def test_an_empty_directory_is_refused_as_soon_as_any_member_has_started() -> None:
    with pytest.raises(FoundingRefused, match=r"node 3 already takes part .* directory is empty"):
        next_step(member(2), others(member(3, Stage.started, CLUSTER)))


def test_a_lone_founder_founds_and_starts_at_once() -> None:
    alone = Founding(((4, "a:1"),), 1)
    assert next_step(member(4, founding=alone), {}) == (Step.FOUND, 0)
    assert next_step(member(4, Stage.founded, CLUSTER, alone), {}) == (Step.START, CLUSTER)


def test_members_that_were_told_different_things_refuse_to_found() -> None:
    with pytest.raises(FoundingRefused, match="same --cluster"):
        next_step(member(1), others(member(2, founding=Founding(FOUNDING.members[:2], 3))))
    with pytest.raises(FoundingRefused, match="same --partitions"):
        next_step(member(1), others(member(2, founding=Founding(FOUNDING.members, 4))))
    with pytest.raises(FoundingRefused, match="different clusters"):
        next_step(member(3), others(member(1, Stage.founded, 5), member(2, Stage.founded, 6)))


def test_a_directory_remembers_how_far_it_came(tmp_path: Path) -> None:
    identity = first_identity(CLUSTER, 2)
    with FoundingDirectory(tmp_path / "n") as directory:
        assert (directory.stage, directory.identity, directory.founding) == (Stage.empty, None, None)
        directory.found(identity, FOUNDING)
    with FoundingDirectory(tmp_path / "n") as directory:
        assert (directory.stage, directory.identity, directory.founding) == (
            Stage.founded,
            identity,
            FOUNDING,
        )
        directory.start()
    with FoundingDirectory(tmp_path / "n") as directory:
        assert (directory.stage, directory.identity, directory.founding) == (
            Stage.started,
            identity,
            FOUNDING,
        )
    LmdbStorage(tmp_path / "n", identity).close()
    with pytest.raises(ForeignDirectory):
        LmdbStorage(tmp_path / "n", Identity(CLUSTER + 1, 2, 1))
    with FoundingDirectory(tmp_path / "n") as directory:
        assert directory.stage is Stage.started


def test_a_founding_that_was_cut_off_before_the_identity_never_happened(tmp_path: Path) -> None:
    with FoundingDirectory(tmp_path) as directory:
        directory._put({b"F": FOUNDING.pack(first_identity(CLUSTER, 2), Stage.founded)})
    with FoundingDirectory(tmp_path) as directory:
        assert directory.stage is Stage.empty


def test_a_damaged_or_missing_founding_is_found(tmp_path: Path) -> None:
    with FoundingDirectory(tmp_path) as directory:
        directory.found(first_identity(CLUSTER, 2), FOUNDING)
    environment = Environment(str(tmp_path / "log"), 1 << 20, 1 << 20)
    record = environment.get(b"F")
    assert record is not None
    environment.put(b"F", record[:-1] + bytes([record[-1] ^ 1]))
    environment.close()
    with pytest.raises(StorageDamaged, match="founding is damaged"):
        FoundingDirectory(tmp_path)


def test_two_processes_never_work_on_one_directory(tmp_path: Path) -> None:
    with FoundingDirectory(tmp_path), pytest.raises(DirectoryInUse):
        FoundingDirectory(tmp_path)


def test_flags_that_contradict_the_directory_are_refused(tmp_path: Path) -> None:
    with FoundingDirectory(tmp_path) as directory:
        assert founding_of(directory, 2, ((2, "b:1"),), 0) == Founding(((2, "b:1"),), 1)
        assert founding_of(directory, 2, FOUNDING.members, 8).partitions == 8
        directory.found(first_identity(CLUSTER, 2), FOUNDING)
        assert founding_of(directory, 2, ((2, "b:1"),), 0) == FOUNDING
        assert founding_of(directory, 2, FOUNDING.members, 3) == FOUNDING
        with pytest.raises(ConfigError, match="is node 2's"):
            founding_of(directory, 1, (), 0)
        with pytest.raises(ConfigError, match="founded by 1, 2, 3"):
            founding_of(directory, 2, FOUNDING.members[:2], 0)
        with pytest.raises(ConfigError, match="founded with 3"):
            founding_of(directory, 2, (), 5)


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 1024])
def test_slot_ranges_cover_every_slot_once(partitions: int) -> None:
    ranges = [slot_range(group, partitions, 16384) for group in range(1, partitions + 1)]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 16383
    assert all(ranges[i][1] + 1 == ranges[i + 1][0] for i in range(partitions - 1))
