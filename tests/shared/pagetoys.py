"""Runs to be looked at: one with everything in it, and one whose every word is an attack."""

import numpy as np

import tokenloom as tl
from tokenloom.evaluate import Periodic, contrast, evaluate, pz, token_page
from tokenloom.inspect import Certificate, audit_run

MARK = "<img src=x onerror=window.pwned=1>"

EVIL = f"\"'>{MARK}<script>window.pwned=1</script>\u202e"


def texts_of(count, seed, *, mean=4.5, letters="abcdefghij klmno pqrst"):
    """Documents of very different lengths."""
    draw = np.random.default_rng(seed)
    sizes = np.exp(draw.normal(mean, 1.2, count)).astype(int) + 1
    for number, size in enumerate(sizes.tolist()):
        text = "".join(draw.choice(list(letters), size))
        yield {"text": text, "id": f"{seed}-{number}"}


def everything_run(folder):
    """A mix of windows, packed and spliced rows with a stage and an edit."""
    stores = {
        name: tl.build(
            texts_of(*given), folder / name, tokenizer="bytes", id_key="id", progress=False
        )
        for name, given in {"wiki": (300, 1), "code": (200, 2), "book": (20, 3)}.items()
    }
    run = tl.mix(
        {
            "wiki": stores["wiki"].pack(64).shuffle(),
            "code": stores["code"].windows(64).block_shuffle().epochs(2),
            "book": stores["book"].splice(64, content_length=16).shuffle(),
        },
        weights={"wiki": 3, "code": 2, "book": 1},
        cost="rows",
    ).seed(7)
    return run.edit(at=400, weights={"book": 3})


def spliced_run(folder):
    """Splices that start at many places of a row, so that there is a map of them."""
    texts = texts_of(12, 6, mean=4)
    store = tl.build(texts, folder / "spliced", tokenizer="bytes", id_key="id", progress=False)
    return store.splice(64, content_length=32, edge="clip", fill="pack").shuffle().seed(3)


def hostile_run(folder):
    """Names, ids, texts and metadata that would be code, if anything took them for it."""
    rows = [
        {"text": EVIL * 3, "id": EVIL, "url": f"javascript:{MARK}"},
        {"text": "שלום עולם " * 4, "id": "rtl"},
        {"text": "你好，世界。" * 4, "id": "cjk"},
        {"text": "\x00\x07\x1b[31m\x7f" * 4, "id": "control"},
    ]
    place = folder / "a<b>&'\"c"
    store = tl.build(rows, place, tokenizer="bytes", id_key="id", progress=False)
    named = {EVIL[:40]: store.pack(32).shuffle(), "plain": store.windows(32).shuffle()}
    return tl.mix(named).seed(1)


def copied_store(folder):
    """A store with documents of many lengths, some of them twice and one three times."""
    texts = list(texts_of(120, 4))
    every = [*texts, *texts[:6], texts[0], {"text": "long words " * 400, "id": "long"}]
    return tl.build(every, folder / "letters", tokenizer="bytes", id_key="id", progress=False)


def part_certificate(run):
    """An audit of the first rows of a run, as if made with the same versions everywhere."""
    plain = audit_run(run, 0, 4096, progress=False).as_json()
    made = {"tokenloom": "0.1.0", "python": "3.12.0", "numpy": "2.0.0", "native": True}
    return Certificate.read({**plain, "made_with": {**plain["made_with"], **made}})


def knowing(strength):
    """A model that knows the next token the better, the more it has seen; texts differ."""

    def model(tokens, segment_ids, position_ids):
        found = np.zeros((*tokens.shape, 256))
        ahead = np.roll(tokens, -1, axis=1)[..., None]
        first = tokens[:, :1, None] % 7
        known = strength * (1 + first) * np.log2(2 + position_ids)[..., None] / 4
        np.put_along_axis(found, ahead, known, 2)
        return found

    model.__qualname__ = "knowing"
    return model


def every_answer(store):
    """Every kind of answer that an evaluation gives, about a few documents of a store."""
    long = [n for n, length in enumerate(store.lengths) if length >= 16]
    trained, held = (store.select(doc_index=some) for some in (long[:12], long[12:24]))
    ask = {"prefix": 12, "suffix": 4, "stride": 8, "progress": False}
    given, control = pz(knowing(3.0), trained, **ask), pz(knowing(1.0), held, **ask)
    series = Periodic(
        {"news": lambda model: evaluate(model, held, seq_len=128, by=("document",))}, every=10
    )
    for step, strength in {10: 0.2, 20: 1.0, 40: 2.0, 80: 3.0}.items():
        series(knowing(strength), step)
    return {
        "news": evaluate(knowing(1.0), held, seq_len=128, progress=False),
        "wiki": evaluate(knowing(3.0), trained, seq_len=128, progress=False),
        "wiki windows": given,
        "wiki and news": contrast(given, control, draws=50),
        "checkpoints": series,
        "document 5": token_page(knowing(2.0), store, 5, seq_len=128),
    }
