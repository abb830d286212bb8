"""Exports of the three platforms, at every level and with every quirk, become the rows that they mean."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rules.checking import Outcome, check_file

from weighbridge.model import upsert
from weighbridge.model.errors import FileRefused
from weighbridge.model.upload import Bins
from weighbridge.pipelines import ads
from weighbridge.rules.headers import CLEARLY, field_counter, match
from weighbridge.testing._layouts import layout
from weighbridge.testing.exports import Defect, Encoding, ExportSpec, Level, Platform, Written, write_export

LEVELS: tuple[Level, ...] = get_args(Level)
PLATFORMS: tuple[Platform, ...] = get_args(Platform)


@pytest.fixture
def load(tmp_path: Path) -> Any:
    """Write the export of a spec and check it."""

    def load(spec: ExportSpec) -> tuple[Written, Outcome]:
        written = write_export(tmp_path / "export", spec)
        return written, check_file(tmp_path / "export", spec.platform)

    return load


@st.composite
def specs(draw: st.DrawFn) -> ExportSpec:
    """An export as one of the platforms could have written it."""
    platform = draw(st.sampled_from(PLATFORMS))
    return ExportSpec(
        platform,
        level=draw(st.sampled_from(LEVELS)),
        campaigns=1,
        days=1,
        ids=draw(st.sampled_from([None, True, False])),
        variant_headers=draw(st.booleans()),
        language=draw(st.sampled_from(["en", "fr", "it"])) if platform == "meta" else "en",
        day_column=draw(st.booleans()),
        duplicate_column=draw(st.booleans()),
    )


@settings(max_examples=60, deadline=None)
@given(specs())
def test_an_export_is_read_as_its_own_platforms_and_refused_as_any_others(spec: ExportSpec) -> None:
    header = [column.header for column in layout(spec)]
    assert "daily_metric.spend" in match(header, ads.pipeline, ads.pipeline.profile(spec.platform)).columns
    for other in set(PLATFORMS) - {spec.platform}:
        with pytest.raises(
            FileRefused, match=f"looks like an export of {spec.platform}, not of {other}:"
        ) as refused:
            match(header, ads.pipeline, ads.pipeline.profile(other))
        assert refused.value.code == "other_platform"


@settings(max_examples=200, deadline=None)
@given(specs(), st.data())
def test_whatever_columns_are_chosen_an_export_is_its_own_platforms(spec: ExportSpec, data: Any) -> None:
    columns = [column.header for column in layout(spec)]
    header = data.draw(st.lists(st.sampled_from(columns), min_size=1, unique=True))
    scores = {p.name: field_counter(ads.pipeline, p)(header) for p in ads.pipeline.profiles}
    assert max(scores.values()) < scores[spec.platform] + CLEARLY
    assert refusal_of(header, spec.platform) != "other_platform"


def refusal_of(header: list[str], platform: Platform) -> str:
    """The code for which a file with these columns is refused; empty where it is read."""
    try:
        match(header, ads.pipeline, ads.pipeline.profile(platform))
    except FileRefused as refused:
        return refused.code
    return ""


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_file_under_another_platforms_name_is_refused_whole(tmp_path: Path, platform: Platform) -> None:
    write_export(tmp_path / "export", ExportSpec(platform))
    for other in set(PLATFORMS) - {platform}:
        with pytest.raises(FileRefused, match="Check the platform of the upload"):
            check_file(tmp_path / "export", other)


def everything(written: Written, outcome: Outcome) -> None:
    """All that a clean file holds has arrived."""
    assert outcome.bins == Bins(
        preamble=written.preamble,
        header=written.header,
        blank=written.blank,
        totals=written.totals,
        accepted=written.rows,
    )
    assert outcome.counts == {
        "campaign": written.campaigns,
        "ad_set": written.ad_sets,
        "ad": written.ads,
        "daily_metric": written.rows,
    }
    assert sum(row["impressions"] for row in outcome.metrics) == written.impressions
    assert sum(row["spend"] for row in outcome.metrics) == written.spend


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_clean_export_arrives_whole(load: Any, platform: Platform, level: Level) -> None:
    written, outcome = load(ExportSpec(platform, level=level))
    everything(written, outcome)
    assert {row["currency"] for row in outcome.metrics} == {"USD"}
    assert set(outcome.warnings) <= {"unused_columns", *(["ids_from_names"] if platform == "tiktok" else [])}
    assert "Reporting" not in outcome.warnings.get("unused_columns", "")
    assert len(outcome.affected_dates) == 7
    depth = LEVELS.index(level)
    for below, ref in enumerate(("campaign_id", "ad_set_id", "ad_id")):
        assert all((row[ref] is None) == (below > depth) for row in outcome.metrics)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("platform", PLATFORMS)
def test_an_export_without_ids_has_the_same_entities(load: Any, platform: Platform, level: Level) -> None:
    written, outcome = load(ExportSpec(platform, level=level, ids=False))
    everything(written, outcome)
    assert all(row["external_id"].startswith("name:") for row in outcome.rows["campaign"])


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_other_spelling_of_the_headers_is_known(load: Any, platform: Platform) -> None:
    everything(*load(ExportSpec(platform, variant_headers=True)))


@pytest.mark.parametrize(
    ("platform", "encoding"),
    [("meta", "utf-8-sig"), ("meta", "cp1252"), ("google", "utf-16"), ("tiktok", "utf-8-sig")],
)
def test_the_encoding_does_not_matter(load: Any, platform: Platform, encoding: Encoding) -> None:
    everything(*load(ExportSpec(platform, encoding=encoding)))


@pytest.mark.parametrize(
    ("platform", "thousands", "mark"),
    [
        ("meta", ".", ","),
        ("meta", ",", "."),
        ("google", ".", ","),
        ("google", " ", ","),
        ("google", "\u00a0", ","),
        ("google", "\u202f", ","),
        ("google", "'", "."),
        ("tiktok", ".", ","),
    ],
)
def test_numbers_are_read_in_every_locale(load: Any, platform: Platform, thousands: str, mark: str) -> None:
    everything(*load(ExportSpec(platform, thousands=thousands, decimal_mark=mark, delimiter=";")))


@pytest.mark.parametrize("platform", PLATFORMS)
def test_days_in_two_formats_are_days(load: Any, platform: Platform) -> None:
    everything(*load(ExportSpec(platform, dates="mixed")))
    everything(*load(ExportSpec(platform, dates="us", days=20)))


@pytest.mark.parametrize("platform", PLATFORMS)
def test_days_that_could_be_months_are_refused(load: Any, platform: Platform) -> None:
    with pytest.raises(FileRefused) as refused:
        load(ExportSpec(platform, dates="us", days=7))
    assert refused.value.code == "ambiguous_dates"


CODES: dict[Defect, list[str]] = {
    "mangled_id": ["mangled_id"],
    "negative_impressions": ["too_small"],
    "text_in_money": ["bad_amount"],
    "missing_date": ["missing_value"],
    "impossible_date": ["bad_date"],
    "formula": [],
    "equal_repeat": [],
    "conflicting_repeat": ["conflicting_repeat", "conflicting_repeat"],
}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_defect_costs_its_own_record_only(load: Any, platform: Platform) -> None:
    written, outcome = load(ExportSpec(platform, ids=True, days=20, defects=tuple(CODES)))
    assert sorted(outcome.codes) == sorted(code for codes in CODES.values() for code in codes)
    assert outcome.bins.data_rows == written.rows
    assert outcome.bins.duplicate == 1
    assert len({len(rejection["raw"]) for rejection in outcome.rejections}) == 1
    found = {rejection["line"]: rejection["code"] for rejection in outcome.rejections}
    for line, defect in written.defects.items():
        assert found.get(line) == (CODES[defect] or [None])[0]


def test_a_name_that_makes_the_id_must_be_there(load: Any) -> None:
    _, outcome = load(ExportSpec("tiktok", defects=("missing_name",)))
    assert outcome.codes == ["missing_value"]
    assert outcome.rejections[0]["column_name"] == "Campaign name"


def test_an_ad_with_an_id_needs_no_name(load: Any) -> None:
    _, outcome = load(ExportSpec("google", defects=("missing_name",)))
    assert outcome.bins.rejected == 0


@pytest.mark.parametrize("language", ["fr", "it"])
def test_localised_headers_are_known(load: Any, language: Any) -> None:
    written, outcome = load(ExportSpec("meta", language=language, currency="EUR"))
    everything(written, outcome)
    assert {row["currency"] for row in outcome.metrics} == {"EUR"}


def test_meta_has_its_day_where_the_period_starts_and_ends(load: Any) -> None:
    everything(*load(ExportSpec("meta", day_column=False)))
    everything(*load(ExportSpec("meta", day_column=False, dates="mixed")))


def test_meta_aggregates_are_refused_by_name(load: Any) -> None:
    with pytest.raises(FileRefused) as refused:
        load(ExportSpec("meta", aggregate=True, day_column=False))
    assert refused.value.code == "not_daily"
    assert refused.value.message == (
        "The report is not daily: expected 'Reporting starts' and 'Reporting ends' to be the same day in every "
        "record, got different days on line 3, 4, 5. In Ads Manager choose Breakdown, By time, Day, and export again."
    )


def test_one_bad_day_does_not_make_a_daily_export_an_aggregate(load: Any) -> None:
    _, outcome = load(ExportSpec("meta", day_column=False, defects=("impossible_date", "missing_date")))
    assert sorted(outcome.codes) == ["bad_date", "missing_value"]


@pytest.mark.parametrize(
    ("platform", "columns", "sentence"),
    [
        ("google", ("Campaign", "Cost", "Impr."), "expected a column 'Day', got 'Campaign', 'Cost', 'Impr.'"),
        ("tiktok", ("Campaign name", "Cost"), "expected a column 'Date', got 'Campaign name', 'Cost'"),
        (
            "meta",
            ("Campaign name", "Impressions"),
            "expected a column 'Day', got 'Campaign name', 'Impressions'",
        ),
    ],
)
def test_an_export_without_days_is_refused_by_name(
    load: Any, platform: Platform, columns: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(FileRefused) as refused:
        load(ExportSpec(platform, level="campaign", columns=columns))
    assert refused.value.code == "not_daily"
    assert sentence in refused.value.message


def test_a_weekly_report_is_refused_by_its_column(tmp_path: Path) -> None:
    (tmp_path / "export").write_text("Week,Campaign,Cost\n2025-06-30,Spring,1.5\n")
    with pytest.raises(
        FileRefused, match=r"not daily: expected a column 'Day', got 'Week' only. In Google Ads add"
    ):
        check_file(tmp_path / "export", "google")


def test_metas_repeated_column_and_lines_within_cells_do_no_harm(load: Any) -> None:
    everything(*load(ExportSpec("meta", duplicate_column=True, multiline_names=True)))


def test_an_empty_export_is_refused_as_empty(load: Any) -> None:
    for platform in PLATFORMS:
        with pytest.raises(FileRefused) as refused:
            load(ExportSpec(platform, empty=True))
        assert refused.value.code == "no_data"


@pytest.mark.parametrize("column", range(4))
def test_googles_totals_may_stand_in_any_column(load: Any, column: int) -> None:
    everything(*load(ExportSpec("google", level="campaign", totals_column=column, blank_lines=2, preamble=1)))


@pytest.mark.parametrize(
    ("platform", "null"), [("meta", "-"), ("meta", "0"), ("google", " --"), ("tiktok", "-")]
)
def test_null_markers_are_no_values(load: Any, platform: Platform, null: str) -> None:
    spec = ExportSpec(platform, null=null)
    written, outcome = load(spec)
    everything(written, outcome)
    _, plain = load(replace(spec, null=""))
    if null != "0":  # a zero of a number is a number
        assert [row["conversions"] for row in outcome.metrics] == [
            row["conversions"] for row in plain.metrics
        ]


def test_a_zero_is_a_figure_but_no_name(tmp_path: Path) -> None:
    (tmp_path / "export").write_text(
        "Day,Campaign ID,Campaign name,Ad set ID,Impressions\n2025-07-01,11,0,0,0\n2025-07-02,11,A,22,7\n"
    )
    outcome = check_file(tmp_path / "export", "meta")
    assert [(row["impressions"], row["ad_set_id"] is None) for row in outcome.metrics] == [
        (0, True),
        (7, False),
    ]
    assert [row["name"] for row in outcome.rows["campaign"]] == ["A"]


def test_a_money_column_without_a_budget_has_no_amount(tmp_path: Path) -> None:
    (tmp_path / "export").write_text(
        "Day,Campaign name,Amount spent (USD)\n2025-07-01,A,Using campaign budget\n2025-07-02,A,1.50\n"
    )
    outcome = check_file(tmp_path / "export", "meta")
    assert [row["spend"] for row in outcome.metrics] == [None, Decimal("1.5")]


def test_a_blank_figure_withdraws_the_known_one_and_a_blank_name_does_not() -> None:
    *dimensions, facts = ads.pipeline.entities
    assert {entity.upsert for entity in dimensions} == {upsert.keep_known_values}
    assert facts.upsert == upsert.replace


@pytest.mark.parametrize(
    ("platform", "header"),
    [
        ("meta", "Tag;Kampagnenname;Anzeigengruppenname;Anzeigenname;Impressionen;Ausgegebener Betrag (EUR)"),
        ("meta", "Día;Nombre de la campaña;Nombre del conjunto de anuncios;Nombre del anuncio;Impresiones;"
         "Importe gastado (EUR)"),
        ("meta", "Dia;Nome da campanha;Nome do conjunto de anúncios;Nome do anúncio;Impressões;Valor usado (EUR)"),
        ("meta", "Dag;Campagnenaam;Naam advertentieset;Naam advertentie;Weergaven;Besteed bedrag (EUR)"),
        ("google", "Jour;Campagne;Groupe d'annonces;Nom de l’annonce;Impr.;Coût"),
        ("google", "Tag;Kampagne;Anzeigengruppe;Anzeigenname;Impr.;Kosten"),
        ("google", "Giorno;Campagna;Gruppo di annunci;Nome annuncio;Impr.;Costo"),
        ("google", "Día;Campaña;Grupo de anuncios;Nombre del anuncio;Impr.;Coste"),
        ("google", "Dia;Campanha;Grupo de anúncios;Nome do anúncio;Impr.;Custo"),
        ("google", "Dag;Campagne;Advertentiegroep;Advertentienaam;Vert.;Kosten"),
        ("tiktok", "Par jour;Nom de la campagne;Nom du groupe d'annonces;Nom de la publicité;Impressions;Coût"),
        ("tiktok", "Datum;Kampagnenname;Anzeigengruppenname;Anzeigenname;Impressionen;Kosten"),
        ("tiktok", "Data;Nome campagna;Nome gruppo annunci;Nome annuncio;Impression;Costo"),
        ("tiktok", "Fecha;Nombre de la campaña;Nombre del grupo de anuncios;Nombre del anuncio;Impresiones;Coste"),
        ("tiktok", "Data;Nome da campanha;Nome do grupo de anúncios;Nome do anúncio;Impressões;Custo"),
        ("tiktok", "Datum;Campagnenaam;Naam advertentiegroep;Advertentienaam;Weergaven;Kosten"),
    ],
)  # fmt: skip
def test_the_main_columns_are_known_in_six_languages(platform: str, header: str) -> None:
    found = match(header.split(";"), ads.pipeline, ads.pipeline.profile(platform))
    fields = ("daily_metric.metric_date", "campaign.name", "ad_set.name", "ad.name")
    fields += ("daily_metric.impressions", "daily_metric.spend")
    assert {name: cells for name, cells in found.columns.items() if name in fields} == {
        name: (position,) for position, name in enumerate(fields)
    }
    assert found.constants == ({"daily_metric.currency": "EUR"} if platform == "meta" else {})
