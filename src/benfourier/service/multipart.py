"""Files in a multipart body, kept in memory."""

from dataclasses import dataclass, field

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from benfourier.service import refusals

MOST = 1000  # parts


@dataclass(frozen=True)
class Upload:
    """A file as it came."""

    name: str
    content: bytes


@dataclass
class _Part:
    """A part that is being read."""

    header: bytes = b""
    value: bytes = b""
    disposition: bytes = b""
    content: bytearray = field(default_factory=bytearray)


def files_in(body: bytearray, kind: str, wanted: str) -> list[Upload]:
    """Returns the files of one field of a form, or raises a refusal.

    Args:
        body: the whole form.
        kind: the header Content-Type.
        wanted: name of the field.
    """
    boundary = parse_options_header(kind)[1].get(b"boundary", b"")
    if not boundary:
        raise refusals.bad("the multipart body has no boundary in its content type; send it again")
    reader = _Reader()
    try:
        parser = MultipartParser(boundary, reader.callbacks())  # type: ignore[arg-type]
        parser.write(bytes(body))
        parser.finalize()
    except (FormParserError, ValueError) as error:
        raise refusals.bad(f"the multipart body is broken ({error}); send it again") from error
    if not reader.ended:
        raise refusals.bad("the multipart body is cut short; send it again")
    return [upload for name, upload in map(_told, reader.parts) if name == wanted and upload is not None]


class _Reader:
    """Gathers what the parser finds."""

    def __init__(self) -> None:
        self.parts: list[_Part] = []
        self.ended = False

    def callbacks(self) -> dict[str, object]:
        """Returns the calls that the parser makes."""
        return {
            "on_part_begin": self._begin,
            "on_part_data": lambda data, start, end: self.parts[-1].content.extend(data[start:end]),
            "on_header_field": self._field,
            "on_header_value": self._value,
            "on_header_end": self._header,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        if len(self.parts) == MOST:
            raise ValueError(f"it has more than {MOST} parts")
        self.parts.append(_Part())

    def _field(self, data: bytes, start: int, end: int) -> None:
        self.parts[-1].header += data[start:end]

    def _value(self, data: bytes, start: int, end: int) -> None:
        self.parts[-1].value += data[start:end]

    def _header(self) -> None:
        part = self.parts[-1]
        if part.header.lower() == b"content-disposition":
            part.disposition = part.value
        part.header = part.value = b""

    def _end(self) -> None:
        self.ended = True


def _told(part: _Part) -> tuple[str, Upload | None]:
    """A part's field, and its file if it is one."""
    options = parse_options_header(part.disposition)[1]
    name = options.get(b"name", b"").decode("utf-8", "replace")
    if b"filename" not in options:
        return name, None
    file = options[b"filename"].decode("utf-8", "replace")
    return name, Upload(file[:200] or "image", bytes(part.content))
