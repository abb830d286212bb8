"""The choices of read options in a form, without a browser."""

from __future__ import annotations

import pytest

from weighbridge.console.uploads.read_options import stored_choices
from weighbridge.model.encodings import ENCODINGS, codec_of, name_of
from weighbridge.model.read_options import ReadOptions


@pytest.mark.parametrize("name", ["windows-1252", "shift-jis", "gbk"])
def test_a_stored_encoding_is_offered_once_and_chosen(name: str) -> None:
    codec = codec_of(name)
    assert codec is not None
    encoding = next(
        each for each in stored_choices(ReadOptions(encoding=name_of(codec))) if each.name == "encoding"
    )
    assert [option.value for option in encoding.options if option.chosen] == [name]
    assert sorted(option.value for option in encoding.options) == sorted(["detect", *ENCODINGS])
