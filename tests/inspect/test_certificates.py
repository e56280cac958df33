"""A certificate is the same wherever it is made, and whoever doubts it computes it again."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from math import comb
from pathlib import Path

import numpy as np
import pytest
from auditruns import SEQ_LEN, mixed, store_of
from planted import at_index, put, with_arrays
from refusals import refused

import tokenloom as tl
from tokenloom.errors import ConfigError
from tokenloom.inspect import Certificate, audit_run, check_certificate
from tokenloom.inspect.audit import certificate
from tokenloom.testing import numpy_alone

ROOT = Path(__file__).parents[2]
NEEDED = "import numpy, xxhash, google_crc32c, zstandard, yaml"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return store_of(tmp_path_factory.mktemp("certified") / "a")


@pytest.fixture(scope="module")
def run(store):
    return store.pack(SEQ_LEN).shuffle().epochs(2).seed(4)


# -- the same everywhere ----------------------------------------------------------------------


GOLDEN = Path(__file__).parents[1] / "golden/certificate.json"


def interpreters():
    """Other Pythons that have what tokenloom needs; always this one."""
    named = os.environ.get("TOKENLOOM_PYTHONS", "").split(os.pathsep)
    usual = [shutil.which(f"python3.{minor}") for minor in range(11, 20)]
    found = {}
    for path in filter(None, [*named, *usual]):
        if subprocess.run([path, "-c", NEEDED], capture_output=True, check=False).returncode == 0:
            found[os.path.realpath(path)] = path
    return [sys.executable, *found.values()]


CLAIMS = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
from auditruns import mixed
print(json.dumps(mixed(pathlib.Path(sys.argv[2])).audit(20, 60).claim))
"""


def test_an_old_certificate_is_found_again_with_and_without_compiled_loops(tmp_path):
    """To write it anew, after a change of orders or of what is audited: the claim of `mixed`."""
    known, run = json.loads(GOLDEN.read_text(encoding="utf-8")), mixed(tmp_path)
    assert json.loads(json.dumps(run.audit(20, 60).claim)) == known
    with numpy_alone():
        assert json.loads(json.dumps(mixed(tmp_path / "numpy").audit(20, 60).claim)) == known


@pytest.mark.slow
def test_other_processes_and_other_pythons_make_the_same_certificate(tmp_path):
    settings = {"PYTHONPATH": str(ROOT / "src"), "TOKENLOOM_CACHE_DIR": str(tmp_path / "cache")}
    for number, python in enumerate(interpreters()):
        for compiled in ("0", "1"):
            child = subprocess.run(
                [
                    python,
                    "-c",
                    CLAIMS,
                    str(Path(__file__).parent),
                    tmp_path / f"{number}-{compiled}",
                ],
                env={**os.environ, **settings, "TOKENLOOM_NATIVE": compiled},
                capture_output=True,
                check=True,
                text=True,
            )
            assert json.loads(child.stdout) == json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_no_time_path_or_machine_is_in_what_is_compared(run, store):
    found = audit_run(run)
    text = json.dumps(found.claim)
    assert os.uname().nodename not in text
    assert str(store.path) not in text
    assert "made_with" not in found.claim
    assert found.as_json()["made_with"]["numpy"] == np.__version__
    assert audit_run(run).claim == found.claim


def test_a_moved_store_has_the_same_certificate(run, store, tmp_path):
    shutil.copytree(store.path, tmp_path / "moved")
    elsewhere = tl.from_config(run.describe(), path=str(tmp_path / "moved"))
    assert check_certificate(audit_run(run), elsewhere, full=True).ok


# -- computed again ---------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"arrays": False}, {"arrays": "all"}, {"sample": 40}])
def test_a_certificate_is_checked_in_part_and_in_full(run, options):
    found = audit_run(run, **options)
    text = json.dumps(found.as_json())
    some = check_certificate(text, run, seed=3)
    assert some.ok, str(some)
    assert 0 < some.stretches < some.of
    assert 0 < some.missed < 1
    every = check_certificate(text, run, full=True)
    assert every.ok, str(every)
    assert every.missed == 0


