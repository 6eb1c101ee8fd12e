"""Builds the C loops and the load generator of the benchmarks in place, with the release build's flags."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

ROOT = Path(__file__).resolve().parent.parent
COMPILE_ARGS = ["-std=c11", "-D_GNU_SOURCE", "-fno-strict-aliasing", "-Wno-unused-function", "-O3", "-g0"]

setup(
    name="fastlock-bench",
    ext_modules=cythonize(
        [Extension(name, [f"{name}.pyx"], extra_compile_args=COMPILE_ARGS) for name in ("loops", "loadgen")],
        include_path=[str(ROOT)],
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
        },
    ),
)
