"""Logging: one line a record, as text for people or JSON for machines, with the request's id on each."""

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime

request_id: ContextVar[str] = ContextVar("request_id", default="-")

# What LogRecord always carries; anything else came as `extra=` and belongs into the line.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


def set_up(level: str, style: str) -> None:
    """Send all records of this process to standard error in the given style."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if style == "json" else _Text())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # We write a line for each request, with its id; these loggers would repeat it without the id.
    for name in ("uvicorn.access", "uvicorn.error", "httpx", "alembic", "keystoneauth"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "request_id": request_id.get(),
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        message = _printable(record.getMessage())
        fields = "".join(f" {key}={value!r}" for key, value in _extra(record).items())
        line = f"{time} {record.levelname:<7} {record.name} [{request_id.get()}] {message}{fields}"
        if record.exc_info:
            lines = self.formatException(record.exc_info).split("\n")
            line += "".join(f"\n    {_printable(each)}" for each in lines)
        return line


def _printable(message: str) -> str:
    """A newline would let a client forge the next line, and an escape sequence what a terminal shows of it."""
    if message.isprintable():
        return message
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
