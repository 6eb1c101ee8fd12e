"""What people and tools expect of the package: metadata, contents, public names, documents that are true."""

import importlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import fastlock

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DOCUMENTS = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "bench/*.md", "loadtest/*.md") for path in ROOT.glob(pattern)
)
EXTENSION_SOURCES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "fastlock").rglob("*.pyx"))


def test_version_is_the_same_everywhere() -> None:
    assert fastlock.__version__ == PROJECT["version"]
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert "## [Unreleased]" in changelog or f"## [{fastlock.__version__}]" in changelog


def test_public_names_are_pinned() -> None:
    assert fastlock.__all__ == [
        "AsyncClient",
        "AsyncElection",
        "AsyncLock",
        "AsyncWatch",
        "ClientSettings",
        "Event",
        "Held",
        "HolderInfo",
        "Leader",
        "LockInfo",
        "__version__",
    ]
    assert all(hasattr(fastlock, name) for name in fastlock.__all__)


def test_every_compiled_module_with_something_for_python_has_a_stub() -> None:
    bare = [path for path in EXTENSION_SOURCES if not (ROOT / path).with_suffix(".pyi").exists()]
    modules = [importlib.import_module(path.removesuffix(".pyx").replace("/", ".")) for path in bare]
    visible = {module.__name__: [name for name in vars(module) if name[0] != "_"] for module in modules}
    assert not {module: names for module, names in visible.items() if names}


def test_licence_is_apache_2() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text()


# Builds a source distribution and a wheel into the directory it is given. The extensions are left
# out: compiling them again would take minutes and show nothing that the other tests do not show.
BUILD = """
import sys
import Cython.Build
import setuptools.build_meta as backend
Cython.Build.cythonize = lambda *arguments, **options: []
out = sys.argv[1]
backend.build_sdist(out)
backend.build_wheel(out)
"""


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    tree = tmp_path_factory.mktemp("tree") / "fastlock"
    shutil.copytree(
        ROOT, tree, ignore=shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "*.so", "*.c")
    )
    subprocess.run(
        [sys.executable, "-c", BUILD, str(out)], cwd=tree, check=True, capture_output=True, timeout=120
    )
    return out


def test_wheel_carries_types_schemas_and_declarations(distributions: Path) -> None:
    (wheel,) = distributions.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {"fastlock/py.typed"}
    for suffix in (".py", ".pyi", ".pxd", ".pxi", ".capnp"):
        wanted |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "fastlock").rglob(f"*{suffix}")}
    assert wanted <= names
    assert not [name for name in names if name.startswith(("tests/", "bench/", "tools/", "build/"))]
    assert any(name.endswith("LICENSE") for name in names)


def test_source_distribution_can_build_the_extensions(distributions: Path) -> None:
    (archive,) = distributions.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    wanted = {"setup.py", "pyproject.toml", "LICENSE", "README.md"}
    for suffix in (".py", ".pyi", ".pyx", ".pxd", ".pxi", ".capnp"):
        wanted |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "fastlock").rglob(f"*{suffix}")}
    assert wanted <= names
    assert not [name for name in names if name.startswith("fastlock/") and name.endswith((".so", ".c"))]


def test_readme_starts_with_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert re.search(r"make run.*\n.*make test", readme)


def test_make_help_lists_every_promised_target() -> None:
    listed = subprocess.run(
        ["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for target in ("help", "build", "run", "test", "lint", "fuzz", "bench", "clean", "debug", "sanitize"):
        assert re.search(rf"^ +{target} +\w", listed, re.MULTILINE), target


def test_ci_runs_the_tests_and_the_linters() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert {"make test", "make lint"} <= {line.split(" ||")[0] for line in script.read_text().splitlines()}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_and_paths_in_documents_exist(document: Path) -> None:
    text = re.sub(r"^```[\s\S]*?^```", "", document.read_text(), flags=re.MULTILINE)
    links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link]
    missing = [link for link in links if not (document.parent / link).exists()]
    named = re.findall(r"`((?:fastlock|tests|docs|bench|tools|loadtest)/[\w./-]*)`", text)
    missing += [path for path in named if not (ROOT / path).exists()]
    assert not missing


def test_no_file_names_a_machine() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True).stdout
    paths = [ROOT / name for name in listed.split("\0") if name] or sorted(ROOT.rglob("*.md"))
    # Written in two halves, so that this file does not name one either.
    machine = re.compile(
        "|".join(["/ho" + r"me/\w", "/Us" + r"ers/\w", "/ro" + "ot/", "/tm" + r"p/\w", "/wo" + "rk/"])
    )
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in paths
        if path.is_file() and path.suffix not in (".png", ".svg")
        for match in machine.finditer(path.read_text(errors="replace"))
    ]
    assert not found
