"""The documentation: pages say what they must, their code runs, and their figures are the code's.

Sections are found by their words, wherever they stand; their sentences are free.
"""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from documentation import ROOT, pages, run_code, section, table, tables_of

import tokenloom as tl
from tokenloom.integrations.levanter import load_yaml, splice_from_config

EXAMPLE = ROOT / "examples/splice"


# -- splices -------------------------------------------------------------------------------


def test_do_01_the_example_of_splices_runs_from_anywhere_and_leaves_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "splice.py")],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=900,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(re.findall(r"\|[^|\n]{64}\|", done.stdout)) >= 9  # frames of 64 cells
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:splice. an epoch spends")
@pytest.mark.parametrize(("name", "finite"), [("single", True), ("multi", False)])
def test_do_01_its_configurations_load(tmp_path, monkeypatch, name, finite):
    monkeypatch.chdir(tmp_path)
    texts = {"zen": "Beautiful is better than ugly. " * 9}
    texts |= {f"d{n}": f"document {n} " * (30 + n) for n in range(6)}
    records = [{"id": key, "text": text} for key, text in texts.items()]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    tl.build("corpus.jsonl", "stores/texts", tokenizer="bytes", id_key="id", progress=False)
    run = splice_from_config(load_yaml(EXAMPLE / f"{name}.yaml"))
    assert run.seq_len == 64
    assert run.is_finite == finite
    batch = run.batch(range(6))
    assert (batch.loss_mask.sum(axis=1) > 0).all()
    if name == "single":
        assert set(batch.spans.document.tolist()) == {0}  # id==zen


def test_do_01_the_page_about_splices_links_to_it_and_its_code_runs(tmp_path, monkeypatch):
    (path,) = (path for path, text in pages().items() if text.startswith("# Splice\n"))
    text = path.read_text()
    targets = {(path.parent / link).resolve() for link in re.findall(r"\]\(([^)#]+)", text)}
    assert {EXAMPLE / "single.yaml", EXAMPLE / "multi.yaml"} <= targets
    assert "python examples/splice/splice.py" in text
    monkeypatch.chdir(tmp_path)
    assert run_code(text, tmp_path) >= 2


def test_do_06_compute_goes_with_the_frame_and_not_with_k():
    text = section(
        "K", "S cells", "whatever K", "trained tokens", "curriculum", "windows of an eval"
    )
    assert text.startswith("##")


def test_do_07_the_limits_of_splices_are_stated():
    rows = {row["positions of the model"]: row for row in table("positions of the model")}
    assert rows["RoPE"]["does s matter?"].startswith("no")
    assert rows["learned, absolute"]["does s matter?"].startswith("yes")
    section("`offset_jitter` needs room", "K = S", "warning")
    modes = {row["`balance_mode`"]: row for row in table("`balance_mode`", "share of a document")}
    figures = [
        int(n.replace(",", "")) for n in re.findall(r"\d+,\d+", modes["`by_document`"]["remark"])
    ]
    assert figures == [10_000, 5_000, 2_000, 30_000, 13_000]


def test_do_07_by_document_costs_the_repetitions_that_the_page_says(store_of):
    """At a thousandth: 10, 5 and 2 choices make an epoch of 30, of which 13 are repetitions."""
    store = store_of([list(range(n)) for n in (13, 8, 5)])
    run = store.splice(4, content_length=4, balance_mode="by_document", sampler="enumerate")
    spans = run.spans(np.arange(len(run)))
    places = list(zip(spans.document.tolist(), spans.start.tolist(), strict=True))
    assert len(places) == 30
    assert len(places) - len(set(places)) == 13


def test_do_09_one_document_and_several_are_compared():
    rows = {row[""]: row for row in table("", "one document", "several")}
    assert {"selection", "balance", "an example is", "memory", "use"} <= set(rows)
    assert rows["an example is"]["one document"] == "(t, s)"
    assert rows["an example is"]["several"] == "(document, t, s)"
    assert "`doc_index`" in rows["selection"]["one document"]
    assert "`num_docs`" in rows["selection"]["several"]
    assert "`balance_mode`" in rows["balance"]["several"]
    assert "bytes per document" in rows["memory"]["several"]  # tokens are read, not held


# -- troubles, reasons, risks --------------------------------------------------------------


