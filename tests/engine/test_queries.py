"""Named queries: one name per operation, from Python to SQL."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import weighbridge
from weighbridge.postgres.queries import load

PACKAGE = Path(weighbridge.__file__).parent
FILES = sorted(
    file
    for file in PACKAGE.rglob("*.sql")
    if file.name != "functions.sql" and file.parent.name != "migrations"
)
# SELECT a, b FROM weighbridge.f(…), SELECT weighbridge.f(…), and nothing else.
ONLY_A_CALL = re.compile(
    r"SELECT (?:[\w.*, ]+ FROM )?(?:weighbridge|ingest|public)\.(?P<function>\w+)\((?:(?! FROM ).)*\)(?: AS \w+| \w+)?"
)


def name_of_module(file: Path) -> str:
    return ".".join(("weighbridge", *file.relative_to(PACKAGE).with_suffix("").parts))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_a_query_that_only_calls_a_function_has_its_name(file: Path) -> None:
    others = {}
    for name, text in load(name_of_module(file)).items():
        statement = " ".join(re.sub(r"--.*", "", text).split())
        call = ONLY_A_CALL.fullmatch(statement)
        if call and call["function"] != name:
            others[name] = call["function"]
    assert others == {}


def test_the_pattern_distinguishes_a_call_from_a_query() -> None:
    calls = [
        "SELECT weighbridge.fail_upload(%s, %s, %s)",
        "SELECT a, b.c FROM weighbridge.claim(%(x)s, make_interval(days => %s)) AS r",
        "SELECT * FROM public.recover_stuck_offline_conversion_jobs(%s)",
    ]
    queries = [
        "SELECT weighbridge.now() AT TIME ZONE 'UTC'",
        "SELECT failures FROM public.data_uploads WHERE id = weighbridge.fence(%s)",
        "SELECT g.a FROM weighbridge.delivery_groups(%s) g JOIN public.sites s ON s.id = g.site_id",
        "SELECT weighbridge.signature(k.tokens, '{}') FROM public.keywords k WHERE (k.volume > 0)",
    ]
    assert [bool(ONLY_A_CALL.fullmatch(each)) for each in calls + queries] == [True] * 3 + [False] * 4
