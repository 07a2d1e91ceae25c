"""What can go wrong with a request, as one tree.

RoostError
├── Invalid             the request cannot be carried out as written
├── Unauthorized        the caller did not identify itself
├── Forbidden           somebody is asking who may not
│   └── OverQuota       ... because the project has used up its share
├── NotFound            the thing does not exist, or not for this caller
├── Conflict            the request is fine, but not in the present state
├── NotAcceptable       the version asked for is not served
├── TooLarge            the body is larger than we read
├── TooSlow             the body did not come in time
├── TooManyRequests     the project or the address asks for more than its share
│   └── TooManyFailures ... or has tried too many wrong passwords
├── UnsupportedMedia    the body is not JSON
└── Unavailable         something that we depend on does not answer

The message is for the person who made the request: it says what is wrong and, where it can, what to change.
`roost.api.errors` maps each class to a status, and each API to its own body.
"""


class RoostError(Exception):
    """The root of all errors that a caller may see."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Invalid(RoostError):
    """The request cannot be carried out as written."""


class Unauthorized(RoostError):
    """No valid token came with the request."""


class Forbidden(RoostError):
    """The caller is known, but may not do this."""


class OverQuota(Forbidden):
    """The project has used up its share."""


class NotFound(RoostError):
    """The thing does not exist, or does not exist for this caller."""


class Conflict(RoostError):
    """The request contradicts the present state."""


class NotAcceptable(RoostError):
    """The API version asked for is not served."""


class TooLarge(RoostError):
    """The body is larger than the limit."""


class TooSlow(RoostError):
    """The body did not come in time."""


class TooManyRequests(RoostError):
    """The project or the address has used up its share for the next seconds."""

    seconds = 1


class TooManyFailures(TooManyRequests):
    """Too many wrong passwords were tried for this user; all must wait some seconds before the next."""

    def __init__(self, failures: int, seconds: int) -> None:
        super().__init__(
            f"There were {failures} failed attempts to sign in as this user. Try again in {seconds} seconds."
        )
        self.seconds = seconds


class UnsupportedMedia(RoostError):
    """The body is of a type that we do not read."""


class Unavailable(RoostError):
    """The database, or another service that we need, does not answer."""
