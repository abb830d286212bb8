"""The kinds of records: the numbers in the column `kind` of the table `typed`."""

from __future__ import annotations

ACCEPTED = 0
BLANK = 1
TOTALS = 2
REJECTED = 3
NOT_DAILY = 4  # rejected: its period has several days
DUPLICATE = 5
HEADER = 6  # the header again
OTHER_TABLE = 7  # the header of another table, which refuses the file

# Provisional, until the other records of the file are known:
NAMES = 8  # classify_records.classify_names: names where values are expected
MISFIT = 9  # its cells do not fit the header, or it could not be read
LEADING = 10  # totals_rows.classify_leading: without a key, at the beginning of the file
LABELLED = 11  # totals_rows.classify_labelled: its key is a label such as Total
BAD_LABEL = 12  # the same, and certainly not a record: the label is where a date or a number is required
NAMELESS = 13  # totals_rows.classify_nameless: the first record, with a day and without any name
BAD_NAMELESS = 14  # the same, with an error
