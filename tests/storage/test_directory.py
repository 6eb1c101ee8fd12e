"""A data directory is used by one process, and only by the node it belongs to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastlock.errors import DirectoryInUse, DirectoryUnusable, ForeignDirectory, NewerFormat
from fastlock.storage import StorageFailed
from fastlock.storage.directory import FORMAT_VERSION, StoredIdentity, stored_identity
from fastlock.storage.environment import Environment
from fastlock.storage.lmdb import LmdbStorage

from .drivers import IDENTITY, SMALL, entry, write

ROOT = Path(__file__).resolve().parent.parent.parent


def opened(directory: Path, identity=IDENTITY) -> LmdbStorage:
    return LmdbStorage(directory, identity, SMALL)


def test_an_empty_directory_becomes_the_nodes_own(tmp_path):
    assert stored_identity(tmp_path / "data") is None
    opened(tmp_path / "data" / "deep").close()
    assert stored_identity(tmp_path / "data" / "deep") == IDENTITY
    assert os.stat(tmp_path / "data" / "deep").st_mode & 0o077 == 0


def test_the_directory_keeps_its_incarnation(tmp_path):
    opened(tmp_path, IDENTITY._replace(incarnation=3)).close()
    storage = opened(tmp_path, IDENTITY)
    assert storage.identity.incarnation == 3
    storage.close()


@pytest.mark.parametrize("other", [IDENTITY._replace(cluster=1 << 127), IDENTITY._replace(node=2)])
def test_another_nodes_directory_is_refused(tmp_path, other):
    opened(tmp_path, other).close()
    with pytest.raises(ForeignDirectory, match="choose another data directory"):
        opened(tmp_path)
    opened(tmp_path, other).close()


def test_a_table_of_another_node_is_refused(tmp_path):
    opened(tmp_path / "one").close()
    opened(tmp_path / "two", IDENTITY._replace(node=2)).close()
    (tmp_path / "one" / "table").rename(tmp_path / "gone")
    (tmp_path / "two" / "table").rename(tmp_path / "one" / "table")
    with pytest.raises(ForeignDirectory, match="put the directories back"):
        opened(tmp_path / "one")


def test_a_directory_of_a_later_release_is_refused(tmp_path):
    opened(tmp_path).close()
    environment = Environment(str(tmp_path / "log"), 1 << 20, 1 << 20)
    environment.put(b"I", StoredIdentity(FORMAT_VERSION + 1, IDENTITY, 5).pack())
    environment.close()
    with pytest.raises(NewerFormat, match="run the release that wrote it"):
        opened(tmp_path)


def test_a_start_that_was_cut_short_can_be_repeated(tmp_path):
    opened(tmp_path).close()
    (tmp_path / "table" / "data.mdb").unlink()
    opened(tmp_path).close()
    (tmp_path / "fresh" / "log").mkdir(parents=True)
    (tmp_path / "fresh" / "log" / "data.mdb").touch()
    opened(tmp_path / "fresh").close()


def test_a_second_process_on_a_directory_is_refused(tmp_path):
    storage = opened(tmp_path)
    with pytest.raises(DirectoryInUse, match=f"process {os.getpid()}"):
        opened(tmp_path)
    code = (
        "import sys\nfrom tests.storage.drivers import *\nfrom fastlock.errors import DirectoryInUse\n"
        "try: LmdbStorage(sys.argv[1], IDENTITY)\nexcept DirectoryInUse as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout == (
        f"{tmp_path} is in use by process {os.getpid()}: stop it first, or choose another data directory\n"
    )
    storage.append(1, write(1, [entry(1)]))
    storage.close()
    storage = opened(tmp_path)
    assert len(storage.load(1).entries) == 1
    storage.close()


def test_what_was_refused_can_be_opened_by_whoever_may(tmp_path):
    opened(tmp_path).close()
    for _ in range(20):
        with pytest.raises(ForeignDirectory):
            opened(tmp_path, IDENTITY._replace(node=9))
    before = len(os.listdir("/proc/self/fd"))
    opened(tmp_path).close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_path_that_cannot_be_a_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(DirectoryUnusable, match="choose another data directory"):
        opened(tmp_path / "file" / "data")
    (tmp_path / "odd" / "log").mkdir(parents=True)
    (tmp_path / "odd" / "log" / "data.mdb").mkdir()
    with pytest.raises(DirectoryUnusable):
        opened(tmp_path / "odd")


def test_a_closed_storage_takes_nothing_more(tmp_path):
    storage = opened(tmp_path)
    storage.close()
    storage.close()
    with pytest.raises(StorageFailed, match="closed"):
        storage.append(1, write(1, [entry(1)]))
