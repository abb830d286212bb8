"""Rules, dashboard and documentation name the metrics that there are, and no others."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from weighbridge import service_figures
from weighbridge.observe import metrics
from weighbridge.postgres.transactions import Database
from weighbridge.settings import read

from .promql import Named, named

ROOT = Path(__file__).parents[2]
RUNBOOK = ROOT / "docs" / "runbook.md"
ALERTS = ROOT / "docs" / "alerts.md"
FROM_PROMETHEUS = {"up"}
LABELS_FROM_PROMETHEUS = {"job", "instance"}

RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy/grafana/weighbridge.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
EXPRESSIONS = [rule["expr"] for rule in RULES] + [
    target["expr"] for panel in PANELS for target in panel["targets"]
]


@dataclass(frozen=True)
class Exposed:
    """What a scrape of ours has: families as they are documented, series as expressions name them, labels."""

    families: set[str]
    series: set[str]
    labels: set[str]


@pytest.fixture(scope="module")
async def exposed(shared_database_url: str) -> Exposed:
    db = Database(shared_database_url, size=1)
    await db.open()
    async with db.tx() as tx:
        found = await service_figures.of_service(tx)
    await db.close()
    # A part of a counter is there from the first count on; count nothing.
    metrics.ROWS.labels("ads", "header").inc(0)
    metrics.DUPLICATES.labels("duplicate_content").inc(0)
    metrics.STAGE_SECONDS.labels("parse", "ads")
    metrics.STORED.labels("local").inc(0)
    metrics.NOT_STORED.labels("local", "connection").inc(0)
    metrics.DELIVERED.labels("google_ads", "COMPLETED").inc(0)
    metrics.CALLS.labels("google_ads", "ok").inc(0)
    metrics.CALL_SECONDS.labels("google_ads")
    families = [
        family
        for family in text_string_to_metric_families(metrics.exposition(vars(found)).decode())
        if not family.name.startswith(("python_", "process_"))
    ]
    return Exposed(
        {family.name + ("_total" if family.type == "counter" else "") for family in families},
        {sample.name for family in families for sample in family.samples},
        {label for family in families for sample in family.samples for label in sample.labels},
    )


# The tokenizer ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a_metric", Named({"a_metric"}, set())),
        ('max(a{b="c{d}(e", f!~"g|h"}) > 100', Named({"a"}, {"b", "f"})),
        ("sum by (x, y) (rate(a_total[5m])) * 60 > 1", Named({"a_total"}, {"x", "y"})),
        ("sum(rate(a[1h])) by (x) / on (z) group_left () (b > 0)", Named({"a", "b"}, {"x", "z"})),
        ("histogram_quantile(0.99, sum by (le) (rate(a_bucket[$__rate_interval])))", Named({"a_bucket"}, {"le"})),
        ("a / on (x) group_left b / (c)", Named({"a", "b", "c"}, {"x"})),
        ('up{job="x"} == 0 or absent(up{job="x"})', Named({"up"}, {"job"})),
        ("max(by_name) and on_time unless max without (b) (c)", Named({"by_name", "on_time", "c"}, {"b"})),
    ],
)  # fmt: skip
def test_names_are_found_where_they_are(expression: str, expected: Named) -> None:
    assert named(expression) == expected


@pytest.mark.parametrize("expression", ["max(a", "a)", "rat(a[5m])", "a[5]", "a{b='c}", "a ? b", "max(a})"])
def test_what_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=re.escape(expression)):
        named(expression)


# What is named exists ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("expression", sorted(set(EXPRESSIONS)))
async def test_every_metric_and_label_in_rules_and_dashboard_exists(
    exposed: Exposed, expression: str
) -> None:
    found = named(expression)
    assert found.metrics
    assert found.metrics - FROM_PROMETHEUS <= exposed.series
    assert found.labels - LABELS_FROM_PROMETHEUS <= exposed.labels


async def test_every_metric_of_ours_is_on_the_dashboard(exposed: Exposed) -> None:
    shown = {
        name for panel in PANELS for target in panel["targets"] for name in named(target["expr"]).metrics
    }
    whole = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    assert exposed.families - whole == set()


async def test_the_documentation_lists_every_metric_and_no_other(exposed: Exposed) -> None:
    page = (ROOT / "docs/metrics.md").read_text()
    ours = r"(?:weighbridge|storage|quota)_\w+"  # the names that docs/contracts.md fixes
    assert set(re.findall(rf"^\| `({ours})` \|", page, re.MULTILINE)) == exposed.families
    conditions = {"storage_queue", "storage_left"}
    assert set(re.findall(rf"\b{ours}", page)) - conditions == exposed.families


# The rules --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alert", "metric", "threshold", "severity"),
    [
        ("WeighbridgeUploadsFailed", "weighbridge_failed_24h", 0, "error"),
        ("WeighbridgeStaleTakeover", "weighbridge_takeovers_total", 0, "warning"),
        ("WeighbridgeDeadLetters", "weighbridge_dead_letters", 5, "warning"),
        ("WeighbridgeBacklog", "weighbridge_backlog", 100, "warning"),
        ("WeighbridgeStaleRuns", "weighbridge_stale_runs", 0, "warning"),
        ("WeighbridgeSlow", "weighbridge_stage_seconds_sum", 300, "warning"),
        ("WeighbridgeStorageQueue", "storage_queue_depth", 100, "warning"),
    ],
)
def test_the_specified_conditions_are_alerted_at_the_specified_thresholds(
    alert: str, metric: str, threshold: int, severity: str
) -> None:
    [rule] = [each for each in RULES if each["alert"] == alert]
    assert metric in named(rule["expr"]).metrics
    assert rule["expr"].endswith(f" > {threshold}")
    assert rule["labels"] == {"severity": severity}


def test_every_condition_of_deliveries_is_alerted() -> None:
    """Those that workers raise: the rule that shows each names its condition."""
    named_in_rules = {
        condition
        for rule in RULES
        for matched in re.findall(r'condition=~?"([^"]+)"', rule["expr"])
        for condition in matched.split("|")
    }
    of_deliveries = set(service_figures.CONDITIONS[service_figures.CONDITIONS.index("circuit_open") :])
    assert len(of_deliveries) == 6
    assert of_deliveries <= named_in_rules


def test_prometheus_and_our_own_alerts_have_the_same_thresholds() -> None:
    settings = read()
    assert (settings.alert_dead_letters, settings.alert_backlog) == (5, 100)
    assert settings.alert_storage_queue == 100


def test_every_rule_is_whole() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert {"alert", "expr", "labels", "annotations"} <= set(rule) <= {
            "alert", "expr", "for", "labels", "annotations",
        }  # fmt: skip
        assert re.fullmatch(r"[A-Z]\w+", rule["alert"])
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
        assert rule["labels"]["severity"] in ("error", "warning")
        assert set(rule["annotations"]) == {"summary", "runbook_url"}
        placed = re.findall(r"{{ \$(value|labels\.\w+)(?: \| \w+)? }}", rule["annotations"]["summary"])
        assert len(placed) == rule["annotations"]["summary"].count("{{")
        assert re.fullmatch(r"docs/runbook\.md#[a-z-]+", rule["annotations"]["runbook_url"])


def test_the_example_scrapes_with_the_rules_and_the_token() -> None:
    example = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    assert example["rule_files"] == ["alerts.yml"]
    jobs = {job["job_name"]: job for job in example["scrape_configs"]}
    in_rules = {job for rule in RULES for job in re.findall(r'job="([^"]+)"', rule["expr"])}
    assert set(jobs) == in_rules
    assert jobs["weighbridge-api"]["authorization"]["type"] == "Bearer"
    assert "credentials_file" in jobs["weighbridge-api"]["authorization"]


def slug(heading: str) -> str:
    """The anchor that a Markdown page has for a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_every_rule_links_to_a_section_of_the_runbook() -> None:
    sections = set(map(slug, re.findall(r"^#+ (.+)$", RUNBOOK.read_text(), re.MULTILINE)))
    assert {rule["annotations"]["runbook_url"].partition("#")[2] for rule in RULES} <= sections


