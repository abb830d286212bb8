"""Peer: dlt's fastest path, an Arrow table merged (upsert) into one flat table; nothing is validated.

Run as a program it does one import and prints its seconds. That clock starts when Python and dlt are loaded,
which flatters dlt by some three seconds against Weighbridge, whose clock starts with the process.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from .measure import Failed, measure
from .setting import AGAIN, FIRST, Result, Setting

_COLUMNS = {
    "Day": "metric_date",
    "Campaign name": "campaign_name",
    "Campaign ID": "campaign_id",
    "Ad set name": "ad_set_name",
    "Ad set ID": "ad_set_id",
    "Ad name": "ad_name",
    "Ad ID": "ad_id",
    "Reach": "reach",
    "Impressions": "impressions",
    "Link clicks": "clicks",
    "Amount spent (USD)": "spend",
    "Purchases": "conversions",
    "Purchases conversion value": "conversion_value",
}


def run(setting: Setting, export: Path) -> Iterator[Result]:
    """The import, then the same import again."""
    with (
        setting.database("bench_dlt") as uri,
        TemporaryDirectory(prefix="dlt-", dir=setting.folder) as own,  # what it remembers of earlier loads
    ):
        quiet = {"RUNTIME__DLTHUB_TELEMETRY": "false", "DLT_DATA_DIR": own}
        for what in (FIRST, AGAIN):
            setting.quiet()
            timed = measure(
                [sys.executable, "-m", "bench.dlt_arrow", uri, export], env=setting.environment(**quiet)
            )
            said = json.loads(timed.output.splitlines()[-1])
            if said["rows"] != setting.rows:
                raise Failed(f"expected {setting.rows} rows, got {said['rows']}")
            yield Result("dlt Arrow merge", what, setting.rows, said["seconds"], timed.peak_mb)


def _import(uri: str, export: Path) -> None:
    import dlt
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    started = time.perf_counter()
    texts = {header: pa.string() for header in _COLUMNS if header.endswith(("ID", "name"))}
    money = dict.fromkeys(("Amount spent (USD)", "Purchases conversion value"), pa.decimal128(18, 6))
    table = csv.read_csv(export, convert_options=csv.ConvertOptions(column_types=texts | money))
    table = table.filter(pc.is_valid(table["Day"])).rename_columns(_COLUMNS)  # the totals row has no day
    # A password and a host that libpq ignores on a socket: dlt insists on them.
    credentials = uri.replace("postgres:@/", "postgres:none@localhost/")
    pipeline = dlt.pipeline("bench", destination=dlt.destinations.postgres(credentials), dataset_name="bench")
    info = pipeline.run(
        table,
        table_name="daily_metrics",
        write_disposition={"disposition": "merge", "strategy": "upsert"},
        primary_key=["metric_date", "ad_id"],
        loader_file_format="csv",
    )
    info.raise_on_failed_jobs()
    seconds = time.perf_counter() - started
    with pipeline.sql_client() as client:
        rows = client.execute_sql("SELECT count(*) FROM daily_metrics")[0][0]
    print(json.dumps({"seconds": seconds, "rows": rows}))


if __name__ == "__main__":
    _import(sys.argv[1], Path(sys.argv[2]))
