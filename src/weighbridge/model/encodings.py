"""Text encodings that a file may be written in: the names that users type, and Python's codecs for them."""

from __future__ import annotations

import codecs
from collections.abc import Mapping

# Encodings that share a codec differ only in characters that the codec reads in addition: cp932 is Shift-JIS with the
# characters that Windows added, gb18030 contains GBK and GB2312.
ENCODINGS: Mapping[str, str] = {
    "utf-8": "utf-8",
    "utf-16": "utf-16",
    "utf-16-le": "utf-16-le",
    "utf-16-be": "utf-16-be",
    "windows-1252": "cp1252",
    "windows-1250": "cp1250",
    "iso-8859-1": "iso8859-1",
    "iso-8859-2": "iso8859-2",
    "iso-8859-15": "iso8859-15",
    "macroman": "mac-roman",
    "mac-latin2": "mac-latin2",
    "mac-iceland": "mac-iceland",
    "shift-jis": "cp932",
    "euc-jp": "euc_jp",
    "gbk": "gb18030",
    "gb18030": "gb18030",
    "big5": "cp950",
    "euc-kr": "cp949",
    "windows-1251": "cp1251",
    "windows-1253": "cp1253",
    "windows-1254": "cp1254",
    "windows-1255": "cp1255",
    "windows-1256": "cp1256",
    "windows-1257": "cp1257",
    "windows-1258": "cp1258",
    "windows-874": "cp874",
    "iso-8859-5": "iso8859-5",
    "iso-8859-7": "iso8859-7",
    "iso-8859-9": "iso8859-9",
    "iso-8859-13": "iso8859-13",
    "iso-8859-16": "iso8859-16",
    "koi8-r": "koi8-r",
    "koi8-u": "koi8-u",
    "mac-cyrillic": "mac-cyrillic",
    "cp437": "cp437",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
}
# Names that Python's own aliases do not cover, or would take for a narrower codec.
_ALIASES: Mapping[str, str] = {
    "ansi": "windows-1252",
    "mac": "macroman",
    "macintosh": "macroman",
    "x-mac-roman": "macroman",
    "x-sjis": "shift-jis",
    "windows-31j": "shift-jis",
    "windows-932": "shift-jis",
    "windows-936": "gbk",
    "windows-949": "euc-kr",
    "windows-950": "big5",
    "tis-620": "windows-874",
}
_WIDER: Mapping[str, str] = {
    "shift_jis": "cp932",
    "gbk": "gb18030",
    "gb2312": "gb18030",
    "big5": "cp950",
    "euc_kr": "cp949",
    "utf-8-sig": "utf-8",
    "ascii": "utf-8",
    "tis-620": "cp874",
}


def codec_of(name: str) -> str | None:
    """Python's codec for an encoding as a user names it (`Windows 1250`, `latin2`, `cp1250`); None if not supported."""
    typed = name.strip().lower().replace("_", "-").replace(" ", "-")
    typed = _ALIASES.get(typed, typed)
    if typed in ENCODINGS:
        return ENCODINGS[typed]
    try:
        found = codecs.lookup(typed).name
    except (LookupError, ValueError):  # a NUL in the name
        return None
    found = _WIDER.get(found, found)
    return found if found in ENCODINGS.values() else None


def name_of(codec: str) -> str:
    """The encoding's name as a user types it: `windows-1250` for cp1250."""
    return next((name for name, known in ENCODINGS.items() if known == codec), codec)
