"""Audits of parts: ranges, samples, endless runs, and runs that grew.

That an audit of a whole run passes is a law of random runs, see tests/laws/test_row_laws.py.
"""

import pytest
from auditruns import SEQ_LEN, store_of

import tokenloom as tl
from tokenloom.inspect import audit_run

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return store_of(tmp_path_factory.mktemp("audited") / "a", 0)


def passes(run, first=None, last=None, **options):
    found = audit_run(run, first, last, **options)
    assert found.ok, str(found)
    return found


def test_a_range_and_a_sample_of_an_endless_run(store):
    run = store.pack(SEQ_LEN).shuffle().epochs(None)
    whole = passes(run)
    assert whole.scope.last == len(run.epochs(1))
    some = passes(run, 10**12, 10**12 + 500, sample=100)
    assert some.missed["1"] == 0.8
    assert some.laws["coverage"].verdict == "not looked at"
    assert some.not_looked_at


def test_without_rows_and_of_a_single_row(store):
    run = store.windows(SEQ_LEN).shuffle()
    assert passes(run, 3, 3).laws["rows"].verdict == "not looked at"
    assert passes(run, 3, 4).counts["rows"] == 1
    assert passes(run, sample=1).missed["1"] == pytest.approx(1 - 1 / len(run))


def build(path, first, last, **options):
    rows = [{"text": chr(65 + i % 26) * (20 + 7 * i % 31)} for i in range(first, last)]
    return tl.build(rows, path, tokenizer="bytes", progress=False, **options)


def test_a_mix_whose_source_grew_twice(tmp_path):
    rows = build(tmp_path / "w", 0, 12).pack(16)
    other = build(tmp_path / "o", 0, 9).windows(16).shuffle().epochs(None)
    run = tl.mix({"w": rows.shuffle().epochs(3), "o": other}, weights={"w": 2}).seed(3)
    for at, first, last in ((7, 12, 20), (60, 20, 26)):
        run = run.edit(at=at, append={"w": build(tmp_path / "w", first, last, append=True)})
    run = run.edit(at=60, quarantine=[("w", 13)]).take(300)
    found = passes(run)
    assert found.laws["mixture"].looked_at > 0
    assert found.laws["quarantine"].looked_at > 0
