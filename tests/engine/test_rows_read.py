"""An upload has the number of rows read, even for a small file."""

from __future__ import annotations

from tests.engine.conftest import Put, Run, meta_file


async def test_an_upload_that_is_parsed_within_a_second_has_its_row_count(put: Put, run: Run) -> None:
    upload = await run(await put(meta_file(days=3, ads=4, extra=("2026-01-05,too,few",))))
    assert (upload.rows_read, upload.total_rows) == (13, 13)
