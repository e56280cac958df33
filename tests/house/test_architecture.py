"""docs/architecture.md tells what the tree is: its table of rooms is made from the rooms."""

import runpy
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/architecture.md"


@pytest.fixture(scope="module")
def rooms():
    return runpy.run_path(str(ROOT / "docs/rooms.py"))


def test_the_table_of_rooms_is_what_the_script_makes(rooms):
    page = PAGE.read_text()
    assert rooms["renewed"](page) == page, "run: python docs/rooms.py"


def test_every_room_has_a_row_with_what_it_takes_and_gives(rooms):
    table = rooms["table"]()
    for path in (ROOT / "src/tokenloom").glob("*/**/__init__.py"):
        name = path.parent.relative_to(ROOT / "src/tokenloom").as_posix()
        assert f"| `{name}/` |" in table
    assert "| `loader/` | a run, a batch size and a rank | that rank's batches" in table


@pytest.fixture
def copy(tmp_path):
    for name in ("src/tokenloom", "tests/house"):
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    return tmp_path


def test_another_first_line_a_new_module_or_a_new_room_makes_another_table(rooms, copy):
    before = rooms["table"](copy)
    assert before == rooms["table"]()
    room = copy / "src/tokenloom/order"
    (room / "spiral.py").write_text('"""Rows in a spiral."""\n')
    assert " spiral" in rooms["table"](copy)
    (room / "__init__.py").write_text('"""Takes corn → gives popcorn."""\n')
    assert "| `order/` | corn | popcorn |" in rooms["table"](copy)
    (room / "attic").mkdir()
    (room / "attic/__init__.py").write_text('"""Takes dust → gives boxes."""\n')
    assert "| `order/attic/` | dust | boxes |  |" in rooms["table"](copy)


def test_the_order_of_the_table_is_that_of_the_floors(rooms):
    names = [line.split("`")[1].split("/")[0] for line in rooms["table"]().splitlines()[2:]]
    assert list(dict.fromkeys(names)) == rooms["floors"](ROOT)


def test_a_page_without_its_markers_is_refused(rooms):
    with pytest.raises(ValueError, match="must both be there"):
        rooms["renewed"]("# Architecture\n")


def test_modules_named_in_the_page_exist():
    page = PAGE.read_text()
    for name in ("store/files.py", "store/byte_source.py", "store/plan_cache.py"):
        assert name in page
        assert (ROOT / "src/tokenloom" / name).is_file()
