"""Builds the compiled core: every .pyx below fastlock/ becomes the extension of the same name.

FASTLOCK_DEBUG=1      expensive invariants asserted, line tracing
FASTLOCK_SANITIZE=1   AddressSanitizer and UndefinedBehaviorSanitizer

The Makefile builds these two in copies of the tree, so that they never replace the release build.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("FASTLOCK_DEBUG") == "1"
SANITIZE = os.environ.get("FASTLOCK_SANITIZE") == "1"
if DEBUG and SANITIZE:
    raise SystemExit("FASTLOCK_DEBUG and FASTLOCK_SANITIZE are two different builds: set one of them")

JOBS = os.cpu_count() or 1
SANITIZERS = "-fsanitize=address,undefined"

compile_args = ["-std=c11", "-fno-strict-aliasing", "-Wno-unused-function"]
link_args: list[str] = []
directives = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "embedsignature": True,
    "freethreading_compatible": False,
}
macros = [("FASTLOCK_DEBUG", "1" if DEBUG else "0")]
if DEBUG:
    compile_args += ["-O1", "-g"]
    directives |= {"boundscheck": True, "linetrace": True, "emit_code_comments": True}
    macros += [("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "0")]
elif SANITIZE:
    compile_args += ["-O1", "-g", "-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined", SANITIZERS]
    compile_args += ["-Wno-maybe-uninitialized"]  # instrumented code confuses gcc's analysis
    link_args += [SANITIZERS]
else:
    compile_args += ["-O3", "-g0"]

extensions = [
    Extension(
        ".".join(source.with_suffix("").parts),
        [str(source)],
        extra_compile_args=compile_args,
        extra_link_args=link_args,
        define_macros=macros,
        depends=["setup.py"],
    )
    for source in sorted(Path("fastlock").rglob("*.pyx"))
]

setup(
    ext_modules=cythonize(extensions, compiler_directives=directives, nthreads=JOBS),
    options={"build_ext": {"parallel": JOBS}},
)
