"""Functions with their owner's rights do not look in the schema public, where others may create objects."""

from __future__ import annotations

import re
from typing import Any

from weighbridge.postgres import apply_functions

OURS = "pronamespace IN ('weighbridge'::regnamespace, 'ingest'::regnamespace, 'public'::regnamespace)"


def test_every_function_with_its_owners_rights_looks_only_in_our_schema(query: Any) -> None:
    found = query(f"SELECT proname, proconfig FROM pg_proc WHERE prosecdef AND {OURS} ORDER BY proname")
    assert len(found) > 100
    path = "search_path=weighbridge, pg_temp"
    assert [name for name, config in found if path not in (config or ())] == []


def test_every_function_qualifies_the_names_of_the_schema_public(query: Any) -> None:
    """Only a call would show the others: Postgres looks up the names in a body of PL/pgSQL when it runs."""
    tables = [
        name for (name,) in query("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace")
    ]
    functions = [
        name for (name,) in query("SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace")
    ]
    unqualified = re.compile(
        rf"\b(?:FROM|JOIN|INTO|STRICT|UPDATE|USING)\s+(?:{'|'.join(tables)})\b|(?<![.\w])(?:{'|'.join(functions)})\("
    )
    wrong = [
        f"{source.subject}/functions.sql: {line.strip()}"
        for source in apply_functions.sources()
        for line in source.sql.splitlines()
        if unqualified.search(line.partition("--")[0])
    ]
    assert wrong == []


def test_a_function_in_the_schema_public_is_not_called_instead_of_one_of_postgres(
    query: Any, workspace: Any
) -> None:
    """An overload whose parameters match better than those of the built-in one."""
    query(
        "CREATE FUNCTION public.format(text, uuid) RETURNS text LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'called with the rights of the owner'; END $$;"
        "CREATE FUNCTION public.format(text, text, uuid) RETURNS text LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'called with the rights of the owner'; END $$;"
        "CREATE FUNCTION public.jsonb_build_object(text, boolean) RETURNS jsonb LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'called with the rights of the owner'; END $$"
    )
    site = "INSERT INTO sites (workspace_id, name, providers) VALUES (%s, 'a', '{google_ads}') RETURNING id"
    [(site_id,)] = query(site, (workspace,))
    query("SELECT weighbridge.refuse_credentials(%s, 'google_ads', 1, 'x')", (site_id,))
    query(
        "SELECT public.record_provider_outcome(%s, 'google_ads', false, true) FROM generate_series(1, 5)",
        (site_id,),
    )
    assert query("SELECT condition FROM weighbridge.alerts") == [("circuit_open",)]
