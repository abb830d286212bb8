"""The example pipeline: a table of its own, found by the setting and as an installed package."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import prefork
from weighbridge import ConfigError
from weighbridge.pipelines import find

ROOT = Path(__file__).parents[2]
ORDERS = "Order no.,Ordered,Total,Status\na-1,2026-01-31,$1234.50,Paid\na-2,2026-02-01,7.00,open\n"


@pytest.fixture
def weighbridge(database_url: str, home: Path) -> Any:
    """Run the command as a user does, with more of the environment where the test wants it."""

    def weighbridge(*words: str, **environment: str) -> Any:
        done = subprocess.run(
            [prefork.command(), *words],
            env={**os.environ, "DATABASE_URL": database_url, "WEIGHBRIDGE_HOME": str(home), **environment},
            cwd=home,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if "--json" in words else done.stdout

    return weighbridge


def test_a_pipeline_of_ones_own_is_loaded_into_a_table_of_its_own(
    weighbridge: Any, home: Path, query: Any
) -> None:
    environment = {"PYTHONPATH": str(ROOT), "WEIGHBRIDGE_PIPELINES": "examples.orders"}
    weighbridge("db", "migrate", **environment)
    (home / "orders.csv").write_text(ORDERS)
    loaded = weighbridge("load", "orders.csv", "--pipeline", "orders", "--json", **environment)
    assert (loaded["status"], loaded["inserted"], loaded["shop_orders_upserted"]) == ("completed", 2, 2)
    assert query(
        "SELECT order_id, ordered_on::text, amount::text, state, line FROM shop_orders ORDER BY 1"
    ) == [
        ("A-1", "2026-01-31", "1234.500000", "paid", 2),
        ("A-2", "2026-02-01", "7.000000", "open", 3),
    ]
    assert query("SELECT relrowsecurity FROM pg_class WHERE relname = 'shop_orders'") == [(True,)]


def test_a_later_file_with_an_empty_cell_keeps_what_is_known(
    weighbridge: Any, home: Path, query: Any
) -> None:
    environment = {"PYTHONPATH": str(ROOT), "WEIGHBRIDGE_PIPELINES": "examples.orders:pipeline"}
    weighbridge("db", "migrate", **environment)
    (home / "first.csv").write_text(ORDERS)
    (home / "later.csv").write_text("Order,Date,Amount,State\nA-1,2026-01-31,,sent\n")
    weighbridge("load", "first.csv", "--pipeline", "orders", **environment)
    loaded = weighbridge("load", "later.csv", "--pipeline", "orders", "--json", **environment)
    assert (loaded["inserted"], loaded["updated"], loaded["unchanged"]) == (0, 1, 0)
    assert query("SELECT amount::text, state FROM shop_orders WHERE order_id = 'A-1'") == [
        ("1234.500000", "sent")
    ]


def test_an_installed_package_is_found_by_its_entry_point(weighbridge: Any, tmp_path: Path) -> None:
    package = tmp_path / "shop-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[weighbridge.pipelines]\norders = examples.orders:pipeline\n")
    found = weighbridge("pipelines", "list", "--json", PYTHONPATH=os.pathsep.join([str(ROOT), str(tmp_path)]))
    assert {"ads", "orders"} <= {pipeline["name"] for pipeline in found}


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ("no.such.module", "cannot import 'no.such.module'"),
        (
            "examples.orders:pipline",
            "'pipline' is not a Pipeline in examples.orders; did you mean 'pipeline'?",
        ),
        ("json", "json contains no Pipeline"),
    ],
)
def test_a_wrong_name_is_told_with_what_was_expected(named: str, sentence: str, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    with pytest.raises(ConfigError) as caught:
        find([named])
    assert sentence in str(caught.value)
