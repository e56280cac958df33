"""Wrong run files, each with its sentence: place, value, what is allowed, near miss."""

import re

import pytest

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
    """GOOD with another first source."""
    return GOOD.replace(W, f"  wiki: {rest}\n")


def mix(rest):
    return GOOD.replace("{rule: weights, weights: {wiki: 3, code: 1}}", rest)


def loader(rest):
    return GOOD.replace("{batch_size: 4}", rest)


def build(rest):
    return f"{GOOD}build: {rest}\n"


WRONG = [
    # -- the text
    (
        "",
        "found NoneType, allowed: a mapping, such as 'sources: ...'.",
    ),
    (
        "- a",
        "found list, allowed: a mapping, such as 'sources: ...'.",
    ),
    (
        "a: [1",
        (
            "line 1, column 6: while parsing a flow sequence, expected ',' or ']', but got "
            "'<stream end>'."
        ),
    ),
    (
        "seed: 1\nseed: 2\n",
        ("line 2, column 1: the key 'seed' appears twice, first in line 1. Remove one of them."),
    ),
    (
        GOOD.replace("code:", "wiki:", 1),
        ("line 5, column 3: the key 'wiki' appears twice, first in line 4. Remove one of them."),
    ),
    (
        "sources: !!python/object/apply:os.system [ls]",
        (
            "line 1, column 10: the tag 'tag:yaml.org,2002:python/object/apply:os.system' "
            "names code or a type, but settings are plain data and run nothing. Remove the "
            "tag."
        ),
    ),
    (
        "sources: !dict {}",
        (
            "line 1, column 10: the tag '!dict' names code or a type, but settings are "
            "plain data and run nothing. Remove the tag."
        ),
    ),
    (
        "sources: {}\nseed: 2026-01-01",
        (
            "line 1, column 1: sources: missing; name at least one source, as in wiki: "
            "{store: stores/wiki, pack: 2048}.\n"
            "line 2, column 7: seed: found a date (2026-01-01), allowed: text. Put it in "
            "quotes."
        ),
    ),
    (
        GOOD + "yes: 3\n",
        "True: found the key True, allowed: text. Put it in quotes.",
    ),
    (
        "seed: 7\n",
        (
            "sources: missing; name at least one source, as in wiki: {store: stores/wiki, "
            "pack: 2048}."
        ),
    ),
    # -- the top
    (
        GOOD.replace("seed: 7", "sead: 7"),
        (
            "line 1, column 7: sead: unknown key. Allowed: build, edits, evaluate, loader, "
            "mix, seed, seq_len, sources, take. Did you mean 'seed'?"
        ),
    ),
    (
        GOOD.replace("seed: 7", "seed: seven"),
        "line 1, column 7: seed: found 'seven' (str), allowed: an integer",
    ),
    (
        GOOD.replace("seed: 7", "seed: -1"),
        "line 1, column 7: seed: found -1, allowed: an integer from 0 to 2^64 - 1.",
    ),
    (
        GOOD.replace("seed: 7", "seed: null"),
        (
            "line 1, column 7: seed: found null, allowed: a value; leave the key out for "
            "the default."
        ),
    ),
    (
        GOOD.replace("seed: 7", "seed: 99999999999999999999"),
        "line 1, column 7: seed: found 1e+20, allowed: integers below 2^64.",
    ),
    (
        GOOD.replace("seed: 7", "seed: ${SEED}"),
        (
            "line 1, column 7: seed: found '${SEED}', but ${NAME} is only read in paths of "
            "stores, inputs and tokenizers. Pass it as an override, seed=..."
        ),
    ),
    (
        GOOD.replace("seq_len: 32", "seq_len: 32.5"),
        "line 2, column 10: seq_len: found 32.5 (float), allowed: an integer",
    ),
    (
        GOOD.replace("seq_len: 32\n", ""),
        (
            "line 3, column 30: sources.wiki.pack.seq_len: missing; the tokens of a frame. "
            "Give it here, or once as seq_len."
        ),
    ),
    (
        GOOD + "epochs: 3\n",
        (
            "line 8, column 9: epochs: unknown key. Allowed: build, edits, evaluate, "
            "loader, mix, seed, seq_len, sources, take."
        ),
    ),
    (
        GOOD + "source: {}\n",
        (
            "line 8, column 1: source: unknown key. Allowed: build, edits, evaluate, "
            "loader, mix, seed, seq_len, sources, take. Did you mean 'sources'?"
        ),
    ),
    (
        GOOD + "take: -5\n",
        "line 8, column 7: take: found -5, allowed: 0 or more.",
    ),
    (
        GOOD + "take: {examples: 3, tokens: 4}\n",
        (
            "line 8, column 1: take: found {'examples': 3, 'tokens': 4}, allowed: examples "
            "or tokens, one of them."
        ),
    ),
    (
        GOOD + "take: {token: 4}\n",
        (
            "line 8, column 15: take.token: unknown key. Allowed: examples, tokens. Did "
            "you mean 'tokens'?"
        ),
    ),
    # -- sources
    (
        wiki("{pack: {}}"),
        "line 4, column 3: sources.wiki.store: missing. Give the path of a store.",
    ),
    (
        wiki("{store: stores/wiki}"),
        (
            "line 4, column 3: sources.wiki: it has no layout, allowed: one of windows, "
            "pack, splice, such as pack: 2048."
        ),
    ),
    (
        wiki("{store: stores/wiki, pack: {}, windows: {}}"),
        (
            "line 4, column 3: sources.wiki: found windows and pack; a source has one "
            "layout. Give one of them."
        ),
    ),
    (
        wiki("{store: stores/wikki, pack: {}}"),
        (
            "line 4, column 17: sources.wiki.store: found 'stores/wikki': there is no "
            "token store here. Did you mean 'stores/wiki'?"
        ),
    ),
    (
        wiki("{store: 3, pack: {}}"),
        ("line 4, column 17: sources.wiki.store: found 3 (int), allowed: a string or an object"),
    ),
    (
        wiki("{store: '', pack: {}}"),
        "line 4, column 17: sources.wiki.store: found an empty path, allowed: the path of a store.",
    ),
    (
        wiki("{store: memory://bucket/wiki, pack: {}}"),
        (
            "line 4, column 17: sources.wiki.store: found 'memory://bucket/wiki': there is no "
            "token store here. Build one with `tokenloom build` or `tokenloom.build(...)`. "
            "Files of other projects open as they are (levanter, megatron, mds, litdata, parquet, "
            "arrow, arrays, datatrove, llm.c, npy, flat): docs/stores.md says how each is "
            "found, and what must be said about it."
        ),
    ),
    (
        wiki("{store: '${NOWHERE}/wiki', pack: {}}"),
        (
            "line 4, column 17: sources.wiki.store: found '${NOWHERE}/wiki', but the "
            "environment variable 'NOWHERE' is not set. Set it, or write the path."
        ),
    ),
    (
        wiki("{store: {path: stores/wiki, digets: ab}, pack: {}}"),
        (
            "line 4, column 45: sources.wiki.store.digets: unknown key. Allowed: "
            "bos, cache_bytes, cap_bytes, digest, disk_cache, disk_cache_bytes, dtype, eos, "
            "format, gap_bytes, identity, map, missing, path, seal, snapshot, verify, "
            "vocab_size. Did you mean 'digest'?"
        ),
    ),
    (
        wiki("{store: {path: stores/wiki, digest: ab}, pack: {}}"),
        (
            "line 4, column 10: sources.wiki.store: its digest is "
            "7e257cb3f043c272f27b6b6204673a8f9af1fd442a4e8a43eb3454fdbbd3a5ae, the file "
            "says ab."
        ),
    ),
    (
        wiki("{store: {path: stores/wiki, snapshot: 9}, pack: {}}"),
        (
            "line 4, column 10: sources.wiki.store: found 'stores/wiki': "
            "stores/wiki/manifest-000009.json: there is no snapshot 9. Allowed: 1."
        ),
    ),
    (
        wiki("{store: {snapshot: 9}, pack: {}}"),
        "line 4, column 10: sources.wiki.store.path: missing. Give the path of a store.",
    ),
    (
        wiki("{store: stores/wiki, pack: {}, shufle: block}"),
        (
            "line 4, column 48: sources.wiki.shufle: unknown key. Allowed: epochs, pack, "
            "render, seed, select, shuffle, splice, split, store, windows. Did you mean "
            "'shuffle'?"
        ),
    ),
    (
        wiki("{store: stores/wiki, pack: {}, shuffle: blok}"),
        (
            "line 4, column 49: sources.wiki.shuffle: found 'blok', allowed: the rows of "
            "an era, fields such as {window_blocks: 8}, none, full, block. Did you mean "
            "'block'?"
        ),
    ),
    (
        wiki("{store: stores/wiki, pack: {}, shuffle: 0}"),
        ("line 4, column 49: sources.wiki.shuffle: found era length 0, allowed: 1 or more."),
    ),
    (
        wiki("{store: stores/wiki, pack: {}, shuffle: {window_block: 8}}"),
        (
            "line 4, column 64: sources.wiki.shuffle.window_block: unknown key. Allowed: "
            "cache_windows, io_block_size, lanes, perm_type, shuffle_block_size, "
            "window_blocks. Did you mean 'window_blocks'?"
        ),
    ),
    (
        wiki("{store: stores/wiki, pack: {}, shuffle: {window_blocks: 0}}"),
        ("line 4, column 65: sources.wiki.shuffle.window_blocks: found 0, allowed: 1 or more."),
    ),
    (
        wiki("{store: stores/wiki, pack: {}, shuffle: {kind: era}}"),
        "line 4, column 40: sources.wiki.shuffle.length: missing",
    ),
    (
        wiki("{store: stores/wiki, pack: {}, shuffle: {perm_type: fiestel}}"),
        (
            "line 4, column 61: sources.wiki.shuffle.perm_type: found 'fiestel', allowed: "
            "feistel, linear, levanter, levanter_linear. Did you mean 'feistel'?"
        ),
    ),
    (
        wiki("{store: stores/wiki, pack: {}, epochs: -1}"),
        ("line 4, column 48: sources.wiki.epochs: found -1, allowed: 0 or more, or endless."),
    ),
    (
        wiki("{store: stores/wiki, pack: {}, epochs: forever}"),
        ("line 4, column 48: sources.wiki.epochs: found 'forever', allowed: an integer, endless."),
    ),
    (
        wiki("{store: stores/wiki, pack: {}, epochs: null}"),
        (
            "line 4, column 48: sources.wiki.epochs: found null, allowed: a value; write "
            "epochs: endless, or leave the key out for the default."
        ),
    ),
    (
        wiki("{store: stores/wiki, pack: {}, epochs: 1.5}"),
        (
            "line 4, column 48: sources.wiki.epochs: found 1.5 (float), allowed: an "
            "integer or a string"
        ),
    ),
    (
        wiki("{store: stores/wiki, pack: {}, seed: -3}"),
        ("line 4, column 46: sources.wiki.seed: found -3, allowed: an integer from 0 to 2^64 - 1."),
    ),
    (
        wiki("[store, stores/wiki]"),
        (
            "line 4, column 3: sources.wiki: found ['store', 'stores/wiki'] (list), "
            "allowed: an object"
        ),
    ),
    # -- layouts
    (
        wiki("{store: stores/wiki, pack: {tial: keep}}"),
        (
            "line 4, column 43: sources.wiki.pack.tial: unknown key. Allowed: add_bos, "
            "add_eos, attend_prefi…seed, strategy, strict_special_tokens, stride, "
            "trailing, train_on_eos."
        ),
    ),
    (
        wiki("{store: stores/wiki, pack: 1}"),
        ("line 4, column 36: sources.wiki.pack.seq_len: found 1, allowed: 2 to 2^30 tokens."),
    ),
    (
        wiki("{store: stores/wiki, pack: {strategy: best_fitt}}"),
        (
            "line 4, column 47: sources.wiki.pack.strategy: found 'best_fitt', allowed: "
            "sequential, greedy, …ecreasing, best_fit_decreasing, one_doc, bin. Did you "
            "mean 'best_fit'?"
        ),
    ),
    (
        wiki("{store: stores/wiki, pack: {overflow: trunkate}}"),
        (
            "line 4, column 47: sources.wiki.pack.overflow: found 'trunkate', allowed: "
            "split, truncate, drop, error. Did you mean 'truncate'?"
        ),
    ),
    (
        wiki("{store: stores/wiki, pack: {strategy: sequential, stride: 4}}"),
        (
            "line 4, column 67: sources.wiki.pack.stride: found 4 with strategy: "
            "sequential and overflow: split, where it has no effect. Leave it out."
        ),
    ),
    (
        wiki("{store: stores/wiki, pack: {min_len: 9, max_len: 3}}"),
        ("line 4, column 58: sources.wiki.pack.max_len: found 3, allowed: 9 or more (min_len)."),
    ),
    (
        wiki("{store: stores/wiki, pack: {bos_id: 3}}"),
        (
            "line 4, column 45: sources.wiki.pack.bos_id: found 3, but nothing uses it. "
            "Leave it out, or pass add_bos: true to insert it for every document."
        ),
    ),
    (
        wiki("{store: stores/wiki, pack: {label_layout: shifte}}"),
        (
            "line 4, column 51: sources.wiki.pack.label_layout: found 'shifte', allowed: "
            "aligned, shifted. Did you mean 'shifted'?"
        ),
    ),
    (
        wiki("{store: stores/wiki, pack: {overflow: error, seq_len: 8}}"),
        (
            "line 4, column 47: sources.wiki.pack.overflow: document 0 has 18 tokens with "
            "its specials, but a frame has 8 cells (40 such documents). Use overflow: "
            "split, or a longer seq_len."
        ),
    ),
    (
        wiki("{store: stores/wiki, windows: {tail: kep}}"),
        (
            "line 4, column 46: sources.wiki.windows.tail: found 'kep', allowed: drop, "
            "keep. Did you mean 'keep'?"
        ),
    ),
    (
        wiki("{store: stores/wiki, windows: {overlap: 1}}"),
        (
            "line 4, column 49: sources.wiki.windows.overlap: found 1, allowed: 0, or 1 "
            "with lookahead: true."
        ),
    ),
    (
        wiki("{store: stores/wiki, windows: {seq_len: '32'}}"),
        ("line 4, column 49: sources.wiki.windows.seq_len: found '32' (str), allowed: an integer"),
    ),
    (
        wiki("{store: stores/wiki, windows: {lookahead: 1}}"),
        (
            "line 4, column 51: sources.wiki.windows.lookahead: found 1 (int), allowed: "
            "true or false"
        ),
    ),
    (
        wiki("{store: stores/wiki, splice: {content_length: 1}}"),
        (
            "line 4, column 55: sources.wiki.splice.content_length: found 1, allowed: 2 or "
            "more, or fit for as many tokens as fit: one token has no successor to predict."
        ),
    ),
    (
        wiki("{store: stores/wiki, splice: {content_length: fitt}}"),
        (
            "line 4, column 55: sources.wiki.splice.content_length: found 'fitt', allowed: "
            "an integer, fit. Did you mean 'fit'?"
        ),
    ),
    (
        wiki("{store: stores/wiki, splice: {content_length: {a: 8}}}"),
        (
            "line 4, column 59: sources.wiki.splice.content_length.a: found the key 'a', "
            "allowed: an integer, 0 or more."
        ),
    ),
    (
        wiki("{store: stores/wiki, splice: {content_start_mode: slide}}"),
        (
            "line 4, column 59: sources.wiki.splice.content_start_mode: found 'slide', "
            "allowed: anchor_start, slide_within, coverage_balanced, cyclic_roll. Did you "
            "mean 'slide_within'?"
        ),
    ),
    (
        wiki("{store: stores/wiki, splice: {content_stride: 0}}"),
        ("line 4, column 55: sources.wiki.splice.content_stride: found 0, allowed: 1 or more."),
    ),
    (
        wiki("{store: stores/wiki, splice: {alpha: -1, offset_jitter: -2}}"),
        (
            "line 4, column 46: sources.wiki.splice.alpha: found -1.0, allowed: 0 or more.\n"
            "line 4, column 65: sources.wiki.splice.offset_jitter: found -2, allowed: 0 or "
            "more."
        ),
    ),
    (
        wiki("{store: stores/wiki, splice: {position_scheme: rope}}"),
        (
            "line 4, column 56: sources.wiki.splice.position_scheme: found 'rope', "
            "allowed: relative (RoPE, NoPE, ALiBi), absolute (learned positions), reset."
        ),
    ),
    (
        wiki("{store: stores/wiki, splice: {doc_schedule: {0: 99}}}"),
        (
            "line 4, column 39: sources.wiki.splice.doc_schedule: found 99 documents, but "
            "40 were selected. Select more, or end the schedule with 40."
        ),
    ),
    (
        wiki("{store: stores/wiki, pack: {}, render: {trailing: docs}}"),
        (
            "line 4, column 59: sources.wiki.render.trailing: found 'docs', allowed: "
            "filler, doc. Did you mean 'doc'?"
        ),
    ),
    (
        wiki("{store: stores/wiki, pack: {}, render: {eos_id: nil}}"),
        ("line 4, column 57: sources.wiki.render.eos_id: found 'nil', allowed: an integer, none."),
    ),
    # -- documents
    (
        wiki("{store: stores/wiki, pack: {}, select: {num_docs: 0}}"),
        ("line 4, column 59: sources.wiki.select.num_docs: found 0, allowed: 1 or more documents."),
    ),
    (
        wiki("{store: stores/wiki, pack: {}, select: {num_docs: 400}}"),
        (
            "line 4, column 40: sources.wiki.select: found 40 of 400 documents that are "
            "not empty. Request f…at qualifies) or 'backfill_longest' (fill up with the "
            "longest others)."
        ),
    ),
    (
        wiki("{store: stores/wiki, pack: {}, select: {doc_index: 400}}"),
        (
            "line 4, column 60: sources.wiki.select.doc_index: found 400, but there are 40 "
            "documents; allowed: 0 to 39."
        ),
    ),
    (
        wiki("{store: stores/wiki, pack: {}, select: {doc_select_mode: longst}}"),
        (
            "line 4, column 66: sources.wiki.select.doc_select_mode: found 'longst', "
            "allowed: first, longest, shortest, random. Did you mean 'longest'?"
        ),
    ),
    (
        wiki("{store: stores/wiki, pack: {}, select: {doc_key: 'lang=='}}"),
        (
            "line 4, column 58: sources.wiki.select.doc_key: cannot parse 'lang==', "
            "allowed: conditions such…ains one of these; for anything else, pass a "
            "function of the metadata."
        ),
    ),
    (
        wiki("{store: stores/wiki, pack: {}, split: {shares: {a: 0.5, b: 0.4}, part: a}}"),
        (
            "line 4, column 40: sources.wiki.split: the shares {'a': 0.5, 'b': 0.4} are "
            "not parts of a whole. Give numbers of 0 or more that add up to 1."
        ),
    ),
    (
        wiki(
            "{store: stores/wiki, pack: {}, split: {shares: {train: 0.5, held: 0.5}, part: trian}}"
        ),
        (
            "line 4, column 87: sources.wiki.split.part: found 'trian', allowed: train, "
            "held. Did you mean 'train'?"
        ),
    ),
    (
        wiki("{store: stores/wiki, pack: {}, split: {part: a}}"),
        (
            "line 4, column 40: sources.wiki.split.shares: missing. Write it as in shares: {train: "
            "0.9, held: 0.1}, part: …"
        ),
    ),
    # -- the mix and its edits
    (
        mix("{rule: weight, weights: {wiki: 3}}"),
        (
            "line 6, column 13: mix.rule: found 'weight', allowed: least_consumed, "
            "weights, rounds, round_robin, random, levanter. Did you mean 'weights'?"
        ),
    ),
    (
        mix("{weights: {wikki: 3}}"),
        (
            "line 6, column 24: mix.weights.wikki: no source named 'wikki'. Sources: wiki, "
            "code. Did you mean 'wiki'?"
        ),
    ),
    (
        mix("{weights: {wiki: 0}}"),
        (
            "line 6, column 23: mix.weights.wiki: found 0.0, allowed: more than 0. To draw "
            "nothing from the source, leave it out."
        ),
    ),
    (
        mix("{weights: {wiki: much}}"),
        "line 6, column 23: mix.weights.wiki: found 'much' (str), allowed: a number",
    ),
    (
        mix("{weights: [3, 1]}"),
        "line 6, column 7: mix.weights: found [3, 1] (list), allowed: an object",
    ),
    (
        mix("{stop: never}"),
        (
            "line 6, column 13: mix.stop: found 'never', allowed: first_exhausted, "
            "all_exhausted, restart."
        ),
    ),
    (
        mix("{rule: round_robin, weights: {wiki: 3}}"),
        (
            "line 6, column 26: mix.weights: found with rule: round_robin, which takes one "
            "row of each in turn. Use rule: weights."
        ),
    ),
    (
        mix("{weights: {wiki: 3}, temperature: 0.5}"),
        ("line 6, column 40: mix.temperature: found together with weights; give one of them."),
    ),
    (
        mix("{stages: {soon: {code: 4}}}"),
        (
            "line 6, column 16: mix.stages.soon: found the key 'soon', allowed: an "
            "integer, 0 or more."
        ),
    ),
    (
        mix("{stages: {6400: {cod: 4}}}"),
        (
            "line 6, column 28: mix.stages.6400.cod: no source named 'cod'. Sources: wiki, "
            "code. Did you mean 'code'?"
        ),
    ),
    (
        mix("{shuffle: full}"),
        (
            "line 6, column 16: mix.shuffle: this mix is endless, and only a finite one "
            "can be shuffled as a whole. Shuffle the sources instead, or give them epochs."
        ),
    ),
    (
        mix("{block: 0, cost: token}"),
        (
            "line 6, column 14: mix.block: found 0, allowed: 1 or more.\n"
            "line 6, column 23: mix.cost: found 'token', allowed: tokens, rows, "
            "loss_tokens. Did you mean 'tokens'?"
        ),
    ),
    (
        GOOD + "edits: [{weights: {wiki: 2}}]\n",
        "line 8, column 9: edits[0].at: missing. Give the first example that may change.",
    ),
    (
        GOOD + "edits: [{at: -4, weights: {wiki: 2}}]\n",
        "line 8, column 14: edits[0].at: found -4, allowed: 0 or more.",
    ),
    (
        GOOD + "edits: [{at: 4, remove: [wik]}]\n",
        (
            "line 8, column 17: edits[0].remove: no source named 'wik'. Sources: wiki, "
            "code. Did you mean 'wiki'?"
        ),
    ),
    (
        GOOD + "edits: [{at: 9}, {at: 4, weights: {wiki: 2}}]\n",
        (
            "line 8, column 18: edits[1]: at: 4 is before the last edit, at 9; what was "
            "decided then cannot be undone. Allowed: 9 or more."
        ),
    ),
    (
        GOOD + "edits: [{at: 9, quarantine: [[wiki, 4000]]}]\n",
        "line 8, column 17: edits[0].quarantine: found document 4000 of wiki, allowed: 0 to 39.",
    ),
    (
        GOOD + "edits: {at: 9}\n",
        "line 8, column 1: edits: found {'at': 9} (dict), allowed: a list",
    ),
    # -- the loader
    (
        loader("{batch_sise: 4}"),
        (
            "line 7, column 22: loader.batch_sise: unknown key. Allowed: accumulate, "
            "batch_size, dtype, end, fetch, fields, patience, prefetch, untrained. Did you "
            "mean 'batch_size'?"
        ),
    ),
    (
        loader("{batch_size: 0}"),
        "line 7, column 22: loader.batch_size: found 0 rows, allowed: 1 or more.",
    ),
    (
        loader("{batch_size: '4'}"),
        ("line 7, column 22: loader.batch_size: found '4' (str), allowed: an integer or a list"),
    ),
    (
        loader("{batch_size: 4, end: dorp}"),
        (
            "line 7, column 30: loader.end: found 'dorp', allowed: drop, pad, wrap. Did "
            "you mean 'drop'?"
        ),
    ),
    (
        loader("{batch_size: 4, rank: 0}"),
        (
            "line 7, column 31: loader.rank: not allowed: a run file is the same for every "
            "rank; the loader finds its own."
        ),
    ),
    (
        loader("{batch_size: 4, fields: [token]}"),
        (
            "line 7, column 25: loader.fields: found 'token', allowed: tokens, labels, "
            "loss_mask, segment_ids…continues, cu_seqlens, spans, step_loss_tokens. Did you "
            "mean 'tokens'?"
        ),
    ),
    (
        loader("{batch_size: 4, prefetch: -1, dtype: int8}"),
        (
            "line 7, column 35: loader.prefetch: found -1, allowed: 0 or more batches.\n"
            "line 7, column 46: loader.dtype: found 'int8', allowed: int32, int64. Did you "
            "mean 'int64'?"
        ),
    ),
    (
        loader("{batch_size: 4, accumulate: 3}"),
        (
            "line 7, column 37: loader.accumulate: found 3 for 4 rows of rank 0 (batch "
            "size 4, 1 ranks), allowed: a divisor of the rows."
        ),
    ),
    (
        GOOD.replace("endless", "1").replace(
            "loader: {batch_size: 4}", "loader: {batch_size: 4000}"
        ),
        (
            "line 7, column 22: loader.batch_size: found 4,000, but the run has 104 "
            "examples and end: drop l…o step at all. Use a batch_size of 104 or less, end: "
            "pad or end: wrap."
        ),
    ),
    # -- evaluation sets
    (
        GOOD + "evaluate: {held: {store: stores/none, windows: 8}}\n",
        (
            "line 8, column 26: evaluate.held.store: found 'stores/none': there is no "
            "token store here. Build one with `tokenloom build` or `tokenloom.build(...)`. "
            "Files of other projects open as they are (levanter, megatron, mds, litdata, parquet, "
            "arrow, arrays, datatrove, llm.c, npy, flat): docs/stores.md says how each is "
            "found, and what must be said about it."
        ),
    ),
    (
        (
            "sources: {wiki: {store: stores/wiki, windows: 8}}\n"
            "evaluate: {held: {store: stores/wiki}}\n"
        ),
        (
            "line 2, column 12: evaluate.held: it has no layout, so its rows hold one document "
            "each, of seq_len tokens, but the file has no seq_len at the top. Give it there, as in "
            "seq_len: 2048, or a layout here."
        ),
    ),
    # -- builds
    (
        build("{stores: {new: corpus.jsonl}}"),
        (
            "line 8, column 23: build.stores.new: it has no tokenizer; give one here or "
            "for all, as in tokenizer: bytes."
        ),
    ),
    (
        build("{tokenizer: bytes, stores: {new: {text_key: text}}}"),
        (
            "line 8, column 36: build.stores.new.inputs: missing; what to build it from, "
            "such as corpus/*.jsonl."
        ),
    ),
    (
        build("{tokenizer: bytes, stores: {new: corpse.jsonl}}"),
        (
            "line 8, column 41: build.stores.new: no file or directory 'corpse.jsonl'. Did "
            "you mean 'corpus.jsonl'?"
        ),
    ),
    (
        build("{tokenizer: tokeniser.json, stores: {new: corpus.jsonl}}"),
        (
            "line 8, column 20: build.tokenizer: tokeniser.json: no such file or "
            "directory. Allowed: a token…is machine (nothing is downloaded), a tokenizer "
            "object, or a function."
        ),
    ),
    (
        build("{tokenizer: 'os:system', stores: {new: corpus.jsonl}}"),
        (
            "line 8, column 20: build.tokenizer: found 'os:system', which names a "
            "function, but a run file names no code. Call tokenloom.build(...) in Python "
            "and give its store here."
        ),
    ),
    (
        build("{tokenizer: bytes, filter: 'os:system', stores: {new: corpus.jsonl}}"),
        (
            "line 8, column 35: build.filter: not allowed: a run file names no code; call "
            "tokenloom.build(...) in Python and give its store here."
        ),
    ),
    (
        build("{tokenizer: bytes, overwrite: true, stores: {new: corpus.jsonl}}"),
        (
            "line 8, column 38: build.overwrite: not allowed: loading a run removes no "
            "store; call tokenloom.build(...)."
        ),
    ),
    (
        build("{tokenizer: bytes, text_key: body, stores: {stores/wiki: corpus.jsonl}}"),
        (
            "line 8, column 65: build.stores.stores/wiki.text_key: found 'body', but the "
            "store was built with 'text'. Remove the store to have it built anew, or name "
            "another directory.\n"
            "line 8, column 65: build.stores.stores/wiki.id_key: missing, but the store was "
            "built with 'id'. Remove the store to have it built anew, or name another "
            "directory."
        ),
    ),
    (
        build("{tokenizer: bytes, text_keys: body, stores: {new: corpus.jsonl}}"),
        (
            "line 8, column 38: build.text_keys: unknown key. Allowed: add_bos, add_eos, "
            "bloc…r, train_on, verify_all, vocab_size, workers. Did you "
            "mean 'text_key'?"
        ),
    ),
    (
        build("{tokenizer: bytes, text_key: body, stores: {new: corpus.jsonl}}").replace(
            "stores/code", "new"
        ),
        (
            "line 8, column 57: build.stores.new: …corpus.jsonl: record 0 (line 1): there "
            "is no key 'body' (…xt. Mend the record, or pass on_error: skip to leave such "
            "records out."
        ),
    ),
]


def pattern(sentences):
    """A regular expression for sentences in which … stands for anything."""
    return "\n  ".join(re.escape(one).replace("…", ".*") for one in sentences.split("\n"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("text", "sentences"), WRONG)
def test_a_wrong_file_gets_its_sentence(load, text, sentences):
    with pytest.raises(tl.ConfigError) as refused:
        load(text)
    told = str(refused.value).partition("run.yaml: ")[2]
    told = re.sub(r"^\d+ problems\n  ", "", told)
    assert re.fullmatch(pattern(sentences), told), told


def test_there_are_more_than_eighty_of_them_and_the_good_one_loads(load):
    assert len(WRONG) > 80
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
    with pytest.raises(tl.ConfigError) as refused:
        load(text)
    head, *lines = str(refused.value).splitlines()
    assert head.endswith("run.yaml: 14 problems")
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
