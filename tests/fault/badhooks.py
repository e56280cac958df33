"""Hooks, most of which raise, importable by worker processes."""


def needs_lang(record):
    return record["lang"] == "en"


def no_seventh(record):
    if record["n"] == 7:
        raise RuntimeError("seven is right out")
    return record


def spell(text):
    if "!" in text:
        raise ValueError("no shouting")
    return [ord(c) for c in text]


def keep_all(record):
    return True
