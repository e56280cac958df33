"""The snippet of the README runs as it stands, in an empty directory."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_snippet_of_the_readme_is_the_quickstart_and_runs_in_an_empty_directory(tmp_path):
    snippet = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)[1]
    script = (ROOT / "examples/quickstart.py").read_text()
    assert script.endswith(snippet)
    done = subprocess.run(
        [sys.executable, "-c", snippet],
        cwd=tmp_path,
        env={**os.environ, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "document" in done.stdout.lower()
    assert [path.name for path in tmp_path.iterdir()] == ["stores"]
