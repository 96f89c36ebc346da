"""`python -m unpooled`, the same as the command `unpooled`."""

import sys

from unpooled.cli import main

sys.exit(main())
