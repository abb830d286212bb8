"""Text columns → typed columns, ids and rejections: the second half of the parse step.

    headers    which column of the file is which field
    evidence   the decimal mark and the order of day and month, decided once for the file
    typed      the rules of every field as one SELECT over whole columns
    dimensions ids and last known values of campaigns, ad sets, …
    repeats    records with the same key
    rejected   a sentence for every refused record
    check      all of it in order

Authors of pipelines need only `n` and `v`: the ready-made normalisers and validators.
"""

from __future__ import annotations

from weighbridge.rules import normalise as n
from weighbridge.rules import validate as v

__all__ = ["n", "v"]
