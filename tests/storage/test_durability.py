"""Nothing is acknowledged before it is durable: shown with a disk that is slow, fails, or loses power."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from fastlock.storage.lmdb import LmdbStorage

from .drivers import IDENTITY, SMALL
from .writer import found_step, plan

ROOT = Path(__file__).resolve().parent.parent.parent
SECTOR_BYTES = 4096
STEPS = 200


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: the disk that fails cannot be built, so durability is not proven here")
    library = tmp_path_factory.mktemp("shim") / "sync_shim.so"
    source = Path(__file__).with_name("sync_shim.c")
    subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl", "-lpthread"], check=True
    )
    return library


def run_on_shim(shim: Path, scenario: str, *arguments: object) -> list[str]:
    """The lines a scenario of disk_scenarios.py prints on that disk."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.storage.disk_scenarios", scenario, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "LD_PRELOAD": str(shim)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_nothing_is_acknowledged_before_a_slow_sync_ends(shim, tmp_path):
    lines = run_on_shim(shim, "slow", tmp_path / "data", 200)
    writes = [float(line.split()[1]) for line in lines if line.startswith("write")]
    checkpoints = [float(line.split()[1]) for line in lines if line.startswith("checkpoint")]
    assert len(writes) == 3
    assert len(checkpoints) == 1
    assert min(writes + checkpoints) >= 200


# A commit syncs its pages and then its meta page.
@pytest.mark.parametrize("syncs_before", [0, 1, 2, 7])
def test_after_one_failing_sync_nothing_more_is_acknowledged(shim, tmp_path, syncs_before):
    lines = run_on_shim(shim, "failing", tmp_path / "data", syncs_before)
    acknowledged = [int(line.split()[1]) for line in lines if line.startswith("write")]
    assert acknowledged == list(range(1, syncs_before // 2 + 1))
    assert lines[-4:] == ["take_durable refused", "take_durable refused", "append refused", "cut refused"]
    storage = LmdbStorage(tmp_path / "data", IDENTITY, SMALL)
    found = [entry.index for entry in storage.load(1).entries]
    storage.close()
    assert found[: len(acknowledged)] == acknowledged
    assert len(found) <= len(acknowledged) + 1


def test_a_failing_sync_of_a_checkpoint_stops_the_storage_too(shim, tmp_path):
    lines = run_on_shim(shim, "failing_checkpoint", tmp_path / "data")
    assert lines == ["take_checkpoints refused", "take_durable refused"]
    storage = LmdbStorage(tmp_path / "data", IDENTITY, SMALL)
    assert storage.load(1).checkpoint_index == 0
    assert list(storage.rows(1)) == []
    storage.close()


def power_cuts(images: Path) -> Iterator[tuple[int, Path, Path]]:
    """(writes acknowledged, log image, table image) of every moment that was saved."""
    for log in sorted(images.glob("cut-*-log")):
        _, _, acknowledged, _ = log.name.split("-")
        yield int(acknowledged), log, log.with_name(log.name.removesuffix("log") + "table")


def restore(image: Path, data: Path, random: Random, luck: float) -> None:
    """What a disk holds after a power cut: what was synced, and by luck some of what was not."""
    data.parent.mkdir(parents=True)
    synced = bytearray(image.read_bytes())
    live_path = Path(f"{image}.live")
    live = live_path.read_bytes() if live_path.exists() else b""
    for at in range(0, len(live), SECTOR_BYTES):
        if luck and random.random() < luck:
            synced[len(synced) :] = bytes(max(0, at - len(synced)))
            synced[at : at + SECTOR_BYTES] = live[at : at + SECTOR_BYTES]
    data.write_bytes(synced)


@pytest.mark.parametrize("seed", [1, 2])
def test_everything_acknowledged_survives_a_power_cut(shim, tmp_path, seed):
    images = tmp_path / "images"
    images.mkdir()
    run_on_shim(shim, "power_cuts", tmp_path / "data", images, seed, STEPS)
    steps = plan(seed, STEPS)
    random = Random(seed)
    cuts = list(power_cuts(images))
    assert len(cuts) >= 50
    assert len({acknowledged for acknowledged, *_ in cuts}) >= 25
    for number, (acknowledged, log, table) in enumerate(cuts):
        directory = tmp_path / f"after-{number}"
        luck = (0.0, 0.5, 0.9)[number % 3]
        restore(log, directory / "log" / "data.mdb", random, luck)
        restore(table, directory / "table" / "data.mdb", random, luck)
        storage = LmdbStorage(directory, IDENTITY, SMALL)
        found_step(storage, steps, at_least=acknowledged)
        storage.close()
        shutil.rmtree(directory)
