"""Descriptions come from files of others: whatever they hold, the answer is a ConfigError."""

import copy
import json
import random

import pytest

import tokenloom as tl

JUNK = [
    *(None, True, 0, -1, 2**31, 2**62, 2**63, 10**30, -(10**30), 10**5000),
    *(1.5, float("nan"), float("inf"), -1e308, "", "x", "\x00", "\ud800", "a" * 10_000),
    *("/etc/passwd", "../../etc", [], {}, [1], ["x"], [[]], {"a": 1}, {"kind": []}, {1: 2}),
    *({(1, 2): 3}, {"\ud800": 1}, b"bytes", object(), set()),
]
DEEP = []
_inner = DEEP
for _ in range(5000):
    _inner.append([])
    _inner = _inner[0]


@pytest.fixture(scope="module")
def descriptions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    rows = [{"text": "abc" * 50, "id": str(i)} for i in range(20)]
    a = tl.build(rows, folder / "a", tokenizer="bytes", id_key="id")
    b = tl.build(rows[:-1], folder / "b", tokenizer="bytes", id_key="id")
    x, y = a.windows(8).shuffle(), b.pack(8).shuffle()
    mixed = tl.mix({"x": x, "y": y}).seed(3)
    runs = {
        "windows": a.windows(8).shuffle().epochs(3).seed(7),
        "packed": a.pack(16).block_shuffle(window_blocks=2),
        "selected": a.select(num_docs=5).windows(8).take(10),
        "split": a.split({"a": 0.5, "b": 0.5})["a"].windows(8),
        "mixed": mixed,
        "edited": mixed.edit(at=10, weights={"x": 3}),
    }
    return {name: run.describe() for name, run in runs.items()}


def places(value, path=()):
    yield path
    if isinstance(value, (dict, list)):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(one, (*path, key))


def changed(value, path, put):
    if not path:
        return put
    found = here = copy.deepcopy(value)
    for key in path[:-1]:
        here = here[key]
    if put is changed:
        del here[path[-1]]
    else:
        here[path[-1]] = put
    return found


def only_config_errors(config, context):
    try:
        run = tl.from_config(config)
        if run.is_finite:
            len(run)
    except tl.ConfigError as error:
        str(error).encode()  # a message that can be printed
    except tl.StoreError:
        assert any(key in context for key in ("path", "snapshot")), context


@pytest.mark.parametrize("name", ["windows", "packed", "selected", "split", "mixed", "edited"])
@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_any_value_at_any_place_of_a_description_is_refused_or_understood(
    name, every, descriptions
):
    base = descriptions[name]
    trials = [(path, put) for path in places(base) for put in [*JUNK, DEEP, changed]]
    random.Random(name).shuffle(trials)
    assert len(trials) > 500
    for path, put in trials[::every]:
        shown = put if not isinstance(put, list) or put is not DEEP else "deep"
        only_config_errors(changed(base, path, put), f"{path} {type(shown).__name__}")


@pytest.mark.parametrize(
    ("path", "put", "words"),
    [
        (("store", "path"), "\ud800", r"\$\.store\.path: found '\\ud800'"),
        (("store", "path"), "a\0b", r"\$\.store\.path: found"),
        (("store", "path"), "a" * 256, r"^path: found 'a{99}, which no file"),
        (("store", "path"), "a/" * 2048, r"^path: found '(a/){49}a, which no file"),
        (("layout", "kind"), ["windows"], r"\$\.layout\.kind: found \['windows'\]"),
        (("seed",), 10**30, r"\$\.seed: found an integer of 100 bits"),
        (("epochs",), 2**62, r"examples, allowed: below 2\^63"),
        (("layout", "seq_len"), float("nan"), r"\$\.layout\.seq_len: found nan"),
        (("render",), DEEP, "nested more than 32 levels deep"),
        ((), DEEP, "nested more than 32 levels deep"),
        ((), None, r"\$: found None"),
        ((), b"{}", r"\$: found b'{}'"),
    ],
)
def test_the_findings_are_refused_with_their_path(path, put, words, descriptions):
    with pytest.raises(tl.ConfigError, match=words):
        tl.from_config(changed(descriptions["windows"], path, put))


def test_good_descriptions_come_back_also_as_json(descriptions):
    for base in descriptions.values():
        run = tl.from_config(json.loads(json.dumps(base)))
        assert run.describe() == base
