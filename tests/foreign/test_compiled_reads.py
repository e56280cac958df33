"""Ids that are read in place are read by the compiled loops."""

import pytest
from everyformat import EVERY

import tokenloom as tl
from tokenloom import native
from tokenloom.store.derived.payload import payloads_of

IN_PLACE = {
    *("megatron uint16", "megatron int32", "datatrove", "datatrove, three files of uint32"),
    *("llm.c", "llm.c kin", "llm.c, four shards of uint32", "flat uint16", "OLMo, two files"),
    *("npy", "litdata", "litdata, three chunks", "arrays"),
}


@pytest.mark.parametrize("name", sorted(EVERY))
def test_ids_in_place_are_read_by_the_compiled_loops(copied, name):
    foreign, _, _ = copied(name)
    with tl.Loader(foreign.windows(16).shuffle(), 4, fetch="rows", untrained="zero") as loader:
        for _ in loader:
            pass
    files = {piece.file for piece in foreign.reader.inside.described.tokens}
    wanted = files if native.compiled is not None and name in IN_PLACE else set()
    assert {key[0] for key in payloads_of(foreign.reader)._open} == wanted
