"""No answer depends on the internal sizes: with tiny ones every question has the same answer."""

import gzip
import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_runs import draw_run, length_of, make_run

import tokenloom as tl
from tokenloom import evaluate, exchange
from tokenloom.testing import tiny, write_store

SEQ_LEN = 8
FIELDS = ("tokens", "labels", "loss_weights", "segment_ids", "position_ids", "cu_seqlens")


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Two stores in several shards; documents of 0 to 30 tokens, some of them twice."""
    folder, draw, found = tmp_path_factory.mktemp("stores"), random.Random(3), {}
    for name, count in {"a": 31, "b": 17}.items():
        sizes = [draw.choice((0, 1, 2, 3, 5, 7, 8, 9, 12, 16, 17, 23, 30)) for _ in range(count)]
        documents = [[draw.randrange(900) for _ in range(size)] for size in sizes]
        documents[3] = documents[5]
        cuts = [
            documents[: count // 3],
            documents[count // 3 : count // 2],
            documents[count // 2 :],
        ]
        weights = ("float32", lambda ids: (ids % 5) / 4)
        write_store(
            folder / name, cuts, inner=16, chunk_tokens=32, columns={"loss_weights": weights}
        )
        found[name] = folder / name
    return found


def packed(store, **options):
    return store.pack(SEQ_LEN, group_docs=5, **options)


def mixed(paths, **options):
    a, b = tl.open(paths["a"]), tl.open(paths["b"])
    sources = {
        "packed": packed(a).shuffle(),
        "windows": b.windows(SEQ_LEN).block_shuffle(io_block_size=2, window_blocks=2, lanes=2),
        "spliced": a.splice(SEQ_LEN, content_length=3, edge="clip").shuffle(),
    }
    return tl.mix({name: one.epochs(None) for name, one in sources.items()}, **options)


RUNS = {
    "windows": lambda p: tl.open(p["a"]).windows(SEQ_LEN).epochs(3),
    "blocks": lambda p: tl.open(p["a"]).windows(4).block_shuffle(io_block_size=4, window_blocks=3),
    "lanes": lambda p: (
        tl.open(p["a"])
        .windows(4)
        .block_shuffle(io_block_size=4, window_blocks=2, lanes=3)
        .epochs(2)
    ),
    "packed in blocks": lambda p: packed(tl.open(p["a"]), strategy="one_doc").block_shuffle(
        window_blocks=2, lanes=2
    ),
    "best fit": lambda p: packed(tl.open(p["a"]), strategy="best_fit_decreasing").shuffle(),
    "splices in one frame": lambda p: (
        tl.open(p["a"]).splice(SEQ_LEN, content_length=3, fill="pack").shuffle().epochs(2)
    ),
    "quota": lambda p: (
        tl.open(p["a"]).splice(SEQ_LEN, sampler="quota", balance_tau=0.5).shuffle().epochs(3)
    ),
    "mix by tokens": lambda p: mixed(p, cost="tokens").take(60),
    "mix by loss tokens": lambda p: mixed(p, cost="loss_tokens").take(60),
    "edited mix": lambda p: (
        mixed(p, cost="tokens").edit(at=37, weights={"packed": 0.1}).edit(at=50, remove=["windows"])
    ).take(70),
    "quarantine": lambda p: (
        tl.mix({"a": packed(tl.open(p["a"])).epochs(None)}).edit(
            at=21, quarantine=[("a", 3), ("a", 9)]
        )
    ).take(120),
    "shuffled mix": lambda p: tl.mix(
        {"a": packed(tl.open(p["a"])).shuffle().epochs(2), "b": tl.open(p["b"]).windows(SEQ_LEN)},
        cost="tokens",
        stop="all_exhausted",
    ).shuffle(),
    "many sources": lambda p: tl.mix(
        {
            f"s{i}": packed(tl.open(p["a"]).select(doc_index=[i, 3])).shuffle().epochs(None)
            for i in range(12, 21)
        },
        cost="tokens",
    ).take(40),
}


def plain(value):
    """Something that can be compared; all numbers of an answer."""
    return json.loads(json.dumps(value, default=lambda one: getattr(one, "tolist", one.__str__)()))


def arrays(batch):
    return {name: np.asarray(getattr(batch, name)).tolist() for name in FIELDS} | {
        "index": np.asarray(batch.index).tolist()
    }


def batches(run, batch_size, ranks=1, **options):
    """Every array of some steps, and the state after each."""
    found = []
    for rank in range(ranks):
        with tl.Loader(run, batch_size, rank, ranks, **options) as loader:
            for batch, _ in zip(loader, range(9), strict=False):
                state = loader.state_dict()
                found.append((arrays(batch), state))
    return found


def places(run, indices):
    return [str(run.at(index)) for index in indices]


def shown(simulation):
    """What a simulation says about examples; how they are read depends on what is read together."""
    return str((simulation.sources, simulation.repeats, simulation.tokens, simulation.examples))


def answers(run):
    """What a run can be asked."""
    n = len(run)
    some = [0, 1, n // 3, n // 2, n - 1]
    source = run.picked([0])[0][0]
    with tl.Loader(run, 5) as loader:
        far = loader.seek(3).state_dict()
        rest = [arrays(batch) for batch in loader][:4]
    return {
        "describe": plain(run.describe()),
        "digest": run.digest(0, n),
        "plan digest": run.plan_digest(3, n),
        "spans": [getattr(run.spans(some), name).tolist() for name in ("document", "start", "at")],
        "batch": arrays(run.batch(some)),
        "loader": batches(run, 7),
        "ranks": batches(run, 8, ranks=3, prefetch=0),
        "resumed": (far, rest),
        "at": places(run, some),
        "where": [str(run.where(source, doc=doc)) for doc in (2, 9)],
        "audit": plain(run.audit(progress=False).as_json()["digests"]),
        "simulate": shown(run.simulate(batch_size=8, ranks=2, steps=3)),
        "checked": tl.check_batch(run.batch(some)).ok,
    }


@pytest.mark.filterwarnings("ignore:.*are in no row", "ignore:.*entirely blank")
@pytest.mark.parametrize("name", RUNS)
def test_a_run_gives_the_same_answers_under_tiny_limits(paths, name, tmp_path, monkeypatch):
    """Planned anew, read from the files that were kept, and read with other limits than written."""
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "usual"))
    usual = answers(RUNS[name](paths))
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "tiny"))
    with tiny():
        assert answers(RUNS[name](paths)) == usual
        kept = RUNS[name](paths)
        assert kept.digest(0, len(kept)) == usual["digest"], "from files"
    assert kept.digest(0, len(kept)) == usual["digest"], "of a run made under tiny limits"


def steps_of(run, count, state=None):
    """Some batches and the state after each."""
    with tl.Loader(run, 5) as loader:
        if state is not None:
            loader.load_state_dict(state)
        some = zip(loader, range(count), strict=False)
        return [(arrays(batch), loader.state_dict()) for batch, _ in some]


@pytest.mark.filterwarnings("ignore::UserWarning")
@given(draw=st.randoms(use_true_random=True))
def test_any_run_has_the_same_bytes_under_tiny_limits(known, draw):
    recipe, run = draw_run(draw, known)
    count = length_of(run, 50)
    usual = run.digest(0, count), run.plan_digest(0, count)
    with tiny():
        again = make_run(recipe, known)
        assert (again.digest(0, count), again.plan_digest(0, count)) == usual
    assert (again.digest(0, count), again.plan_digest(0, count)) == usual


@pytest.mark.filterwarnings("ignore:.*are in no row", "ignore:.*entirely blank")
@pytest.mark.parametrize("name", ["lanes", "best fit", "quota", "mix by tokens", "edited mix"])
def test_states_go_from_tiny_limits_to_usual_ones_and_back(paths, name, tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "plans"))
    run = RUNS[name](paths)
    usual = steps_of(run, 6)
    with tiny():
        rest = steps_of(RUNS[name](paths), 4, usual[1][1])
    assert [one for one, _ in rest] == [one for one, _ in usual[2:6]]
    assert steps_of(run, 1, rest[0][1])[0][0] == usual[3][0]


def test_stores_and_builds_are_the_same_under_tiny_limits(tmp_path, monkeypatch):
    """Byte for byte: builds of text, of archives and of columns; what a store says of itself."""
    draw = random.Random(5)
    words = ["über", "den", "Fluß", "und", "in", "die", "Wälder"]
    rows = [{"text": " ".join(words[: draw.randrange(8)]), "id": i % 19} for i in range(60)]
    lines = [json.dumps(row).encode() + b"\n" for row in rows]
    (tmp_path / "plain.jsonl").write_bytes(b"".join(lines))
    (tmp_path / "packed.jsonl.gz").write_bytes(gzip.compress(b"".join(reversed(lines))))

    def everything(folder):
        store = tl.build(
            [str(tmp_path / "plain.jsonl"), str(tmp_path / "packed.jsonl.gz")],
            folder / "store",
            tokenizer="bytes",
            id_key="id",
            shard_tokens=700,
            progress=False,
        )
        store.verify(progress=False)
        copy = exchange.convert(store, folder / "copy", shard_tokens=300, progress=False)
        made = exchange.export(
            store, folder / "megatron", to="megatron", lossy=True, progress=False
        )
        foreign = tl.open(made.path)
        hashes = store.document_hashes(range(store.num_documents))
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        plans = tl.plan_packing(
            store, seq_len=16, strategy=["sequential", "best_fit", "bin"], group_docs=7
        )
        return {
            "files": {str(path.relative_to(folder)): path.read_bytes() for path in files},
            "digests": [store.digest, copy.digest, foreign.digest],
            "lengths": [store.lengths.tolist(), foreign.lengths.tolist()],
            "tokens": foreign.tokens(0, foreign.num_tokens).tolist(),
            "found": [store.find(one).tolist() for one in (0, 7, 18)],
            "by hash": [store.find(hash=one).tolist() for one in hashes[:9]],
            "duplicates": [group.tolist() for group in store.duplicates()],
            "plans": str(plans),
            "overlap": str(evaluate.overlap(store, copy.select(doc_index=[0, 1]), n=5)),
            "equal": tl.diff(store.windows(16).shuffle(), copy.windows(16).shuffle()).share,
        }

    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "usual plans"))
    usual = everything(tmp_path / "usual")
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "tiny plans"))
    with tiny():
        found = everything(tmp_path / "tiny")
    assert found == usual
