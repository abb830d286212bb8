"""A multipart body as a stream of parts: no part is buffered as a whole."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from weighbridge.model.errors import RequestRefused

_FIELD_BYTES = 10_000


@dataclass(frozen=True)
class Part:
    """A field or, if it has a file name, a file. Read it before the next part."""

    name: str
    filename: str | None
    size: int | None  # as declared by the sender, if at all
    _reader: _Reader

    async def chunks(self) -> AsyncIterator[bytes]:
        """The rest of the part."""
        while True:
            event = await self._reader.next()
            if not isinstance(event, bytes):
                return
            yield event

    async def text(self) -> str:
        collected = b""
        async for chunk in self.chunks():
            collected += chunk
            if len(collected) > _FIELD_BYTES:
                raise RequestRefused(
                    422, "invalid_field", f"{self.name}: expected a short value, got a long one."
                )
        try:
            return collected.decode()
        except UnicodeDecodeError:
            raise RequestRefused(422, "invalid_field", f"{self.name}: expected text in UTF-8.") from None


async def parts(body: AsyncIterator[bytes], boundary: bytes) -> AsyncIterator[Part]:
    """The parts in order; the unread rest of a part is skipped."""
    reader = _Reader(body, boundary)
    while (event := await reader.next()) is not None:
        if isinstance(event, dict):
            yield _part(event, reader)


def _part(headers: dict[bytes, bytes], reader: _Reader) -> Part:
    _, options = parse_options_header(headers.get(b"content-disposition", b""))
    length = headers.get(b"content-length", b"").decode("latin-1")
    filename = options.get(b"filename")
    return Part(
        name=options.get(b"name", b"").decode("utf-8", "replace"),
        filename=None if filename is None else filename.decode("utf-8", "replace"),
        size=int(length) if length.isascii() and length.isdigit() else None,
        _reader=reader,
    )


class _Reader:
    """Events: a part's headers (dict), its bytes (bytes), its end (True); None after the last part."""

    def __init__(self, body: AsyncIterator[bytes], boundary: bytes) -> None:
        self._body = body
        self._events: deque[dict[bytes, bytes] | bytes | bool] = deque()
        self._headers: dict[bytes, bytes] = {}
        self._name, self._value = b"", b""
        self._ended = False
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin,
                    "on_header_field": self._header_name,
                    "on_header_value": self._header_value,
                    "on_header_end": self._header_end,
                    "on_headers_finished": self._headers_finished,
                    "on_part_data": self._data,
                    "on_part_end": lambda: self._events.append(True),
                    "on_end": self._end,
                },
            )
        except FormParserError as error:
            raise malformed(str(error)) from error

    async def next(self) -> dict[bytes, bytes] | bytes | bool | None:
        while not self._events:
            try:
                chunk = await anext(self._body)
            except StopAsyncIteration:
                if not self._ended:
                    raise malformed("it ends in the middle of a part") from None
                return None
            if not self._ended:  # data after the last part is ignored
                try:
                    self._parser.write(chunk)
                except FormParserError as error:
                    raise malformed(str(error)) from error
        return self._events.popleft()

    def _begin(self) -> None:
        self._headers, self._name, self._value = {}, b"", b""

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._name, self._value = b"", b""

    def _headers_finished(self) -> None:
        self._events.append(self._headers)

    def _data(self, data: bytes, start: int, end: int) -> None:
        self._events.append(bytes(data[start:end]))

    def _end(self) -> None:
        self._ended = True


def malformed(why: str) -> RequestRefused:
    return RequestRefused(400, "malformed_body", f"The multipart body cannot be read: {why}.")
