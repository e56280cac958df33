"""An environment of its own for each library that reads or writes token files, made once.

::

    make peers                                    # all of them, below .venv/peers
    python tests/exchange/peers.py litdata        # or some

One idea: a peer is installed without its dependencies, and finds torch, NumPy and the rest in the
environment that runs the tests: a `.pth` file names it. So four peers take 250 MB and ten seconds,
no peer can ask for another torch, and none of them is importable from the tests themselves. What a
peer imports at its start and the tests lack is listed here by name.

`make test` asks for all of them first. The tests of one that cannot be installed are skipped, with
the reason; it is not tried again for ten minutes.
"""

import fcntl
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent

FOLDER = Path(sys.prefix) / "peers"

PEERS = {
    "megatron": ["megatron-core>=0.16"],
    "datatrove": ["datatrove>=0.10", "loguru", "humanize"],
    "litdata": ["litdata>=0.2.76", "lightning-utilities", "polars", "polars-runtime-32"],
    # torchvision is left out: consumers/by_streaming.py puts an empty one in its place
    "streaming": [
        "mosaicml-streaming>=0.13",
        *("brotli", "python-snappy", "cramjam", "zstd", "pillow", "catalogue"),
    ],
}


REST = 600  # seconds in which an installation that failed is not tried again

PATIENCE = 300  # seconds that an installation may take


def python_of(name, *, told=lambda line: None, rest=REST):
    """The interpreter of a peer, installed now if it is not there.

    Raises:
        RuntimeError: it could not be installed, now or in the last `rest` seconds.
    """
    folder = FOLDER / name
    done, failed = folder / "installed.txt", FOLDER / f"{name}.failed"
    wanted = "\n".join(PEERS[name])
    FOLDER.mkdir(exist_ok=True)
    with open(FOLDER / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may want it
        if done.exists() and done.read_text() == wanted:
            told(f"{name}: it is in {folder}")
            return folder / "bin/python"
        if failed.exists() and time.time() - failed.stat().st_mtime < rest:
            raise RuntimeError(failed.read_text())
        told(f"{name}: installing {', '.join(PEERS[name])} in {folder}")
        try:
            install(folder, PEERS[name])
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            reason = f"{name}: it could not be installed: {error}"
            failed.write_text(reason)
            raise RuntimeError(reason) from None
        done.write_text(wanted)
        failed.unlink(missing_ok=True)
    return folder / "bin/python"


def install(folder, packages):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin/python"
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    said = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True)
    shared = sysconfig.get_path("purelib")
    Path(said.stdout.strip(), "shared.pth").write_text(f"{shared}\n")
    uv = subprocess.run([sys.executable, "-m", "uv", "--version"], capture_output=True, check=False)
    tool = (
        ["uv", "pip", "install"] if uv.returncode == 0 else ["pip", "--python", python, "install"]
    )
    which = ["--python", python] if uv.returncode == 0 else []
    command = [sys.executable, "-m", *tool, "-q", "--no-deps", *which, *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-2000:])


def run(peer, script, *arguments):
    """What a script prints, as text; run by a peer's interpreter, or by ours (None)."""
    try:
        python = sys.executable if peer is None else python_of(peer)
    except RuntimeError as error:
        pytest.skip(str(error))
    command = [python, "-W", "ignore", HERE / script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise AssertionError(f"{script} of {peer}:\n{done.stderr.strip()[-3000:]}")
    return done.stdout


def main(names):
    """Install what is missing; 1 if a peer could not be installed, after the others were."""
    failures = 0
    for name in names or PEERS:
        try:
            python_of(name, told=print, rest=0)
        except RuntimeError as error:
            print(f"{error}\n{name}: the tests that need it are skipped.")
            failures += 1
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
