"""Runs to be looked at: one with everything in it, and one whose every word is an attack."""

import numpy as np

import tokenloom as tl

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
