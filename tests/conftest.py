"""One thread of BLAS and torch per process, and folders from which tests import helpers."""

import os
import sys
from pathlib import Path

# two workers on two cores: more threads than cores wait for one another in busy loops, which cost ten times the work
os.environ.setdefault("OMP_NUM_THREADS", "1")

sys.path.insert(0, str(Path(__file__).parent / "contracts"))
sys.path.insert(0, str(Path(__file__).parent / "remote"))
sys.path.insert(0, str(Path(__file__).parent / "flower"))
