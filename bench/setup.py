"""Builds the C loops of the benchmarks in place, with the flags of the release build."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

ROOT = Path(__file__).resolve().parent.parent

setup(
    name="fastlock-bench",
    ext_modules=cythonize(
        [
            Extension(
                "loops",
                ["loops.pyx"],
                extra_compile_args=["-std=c11", "-fno-strict-aliasing", "-Wno-unused-function", "-O3", "-g0"],
            )
        ],
        include_path=[str(ROOT)],
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
        },
    ),
)
