"""Characters around the text of a cell that do not belong to it."""

SPACE = " \t\r\n\u00a0\u2007\u202f\u200b\ufeff"
