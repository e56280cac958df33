"""A study of memorization on any machine: `python -m examples.memorization`."""

from importlib.util import find_spec

if missing := [name for name in ("torch", "transformers") if find_spec(name) is None]:
    raise SystemExit(
        f"examples.memorization: {' and '.join(missing)} not installed. `make .venv/.test` brings "
        "all that the examples need, or install tokenloom[hf] and torch."
    )
