"""The native tests and the fuzzer under ASAN and UBSAN: `make sanitize`.

The package is copied beside a module that is compiled with both sanitizers, so nothing that is
installed is touched. Any report ends the process that caused it, and with it this script.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = [  # whose loops are compared with slow ones
    "tests/native",
    "tests/laws/test_order_laws.py",
    "tests/laws/test_row_laws.py",
    "tests/fault/test_reads_in_place.py",
]
FLAGS = ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined"]
FLAGS += [
    "-fno-sanitize-recover=all",
    "-shared",
    "-fPIC",
    "-DPy_LIMITED_API=0x030B0000",
    "-ffp-contract=off",
]


def compiler():
    return shlex.split(os.environ.get("CC") or "cc")


def runtime():
    """The library of ASAN, which must be loaded before Python is."""
    asked = [*compiler(), "-print-file-name=libasan.so"]
    found = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    if not os.path.isabs(found):
        raise SystemExit(f"sanitize: {asked[0]} has no libasan.so; use gcc, with CC=gcc.")
    return os.path.realpath(found)


def build(folder, changes=()):
    """A copy of the package with a sanitized module.

    Args:
        folder: where to.
        changes: (file, text, other text) in the sources, for controls that must be found.
    """
    leave = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "src/tokenloom", folder / "tokenloom", ignore=leave)
    shutil.copytree(ROOT / "src/native", folder / "native")
    for name, text, other in changes:
        path = folder / "native" / name
        assert path.read_text().count(text) == 1, f"{name}: {text!r} is not there once"
        path.write_text(path.read_text().replace(text, other))
    sources = sorted(map(str, (folder / "native").glob("*.c")))
    out = folder / "tokenloom/_native.abi3.so"
    include = sysconfig.get_paths()["include"]
    subprocess.run([*compiler(), *FLAGS, f"-I{include}", *sources, "-o", str(out)], check=True)
    return folder


COUNTS_MEMORY = (  # of which a sanitizer takes its own
    "tests/fault/test_reads_in_place.py::test_a_store_much_larger_than_the_cache_is_read_in_little_memory"
)


def environment(folder):
    """Of a process that uses the sanitized module."""
    return {
        **os.environ,
        "PYTHONPATH": str(folder),
        "PYTHONMALLOC": "malloc",  # so that ASAN sees every allocation
        "PYTHONDONTWRITEBYTECODE": "1",
        "LD_PRELOAD": runtime(),
        # Python itself leaks on purpose; memory that is not there is an answer, too; what a fault
        # in a mapped file does is ours to say
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:handle_sigbus=0",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }


def run(folder, *command):
    return subprocess.run([sys.executable, *command], cwd=ROOT, env=environment(folder)).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="of fuzzing (60)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fuzz-only", action="store_true", help="without the native tests")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokenloom-sanitize-") as kept:
        folder = build(Path(kept))
        leave = ("--deselect", COUNTS_MEMORY)
        quiet = (*leave, "-q", "-n", "0", "-m", "not slow", "-p", "no:cacheprovider")
        failed = 0 if asked.fuzz_only else run(folder, "-m", "pytest", *quiet, *TESTS)
        fuzzer = (
            "tests/native/fuzz.py",
            "--seconds",
            str(asked.seconds),
            "--seed",
            str(asked.seed),
        )
        failed = failed or run(folder, "-W", "ignore", *fuzzer)
    print("sanitize: a report, or a failure; see above" if failed else "sanitize: no report")
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