def test_the_page_of_alerts_lists_every_rule_with_its_severity_and_section() -> None:
    listed = re.findall(
        r"^\| `(\w+)` \| (error|warning) \| [^|]+ \| \[([^]]+)\]\(runbook\.md#([a-z-]+)\) \|$",
        ALERTS.read_text(),
        re.MULTILINE,
    )
    assert [(alert, severity, f"docs/runbook.md#{anchor}") for alert, severity, _, anchor in listed] == [
        (rule["alert"], rule["labels"]["severity"], rule["annotations"]["runbook_url"]) for rule in RULES
    ]
    assert all(slug(text) == anchor for _, _, text, anchor in listed)


def test_the_page_of_alerts_lists_every_condition_that_weighbridge_raises() -> None:
    sections = set(map(slug, re.findall(r"^#+ (.+)$", RUNBOOK.read_text(), re.MULTILINE)))
    listed = re.findall(
        r"^\| `([a-z_]+)` \|.*\[[^]]+\]\(runbook\.md#([a-z-]+)\) \|$", ALERTS.read_text(), re.MULTILINE
    )
    assert [condition for condition, _ in listed] == list(service_figures.CONDITIONS)
    assert {anchor for _, anchor in listed} <= sections


# The dashboard ----------------------------------------------------------------------------------------------


def test_the_dashboard_takes_whichever_prometheus_is_chosen() -> None:
    [variable] = DASHBOARD["templating"]["list"]
    assert (variable["type"], variable["query"]) == ("datasource", "prometheus")
    chosen = {"type": "prometheus", "uid": f"${{{variable['name']}}}"}
    for panel in PANELS:
        assert panel["datasource"] == chosen
        assert all(target["datasource"] == chosen for target in panel["targets"])


def test_the_panels_are_whole_and_none_covers_another() -> None:
    assert DASHBOARD["schemaVersion"] >= 41
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    for panel in PANELS:
        assert panel["type"] in ("stat", "timeseries", "bargauge")
        assert panel["title"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
    for one, other in combinations([panel["gridPos"] for panel in PANELS], 2):
        assert (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
