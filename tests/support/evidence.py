"""What a failed test shows beside its own words."""

from pathlib import Path

import pytest

FILES = pytest.StashKey[list[Path]]()
LONGEST_SHOWN = 6000  # Characters of each file, from its end.
