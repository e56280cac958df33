"""The command line: examples, lengths, splices, states, stores and packings, as text and JSON."""

import json
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import tokenloom as tl
from tokenloom.inspect import coverage, triples
from tokenloom.loader import write_state

TEXTS = ["the loom is old " * 13, "a thread " * 22, "one token and the next "]
LENGTHS = [200, 200, 112]  # one row of 512


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A store whose three documents fill a row of 512 tokens, two more, and run files."""
    root = tmp_path_factory.mktemp("commands")
    records = [{"text": (text * 9)[:n]} for text, n in zip(TEXTS, LENGTHS, strict=True)]
    tl.build(records, root / "books", tokenizer="bytes", progress=False)
    for name, count in (("wiki", 24), ("code", 17)):
        records = [{"text": f"{name} {n}: " + "abcdefgh " * (n % 5)} for n in range(count)]
        tl.build(records, root / name, tokenizer="bytes", eos=0, progress=False)
    (root / "books.yaml").write_text("sources: {books: {store: books, pack: {seq_len: 512}}}\n")
    (root / "run.yaml").write_text(
        "seed: 7\n"
        "sources:\n"
        "  wiki: {store: wiki, pack: {seq_len: 16}, shuffle: full}\n"
        "  code: {store: code, windows: {seq_len: 16}, shuffle: block, epochs: 2}\n"
        "mix: {weights: {wiki: 3, code: 1}}\n"
        "loader: {batch_size: 4}\n"
    )
    return root


@pytest.fixture
def ask(folder, cli, monkeypatch):
    """A command in that folder, without progress and log lines."""
    monkeypatch.chdir(folder)
    return lambda *words, code=0: cli(*words, "--quiet", code=code)


@pytest.fixture
def run(folder):
    return tl.load(folder / "run.yaml")


def integers(printed):
    return [tuple(map(int, line.split())) for line in printed.splitlines()]


def centered(header, words):
    """Whether these words stand in the middle of a line of dashes."""
    left, right = header.split(words)
    return set(left + right) == {"-"} and abs(len(left) - len(right)) <= 1


# -- examples ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dataset", "show"])
def test_cl_01_examples_have_number_tokens_documents_features_ids_and_text(ask, folder, name):
    lines = ask(name, "books.yaml", "--tokenized", "--examples", "1").splitlines()
    assert " 0 Tokens: 512, Documents: 3, Features: [" in lines[0]
    features = re.search(r"Features: \[(.*)\]", lines[0])[1]
    assert {"'input_ids'", "'labels'"} < set(features.split(", "))
    batch = tl.load(folder / "books.yaml").batch([0])
    assert " ".join(map(str, batch.tokens[0].tolist())) in lines
    documents = [(text * 9)[:n] for text, n in zip(TEXTS, LENGTHS, strict=True)]
    for document in documents:
        assert document in "\n".join(lines[1:])
    shown = ask(name, "books.yaml", "--examples", "1").splitlines()
    assert not any(line.split()[:1] == [str(batch.tokens[0, 0])] for line in shown)


def test_cl_01_as_many_examples_as_asked_for(ask, run):
    shown = json.loads(ask("dataset", "run.yaml", "--examples", "3", "--first", "2", "--json"))
    batch = run.batch([2, 3, 4])
    assert [example["index"] for example in shown["examples"]] == [2, 3, 4]
    for row, example in enumerate(shown["examples"]):
        kept = batch.segment_ids[row] > 0
        assert example["ids"] == batch.tokens[row][kept].tolist()
        assert example["tokens"] == kept.sum()
        assert example["documents"] == len(set(batch.segment_ids[row][kept].tolist()))


@pytest.fixture
def rows(tmp_path):
    """Rows that another tool wrote: the first one has the starts of its documents."""
    path = tmp_path / "rows.jsonl"
    features = [
        {"input_ids": [5] * 512, "document_starts": [0, 200, 400]},
        {"input_ids": [5, 2, 7, 2], "document_starts": [0, 2]},
        {"input_ids": [5, 2, 7, 2, 9]},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in features))
    return path


def test_cl_02_the_header_is_centered_in_dashes_and_lists_the_features(ask, rows):
    headers = [line for line in ask("dataset", rows).splitlines() if line.startswith("-")]
    assert centered(
        headers[0], " 0 Tokens: 512, Documents: 3, Features: ['input_ids', 'document_starts'] "
    )
    assert centered(
        headers[1], " 1 Tokens: 4, Documents: 2, Features: ['input_ids', 'document_starts'] "
    )
    assert centered(headers[2], " 2 Tokens: 5, Documents: unknown, Features: ['input_ids'] ")
    assert len(set(map(len, headers))) == 1


def test_cl_03_documents_are_counted_by_starts_else_by_eos_else_unknown(ask, rows):
    def counts(*options):
        examples = json.loads(ask("dataset", rows, *options, "--json"))["examples"]
        return [example["documents"] for example in examples]

    assert counts() == [3, 2, None]
    assert counts("--eos", "2") == [3, 2, 3]
    assert counts("--eos", "9") == [3, 2, 1]


def test_cl_09_a_row_is_shown_cell_by_cell(ask, run):
    batch = run.batch(range(40))
    index = int(np.argmax(batch.segment_ids.max(axis=1)))
    batch = run.batch([index])
    assert batch.segment_ids.max() > 1  # two documents at least
    cells = json.loads(ask("show", "run.yaml", "--row", index, "--json"))["cells"]
    assert [cell["id"] for cell in cells] == batch.tokens[0].tolist()
    assert [cell["segment"] for cell in cells] == batch.segment_ids[0].tolist()
    assert [cell["position"] for cell in cells] == batch.position_ids[0].tolist()
    labels = [None if label == -100 else label for label in batch.labels[0].tolist()]
    assert [cell["label"] for cell in cells] == labels
    assert np.array_equal([cell["loss"] for cell in cells], batch.loss_weights[0])
    lines = ask("show", "run.yaml", "--row", index).splitlines()
    assert lines[0].split() == ["cell", "id", "text", "segment", "position", "label", "loss"]
    table = [line.split() for line in lines[2:]]
    assert [line[1] for line in table] == list(map(str, batch.tokens[0]))
    assert [line[-4] for line in table] == list(map(str, batch.segment_ids[0]))
    assert [line[-3] for line in table] == list(map(str, batch.position_ids[0]))
    assert [line[-2] for line in table] == ["-" if one is None else str(one) for one in labels]
    assert [float(line[-1]) for line in table] == batch.loss_weights[0].tolist()


# -- lengths -------------------------------------------------------------------------------


def test_cl_04_lengths_have_statistics_a_histogram_and_a_picture(ask, folder, tmp_path):
    lengths = tl.open(folder / "wiki").lengths
    about = json.loads(ask("info", "wiki", "--svg", tmp_path / "lengths.svg", "--json"))
    expected = {
        "min": lengths.min(),
        "max": lengths.max(),
        "mean": lengths.mean(),
        "p50": np.median(lengths),
        "std": lengths.std(),
    }
    for name, value in expected.items():
        assert about["lengths"][name] == pytest.approx(value), name
    bars = re.findall(r"([\d,]+)-([\d,]+) +([\d,]+) +[\d.]+% (█+)", ask("info", "wiki"))
    counts = [((int(low) <= lengths) & (lengths <= int(high))).sum() for low, high, _, _ in bars]
    assert [int(count) for _, _, count, _ in bars] == counts
    assert sum(counts) == 24
    picture = ET.fromstring((tmp_path / "lengths.svg").read_text())
    assert picture.tag.endswith("svg")
    assert re.search(r"\b24\b", "".join(picture.itertext()))


# -- splices -------------------------------------------------------------------------------

WORKED = ("--seq-len", 8, "--content-length", 4, "--no-adaptive-k", "--balance-mode", "by_document")


@pytest.fixture
def three(tmp_path):
    records = [{"text": text} for text in ("abcdefg", "hijkl", "xyz")]
    return tl.build(records, tmp_path / "three", tokenizer="bytes", progress=False)


def test_cl_05_the_audit_of_the_worked_example_is_eight_lines(ask, three):
    printed = ask("splice", "audit", three.path, *WORKED)
    assert integers(printed) == [  # index, epoch, document, t, s
        (0, 0, 0, 0, 4),
        (1, 0, 0, 1, 4),
        (2, 0, 0, 2, 4),
        (3, 0, 0, 3, 4),
        (4, 0, 1, 0, 4),
        (5, 0, 1, 1, 4),
        (6, 0, 1, 0, 4),  # shown twice, as documents are balanced
        (7, 0, 1, 1, 4),
    ]


def test_cl_05_the_list_is_that_of_the_library(ask, three):
    printed = ask("splice", "audit", three.path, "--seq-len", 8, "--content-length", 4)
    listing = triples(three.splice(8, content_length=4))
    columns = (listing.index, listing.epoch, listing.document, listing.t, listing.s)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    assert integers(printed) == rows
    assert len(rows) > 3


def test_cl_11_each_document_has_a_histogram_of_its_starts(ask, three):
    options = {"content_length": 4, "adaptive_k": False, "balance_mode": "by_document"}
    spliced = three.splice(8, **options)
    for text in (ask("splice", "coverage", three.path, *WORKED), str(coverage(spliced))):
        first, second, third = text.splitlines()[-3:]
        assert first.split()[:3] == ["0", "7", "4"]  # document, length, splices
        assert second.split()[:3] == ["1", "5", "4"]
        assert third.split()[:3] == ["2", "3", "0"]
        assert first.endswith("0 ████ 3")  # starts 0 to 3
        assert second.endswith("0 ██ 1")
        assert "█" not in third
    about = json.loads(ask("splice", "coverage", three.path, *WORKED, "--json"))
    assert [document["splices"] for document in about["documents"]] == [4, 4, 0]
    assert [document["starts_shown"] for document in about["documents"]] == [4, 2, 0]


def test_cl_11_starts_that_are_not_shown_are_gaps(store_of):
    spliced = store_of([list(range(10))]).splice(8, content_length=4, epoch_length=3)
    shown = coverage(spliced)
    assert shown.starts(0).shown.tolist() == [0, 1, 0, 1, 0, 1, 0]
    assert str(shown).splitlines()[-1].endswith("0 ·█·█·█· 6")


# -- states, stores, packings --------------------------------------------------------------


def test_cl_07_a_state_is_printed_with_rows_and_tokens_of_every_source(ask, run, tmp_path):
    with tl.Loader(run, rank=0, world_size=1) as loader:
        state = loader.seek(10).state_dict()
    path = write_state(state, tmp_path)
    about = json.loads(ask("state", path, "--tokens-per-second", "16", "--json"))
    assert (about["step"], about["examples"], about["of"]) == (10, 40, len(run))
    assert about["percent"] == round(100 * 40 / len(run), 2)
    assert about["seconds_left"] == len(run) - 40  # 16 tokens are one example
    batch = run.batch(range(40))
    for source in about["sources"]:
        rows = np.array(batch.source) == source["name"]
        assert source["rows"] == rows.sum() > 0
        assert source["tokens"] == (batch.segment_ids[rows] > 0).sum()
    assert [source["name"] for source in about["sources"]] == ["wiki", "code"]
    printed = ask("state", tmp_path)  # the newest state of a folder
    for source in about["sources"]:
        (line,) = [line for line in printed.splitlines() if source["name"] in line.split()]
        numbers = [word.replace(",", "") for word in line.split()]
        assert {str(source["rows"]), str(source["tokens"])} <= set(numbers)
    assert "10" in re.split(r"\W+", printed.splitlines()[0])


def test_cl_08_stores_are_built_described_and_verified(ask, tmp_path):
    texts = [f"tale {n} of a loom " * (n % 7) for n in range(40)]
    (tmp_path / "tales.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    out = tmp_path / "tales"
    ask("build", tmp_path / "tales.jsonl", "-o", out, "--tokenizer", "bytes")
    store = tl.open(out)
    assert [bytes(store.document(n).tolist()).decode() for n in range(40)] == texts
    about = json.loads(ask("info", out, "--json"))
    assert (about["documents"], about["tokens"]) == (40, sum(map(len, texts)))
    assert about["digest"] == store.digest
    report = json.loads(ask("verify", out, "--json"))
    assert (report["ok"], report["tokens"]) == (True, sum(map(len, texts)))
    payload = out / "shard-00000/input_ids/c/0"
    original = payload.read_bytes()
    for place in (0, 11, sum(map(len, texts)), len(original) - 1):
        damaged = bytearray(original)
        damaged[place] ^= 4
        payload.write_bytes(damaged)
        assert "input_ids/c/0" in ask("verify", out, code=1)
    payload.write_bytes(original)
    ask("verify", out)


def test_cl_10_packings_are_compared_by_strategy(ask, store_of):
    """4 5 3 4 in rows of 8: next fit 4 | 5 3 | 4, first fit 4 3 | 5 | 4, best fit 4 4 | 5 3."""
    store = store_of([[7] * n for n in (4, 5, 3, 4)])
    words = ("pack-plan", store.path, "--seq-len", 8, "--overflow", "split")
    words += ("--strategy", "greedy", "best_fit", "first_fit")
    choices = json.loads(ask(*words, "--json"))["choices"]
    found = {choice["strategy"]: (choice["rows"], choice["fill"]) for choice in choices}
    assert found == {
        "greedy": (3, pytest.approx(2 / 3)),
        "first_fit": (3, pytest.approx(2 / 3)),
        "best_fit": (2, 1.0),
    }
    lines = [line.split() for line in ask(*words).splitlines()]
    column = lines[0].index("rows")
    table = {line[1]: line[column : column + 2] for line in lines if line[:1] == ["8"]}
    assert {name: (int(rows), fill[:4]) for name, (rows, fill) in table.items()} == {
        "greedy": (3, "66.6"),
        "first_fit": (3, "66.6"),
        "best_fit": (2, "100."),
    }
    for strategy, (rows, _) in found.items():
        assert len(store.pack(8, strategy=strategy)) == rows


def test_cl_10_all_strategies_are_compared_and_what_loses_nothing_is_recommended(ask, folder):
    printed = ask("pack-plan", "wiki", "--seq-len", "16", "32")
    overflow = ["split", "truncate"]
    plan = tl.plan_packing(tl.open(folder / "wiki"), seq_len=[16, 32], overflow=overflow)
    strategies = {"one_doc", "greedy", "sequential", "best_fit", "best_fit_decreasing"}
    assert {line.split()[1] for line in printed.splitlines() if line.split()} >= strategies
    assert [choice.lost for choice, _ in plan.recommended] == [0, 0]
    assert str(plan) == printed.strip()


# -- benchmarks ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("permutation", "--n 64 --repeats 1 --io-block-size 8 --era-length 16"),
        ("data-loading", "--num-examples 64 --seq-len 8 --steps 2 --batch-size 4"),
    ],
)
def test_cl_06_benchmarks_of_orders_are_commands(benchmarks, name, words):
    code, printed = benchmarks(name, *words.split(), "--json")
    assert code == 0
    results = json.loads(printed)["results"]
    assert set(results["feistel"]) == {"full", "era", "block"}
    assert benchmarks(name, "--strategies", "ful")[0] == 2


# -- reports -------------------------------------------------------------------------------


def test_a_report_on_a_folder_of_other_files_opens_it_as_it_is_told(ask, folder):
    (folder / "raw").mkdir()
    np.array([5, 6, 0, 7, 0, 8, 9, 0], np.uint16).tofile(folder / "raw/train.bin")
    told = ["--dtype", "uint16", "--eos", "0", "--format", "flat"]
    info = json.loads(ask("info", "raw", *told, "--json"))
    report = json.loads(ask("report", "raw", *told, "-o", "raw.html", "--json"))
    (contents,) = (one for one in report["answers"] if one["name"] == "contents")
    assert contents["numbers"]["documents"] == info["documents"] == 3
