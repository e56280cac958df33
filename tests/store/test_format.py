import contextlib
import dataclasses
import hashlib
import json
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toystore import write_store

import tokenloom as tl
from tokenloom.bind import BindError, bind, unbind
from tokenloom.errors import near_miss
from tokenloom.store import format as fmt


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner:
    kind: Literal["a", "b"]
    size: int = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    share: float
    flag: bool | None = None
    parts: tuple[Inner, ...] = ()
    table: dict[str, Inner] = dataclasses.field(default_factory=dict)


def test_bind_and_unbind_are_inverse():
    value = Outer(
        name="x", share=0.5, parts=(Inner(kind="a"),), table={"k": Inner(kind="b", size=1)}
    )
    assert bind(Outer, json.loads(json.dumps(unbind(value)))) == value


def test_all_mistakes_are_named_at_once_by_their_paths():
    with pytest.raises(BindError) as caught:
        bind(
            Outer,
            {
                "nmae": "x",
                "share": "half",
                "parts": [{"kind": "c"}],
                "table": {"k": {"size": True}},
            },
            path="$",
        )
    text = str(caught.value)
    for line in (
        "$.nmae: unknown key. Allowed: flag, name, parts, share, table. Did you mean 'name'?",
        "$.name: missing",
        "$.share: found 'half' (str), allowed: a number",
        "$.parts[0].kind: found 'c' (str), allowed: 'a', 'b'",
        "$.table.k.kind: missing",
        "$.table.k.size: found True (bool), allowed: an integer",
    ):
        assert line in text


@pytest.mark.parametrize("value", [[], "x", 3, None])
def test_what_is_not_an_object_is_not_a_record(value):
    with pytest.raises(BindError, match="allowed: an object"):
        bind(Outer, value)


def test_near_misses_are_suggested_only_when_near():
    assert near_miss("text_kye", ["text_key", "id_key"]) == " Did you mean 'text_key'?"
    assert near_miss("zzz", ["text_key"]) == ""


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(json_values)
def test_bind_refuses_any_json_with_a_bind_error_or_accepts_it(value):
    with contextlib.suppress(BindError):
        bind(fmt.Manifest, value)


def test_a_seal_covers_every_byte(tmp_path):
    raw = fmt.seal(write_store(tmp_path / "s", [[[1, 2]]]).reader.manifest)
    assert fmt.unseal(fmt.Manifest, raw, "m").tokens == 2
    for place in range(len(raw)):
        for flip in (1, 32):
            bad = bytearray(raw)
            bad[place] ^= flip
            with pytest.raises(tl.StoreCorrupt, match=r"^m"):
                fmt.unseal(fmt.Manifest, bytes(bad), "m")
    for cut in range(0, len(raw), 7):
        with pytest.raises(tl.StoreCorrupt):
            fmt.unseal(fmt.Manifest, raw[:cut], "m")
    with pytest.raises(tl.StoreCorrupt):
        fmt.unseal(fmt.Manifest, raw + b"\n", "m")


def test_a_sealed_record_is_plain_json_for_everybody_else(tmp_path):
    raw = fmt.seal(write_store(tmp_path / "s", [[[1, 2]]]).reader.manifest)
    value = json.loads(raw)
    body = raw[: raw.rindex(b',\n "sha256"')]
    assert value["sha256"] == hashlib.sha256(body).hexdigest()


def test_canonical_json_has_sorted_keys_and_no_nan():
    assert fmt.canonical({"b": 1, "a": [1]}) == b'{\n "a": [\n  1\n ],\n "b": 1\n}'
    with pytest.raises(ValueError, match="Out of range"):
        fmt.canonical(float("nan"))


@pytest.mark.parametrize(
    "change",
    [
        {"version": 3},
        {"version": "1"},
        {"digest": "0" * 64},
        {"groups": []},
        {"groups": ["zz"]},
        {"columns": {"doc_hash": "uint32"}},
        {"format": "other"},
        {"documents": 5},
        {"tokens": -1},
        {"vocab_size": 0},
        {"vocab_size": 2**40},
        {"dtype": "float32"},
        {"inner": 0},
        {"chunk_tokens": 0},
        {"columns": {"../x": "uint8"}},
        {"columns": {"x": "object"}},
        {"files": {"../../etc/passwd": {"bytes": 1, "sha256": "0" * 64}}},
        {"files": {"inputs-000001.json": {"bytes": -1, "sha256": "0" * 64}}},
        {"files": {"inputs-000001.json": {"bytes": 1, "sha256": "zz"}}},
        {"parts": []},
        {"number": "1"},
        {"number": True},
    ],
)
def test_values_that_cannot_be_meant_are_refused_even_under_a_right_seal(tmp_path, change):
    manifest = json.loads(fmt.canonical(write_store(tmp_path / "s", [[[1, 2]]]).reader.manifest))
    (tmp_path / "s/manifest-000001.json").write_bytes(fmt.seal(manifest | change))
    with pytest.raises(tl.StoreCorrupt, match="manifest-000001"):
        tl.open(tmp_path / "s")


@pytest.mark.parametrize("name", ["../shard-00000", "/etc", "shard-0", "shard-00000/..", ""])
def test_a_shard_name_cannot_leave_the_store(tmp_path, name):
    manifest = json.loads(fmt.canonical(write_store(tmp_path / "s", [[[1, 2]]]).reader.manifest))
    manifest["shards"][0]["name"] = name
    (tmp_path / "s/manifest-000001.json").write_bytes(fmt.seal(manifest))
    with pytest.raises(tl.StoreCorrupt, match="not allowed"):
        tl.open(tmp_path / "s")


def test_a_renamed_manifest_is_noticed(tmp_path):
    write_store(tmp_path / "s", [[[1, 2]]])
    (tmp_path / "s/manifest-000001.json").rename(tmp_path / "s/manifest-000002.json")
    with pytest.raises(tl.StoreCorrupt, match="renamed"):
        tl.open(tmp_path / "s")
