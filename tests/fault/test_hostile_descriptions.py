"""Descriptions come from files of others: what they hold is understood, or refused by path."""

import json
import random
import warnings

import pytest
from refusals import refused
from spoiling import DEEP, JUNK, places, replaced, without

import tokenloom as tl

LONGEST = 1 << 12  # cells of a row that is made

INT32 = 1 << 31

INTEGERS = (-(2**63), -INT32 - 1, -1, 0, 1, INT32 - 1, INT32, 2**62, 2**63 - 1, 2**64)


def make_runs(folder):
    """Runs that together have every integer of a description."""
    rows = [
        {"input_ids": [(7 * i + j) % 50 + 3 for j in range(20 + 3 * i)], "id": str(i)}
        for i in range(30)
    ]
    masked = [{**row, "loss_mask": [1] * len(row["input_ids"])} for row in rows]
    build = {"tokenizer": None, "vocab_size": 100, "id_key": "id", "progress": False}
    a = tl.build(rows, folder / "a", **build)
    b = tl.build(masked, folder / "b", **build)
    pair = {"x": a.windows(8).shuffle(), "y": b.pack(8).shuffle()}
    mixed = tl.mix(pair).seed(3)
    cut = {"min_len": 2, "max_len": 90, "max_doc_tokens": 40, "stride": 2, "min_row_len": 2}
    specials = {"add_bos": True, "bos_id": 1, "add_eos": True, "eos_id": 2}
    few = a.select(num_docs=4, min_doc_length=3, max_doc_length=60, seed=4)
    return {
        "windows": a.windows(8, tail="keep", lookahead=True, overlap=1)
        .shuffle()
        .epochs(3)
        .seed(7)
        .render(ignore_id=5, pad_id=1, train_on_eos=False, eos_id=9),
        "packed": a.pack(16, **specials, **cut, max_docs_per_bin=3, group_docs=5)
        .block_shuffle(window_blocks=2, lanes=2)
        .take(9),
        "aligned": a.windows(8, align=64).block_shuffle(window_blocks=2, lanes=2),
        "era": a.pack(16, strategy="sequential", shuffle_output=True, shuffle_seed=3).era_shuffle(
            4
        ),
        "selected": few.windows(8).take(10),
        "listed": a.select(doc_index=[1, 2, 5]).windows(8),
        "split": a.split({"a": 0.5, "b": 0.5}, seed=5)["a"].windows(8),
        "spliced": few.splice(
            32, content_length=8, min_copy_len=2, bos=1, content_stride=2, offset_jitter=2
        ),
        "relative": few.splice(32, content_length=9, position_scheme="relative", epoch_length=10),
        "by document": few.splice(
            32, content_length=8, doc_strides=[1, 2, 3, 1], doc_groups=[1, 1, 2, 2], sampler="quota"
        ),
        "mixed": mixed,
        "capped": tl.mix(pair, rule="weights", max_epochs={"x": 2}, stop="all_exhausted").take(7),
        "rounds": tl.mix(pair, rule="rounds", block=16),
        "edited": mixed.edit(at=10, weights={"x": 3})
        .edit(at=20, quarantine=[("y", 2)])
        .edit(at=40, add={"z": a.windows(8).shuffle()}, weights={"z": 1}),
    }


@pytest.fixture(scope="module")
def descriptions(tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runs = make_runs(tmp_path_factory.mktemp("hostile"))
    assert set(runs) == set(NAMES)
    return {name: run.describe() for name, run in runs.items()}


NAMES = (
    *("windows", "packed", "aligned", "era", "selected", "listed", "split", "spliced"),
    *("relative", "by document", "mixed", "capped", "rounds", "edited"),
)


def only_errors_of_ours(config, context):
    """The run of a description is made and its first row is read, or the error is one of ours."""
    try:
        run = tl.from_config(config)
        str(run)
        first, *_ = config.get("sources", [config])
        if first["layout"]["seq_len"] <= LONGEST and (not run.is_finite or len(run)):
            batch = run[0]
            assert batch.labels.shape == batch.tokens.shape == batch.position_ids.shape
            run.at(0)
    except tl.ConfigError as error:
        str(error).encode()  # a message that can be printed
    except tl.StoreError:
        assert any(key in context for key in ("path", "snapshot")), context
    except tl.TokenloomError:
        pass


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.slow)])
def test_any_value_at_any_place_of_a_description_is_refused_or_understood(
    name, every, descriptions
):
    base = descriptions[name]
    trials = [(path, junk) for path in places(base) for junk in [*INTEGERS, *JUNK, without]]
    random.Random(name).shuffle(trials)
    assert len(trials) > 500
    for path, junk in trials[::every]:
        if junk is not without:
            only_errors_of_ours(replaced(base, path, junk), f"{path} {type(junk).__name__}")
        elif path:
            only_errors_of_ours(without(base, path), str(path))


@pytest.mark.parametrize(
    ("path", "junk", "named"),
    [
        (("store", "path"), "\ud800", "$.store.path: found '\\ud800'"),
        (("store", "path"), "a\0b", "$.store.path: found"),
        (("store", "path"), "a" * 256, "path: found 'aaa"),
        (("layout", "kind"), ["windows"], "$.layout.kind: found ['windows']"),
        (("seed",), 10**30, "$.seed: found"),
        (("epochs",), 2**62, "2^63"),
        (("layout", "seq_len"), float("nan"), "$.layout.seq_len: found nan"),
        (("render",), DEEP, "32"),
        ((), DEEP, "32"),
        ((), None, "$: found None"),
        ((), b"{}", "$: found b'{}'"),
    ],
)
def test_wrong_values_are_named_with_their_path(path, junk, named, descriptions):
    config = replaced(descriptions["windows"], path, junk)
    refused(lambda: tl.from_config(config), tl.ConfigError, named)


def test_good_descriptions_come_back_also_as_json(descriptions):
    for base in descriptions.values():
        run = tl.from_config(json.loads(json.dumps(base)))
        assert run.describe() == base


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("pad_id", value) for value in (-(2**63), -INT32 - 1, INT32, 2**63 - 1)),
        *(("eos_id", value) for value in (-(2**63), INT32)),
        *(("ignore_id", value) for value in (-(2**63), INT32)),
        *(("position_offset", value) for value in (-(2**63), 2**30 + 1, INT32 - 1)),
    ],
)
def test_what_no_int32_holds_is_refused_with_its_path(key, value, descriptions):
    description = descriptions["windows"]
    config = replaced(description, ("render", key), value)
    refused(lambda: tl.from_config(config), tl.ConfigError, f"{key}: ", value)


def test_the_largest_positions_that_a_row_can_have_are_not_wrapped(descriptions):
    description = descriptions["windows"]
    run = tl.from_config(replaced(description, ("render", "position_offset"), 2**30))
    assert run[0].position_ids[0, :3].tolist() == [2**30, 2**30 + 1, 2**30 + 2]
