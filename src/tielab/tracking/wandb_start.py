"""What a W&B run waits for at its start without need: a third of a second, paid by every job of a sweep.

Both functions replace a part of wandb that is not public; a test tells when it is no longer there.
"""

import time

SECONDS_BETWEEN_LOOKS = 0.005


def look_sooner() -> None:
    """See soon that wandb's service is up: it takes some 25 ms, and wandb looks every 200 ms."""
    from wandb.sdk.lib.service import service_port_file

    def sleep(seconds: float) -> None:
        time.sleep(min(seconds, SECONDS_BETWEEN_LOOKS))

    service_port_file._SLEEP = sleep  # type: ignore[assignment]


def remember_packages() -> None:
    """Read which packages are installed now, and not again for every run of the processes forked from this.

    wandb writes them to ``requirements.txt``; what a forked process has imported is of this moment too.
    """
    import wandb.util

    packages = tuple(wandb.util.working_set())
    wandb.util.working_set = lambda: packages
