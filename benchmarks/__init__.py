"""Speed, memory and cost of tielab, measured: ``python -m benchmarks.NAME``."""
