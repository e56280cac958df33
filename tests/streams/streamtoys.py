"""Sources of every kind, for tests of streams."""

import itertools
import json

from hypothesis import strategies as st


def rows_of(name, lengths):
    """Samples with these token counts, all different."""
    return [[1000 * ord(name) + row] * length for row, length in enumerate(lengths)]


def tags(stream):
    return [(sample.source, sample.epoch, sample.row) for sample in stream]


def names(stream, count=None):
    return "".join(sample.source for sample in itertools.islice(stream, count))


lengths = st.lists(st.integers(0, 6), min_size=1, max_size=8)
corpora = st.dictionaries(st.sampled_from("abcd"), lengths, min_size=1, max_size=4).map(
    lambda found: {name: rows_of(name, some) for name, some in found.items()}
)
stops = st.sampled_from(["all_exhausted", "first_exhausted", "repeat"])
some_weights = st.fixed_dictionaries({n: st.sampled_from([0.5, 1.0, 2.0, 3.0]) for n in "abcd"})
some_counts = st.fixed_dictionaries({n: st.integers(0, 12) for n in "abcd"})


def only(values, sources):
    return {name: values[name] for name in sources}


def restored_before_every_item(make):
    """All items of a stream, each from one that was made anew and restored; and the last one."""
    stream, found = make(), []
    while True:
        written = json.dumps(stream.state_dict(), allow_nan=False)
        stream = make()
        stream.load_state_dict(json.loads(written))
        assert json.dumps(stream.state_dict()) == written
        item = next(stream, None)
        if item is None:
            assert stream.state_dict()["finished"]
            return found, stream
        found.append(item)


# -- kinds of sources ---


class Thing:
    def __init__(self, **fields):
        self.__dict__.update(fields)


class Again:
    """An iterable that is no sequence, and counts what is read of it."""

    def __init__(self, rows):
        self.rows, self.read = rows, 0

    def __iter__(self):
        for row in self.rows:
            self.read += 1
            yield row


class Skips(Again):
    def skip(self, count):
        return Again(self.rows[count:])


class Indexed:
    """What has indices and no iterator, as a map-style dataset."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class Stateful:
    """An iterator that knows its place."""

    def __init__(self, rows):
        self.rows, self.place = rows, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.place == len(self.rows):
            raise StopIteration
        self.place += 1
        return self.rows[self.place - 1]

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


class StatefulIterable:
    """As `datasets.IterableDataset`: once loaded, every iter() starts there."""

    def __init__(self, rows):
        self.rows, self.start, self.place = rows, 0, 0

    def __iter__(self):
        self.place = self.start
        while self.place < len(self.rows):
            self.place += 1
            yield self.rows[self.place - 1]

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.start = state["place"]


KINDS = {
    "list": lambda rows: rows,
    "iterable": Again,
    "iterable with skip": Skips,
    "indexed": Indexed,
    "callable": lambda rows: lambda skip: iter(rows[skip:]),
    "stateful iterable": StatefulIterable,
    "generator": lambda rows: (row for row in rows),
    "stateful iterator": Stateful,
}
ONCE = {"generator", "stateful iterator"}