def test_do_02_troubles_with_positions_fields_and_padding_have_sections(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = [
        section("positions", "do not reset", "document_starts", "remove_columns"),
        section("document_starts", "KeyError", "packed_sequences=True"),
        section("padding", "boundaries", "PAD equals EOS"),
    ]
    assert len(set(found)) == 3
    assert run_code("\n".join(found), tmp_path) >= 3


def test_do_03_alternatives_are_named_with_the_reason_against_each():
    text = section("prefetch", "hosts", "full shuffle", "buffer", "risks")
    bullets = re.findall(r"^- (.*(?:\n  .*)*)", text, re.M)
    for words in ("prefetch", "hosts", "sorted requests", "buffer", "hash-sort"):
        (bullet,) = (one for one in bullets if words in one.split(":")[0].lower())
        assert len(bullet.split(":", 1)[1].split()) > 5
    decisions = [path for path in pages() if path.parent.name == "decisions"]
    assert len(decisions) > 10


def test_do_04_risks_of_mixing_have_what_is_done_about_each():
    text = section("risk", "new source dominates", "counts drift")
    (rows,) = tables_of(text)
    risk, answer = rows[0]
    answers = {row[risk]: row[answer] for row in rows}
    assert all(answers.values())
    for words, done in (("new source dominates", "starts at"), ("counts drift", "global")):
        (found,) = (answers[risk] for risk in answers if words in risk)
        assert done in found


def test_do_05_packing_and_boundaries_are_described_and_the_code_of_the_page_runs(
    tmp_path, monkeypatch
):
    labels = section("labels", "aligned", "shifted", "-100")
    assert "label_layout" in labels
    section("segment", "filler", "position_ids", "cu_seqlens")
    section("mask_boundary_loss", "train_on_eos")
    section("positions", "do not mask", "attend")
    (text,) = (text for text in pages().values() if labels in text)
    monkeypatch.chdir(tmp_path)
    assert run_code(text, tmp_path) > 5


def test_do_05_both_layouts_are_those_of_the_page(store_of):
    run = store_of([[5, 6, 7], [8, 9]]).pack(6, strategy="greedy")
    aligned, shifted = (run.render(label_layout=one)[0] for one in ("aligned", "shifted"))
    assert aligned.labels.tolist() == [[-100, 6, 7, -100, 9, -100]]
    assert shifted.labels.tolist() == [[6, 7, -100, 9, -100, -100]]


# -- figures -------------------------------------------------------------------------------


def test_do_08_performance_has_measured_figures_beside_those_of_others():
    rows = table("what", "here", "against")
    assert len(rows) > 20
    assert all(re.search(r"\d", row["here"]) for row in rows)
    beside = [row for row in rows if re.search(r"\d", row["against"])]
    assert len(beside) > len(rows) / 2
    text = section("what", "here", "against", "python -m benchmarks", "median")
    assert re.search(r"\d+ .*cores", text)  # the machine


EXACT = (
    *("quality", "mixing", "reads", "splices", "balance", "boundaries", "packers", "scan"),
    *("interleave", "memorization", "evaluation"),
)


def test_do_10_the_page_holds_what_the_code_gives(benchmarks):
    """Every published table without times is made again, by the command that stands below it."""
    (page,) = (
        text for text in pages().values() if "\n`python -m benchmarks published quality`" in text
    )
    code, printed = benchmarks("published", *EXACT)
    assert code == 0
    parts = re.split(r"^## (\w+)$", printed, flags=re.M)[1:]
    assert tuple(parts[::2]) == EXACT
    for name, made in zip(parts[::2], parts[1::2], strict=True):
        command = f"`python -m benchmarks published {name}`"
        assert command in made
        above = page[: page.index(f"\n{command}\n")]
        *_, written = tables_of(above)
        (rows,) = tables_of(made)
        assert rows == written, name


def test_do_10_every_table_of_the_page_has_its_command():
    (page,) = (
        text for text in pages().values() if "\n`python -m benchmarks published quality`" in text
    )
    commands = re.findall(r"^`python -m benchmarks published (\w+)", page, re.M)
    assert sorted(commands) == sorted({*commands})
    assert {*EXACT, "scan_times", "position_times", "splice_times"} <= {*commands}


def test_do_10_every_command_of_the_docs_is_one(benchmarks, cli):
    """What pages name after `python -m benchmarks`, `-m science` and `tokenloom` is there."""
    text = "\n".join(pages().values())
    named = {
        module: {*re.findall(rf"python -m {module} ([a-z_][\w-]*)", text)}
        for module in ("benchmarks", "science")
    }
    assert len(named["benchmarks"]) > 10
    known = {*re.findall(r"[\w-]+", benchmarks("--help")[1])}
    known |= {"against", "compare", "flame", "published", "permutation"}
    assert named["benchmarks"] <= known
    assert named["science"] <= {path.stem for path in (ROOT / "science/runs").glob("*.yaml")}
    commands = {*re.findall(r"^ {4}([a-z-]+)\b", cli("--help"), re.M)}
    used = {*re.findall(r"^\$ tokenloom ([a-z-]+)", text, re.M)}
    assert len(used) > 10
    assert used <= commands
