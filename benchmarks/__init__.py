"""Speed, memory and cost of tielab, measured: ``python -m benchmarks.NAME``."""

import os

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else torch's profiler tells of every start and stop
