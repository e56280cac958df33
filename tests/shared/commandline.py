"""Runs the command line in this process."""

import contextlib
import io
import runpy
import sys
import warnings

import pytest


def command(*words, code=0):
    """Runs `python -m tokenloom WORDS…` and returns what it prints.

    With another exit code than 0, the messages follow.
    """
    printed, messages = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(messages),
        warnings.catch_warnings(),
    ):
        patch.setattr(sys, "argv", ["tokenloom", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_module("tokenloom", run_name="__main__")
    assert (ended.value.code or 0) == code, messages.getvalue()
    return printed.getvalue() + (messages.getvalue() if code else "")
