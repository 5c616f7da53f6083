"""How a command ends: its exit status, and the one exception for a request that cannot be carried out."""

import unicodedata

FINISHED, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
"""Exit status of a process of a run, and of the command."""


class RequestError(ValueError):
    """The request was wrong: the message is one line, the exit status is 2.

    The message names what was asked, what was found and what to do. Control characters in it, which may
    come from a stranger's file, are spelled out.
    """

    def __init__(self, message: object):
        super().__init__(printable(str(message).replace("\n", " ")))


def reason_of(error: BaseException) -> str:
    """What an exception says, on one line; its type if it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__


def printable(text: str, keep: str = "") -> str:
    """The text with control characters spelled out, so that it says nothing to a terminal.

    Args:
        keep: those that stay.
    """
    return "".join(
        letter.encode("unicode_escape").decode()
        if unicodedata.category(letter) == "Cc" and letter not in keep
        else letter
        for letter in text
    )
