"""The Slurm script, with a scheduler that runs each task at once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit import write_corpus

import tokenloom as tl

SCRIPT = Path(__file__).parents[2] / "examples/slurm/submit.sh"

# runs an array backwards, as a scheduler may; the id is printed last, as --parsable does
SBATCH = """#!/usr/bin/env bash
set -euo pipefail
tasks=(0)
for argument in "$@"; do
    case $argument in
        --array=1-*) tasks=($(seq "${argument#--array=1-}" -1 1)) ;;
        --dependency=*) [ "$argument" = --dependency=afterok:41 ] ;;
        --wrap=*) command=${argument#--wrap=} ;;
    esac
done
for task in "${tasks[@]}"; do SLURM_ARRAY_TASK_ID=$task bash -euc "$command" >> "$LOG"; done
echo 41
"""

TOKENLOOM = '#!/usr/bin/env bash\nexec "{python}" -m tokenloom "$@"\n'


@pytest.mark.slow  # five processes
def test_the_slurm_script_builds_what_one_machine_builds(tmp_path):
    write_corpus(tmp_path / "in", count=80, files=2)
    (tmp_path / "bin").mkdir()
    for name, text in (("sbatch", SBATCH), ("tokenloom", TOKENLOOM.format(python=sys.executable))):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    done = subprocess.run(
        [SCRIPT],
        env={
            **os.environ,
            "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "CORPUS": str(tmp_path / "in"),
            "OUT": str(tmp_path / "my store"),  # a space: the script quotes
            "TOKENIZER": "bytes",
            "PARTS": "3",
            "CORES": "1",
            "LOG": str(tmp_path / "log"),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "part 2/3: " in (tmp_path / "log").read_text()
    whole = tl.build(tmp_path / "in", tmp_path / "whole", tokenizer="bytes", stretches=3)
    assert tl.open(tmp_path / "my store").manifest_sha256 == whole.manifest_sha256
