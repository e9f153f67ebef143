"""Logs as JSON, one object per line."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

LOGGER = logging.getLogger("benfourier.service")


class JsonLines(logging.Formatter):
    """A record as one line of JSON; what was given as `extra={"facts": {...}}` stands beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def tell(event: str, *, level: int = logging.INFO, trace: bool = False, **facts: object) -> None:
    """Logs an event with its facts."""
    LOGGER.log(level, event, extra={"facts": facts}, exc_info=trace)


def set_up(level: str, stream: TextIO | None = None) -> None:
    """Sends the service's and the server's logs to a stream, by default standard error, as JSON lines."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    levels = {"benfourier.service": level.upper(), "uvicorn.error": "WARNING", "python_multipart": "ERROR"}
    for name, least in levels.items():
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(least)
        logger.propagate = False
