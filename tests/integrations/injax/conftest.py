"""Four devices on one CPU, before JAX is imported; only in a process of its own, see test_jax."""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
