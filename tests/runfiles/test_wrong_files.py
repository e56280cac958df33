"""Wrong run files: each is refused with the place of the problem and the value that is there."""

import re

import pytest
from refusals import refused

import tokenloom as tl

GOOD = """\
seed: 7
seq_len: 32
sources:
  wiki: {store: stores/wiki, pack: {}, shuffle: block}
  code: {store: stores/code, windows: 32, shuffle: full, epochs: endless}
mix: {rule: weights, weights: {wiki: 3, code: 1}}
loader: {batch_size: 4}
"""
W = "  wiki: {store: stores/wiki, pack: {}, shuffle: block}\n"


def wiki(rest):
    """GOOD with something else in its first source."""
    return GOOD.replace(W, f"  wiki: {{store: stores/wiki, {rest}}}\n")


def packed(rest):
    return wiki(f"pack: {{{rest}}}")


def splice(rest):
    return wiki(f"splice: {{{rest}}}")


def store(rest):
    return GOOD.replace(W, f"  wiki: {{store: {rest}, pack: {{}}}}\n")


def mix(rest):
    return GOOD.replace("{rule: weights, weights: {wiki: 3, code: 1}}", f"{{{rest}}}")


def loader(rest):
    return GOOD.replace("{batch_size: 4}", f"{{{rest}}}")


def build(rest):
    return f"{GOOD}build: {{{rest}}}\n"


# (text, what the message names); the JSON schema refuses these as well: keys, types, null
IN_SCHEMA = [
    (GOOD.replace("seed: 7", "sead: 7"), "line 1, column 7: sead: ", "seed"),
    (GOOD.replace("seed: 7", "seed: seven"), "line 1, column 7: seed: found 'seven'"),
    (store("{path: stores/wiki, digets: ab}"), "sources.wiki.store.digets: "),
    (wiki("pack: {}, shuffle: {window_block: 8}"), "sources.wiki.shuffle.window_block: "),
    (wiki("pack: {}, epochs: null"), "sources.wiki.epochs: found null", "endless"),
    (wiki("windows: {seq_len: '32'}"), "sources.wiki.windows.seq_len: found '32'"),
    (mix("weights: {wiki: much}"), "mix.weights.wiki: found 'much'"),
    (loader("batch_sise: 4"), "line 7, column 22: loader.batch_sise: "),
    (build("tokenizer: bytes, text_keys: a, stores: {new: corpus.jsonl}"), "build.text_keys: "),
]

