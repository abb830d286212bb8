"""`make bench`: one generated Meta export into one Postgres, by Weighbridge and other tools, one after another."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

from weighbridge.testing.exports import bench_meta_export

from . import deliveries, dlt_arrow, keywords, ours, psql_script, storage
from .measure import Failed
from .report import print_goals, print_table
from .setting import Result, Setting, medians

CONTENDERS = ("psql", "dlt", "ours", "large", "small", "keywords", "storage", "deliveries")
_RESULTS = Path(__file__).parent / "results" / "latest.json"


def main() -> None:
    args = _arguments()
    chosen = args.only.split(",")
    with tempfile.TemporaryDirectory(prefix="wb-bench-", ignore_cleanup_errors=True) as folder:
        setting = Setting(
            Path(folder) / "home",
            Path(folder),
            args.rows,
            args.scale,
            args.small,
            args.keywords,
            args.backlog,
        )
        export = Path(folder) / "meta.csv"
        bench_meta_export(export, args.rows)
        size = export.stat().st_size / 1e6
        if not args.json:
            print(f"{args.rows:,} rows, {size:.1f} MB, {os.cpu_count()} cores")
        with setting.server():
            rounds = [_run(chosen, setting, export) for _ in range(args.repeat)]
    results = medians(rounds)
    _RESULTS.parent.mkdir(exist_ok=True)
    text = json.dumps(
        {
            "rows": args.rows,
            "mb": round(size, 1),
            "rounds": args.repeat,
            "results": [asdict(r) for r in results],
        },
        indent=2,
    )
    _RESULTS.write_text(text + "\n")
    if args.json:
        print(text)
    else:
        print_table(results)
        print_goals(results)
    if any(result.seconds is None for result in results):
        sys.exit(1)


def _run(chosen: Iterable[str], setting: Setting, export: Path) -> list[Result]:
    contenders: dict[str, Callable[[], Iterable[Result]]] = {
        "psql": lambda: psql_script.run(setting, export),
        "dlt": lambda: dlt_arrow.run(setting, export),
        "ours": lambda: ours.run(setting, export),
        "large": lambda: ours.run_large(setting),
        "small": lambda: ours.run_small(setting),
        "keywords": lambda: keywords.run(setting),
        "storage": lambda: storage.run(setting),
        "deliveries": lambda: deliveries.run(setting),
    }
    results: list[Result] = []
    for name in chosen:
        try:
            results.extend(contenders[name]())
        except Failed as error:
            results.append(Result(name, "failed", setting.rows, note=str(error)))
    return results


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    sizes = {
        "rows": (380_000, "rows of the file"),
        "scale": (10, "how many times larger the large file is"),
        "small": (200, "how many small files"),
        "keywords": (1_000_000, "keywords of a project"),
        "backlog": (1_000_000, "conversions that wait"),
        "repeat": (3, "how many rounds; the median counts"),
    }
    for name, (otherwise, what) in sizes.items():
        default = int(os.environ.get(f"WEIGHBRIDGE_BENCH_{name.upper()}", otherwise))
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{what} (%(default)s)")
    parser.add_argument("--only", default=",".join(CONTENDERS), help="some of %(default)s")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    args = parser.parse_args()
    unknown = set(args.only.split(",")) - set(CONTENDERS)
    if unknown:
        parser.error(f"--only: expected some of {', '.join(CONTENDERS)}, got {', '.join(sorted(unknown))}")
    return args


if __name__ == "__main__":
    main()
