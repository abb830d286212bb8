"""TikTok Ads Manager.

Often without ids. Brackets in headers may be full-width. The last row is `Total of 5928 results`. Rates are
percentages without the sign; none of them is loaded, as they follow from the counts.
"""

from __future__ import annotations

from weighbridge.model.profile import Daily, Profile, Results

_HEADERS = {
    "campaign.external_id": [
        *("Campaign ID", "ID de la campagne", "Kampagnen-ID", "ID campagna", "ID de la campaña"),
        *("ID de campaña", "ID da campanha", "Campagne-ID"),
    ],
    "campaign.name": [
        *("Campaign name", "Campaign", "Nom de la campagne", "Kampagnenname", "Name der Kampagne"),
        *("Nome campagna", "Nome della campagna", "Nombre de la campaña", "Nome da campanha", "Campagnenaam"),
    ],
    "campaign.status": ["Campaign status", "Primary status"],
    "campaign.objective": [
        *("Campaign objective", "Objective", "Advertising objective", "Objectif", "Ziel", "Obiettivo"),
        *("Objetivo", "Doelstelling"),
    ],
    "ad_set.external_id": [
        *("Ad group ID", "Adgroup ID", "ID du groupe d'annonces", "ID du groupe de publicités"),
        *("Anzeigengruppen-ID", "ID gruppo annunci", "ID gruppo di annunci", "ID del grupo de anuncios"),
        *("ID do grupo de anúncios", "Advertentiegroep-ID"),
    ],
    "ad_set.name": [
        *("Ad group name", "Adgroup name", "Ad group", "Nom du groupe d'annonces"),
        *("Nom du groupe de publicités", "Anzeigengruppenname", "Name der Anzeigengruppe"),
        *("Nome gruppo annunci", "Nome del gruppo di annunci", "Nombre del grupo de anuncios"),
        *("Nome do grupo de anúncios", "Naam advertentiegroep", "Advertentiegroepnaam"),
    ],
    "ad_set.status": ["Ad group status"],
    "ad.external_id": [
        *("Ad ID", "ID de la publicité", "ID de l'annonce", "Anzeigen-ID", "ID annuncio", "ID del anuncio"),
        *("ID do anúncio", "Advertentie-ID"),
    ],
    "ad.name": [
        *("Ad name", "Ad", "Nom de la publicité", "Nom de l'annonce", "Anzeigenname", "Name der Anzeige"),
        *("Nome annuncio", "Nome dell'annuncio", "Nombre del anuncio", "Nome do anúncio", "Advertentienaam"),
        "Naam advertentie",
    ],
    "ad.status": ["Ad status"],
    "daily_metric.metric_date": [
        *("Date", "By Day", "Day", "Stat time day", "Par jour", "Jour", "Datum", "Nach Tag", "Tag", "Data"),
        *("Per giorno", "Giorno", "Fecha", "Por día", "Día", "Por dia", "Dia", "Per dag", "Dag"),
    ],
    "daily_metric.impressions": [
        *(
            "Impressions",
            "Impression",
            "Impressionen",
            "Impresiones",
            "Impressões",
            "Weergaven",
            "Impressies",
        ),
    ],
    "daily_metric.clicks": [
        *("Clicks (destination)", "Clics (destination)", "Klicks (Ziel)", "Clic (destinazione)"),
        *("Clics (destino)", "Cliques (destino)", "Klikken (bestemming)", "Clicks (all)", "Clicks", "Click"),
        *("Clics", "Klicks", "Clic", "Cliques", "Klikken"),
    ],
    "daily_metric.spend": ["Cost", "Total cost", "Spend", "Coût", "Kosten", "Costo", "Coste", "Custo"],
    "daily_metric.currency": ["Currency", "Devise", "Währung", "Valuta", "Moneda", "Divisa", "Moeda"],
    "daily_metric.conversions": [
        *("Conversions", "Conversion", "Conversioni", "Conversiones", "Conversões", "Conversies", "Results"),
    ],
    "daily_metric.conversion_value": [
        *("Total purchase value", "Purchase value", "Total complete payment value", "Conversion value"),
    ],
    "daily_metric.reach": ["Reach", "Couverture", "Reichweite", "Copertura", "Alcance", "Bereik"],
}

profile = Profile(
    name="tiktok",
    headers=_HEADERS,
    nulls=["-", "--"],
    totals=[
        r"total of [0-9.,\s]+ results?",
        r"(?:total|totale|totaal|gesamt)(?:\s*:.*)?",
        r"(?:total de|insgesamt|totale di|totaal van) [0-9.,\s]+ .*",
    ],
    daily=Daily(
        field="daily_metric.metric_date",
        longer=["By Week", "Week", "By Month", "Month"],
        hint="In TikTok Ads Manager add the dimension By Day to the report and export it again.",
    ),
    breakdowns=[
        *("Age", "Gender", "Country/Region", "Country", "Placement", "Platform", "Operating system", "OS"),
        *("By Hour", "Hour", "Interest", "Language"),
    ],
    expects=["campaign.name", "daily_metric.impressions", "daily_metric.clicks", "daily_metric.spend"],
    results=Results(field="daily_metric.conversions", headers=["Results"]),
)
