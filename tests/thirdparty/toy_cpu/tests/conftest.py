"""Makes the plugin importable from its sources, where it is not installed."""

from __future__ import annotations

import sys
from pathlib import Path

SOURCE = str(Path(__file__).parents[1] / "src")
if SOURCE not in sys.path:
    sys.path.append(SOURCE)
