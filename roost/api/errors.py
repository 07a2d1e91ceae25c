"""One table from errors to statuses, and each API's own way to put an error into a body."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from roost import errors

STATUS: dict[type[errors.RoostError], int] = {
    errors.Invalid: 400,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.NotAcceptable: 406,
    errors.TooSlow: 408,
    errors.Conflict: 409,
    errors.TooLarge: 413,
    errors.UnsupportedMedia: 415,
    errors.TooManyRequests: 429,
    errors.Unavailable: 503,
}

_COMPUTE_NAMES = {
    400: "badRequest",
    401: "unauthorized",
    403: "forbidden",
    404: "itemNotFound",
    405: "badMethod",
    409: "conflictingRequest",
    413: "overLimit",
    415: "badMediaType",
    429: "overLimit",
    501: "notImplemented",
    503: "serviceUnavailable",
}

ErrorBody = Callable[[int, str, type[BaseException]], dict[str, Any]]

UNEXPECTED = "The service failed unexpectedly. The operator finds the reason in the log under the id of this request."


def status_of(error: errors.RoostError) -> int:
    """The status of the nearest class in the table."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def compute_body(status: int, message: str, kind: type[BaseException]) -> dict[str, Any]:
    """Nova's: named after the status."""
    return {_COMPUTE_NAMES.get(status, "computeFault"): {"code": status, "message": message}}


def identity_body(status: int, message: str, kind: type[BaseException]) -> dict[str, Any]:
    """Keystone's; clients of Glance understand it too."""
    return {"error": {"code": status, "title": HTTPStatus(status).phrase, "message": message}}


def network_body(status: int, message: str, kind: type[BaseException]) -> dict[str, Any]:
    """Neutron's."""
    return {"NeutronError": {"type": kind.__name__, "message": message, "detail": ""}}


def clustering_body(status: int, message: str, kind: type[BaseException]) -> dict[str, Any]:
    """Senlin's: the class of the error is part of it."""
    title = HTTPStatus(status).phrase
    return {
        "code": status,
        "title": title,
        "explanation": message,
        "error": {"code": status, "message": message, "type": getattr(kind, "code", kind.__name__)},
    }
