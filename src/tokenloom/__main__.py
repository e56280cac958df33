"""`python -m tokenloom` is the command line."""

import sys

from tokenloom.cli import main

sys.exit(main())
