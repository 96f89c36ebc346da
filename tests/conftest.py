"""Tests import their helpers from the folder they stand in."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "contracts"))
sys.path.insert(0, str(Path(__file__).parent / "remote"))
