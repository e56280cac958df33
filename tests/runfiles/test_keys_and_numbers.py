"""Keys in two spellings, and numbers that programs read differently, are refused."""

import json

import pytest

import tokenloom as tl

SOURCES = """\
seq_len: 32
sources:
  wiki: {store: stores/wiki, pack: {}}
  code: {store: stores/code, windows: 32}
mix: {rule: weights, stages: %s}
"""
STAGES = {"600": {"wiki": 9}, "0600": {"code": 9}}


def refusal(load, text, **options):
    with pytest.raises(tl.ConfigError) as caught:
        load(text, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2024", "'2024'"),
        ("2024", "0x7e8"),
        ("2_024", "2024"),
        ("2024", "2024.0"),
        ("wiki", "'wiki'"),
        ("1", "true"),
    ],
)
def test_a_source_that_is_named_twice_in_two_spellings_is_refused(load, one, other):
    text = "seq_len: 16\nsources:\n  %s: {store: stores/wiki, pack: {}}\n"
    message = refusal(load, text % one + f"  {other}: {{store: stores/code, pack: {{}}}}\n")
    assert "line 4" in message
    assert one in message
    assert other in message


@pytest.mark.parametrize(
    ("one", "other"), [("600", "0x258"), ("600", "'600'"), ("600", "600.0"), ("6_00", "600")]
)
def test_a_stage_that_is_named_twice_in_two_spellings_is_refused(load, one, other):
    message = refusal(load, SOURCES % f"{{{one}: {{wiki: 9}}, {other}: {{code: 9}}}}")
    assert "line 5" in message
    assert one in message
    assert other in message


def test_json_and_toml_refuse_a_stage_in_two_spellings_too(load):
    sources = {"wiki": {"store": "stores/wiki", "pack": 32}}
    sources["code"] = {"store": "stores/code", "pack": 32}
    as_json = json.dumps({"sources": sources, "mix": {"stages": STAGES}})
    as_toml = "".join(
        f"[sources.{name}]\nstore = '{one['store']}'\npack = 32\n" for name, one in sources.items()
    )
    as_toml += "[mix.stages]\n600 = {wiki = 9}\n0600 = {code = 9}\n"
    for name, text in (("run.json", as_json), ("run.toml", as_toml)):
        message = refusal(load, text, name=name)
        assert "mix.stages.0600" in message
        assert "'0600'" in message
        assert "'600'" in message


def test_a_mapping_of_python_with_a_key_as_number_and_as_text_is_refused(place):
    source = {"store": "stores/wiki", "pack": 32}
    with pytest.raises(tl.ConfigError, match=r"sources\.2024.* 2024 .*'2024'"):
        tl.from_config({"sources": {2024: source, "2024": source}})
    config = {"sources": {"a": source, "b": source}}
    with pytest.raises(tl.ConfigError, match=r"mix\.stages\.600.* 600 .*'600'"):
        tl.from_config(config | {"mix": {"stages": {600: {"a": 9}, "600": {"b": 9}}}})


@pytest.mark.parametrize("other", ["./new", "sub/../new", "new/"])
def test_a_store_that_is_built_at_one_directory_twice_is_refused(load, place, other):
    text = "seq_len: 16\nsources: {a: {store: new, pack: {}}}\nbuild:\n  tokenizer: bytes\n"
    text += f"  stores:\n    new: corpus.jsonl\n    {other}: corpus.jsonl\n"
    (place / "sub").mkdir()
    message = refusal(load, text)
    assert f"build.stores.{other}" in message
    assert "'new'" in message
    assert not (place / "new").exists()


def test_numbers_as_keys_of_one_spelling_are_fine(load):
    run = load("seq_len: 16\nsources: {2024: {store: stores/wiki, pack: {}}}\nmix: {}\n")
    assert list(run.sources) == ["2024"]
    stages = SOURCES % "{0: {wiki: 9}, 200: {code: 9}}"
    assert load(stages).describe() == load(stages.replace("200:", "'200':")).describe()


def test_a_key_beside_a_merged_one_still_replaces_it(load):
    text = "sources:\n  a: &a {store: stores/wiki, pack: 32}\n  b: {<<: *a, store: stores/code}\n"
    assert load(text + "mix: {}\n").sources["b"].path == "stores/code"


NUMBERS = ["010", "-010", "0_1", "08", "010.5", "00e3", "1:20", "1:20:30.5"]


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_with_leading_zeros_or_colons_are_refused_wherever_they_stand(load, number):
    text = SOURCES % "{}"
    for wrong in (
        f"seed: {number}\n{text}",
        f"{text}loader: {{batch_size: {number}}}\n",
        text.replace("wiki:", f"{number}:"),
        SOURCES % f"{{? {number} : {{wiki: 9}}}}",
        text.replace("stores/wiki", number),
    ):
        assert f"found {number}, " in refusal(load, wrong)
    with pytest.raises(tl.ConfigError, match=rf"loader\.batch_size.*{number[1:]}"):
        load(text, f"loader.batch_size={number}")


def test_quoted_text_hexadecimal_and_plain_numbers_stay_as_they_are(load):
    run = load(
        "seq_len: 0x20\nseed: 0\ntake: 20\n"
        "sources: {'010': {store: stores/wiki, pack: {}}, '1:20': {store: stores/code, pack: {}}}\n"
        "mix: {weights: {'010': 0.5, '1:20': 1e-1}}\n"
    )
    assert list(run.sources) == ["010", "1:20"]
    assert run.seq_len == 32
    assert run.rule.weights == {"010": 0.5, "1:20": 0.1}
