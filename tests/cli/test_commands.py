import json
import subprocess
import sys

import pytest

import tokenloom as tl
from tokenloom.cli import main


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "c.jsonl"
    rows = [{"text": f"hello {i} " * (i + 1), "id": f"d{i}"} for i in range(30)]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def run(capsys, *words):
    code = main([str(w) for w in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def as_json(capsys, *words):
    code, out, _ = run(capsys, *words, "--json")
    return code, json.loads(out)


@pytest.fixture
def store(corpus, tmp_path, capsys):
    code, out, _ = run(
        capsys, "build", corpus, "-o", tmp_path / "s", "-t", "bytes", "--id-key", "id"
    )
    assert code == 0
    assert "30 documents" in out
    return tmp_path / "s"


def test_show_of_a_chat_store_prints_what_is_trained_and_the_text(tmp_path, capsys):
    row = {
        "input_ids": list(b"hi ok"),
        "loss_weights": [0, 0, 0, 0.5, 1],
        "labels": [-100, -100, -100, *b"ok"],
        "part": [0, 0, 0, 70_000, 1],
    }
    tl.build([row], tmp_path / "s", tokenizer="bytes", columns={"part": "uint32"})
    code, out, _ = run(capsys, "show", tmp_path / "s", "--doc", 0, "--start", 1, "--limit", 3)
    assert code == 0
    lines = [line.split() for line in out.splitlines()[3:]]
    assert lines[0] == ["offset", "id", "loss_weights", "part", "text"]
    assert lines[1] == ["1", "105", "0", "0", "i"]
    assert lines[3] == ["3", "111", "0.5", "70000", "o"]
    _, about = as_json(capsys, "show", tmp_path / "s", "--doc", 0, "--start", 3)
    assert about["columns"] == {"loss_weights": [0.5, 1.0], "part": [70_000, 1]}
    assert about["text"] == "ok"
    mask = [{"input_ids": [1, 2], "loss_mask": [0, 1]}]
    tl.build(mask, tmp_path / "m", tokenizer=None, vocab_size=9, columns={"loss_mask": "bool"})
    _, out, _ = run(capsys, "show", tmp_path / "m", "--doc", 0)
    assert [line.split() for line in out.splitlines()[-2:]] == [
        ["0", "1", "0", "1"],
        ["1", "2", "1", "2"],
    ]


def test_gc_says_what_it_removes(store, capsys):
    dead = ".tmp-" + "0123456789abcdef" * 2
    (store / dead).mkdir()
    assert dead in run(capsys, "gc", store, "--dry-run")[1]
    assert (store / dead).is_dir()
    assert dead in run(capsys, "gc", store)[1]
    assert not (store / dead).exists()
    assert as_json(capsys, "gc", store)[1]["removed"] == []


def test_gc_keeps_snapshots_that_a_run_names(tmp_path, capsys):
    """Ruling 15: pinned by number, or by the states of runs; the last one always stays."""
    root, options = tmp_path / "s", {"tokenizer": "bytes", "id_key": "id", "progress": False}

    def grow(number):
        rows = [{"text": "abcd" * 8, "id": f"{number}/{i}"} for i in range(4)]
        return tl.build(rows, root, append=number > 0, **options)

    stores = [grow(number) for number in range(4)]
    numbers = [store.reader.manifest.number for store in stores]
    run_of = tl.mix({"a": stores[0].windows(8)}).edit(at=2, append={"a": stores[2]})
    state, other = tmp_path / "state.json", tmp_path / "other.json"
    state.write_text(json.dumps(tl.Loader(run_of, 2, prefetch=0).state_dict()))
    told = json.loads(state.read_text())["dataset"]  # the same numbers, of another store
    told["sources"][0]["store"]["digest"] = "0" * 64
    told["mix"]["edits"][0]["append"]["a"]["digest"] = "0" * 64
    other.write_text(json.dumps(told))

    def removed(*words):
        _, about = as_json(capsys, "gc", root, "--old-snapshots", *words)
        return [name for name in about["removed"] if name.startswith("manifest")]

    assert len(removed("--dry-run")) == len(removed("--dry-run", "--pin-for", other)) == 3
    assert len(removed("--dry-run", "--pin", numbers[1])) == 2
    assert len(removed("--pin-for", state, other)) == 1
    assert tl.from_config(run_of.describe()).fingerprint == run_of.fingerprint
    assert len(tl.open(root)) == 16
    with pytest.raises(tl.StoreError):
        tl.open(root, snapshot=numbers[1])
    assert run(capsys, "gc", root, "--pin-for", tmp_path / "nothing.json")[0] == 2
    other.write_text("{")
    assert str(other) in run(capsys, "gc", root, "--pin-for", other)[2]


def test_debug_shows_the_traceback(capsys):
    with pytest.raises(tl.StoreNotFound):
        main(["info", "nowhere", "--debug"])


def test_python_m_tokenloom_and_a_closed_pipe(store):
    command = f"{sys.executable} -m tokenloom info {store} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(store))
    assert "Traceback" not in done.stderr


def test_no_bar_where_nobody_looks(corpus, tmp_path):
    words = [
        sys.executable,
        "-m",
        "tokenloom",
        "build",
        corpus,
        "-o",
        tmp_path / "q",
        "-t",
        "bytes",
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_conversations_are_built_and_shown_with_what_is_trained(tmp_path, capsys):
    talk = [{"role": "user", "content": "Hi\x1b[31m"}, {"role": "assistant", "content": "Yo"}]
    row = {"messages": [*talk, {"role": "assistant", "content": "!", "weight": 0.5}]}
    (tmp_path / "c.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "t.jinja").write_text(
        "{% for m in messages %}{{ m.role[0] }}: {% if m.role == 'assistant' %}"
        "{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %} "
        "{% endfor %}"
    )
    given = ("--chat-template", tmp_path / "t.jinja", "--train-on", "assistant", "-t", "bytes")
    code, _, _ = run(capsys, "build", tmp_path / "c.jsonl", "-o", tmp_path / "s", *given)
    assert code == 0
    code, out, _ = run(capsys, "show", tmp_path / "s", "--doc", 0, "--text")
    assert code == 0
    assert "22 tokens, 3 trained on" in out
    assert out.splitlines()[-1] == r"u: Hi\x1b[31m a: ⟦Yo⟧ a: ⟦!⟧×0.5 "
    _, about = as_json(capsys, "show", tmp_path / "s", "--doc", 0, "--text")
    assert [part["weight"] for part in about["parts"]] == [0, 1, 0, 0.5, 0]
    assert about["trained"] == 3
    _, out, _ = run(capsys, "info", tmp_path / "s")
    assert "3 tokens (13.6%)" in out
    assert as_json(capsys, "info", tmp_path / "s")[1]["trained"] == 3
    code, _, error = run(capsys, "build", tmp_path / "c.jsonl", "-o", tmp_path / "x", "-t", "bytes")
    assert code != 0
    assert "--chat-template" in error
