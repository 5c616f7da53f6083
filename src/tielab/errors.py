"""How a command ends: its exit status, and the one exception for a request that cannot be carried out."""

FINISHED, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
"""Exit status of a process of a run, and of the command."""


class RequestError(ValueError):
    """The request was wrong: the message is one line, the exit status is 2.

    The message names what was asked, what was found and what to do.
    """
