"""Import before JAX: four devices on one CPU."""

import os
import sys

FOUR = "--xla_force_host_platform_device_count=4"

if "jax" not in sys.modules:
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FOUR}".strip()
