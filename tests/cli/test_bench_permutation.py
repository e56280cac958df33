"""`tokenloom bench permutation`: the published table to every digit, a fair one beside it."""

import json
from pathlib import Path

import pytest

from tokenloom.cli import main
from tokenloom.cli.benches import orders as bench

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden/levanter_orders.json").read_text(encoding="utf-8")
)["published_tables"]["quality"]
SMALL = ("--n", "512", "--repeats", "2", "--io-block-size", "16", "--era-length", "64")


def run(capsys, *words):
    code = main(["bench", "permutation", *map(str, words)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def as_json(capsys, *words):
    code, out, _ = run(capsys, *words, "--json")
    return code, json.loads(out)


@pytest.mark.parametrize(
    ("perm_type", "theirs"), [("levanter", "feistel"), ("levanter_linear", "linear")]
)
def test_every_seed_has_the_published_values(perm_type, theirs, capsys):
    code, found = as_json(capsys, "--perm-type", perm_type)
    assert code == 0
    assert found["settings"]["io_block_size"] == 128
    results = found["results"][perm_type]
    assert set(results) == set(GOLDEN["results"][theirs])
    for strategy, measures in GOLDEN["results"][theirs].items():
        for name, expected in measures.items():
            ours, scale = results[strategy].get(name), 1
            if name == "fixed_points_rate":
                ours, scale = results[strategy]["fixed_points"], 8192
            where = (strategy, name)
            assert [value / scale for value in ours["per_seed"]] == pytest.approx(
                expected["per_seed"], abs=1e-12
            ), where
            assert ours["mean"] / scale == pytest.approx(expected["mean"], abs=1e-12), where
            assert ours["std"] / scale == pytest.approx(expected["std"], abs=1e-12), where
    baselines = {
        "random_expected_mean_abs_displacement_norm": found["fair"]["mean_abs_displacement_norm"],
        "random_expected_same_block_transition_rate": found["fair"]["same_block_transition_rate"],
        "no_shuffle_same_block_transition_rate": found["no_shuffle"]["same_block_transition_rate"],
    }
    for name, value in baselines.items():
        assert value == pytest.approx(GOLDEN[name], abs=1e-15)


def test_both_types_stand_side_by_side_unless_one_is_asked_for(capsys):
    assert list(as_json(capsys, *SMALL)[1]["results"]) == ["levanter", "feistel"]
    _, found = as_json(capsys, *SMALL, "--perm-type", "linear,feistel")
    assert list(found["results"]) == ["linear", "feistel"]
    _, found = as_json(capsys, *SMALL, "--lanes", 4)  # Levanter has none
    assert list(found["results"]) == ["feistel"]


def test_strategies_seeds_and_sizes_are_what_was_asked_for(capsys):
    _, found = as_json(capsys, *SMALL, "--strategies", "era", "--seed", 5, "--seq-len", 4096)
    assert list(found["results"]["feistel"]) == ["era"]
    assert len(found["results"]["feistel"]["era"]["fixed_points"]["per_seed"]) == 2
    assert found["settings"]["seed"] == 5
    _, later = as_json(capsys, *SMALL, "--strategies", "era", "--seed", 6, "--repeats", 1)
    name = "inversion_fraction"
    assert (
        later["results"]["feistel"]["era"][name]["per_seed"]
        == found["results"]["feistel"]["era"][name]["per_seed"][1:]
    )
    assert later["results"]["feistel"]["era"][name]["std"] == 0


@pytest.mark.parametrize(
    ("seq_len", "rows"), [(2048, 128), (4096, 64), (8192, 32), (3000, 87), (300_000, 1)]
)
def test_a_block_is_one_chunk_of_tokens_by_default(seq_len, rows, capsys):
    words = ("--n", 300, "--repeats", 1, "--seq-len", seq_len, "--strategies", "full")
    assert as_json(capsys, *words)[1]["settings"]["io_block_size"] == rows


def test_larger_windows_mix_more_and_fetch_more(capsys):
    words = ("--n", 8192, "--repeats", 2, "--strategies", "block", "--perm-type", "feistel")
    narrow, wide = (
        as_json(capsys, *words, "--window-blocks", blocks, "--batch-size", 512)[1]["results"][
            "feistel"
        ]["block"]
        for blocks in (8, 32)
    )
    name = "same_block_transition_rate"
    assert wide[name]["mean"] < narrow[name]["mean"]
    assert wide["blocks_per_group"]["mean"] > narrow["blocks_per_group"]["mean"]


def test_a_run_equals_itself_and_differs_from_another(capsys, tmp_path):
    code, out, _ = run(capsys, *SMALL, "--json")
    (tmp_path / "old.json").write_text(out)
    code, out, _ = run(capsys, *SMALL, "--compare", tmp_path / "old.json")
    assert code == 0
    assert "no difference above 1e-09 in 72 measures" in out
    assert "levanter.full.inversion_fraction" in out
    code, out, _ = run(capsys, *SMALL, "--seed", 1, "--compare", tmp_path / "old.json")
    assert code == 1
    assert "other settings: seed was 0, is 1" in out
    assert "differ by more than 1e-09" in out
    code, out, _ = run(
        capsys, *SMALL, "--seed", 1, "--compare", tmp_path / "old.json", "--tolerance", 1000
    )
    assert code == 0
    code, found = as_json(capsys, *SMALL, "--seed", 1, "--compare", tmp_path / "old.json")
    assert (code, found["compare"]["differs"]) == (1, True)
    row = found["compare"]["rows"][0]
    assert row["difference"] == row["new"] - row["old"]


def test_what_only_one_run_has_is_a_difference(capsys, tmp_path):
    _, out, _ = run(capsys, *SMALL, "--json", "--strategies", "full")
    (tmp_path / "old.json").write_text(out)
    code, out, _ = run(capsys, *SMALL, "--strategies", "era", "--compare", tmp_path / "old.json")
    assert code == 1
    assert "48 of 48 measures differ" in out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read as JSON"),
        ("{", "cannot be read as JSON"),
        ("[]", "not an output of `tokenloom bench permutation --json`"),
        ('{"bench": "permutation"}', "not an output of"),
        ('{"bench": "other", "results": {}}', "not an output of"),
    ],
)
def test_a_file_that_is_no_earlier_run_is_refused_before_measuring(
    content, message, capsys, tmp_path, monkeypatch
):
    monkeypatch.setattr(bench, "_measure_all", lambda *_, **__: pytest.fail("measured"))
    if content is not None:
        (tmp_path / "old.json").write_text(content)
    code, _, err = run(capsys, "--compare", tmp_path / "old.json")
    assert code == 3
    assert "old.json: " in err
    assert message in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--n", 1), "--n: found 1, allowed: 2 or more"),
        (("--repeats", 0), "--repeats: found 0"),
        (("--seq-len", 0), "--seq-len: found 0"),
        (("--io-block-size", 0), "--io-block-size: found 0"),
        (("--batch-size", -3), "--batch-size: found -3"),
        (("--lanes", 0), "--lanes: found 0"),
        (("--seed", -1), "--seed: found -1"),
        (("--strategies", "full,blok"), "Did you mean 'block'?"),
        (("--perm-type", "fiestel"), "Did you mean 'feistel'?"),
        (("--lanes", 2, "--perm-type", "levanter"), "lanes: found 2"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(words, message, capsys):
    code, _, err = run(capsys, *words)
    assert code == 2
    assert message in err


def test_a_bar_appears_only_after_two_seconds(capsys, monkeypatch):
    shown = []

    class Bar:
        def __init__(self, *_, **__):
            shown.append(self)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.closed = True

        def reach(self, amount):
            self.amount = amount

    monkeypatch.setattr(bench, "Progress", Bar)
    run(capsys, *SMALL)
    assert shown == []
    monkeypatch.setattr(bench, "PATIENCE", 0.0)
    run(capsys, *SMALL, "--quiet")
    assert shown == []
    run(capsys, *SMALL)
    assert [(bar.amount, bar.closed) for bar in shown] == [(12, True)]


def test_bench_without_a_name_says_which_there_are(capsys):
    with pytest.raises(SystemExit):
        main(["bench"])
    assert "BENCH" in capsys.readouterr().err
