"""Tests of JAX run in a process of their own, see test_jax."""

import os

collect_ignore = [] if os.environ.get("TOKENLOOM_IN_JAX") else ["injax"]
