"""Text columns → typed columns, ids and rejections: the second half of the parse step.

    headers     which column of the file is which field
    plan        a pipeline laid over one file: its columns, and the SQL of their rules
    sheets      the records as DuckDB scans them
    evidence    the decimal mark and the order of day and month, decided once for the file
    numbers     how numbers are written
    dates       how dates and times are written
    typed       every record's fields, and what kind of record it is
    assumed     warnings about values that rest on an assumption
    dimensions  ids and last known values of campaigns, ad sets, …
    facts       the rows of the grain, in the order of its key
    repeats     records with the same key
    rejected    a sentence for every refused record
    check       all of it in order → checked

Authors of pipelines need only `n` and `v`: the ready-made normalisers and validators.
"""

from __future__ import annotations

from weighbridge.rules import normalise as n
from weighbridge.rules import validate as v

__all__ = ["n", "v"]
