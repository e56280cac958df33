"""An environment of its own for each library that reads or writes token files, made once.

::

    make peers                                    # all of them, below .venv/peers
    python tests/exchange/peers.py litdata        # or some

One idea: a peer is installed without its dependencies, and finds torch, NumPy and the rest in the
environment that runs the tests: a `.pth` file names it. So four peers take 40 MB and ten seconds,
no peer can ask for another torch, and none of them is importable from the tests themselves. What a
peer imports at its start and the tests lack is listed here by name.
"""

import fcntl
import subprocess
import sys
import sysconfig
from pathlib import Path

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


def python_of(name):
    """The interpreter of a peer, installed now if it is not there."""
    folder = FOLDER / name
    done, wanted = folder / "installed.txt", "\n".join(PEERS[name])
    FOLDER.mkdir(exist_ok=True)
    with open(FOLDER / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may want it
        if not done.exists() or done.read_text() != wanted:
            install(folder, PEERS[name])
            done.write_text(wanted)
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
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{folder.name}: {done.stderr.strip()}")


def run(peer, script, *arguments):
    """What a script prints, as text; run by a peer's interpreter, or by ours (None)."""
    python = sys.executable if peer is None else python_of(peer)
    command = [python, "-W", "ignore", HERE / script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise AssertionError(f"{script} of {peer}:\n{done.stderr.strip()[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    for peer in sys.argv[1:] or PEERS:
        print(python_of(peer))
