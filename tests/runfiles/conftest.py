"""A folder with two small stores and some text, which run files of the tests name."""

import json

import pytest

import tokenloom as tl

TEXTS = [f"tale {n} of a loom " * (1 + n % 5) for n in range(40)]


def write_corpus(folder, name="corpus.jsonl", texts=TEXTS):
    rows = [{"text": text, "id": f"d{n}"} for n, text in enumerate(texts)]
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="session")
def shelf(tmp_path_factory):
    """The stores, made once: tests read them only."""
    folder = tmp_path_factory.mktemp("shelf")
    rows = [{"text": text, "id": f"d{n}"} for n, text in enumerate(TEXTS)]
    tl.build(rows, folder / "stores/wiki", tokenizer="bytes", id_key="id", eos=0)
    tl.build(rows[:17], folder / "stores/code", tokenizer="bytes", eos=0)
    return folder


@pytest.fixture
def place(shelf, tmp_path, monkeypatch):
    """A folder to write files into, beside the stores; it is the working directory."""
    (tmp_path / "stores").symlink_to(shelf / "stores")
    write_corpus(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def load(place):
    """Loads a run file from its text."""

    def from_text(text, *overrides, name="run.yaml", **options):
        (place / name).write_text(text)
        return tl.load(name, overrides=overrides, **options)

    return from_text
