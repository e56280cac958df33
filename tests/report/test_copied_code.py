"""The code beside a figure runs as it is copied, and prints the numbers of its table."""

import json
import re
import shlex

import numpy as np
import pytest
from reports import store_of

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.inspect import audit_run
from tokenloom.report import report_on

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

DIGITS = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


def printed(code, capsys, **known):
    """What the code of a figure prints; a command is run as one."""
    capsys.readouterr()
    if code.startswith("tokenloom "):
        assert main(shlex.split(code)[1:]) == 0
    else:
        exec(compile(code, "copied", "exec"), known)
    return capsys.readouterr().out


def figures_in(text):
    """The numbers in a text, each also with three digits, as words have them."""
    found = {float(one.rstrip(",").replace(",", "")) for one in DIGITS.findall(text)}
    return {float(f"{one:.6g}") for one in found}


def listed(figure):
    """The numbers of a figure's tables that can be told from chance: not 0, 1 or 2."""
    rows = [row for table in figure.numbers for row in table.rows]
    found = {
        float(f"{value:.6g}")
        for row in rows
        for value in row
        if isinstance(value, int | float | np.number) and not isinstance(value, bool)
    }
    return {one for one in found if np.isfinite(one) and abs(one) not in (0, 1, 2)}


def check(figure, capsys, **known):
    """Whether the code prints the table: all of it, if it makes the figure once more."""
    assert figure.code, figure.name
    assert "…" not in figure.code
    out = printed(figure.code, capsys, **known)
    wanted, found = listed(figure), figures_in(out)
    if "report_on" in figure.code or figure.code.startswith("tokenloom "):
        assert wanted <= found, (figure.name, wanted - found)
    else:
        assert out.strip()
        assert len(wanted & found) >= min(3, len(wanted)), (figure.name, wanted, out)
    return wanted, found


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def saved(run, name, **settings):
    tl.save(run, name)
    again = tl.load(name)
    return report_on(again, name=name, **settings)


def test_the_code_of_every_figure_of_a_mix_prints_its_table(place, capsys):
    a, b, c = (store_of(place / name, seed) for seed, name in enumerate("abc"))
    sources = {
        'we"b': a.windows(8).shuffle(),
        "code": b.pack(8, overflow="truncate").block_shuffle(),
        "spliced": c.splice(8, content_length=5),
    }
    run = tl.mix(sources, stages={30: {"code": 3}}).edit(at=60, weights={"spliced": 2}).take(120)
    made = saved(
        run,
        "mix.yaml",
        batch_size=[(0, 4), (40, 8)],
        ranks=2,
        latency=0.01,
        step_seconds=0.1,
        examples=16,
        certificate=audit_run(run, 8, 40, progress=False),
    )
    names = {one.name for one in made.figures}
    assert names == {
        *("lengths", "lost", "packing", "rows", "shuffle", "mixture", "splices", "boundaries"),
        *("resume", "loading", "certificate"),
    }
    for figure in made.figures:
        wanted, found = check(figure, capsys)
        assert wanted & found or not wanted


def test_settings_that_were_typed_are_in_the_code(place, capsys):
    tl.save(store_of(place / "s").windows(8).shuffle(), "run.yaml")
    given = ["--set", "sources.main.epochs=2", "--batch-size", "4", "--json"]
    assert main(["report", "run.yaml", *given]) == 0
    told = json.loads(capsys.readouterr().out)
    (figure,) = (one for one in told["figures"] if one["name"] == "mixture")
    assert 'overrides=["sources.main.epochs=2"]' in figure["code"]
    out = printed(figure["code"], capsys)
    assert f"{figure['numbers'][0]['rows'][0][2]:,} rows" in out


def test_the_code_of_a_certificate_prints_its_table(place, capsys):
    run = store_of(place / "s").windows(8).shuffle()
    tl.save(run, "run.yaml")
    found = audit_run(run, progress=False)
    (figure,) = report_on(found).figures
    check(figure, capsys, certificate=found)
    assert main(["audit", "run.yaml", "-o", "audit.json"]) == 0
    capsys.readouterr()
    assert main(["report", "audit.json", "-o", "audit.html", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["figures"]
    assert told["code"] == "tokenloom report audit.json -o audit.html --json"
    again = json.loads(printed(told["code"], capsys))
    assert again["figures"] == [told]
