"""A peer's writer, and then its consumer, in one process that imports the peer once.

at_once.py NAME ARGUMENT…      # writers/by_NAME.py here, consumers/by_NAME.py with ARGUMENT…
"""

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent

if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    sys.path[:0] = [str(HERE / "writers"), str(HERE / "consumers")]
    for room, given in (("writers", []), ("consumers", arguments)):
        script = str(HERE / room / f"by_{name}.py")
        sys.argv = [script, *given]
        runpy.run_path(script, run_name="__main__")
