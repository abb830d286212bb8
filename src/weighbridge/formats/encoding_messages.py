"""Called by to_utf8.py: warnings and refusals about encodings.

Only the sender of the file sees a warning, so it may show a cell. A refusal is also logged, so it shows single letters.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from weighbridge.formats.file_bytes import cell_around, line_at, offset_of
from weighbridge.model.encodings import ENCODINGS, name_of
from weighbridge.model.errors import FileRefused, did_you_mean

if TYPE_CHECKING:
    from weighbridge.formats.detect_encoding import DoubleEncoding, Guess

LONGEST_CELL = 60  # bytes of a cell that a warning shows
A_FEW = 2  # words that were encoded twice
_LOST, _FIRST_OF_LOST = "\ufffd".encode(), b"\xef"  # a search for one byte is much faster than for three
_FIRST_OF_TWICE = b"\xc3"  # every character that was encoded twice begins with this byte
_MOST_COMMON_TWICE, _LAST_OF_COMMON = "Ã".encode(), b"\x83"


@dataclass
class EncodingWarnings:
    """Collects findings about the encoding while a file is read, and makes the warnings."""

    path: Path
    show_cell: bool
    given: bool = False  # the sender named the encoding
    _guessed: Guess | None = None
    _twice: DoubleEncoding | None = None
    _lost: bool = False
    _chunks: int = 0

    def inspect(self, chunk: bytes) -> None:
        """Look at the next chunk of the file, as UTF-8.

        The first chunks, and then every fourth, are searched for any double-encoded letter; the others only for the
        most common one.
        """
        self._chunks += 1
        any_letter = self._chunks < 8 or self._chunks % 4 == 0
        if (
            _FIRST_OF_TWICE in chunk
            if any_letter
            else _LAST_OF_COMMON in chunk and _MOST_COMMON_TWICE in chunk
        ):
            if self._twice is None:
                from weighbridge.formats.detect_encoding import DoubleEncoding

                self._twice = DoubleEncoding()
            self._twice.inspect(chunk)
        self._lost = self._lost or (_FIRST_OF_LOST in chunk and _LOST in chunk)

    def use_guess(self, guess: Guess, broken_at: int) -> None:
        """Keep the guess for a warning. Refuses a file that mixes encodings or fits two equally well."""
        if guess.mixed:
            utf8, other = self._line_of(guess.mixed), line_at(self.path, broken_at, "latin-1")
            raise FileRefused(
                "bad_encoding",
                f"Line {other} cannot be read as UTF-8. Line {utf8} can: the file mixes encodings or is cut off. "
                "Save the whole file as UTF-8, or name its encoding with --encoding.",
            )
        if guess.rival and guess.tied:
            one, two = _letters(*_read_both(guess.word, guess))
            raise FileRefused(
                "bad_encoding",
                f"Line {self._line_of(guess.word)} cannot be read as UTF-8, and its encoding is ambiguous: "
                f"it has {one} in {name_of(guess.codec)} and {two} in {name_of(guess.rival)}. "
                "Name the encoding with --encoding, or save the file as UTF-8.",
            )
        self._guessed = guess if guess.rival else None
        self._twice, self._lost = None, False  # search again in the decoded text

    def warnings(self) -> dict[str, str]:
        """Code → sentence. Call it after the whole file was inspected."""
        found = {}
        if self._guessed:
            code = "mixed_encodings" if self._guessed.one_word else "encoding_guessed"
            found[code] = self._in_both(self._guessed)
        if self._twice and (self._twice.sure or self._twice.found >= A_FEW) and self._twice.example:
            found["double_encoded"] = self._encoded_twice(*self._twice.example)
        if self._lost:
            found["lost_letters"] = (
                "The file contains the replacement character '\ufffd': letters were lost before the upload. "
                "Export it again as UTF-8."
            )
        return found

    def _in_both(self, guess: Guess) -> str:
        assert guess.rival
        offset = offset_of(self.path, guess.word)
        cell = cell_around(self.path, offset, len(guess.word), LONGEST_CELL)
        one, two = _read_both(cell, guess)
        one, two = (_quoted(one), _quoted(two)) if self.show_cell else _letters(one, two)
        rival = name_of(guess.rival)
        if guess.one_word:
            return (
                f"The file was read as {name_of(guess.codec)}, where line {line_at(self.path, offset, 'latin-1')} has "
                f"{one}; in {rival} it would be {two}. If that is right, the file mixes encodings: save all of it as "
                "UTF-8 and load it again."
            )
        return (
            f"The file does not declare its encoding. It was read as {name_of(guess.codec)}, where line "
            f"{line_at(self.path, offset, 'latin-1')} has {one}; as {rival} it would be {two}. "
            f"If that is right, load the file again with --encoding {rival}."
        )

    def _encoded_twice(self, word: bytes, meant: str) -> str:
        is_utf8 = offset_of(self.path, word) >= 0
        where = f"Line {self._line_of(word)}" if is_utf8 else "The file"
        shown = f"{_quoted(word.decode())}, which was probably {_quoted(meant)}"
        if not self.show_cell:
            one, two = _letters(word.decode(), meant)
            shown = f"{one}, which was probably {two}"
        return (
            f"{where} has {shown}: the text was encoded twice before the upload. It was loaded unchanged. "
            "Export the file again as UTF-8."
        )

    def _line_of(self, word: bytes) -> int:
        return line_at(self.path, max(0, offset_of(self.path, word)), "latin-1")


def undecodable(path: Path, offset: int, codec: str, given: bool) -> FileRefused:
    line = line_at(path, offset, codec if codec.startswith("utf-16") else "latin-1")
    spoken = {"utf-8": "UTF-8", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16"}.get(codec) or name_of(codec)
    hint = "Save the file as UTF-8, or name its encoding with --encoding."
    if given:
        hint = "Leave --encoding out to detect the encoding, or save the file as UTF-8."
    return FileRefused("bad_encoding", f"Line {line} cannot be read as {spoken}. {hint}")


def other_byte_order_mark(marked: str, encoding: str) -> FileRefused:
    return FileRefused(
        "bad_encoding",
        f"--encoding is {encoding}, but the file starts with the byte order mark of {marked}. "
        "Leave --encoding out.",
    )


def is_utf8(encoding: str) -> FileRefused:
    return FileRefused(
        "bad_encoding",
        f"--encoding is {encoding}, but the file is UTF-8: as {encoding} its letters would be garbled. "
        "Leave --encoding out.",
    )


def unknown_encoding(encoding: str) -> FileRefused:
    return FileRefused(
        "bad_encoding", f"--encoding: {encoding!r} is not a known encoding{did_you_mean(encoding, ENCODINGS)}"
    )


def is_iso_2022_jp(path: Path, offset: int) -> FileRefused:
    return FileRefused(
        "bad_encoding",
        f"Line {line_at(path, offset, 'latin-1')} is text in ISO-2022-JP. Save the file as UTF-8.",
    )


def has_nul(line: int) -> FileRefused:
    return FileRefused(
        "malformed_file", f"Line {line} has a NUL character. Export the file again as plain text."
    )


def _read_both(cell: bytes, guess: Guess) -> tuple[str, str]:
    assert guess.rival
    return cell.decode(guess.codec, "backslashreplace"), cell.decode(guess.rival, "backslashreplace")


def _letters(one: str, two: str) -> tuple[str, str]:
    """The first letters in which the two texts differ."""
    place = next(
        (at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two))
    )
    return _quoted(one[place : place + 1]), _quoted(two[place : place + 1])


def _quoted(text: str) -> str:
    shown = "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in text)
    return f"'{shown}'"
