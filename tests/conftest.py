"""Tests import helpers from their own folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "contracts"))
sys.path.insert(0, str(Path(__file__).parent / "remote"))
sys.path.insert(0, str(Path(__file__).parent / "flower"))
