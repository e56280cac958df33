"""A disk that fails for a moment is an error with its number, and no damage."""

import errno
import os

import pytest

import tokenloom as tl
from tokenloom.store import byte_source
from tokenloom.testing import write_store


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE])
def test_a_disk_that_fails_for_a_moment_is_a_store_error_and_no_damage(code, tmp_path, monkeypatch):
    store = write_store(tmp_path / "s", [[list(range(50))] * 4] * 3)
    cold, real, failing = tl.open(store.path, cache_bytes=0), byte_source._READ, [True]

    def read(fd, buffers, offset):
        if failing[0]:
            raise OSError(code, os.strerror(code))
        return real(fd, buffers, offset)

    monkeypatch.setattr(byte_source, "_READ", read)
    for call in (lambda: cold.document(3), lambda: cold.documents(range(12)), lambda: cold.lengths):
        with pytest.raises(tl.StoreError, match=str(store.path)) as caught:
            call()
        assert not isinstance(caught.value, tl.StoreCorrupt)
        assert caught.value.errno == code
    failing[0] = False
    assert cold.document(3).tolist() == list(range(50))
