"""The one exception for a request that cannot be carried out as asked."""


class RequestError(ValueError):
    """The request was wrong: the message is one line, the exit status is 2.

    The message names what was asked, what was found and what to do.
    """