def test_every_seed_checks_other_stretches_and_all_together_check_all(run):
    found = audit_run(run, arrays=False)
    wrong = replace(found.digests, plan=("0" * 64, *found.digests.plan[1:]))
    forged = replace(found, digests=wrong)
    verdicts = [check_certificate(forged, run, seed=seed).ok for seed in range(300)]
    assert 0 < verdicts.count(False) < len(verdicts)  # a hundredth at a time
    assert not check_certificate(forged, run, full=True).ok


def test_another_run_another_rendering_and_a_forged_verdict_are_found(run, store):
    found = audit_run(run)
    other = check_certificate(found, run.seed(5))
    assert not other.ok
    assert "fingerprint" in str(other)
    assert not check_certificate(found, run.render(pad_id=3)).ok
    assert not check_certificate(found, run.epochs(3)).ok
    spoiled = with_arrays(run, at_index(7, put("tokens", 0, lambda x: x ^ 1)))
    bad = audit_run(spoiled)
    assert not bad.ok
    claimed = replace(bad, laws=found.laws)
    assert not check_certificate(claimed, run, full=True).ok
    assert not check_certificate(bad, run, full=True).ok


def test_a_forged_scope_is_refused_before_it_costs_anything(run):
    plain = audit_run(run, 0, 10).as_json()
    for wrong in ({"last": 10**15}, {"first": -4}, {"sample": 10**12}, {"arrays": "some"}):
        with pytest.raises(ConfigError, match=r"certificate.scope"):
            check_certificate(plain | {"scope": plain["scope"] | wrong}, run, full=True)
    few = plain["digests"] | {"stretch": 0}
    with pytest.raises(ConfigError, match=r"certificate.digests"):
        check_certificate(plain | {"digests": few}, run)


def test_what_is_no_certificate_is_refused_with_its_place(run):
    plain = audit_run(run, 0, 10).as_json()
    refused(lambda: Certificate.read({}), ConfigError, "certificate.format")
    refused(lambda: check_certificate("{", run), ConfigError)
    wrong = plain | {"scope": plain["scope"] | {"first": "x"}}
    refused(lambda: Certificate.read(wrong), ConfigError, "certificate.scope.first", "'x'")


def test_rows_that_are_not_there_are_refused(run, store):
    refused(lambda: audit_run(run, 0, 10_000), ConfigError, "last", "10,000")
    refused(lambda: audit_run(run, 9, 3), ConfigError, "first", 9)
    refused(lambda: audit_run(run, arrays="some"), ConfigError, "arrays", "'some'")
    endless = tl.mix({"a": store.windows(4).epochs(None), "b": store.windows(4)})
    refused(lambda: audit_run(endless), ConfigError, "last")


def test_of_more_tokens_than_a_bound_some_rows_are_rendered_and_the_certificate_gives_the_odds(
    run, monkeypatch
):
    monkeypatch.setattr(certificate, "WHOLE_TOKENS", len(run) * SEQ_LEN // 4)
    found = audit_run(run)
    assert found.scope.arrays == "sample"
    assert 0 < found.counts["rendered"] < found.counts["rows"] == len(run)
    assert found.laws["coverage"].looked_at
    most = max(map(int, found.missed))
    assert found.missed[str(most)] <= 0.01 < found.missed["1"]
    assert f"fewer than {most:,} of {len(run):,} rows are defective" in str(found)
    assert check_certificate(found, run).ok
    assert check_certificate(found, run, full=True).ok
    whole = audit_run(run, arrays="all")
    assert whole.counts["rendered"] == len(run)
    assert not whole.missed


def test_the_chance_that_a_sample_misses_a_defect_is_the_hypergeometric_one(run):
    rows = len(run)
    for looked_at in (1, 20, rows - 3):
        missed = audit_run(run, sample=looked_at).missed
        for defective, found in missed.items():
            whole = comb(rows, looked_at)
            right = Fraction(comb(rows - int(defective), looked_at), whole)
            assert found == pytest.approx(float(right), rel=1e-9)
