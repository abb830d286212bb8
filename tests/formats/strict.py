"""RFC 4180, character by character: an independent reading of the rules in `formats.scan`, slow and simple."""

from __future__ import annotations

from dataclasses import replace

from .conftest import Row

HEADER_WIDTH = 2
_OPENED, _CLOSED, _PLAIN, _START = "opened", "closed", "plain", "start"


def records(text: str, width: int, *, strict_quotes: bool, line: int) -> list[Row]:
    """The records of a text below a header of two cells that ends with LF."""
    rows: list[Row] = []
    texts: list[str] = []
    at = 0
    while at < len(text):
        cells, end, fault = _record(text, at, strict_quotes)
        given_up = 1 if fault else _given_up(text[at:end], width)
        if not given_up:
            rows.append(_row(len(rows), line, cells, width, text[at:end]))
            texts.append(text[at:end])
            line += _lines(text[at:end])
            at = end
        for _ in range(given_up):
            end = _line_end(text, at)
            raw = text[at:end].rstrip("\r\n")
            rows.append(Row(len(rows), line, 0, [None] * HEADER_WIDTH, raw, fault or "records_in_quotes"))
            texts.append(text[at:end])
            line += _lines(text[at:end])
            at = end
    return _without_lone_returns(rows, texts, width)


def _without_lone_returns(rows: list[Row], texts: list[str], width: int) -> list[Row]:
    """CR alone ends a record only between whole ones: what has another width is torn, and so is what stands next to it.

    Nothing is torn where at most one part of a line has any text.
    """
    torn = [False] * len(rows)
    first = 0
    for place, text in enumerate(texts):
        if text.endswith("\r") and place + 1 < len(texts) and rows[place].cells:
            continue
        line = range(first, place + 1)
        first = place + 1
        fits = {at: _is_whole(rows[at], width) and texts[at].strip() != "" and width > 1 for at in line}
        filled = [at for at in line if texts[at].strip()]
        if len(filled) > 1 and not all(fits[at] for at in filled):
            for at in line:
                torn[at] = not all(fits.get(near, True) for near in (at - 1, at, at + 1))
    found: list[Row] = []
    for place, row in enumerate(rows):
        joins = (
            torn[place]
            and place > 0
            and torn[place - 1]
            and texts[place - 1].endswith("\r")
            and rows[place - 1].cells
        )
        if joins:
            raw = f"{found[-1].surplus}{texts[place]}"
            found[-1] = replace(found[-1], surplus=raw)
        elif torn[place]:
            found.append(Row(0, row.line, 0, [None] * HEADER_WIDTH, texts[place], "stray_line_end"))
        else:
            found.append(row)
    return [
        replace(
            row,
            row_index=index,
            surplus=row.surplus.rstrip("\r\n")
            if row.fault == "stray_line_end" and row.surplus
            else row.surplus,
        )
        for index, row in enumerate(found)
    ]


def _is_whole(row: Row, width: int) -> bool:
    return row.fault is None or (row.fault == "wrong_cell_count" and row.cells == width)


def _row(index: int, line: int, cells: list[str], width: int, text: str) -> Row:
    if not text.strip("\r\n"):  # a blank line
        return Row(index, line, HEADER_WIDTH, [""] * HEADER_WIDTH, None)
    surplus = ",".join(cells[HEADER_WIDTH:]) if any(cells[HEADER_WIDTH:]) else None
    values = [*cells, None, None][:HEADER_WIDTH]
    if len(cells) == width and surplus is None:
        return Row(index, line, HEADER_WIDTH, values, None)
    return Row(index, line, len(cells), values, surplus, "wrong_cell_count")


def _record(text: str, at: int, strict_quotes: bool) -> tuple[list[str], int, str]:
    """Its cells and where the next one begins, or what is wrong with it."""
    cells: list[str] = []
    cell, state = "", _START
    while True:
        char = text[at] if at < len(text) else ""
        if state == _OPENED:
            if not char:
                return [], at, "open_quote"
            if char != '"':
                cell += char
            elif text[at + 1 : at + 2] == '"':
                cell += '"'
                at += 1
            else:
                state = _CLOSED
            at += 1
            continue
        if char == "" or char in "\r\n,":
            cells.append(cell)
            if char != ",":
                return cells, at + (2 if text[at : at + 2] == "\r\n" else len(char)), ""
            cell, state = "", _START
        elif state == _CLOSED:
            if char != " ":
                return [], at, "text_after_quote"
        elif char == '"' and state == _START and not cell.strip(" "):
            cell, state = "", _OPENED
        elif char == '"' and strict_quotes:
            return [], at, "quote_in_cell"
        else:
            cell += char
            state = _START if not cell.strip(" ") else _PLAIN
        at += 1


def _given_up(text: str, width: int) -> int:
    """How many lines of a record are given up, because its quotes hold what looks like records."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    if len(lines) < 2:
        return 0
    fits = [line.count(",") == width - 1 and bool(line.strip()) for line in lines]
    inside = fits[1:-1]
    if width > 1 and len(inside) >= 2 and sum(inside) / len(inside) >= 0.9:
        return 1
    return len(lines) if any(inside) or (width > 1 and all(fits)) else 0


def _line_end(text: str, at: int) -> int:
    while at < len(text) and text[at] not in "\r\n":
        at += 1
    return at + (2 if text[at : at + 2] == "\r\n" else 1 if at < len(text) else 0)


def _lines(text: str) -> int:
    return text.replace("\r\n", "\n").replace("\r", "\n").count("\n")
