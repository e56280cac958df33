"""States and run files are kept in buckets as on a disk: whole or not at all, newest found."""

import pytest
from buckets import objects, put

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.loader import latest_state, read_state, write_state

ROWS = [{"text": "abcdefgh"}, {"text": "ijkl"}]


@pytest.fixture
def bucket(request, place):
    """A free place on our own server, or on the one that a test names."""
    request.getfixturevalue(getattr(request, "param", "ranges"))
    return place


@pytest.fixture
def run(bucket):
    """A run over a store in a bucket."""
    return tl.build(ROWS, f"{bucket}/toy", tokenizer="bytes").windows(2).shuffle().seed(7)


@pytest.mark.parametrize("bucket", ["ranges", "moto"], indirect=True)
def test_a_state_in_a_bucket_resumes_a_run(run, bucket):
    loader = tl.Loader(run, batch_size=2)
    places = [write_state(loader.seek(step).state_dict(), f"{bucket}/states") for step in (1, 2)]
    assert str(places[0]) == f"{bucket}/states/state-000000000002.json"
    assert read_state(places[0])["examples"] == 2
    assert latest_state(f"{bucket}/states")["examples"] == 4
    resumed = tl.Loader(run, batch_size=1)
    resumed.load_state_dict(latest_state(f"{bucket}/states"))
    assert resumed.examples == 4
    assert next(resumed).tokens.tolist() == next(loader).tokens.tolist()[:1]


def test_a_state_of_a_name_is_replaced(run, bucket):
    loader = tl.Loader(run, batch_size=2)
    for step in (2, 1):
        write_state(loader.seek(step).state_dict(), f"{bucket}/last.json")
    assert read_state(f"{bucket}/last.json")["examples"] == 2
    assert latest_state(f"{bucket}/last.json")["examples"] == 2
    assert latest_state(bucket)["examples"] == 2


def test_a_damaged_state_is_passed_over_and_a_missing_one_told(run, bucket, caplog):
    write_state(tl.Loader(run, batch_size=1).seek(1).state_dict(), f"{bucket}/states")
    put(f"{bucket}/states/state-000000000009.json", b"{")
    assert latest_state(f"{bucket}/states")["examples"] == 1
    assert "state-000000000009.json" in caplog.text
    assert latest_state(f"{bucket}/none") is None
    with pytest.raises(tl.StateError, match=r"none.json"):
        read_state(f"{bucket}/none.json")


def test_a_run_file_in_a_bucket_gives_the_run(run, bucket):
    tl.save(run, f"{bucket}/runs/run.yaml")
    assert tl.load(f"{bucket}/runs/run.yaml") == run
    with pytest.raises(tl.StoreExists, match=r"run.yaml"):
        tl.save(run, f"{bucket}/runs/run.yaml")
    tl.save(run.seed(8), f"{bucket}/runs/run.yaml", overwrite=True)
    assert tl.load(f"{bucket}/runs/run.yaml") == run.seed(8)
    assert main(["show", f"{bucket}/runs/run.yaml"]) == 0


def test_paths_in_a_run_file_are_relative_to_it_and_stores_are_built_there(bucket):
    text = (
        "build: {tokenizer: bytes, stores: {../built: ../corpus/*.jsonl}}\n"
        "sources: {one: {store: ../built, windows: 2}}\n"
    )
    put(f"{bucket}/runs/run.yaml", text.encode())
    put(f"{bucket}/corpus/a.jsonl", b'{"text": "abcdef"}\n')
    assert len(tl.load(f"{bucket}/runs/run.yaml")) == 3
    assert "built/manifest-000001.json" in objects(bucket)
    assert len(tl.load(f"{bucket}/runs/run.yaml")) == 3  # it is there now


def test_a_run_file_that_is_not_there_or_cannot_be_meant_is_told(
    ranges, place, tmp_path, monkeypatch
):
    with pytest.raises(FileNotFoundError, match=r"run\.yaml"):
        tl.load(f"{place}/run.yaml")
    monkeypatch.chdir(tmp_path)
    run = tl.build(ROWS, "toy", tokenizer="bytes").windows(2)
    with pytest.raises(tl.ConfigError, match="toy"):
        tl.save(run, f"{place}/run.yaml")


def test_the_command_line_takes_urls(run, bucket, capsys):
    store = f"{bucket}/toy"
    for command in ("info", "verify"):
        assert main([command, store]) == 0
    assert main(["show", store, "--doc", "0"]) == 0
    state = write_state(tl.Loader(run, batch_size=2).state_dict(), f"{bucket}/s.json")
    assert main(["gc", store, "--old-snapshots", "--pin-for", str(state)]) == 0
    assert store in capsys.readouterr().out