WRONG = [
    *IN_SCHEMA,
    # -- the text
    ("", "mapping"),
    ("a: [1", "line 1, column 6: "),
    ("seed: 1\nseed: 2\n", "line 2, column 1: ", "'seed'", "line 1"),
    ("sources: !!python/object/apply:os.system [ls]", "line 1, column 10: ", "os.system"),
    ("sources: {}\nseed: 2026-01-01", "line 2, column 7: seed: ", "2026-01-01"),
    ("seed: 7\n", "sources: "),
    # -- the top
    (GOOD.replace("seed: 7", "seed: -1"), "line 1, column 7: seed: found -1"),
    (GOOD.replace("seed: 7", f"seed: 1{'0' * 400}"), "seed: found a number of 1,329 bits"),
    (GOOD.replace("seed: 7", "seed: ${SEED}"), "seed: found '${SEED}'"),
    (GOOD.replace("seq_len: 32\n", ""), "line 3, column 30: sources.wiki.pack.seq_len: "),
    (GOOD + "take: -5\n", "take: found -5"),
    (GOOD + "take: {examples: 3, tokens: 4}\n", "take: found {'examples': 3, 'tokens': 4}"),
    # -- stores
    (GOOD.replace(W, "  wiki: {pack: {}}\n"), "sources.wiki.store: "),
    (store("stores/wikki"), "sources.wiki.store: found 'stores/wikki'"),
    (store("memory://bucket/wiki"), "sources.wiki.store: found 'memory://bucket/wiki'"),
    (store("'${NOWHERE}/wiki'"), "sources.wiki.store: found '${NOWHERE}/wiki'"),
    (store("{path: stores/wiki, digest: ab}"), "sources.wiki.store: ", "ab", "7e257cb3f043c272"),
    (store("{path: stores/wiki, snapshot: 9}"), "sources.wiki.store: ", "snapshot 9"),
    # -- documents, layouts, orders
    (GOOD.replace(W, "  wiki: {store: stores/wiki}\n"), "sources.wiki: ", "pack"),
    (wiki("pack: {}, windows: {}"), "sources.wiki: ", "windows", "pack"),
    (wiki("pack: {}, select: {num_docs: 400}"), "sources.wiki.select: ", "40 of 400"),
    (wiki("pack: {}, select: {doc_key: 'lang=='}"), "sources.wiki.select.doc_key: ", "'lang=='"),
    (wiki("pack: {}, split: {shares: {a: 0.5, b: 0.4}, part: a}"), "sources.wiki.split: ", "0.4"),
    (packed("strategy: best_fitt"), "sources.wiki.pack.strategy: found 'best_fitt'", "'best_fit'"),
    (packed("strategy: sequential, stride: 4"), "sources.wiki.pack.stride: found 4"),
    (packed("overflow: error, seq_len: 8"), "sources.wiki.pack.overflow: ", "document 0"),
    (splice("content_length: {a: 8}"), "sources.wiki.splice.content_length.a: "),
    (
        splice("alpha: -1, offset_jitter: -2"),
        "sources.wiki.splice.alpha: found -1",
        "sources.wiki.splice.offset_jitter: found -2",
    ),
    (splice("doc_schedule: {0: 99}"), "sources.wiki.splice.doc_schedule: found 99"),
    (wiki("pack: {}, render: {eos_id: nil}"), "sources.wiki.render.eos_id: found 'nil'"),
    (wiki("pack: {}, shuffle: blok"), "sources.wiki.shuffle: found 'blok'", "'block'"),
    (wiki("pack: {}, shuffle: {kind: era}"), "sources.wiki.shuffle.length: "),
    (wiki("pack: {}, epochs: forever"), "sources.wiki.epochs: found 'forever'"),
    # -- the mix and its edits
    (mix("rule: weight, weights: {wiki: 3}"), "mix.rule: found 'weight'"),
    (mix("weights: {wikki: 3}"), "mix.weights.wikki: ", "'wiki'"),
    (mix("rule: round_robin, weights: {wiki: 3}"), "mix.weights: "),
    (mix("weights: {wiki: 3}, temperature: 0.5"), "mix.temperature: "),
    (mix("stages: {soon: {code: 4}}"), "mix.stages.soon: "),
    (mix("shuffle: full"), "mix.shuffle: ", "endless"),
    (mix("block: 0, cost: token"), "mix.block: found 0", "mix.cost: found 'token'"),
    (GOOD + "edits: [{weights: {wiki: 2}}]\n", "edits[0].at: "),
    (GOOD + "edits: [{at: 9}, {at: 4, weights: {wiki: 2}}]\n", "edits[1]: ", "4", "9"),
    (GOOD + "edits: [{at: 9, quarantine: [[wiki, 4000]]}]\n", "edits[0].quarantine: ", "4000"),
    # -- the loader
    (loader("batch_size: 0"), "loader.batch_size: found 0"),
    (loader("batch_size: 4, rank: 0"), "loader.rank: "),
    (loader("batch_size: 4, fields: [token]"), "loader.fields: found 'token'"),
    (loader("batch_size: 4000").replace("endless", "1"), "loader.batch_size: found 4,000", "104"),
    # -- evaluation sets
    (GOOD + "evaluate: {held: {store: stores/none, windows: 8}}\n", "evaluate.held.store: "),
    (
        "sources: {wiki: {store: stores/wiki, pack: 8}}\nevaluate: {held: {store: stores/wiki}}",
        "line 2, column 12: evaluate.held: ",
        "seq_len",
    ),
    # -- builds
    (build("stores: {new: corpus.jsonl}"), "build.stores.new: ", "tokenizer"),
    (build("tokenizer: bytes, stores: {new: corpse.jsonl}"), "build.stores.new: ", "corpse.jsonl"),
    (build("tokenizer: 'os:system', stores: {new: a.jsonl}"), "build.tokenizer: found 'os:system'"),
    (build("tokenizer: bytes, filter: 'os:system', stores: {new: a.jsonl}"), "build.filter: "),
    (build("tokenizer: bytes, overwrite: true, stores: {new: a.jsonl}"), "build.overwrite: "),
    (
        build("tokenizer: bytes, text_key: body, stores: {stores/wiki: corpus.jsonl}"),
        "build.stores.stores/wiki.text_key: found 'body'",
        "build.stores.stores/wiki.id_key: ",
    ),
    (
        build("tokenizer: bytes, text_key: body, stores: {new: corpus.jsonl}").replace(
            "stores/code", "new"
        ),
        "build.stores.new: ",
        "corpus.jsonl: record 0 (line 1): ",
        "'body'",
    ),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", WRONG, ids=lambda case: case[1])
def test_a_wrong_file_is_refused_at_its_place_with_the_value(load, case):
    text, *named = case
    refused(lambda: load(text), tl.ConfigError, "run.yaml: ", *named)


def test_the_good_file_loads(load):
    assert load(GOOD).seq_len == 32


def test_all_problems_of_all_sections_come_at_once_in_the_order_of_the_file(load):
    text = """\
seed: x
sources:
  wiki: {store: stores/wikki, pack: {seq_len: 1, tial: 3}, shuffle: blok, epochs: endles}
  code: {store: stores/code, windows: 32, seed: -1}
mix: {rule: weight, weights: {cod: 1}}
edits: [{at: -1}]
loader: {batch_size: 0, end: dorp}
evaluate: {held: {store: stores/code}}
build: {tokenizer: bytes, stores: {new: nothing.jsonl}}
"""
    head, *lines = refused(lambda: load(text), tl.ConfigError).splitlines()
    assert "14" in head
    places = [line.split(": ")[1] for line in lines]
    assert places == [
        "seed",
        "sources.wiki.store",
        "sources.wiki.pack.seq_len",
        "sources.wiki.pack.tial",
        "sources.wiki.shuffle",
        "sources.wiki.epochs",
        "sources.code.seed",
        "mix.rule",
        "mix.weights.cod",
        "edits[0].at",
        "loader.batch_size",
        "loader.end",
        "evaluate.held",
        "build.stores.new",
    ]
    numbers = [int(re.match(r"  line (\d+), column \d+: ", line)[1]) for line in lines]
    assert numbers == sorted(numbers)
