"""A catalogue of hostile stores: well sealed, and not to be believed.

Seals and checksums are right wherever an attack does not live from their being wrong, because
whoever writes a whole store can make them right.
"""

import hostile_content
import hostile_places
import hostile_records
from attacks import ATTACKS, BENIGN, ENDLESS, MARKER, OUTSIDE

__all__ = ["ATTACKS", "BENIGN", "ENDLESS", "MARKER", "OUTSIDE"]

assert hostile_content  # each registers its attacks when it is imported
assert hostile_places
assert hostile_records
