"""One assertion about errors: the class, what the message names, and the value it shows."""

from collections.abc import Callable

import pytest


def refused(
    call: Callable[[], object], kind: type[Exception] | tuple[type[Exception], ...], *named: object
) -> str:
    """Asserts that the call raises `kind` and that its message has every part; returns the message.

    A part is a key, a file or a value. Whole sentences are compared in tests/api/test_messages.py
    alone.
    """
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    missing = [part for part in map(str, named) if part not in message]
    assert not missing, f"{missing} not in {message!r}"
    return message
