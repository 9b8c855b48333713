"""The one error of the replay library that is no mistake: what was asked for is not there yet."""


class NotReady(TimeoutError):
    """The buffer is still empty, or its rate limiter held the request, and the time to wait is over.

    Attributes
    ----------
    written : int
        Steps of an ``add`` that were written before it was held.
    """

    written = 0
