"""Hypothesis profiles, and helper modules that tests of one folder share."""

import os
import sys
from pathlib import Path

from hypothesis import settings

settings.register_profile("default", deadline=None, derandomize=True, max_examples=60)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("TOKENLOOM_HYPOTHESIS", "default"))

for folder in ("store", "build", "fault", "loader"):
    sys.path.insert(0, str(Path(__file__).parent / folder))
