"""The picture of where the time goes: stacks that add up, drawn as boxes on their callers."""

import time
from xml.etree import ElementTree

from benchmarks.flame import Box

from benchmarks import flame


def busy(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        sorted(range(2000))


def twice():
    busy(0.05)
    busy(0.05)


def test_samples_of_a_caller_are_those_of_what_it_called_and_its_own():
    whole = flame.sample(twice, 3)

    def check(box):
        inner = sum(one.samples for one in box.inner.values())
        assert inner <= box.samples
        for one in box.inner.values():
            check(one)

    check(whole)
    assert whole.samples > 20
    names = {name for name, _ in whole.inner}
    assert "busy" in names
    box = whole.inner["busy", False]
    assert box.samples > 0.9 * whole.samples
    lines = {name: one.samples for (name, compiled), one in box.inner.items() if compiled}
    assert lines["sorted(range(2000))"] > 0.3 * box.samples


def test_a_box_is_as_wide_as_its_share_and_stands_on_its_caller():
    whole = Box("a batch")
    for count, stack in ((6, ["a", "b"]), (3, ["a"]), (1, ["c"])):
        for _ in range(count):
            whole.add([(name, False) for name in stack])
    picture = flame.draw([("title", whole, 20.0)])
    root = ElementTree.fromstring(picture)
    space = "{http://www.w3.org/2000/svg}"
    boxes = {}
    for group in root.iter(f"{space}g"):
        rect = group.find(f"{space}rect")
        name, words = group.find(f"{space}title").text.split(": ")
        boxes[name] = float(rect.get("width")), float(rect.get("y")), words
    assert {name: round(width) for name, (width, *_) in boxes.items()} == {
        "a batch": 860,
        "a": 774,
        "b": 516,
        "c": 86,
    }
    assert boxes["b"][1] < boxes["a"][1] == boxes["c"][1] < boxes["a batch"][1]
    assert boxes["b"][2] == "12.00 µs"


def test_the_picture_of_the_loader_shows_the_compiled_calls(capsys):
    flame.main("tiny")
    picture = capsys.readouterr().out
    ElementTree.fromstring(picture)
    assert "copier.fill" in picture
    assert "windows, tokens" in picture
    assert "packed, all arrays" in picture
