"""Keys that a run's W&B config has beside those of its own config, for tables and panels to group by."""

ARM = "arm"
"""As the report calls it, of a run by itself: tied, untied, or with what its scheme changes."""
DEVICE = "device"
"""What one process trains on, as its maker calls it."""
PHASE = "phase"
"""tune for the runs of a rate search, report for all others, so that a filter never meets a blank."""
