"""Google Ads: report downloads, in UTF-8 with commas or in UTF-16 with tabs.

A title and a date range come before the header. ` --` and `[]` mean "no value". Totals rows come last, with
their label in any column. Counts have thousands separators, costs have none.
"""

from __future__ import annotations

from weighbridge.model.profile import Daily, Profile

_HEADERS = {
    "campaign.external_id": [
        *("Campaign ID", "ID de la campagne", "ID de campagne", "Kampagnen-ID", "ID campagna"),
        *("ID de campaña", "ID de la campaña", "ID da campanha", "Campagne-ID"),
    ],
    "campaign.name": [
        *("Campaign", "Campaign name", "Campagne", "Kampagne", "Campagna", "Campaña", "Campanha"),
    ],
    "campaign.status": [
        *("Campaign status", "Campaign state", "État de la campagne", "Kampagnenstatus", "Stato campagna"),
        *("Stato della campagna", "Estado de la campaña", "Status da campanha", "Estado da campanha"),
        "Campagnestatus",
    ],
    "campaign.objective": [
        *("Campaign type", "Type de campagne", "Kampagnentyp", "Tipo di campagna", "Tipo campagna"),
        *("Tipo de campaña", "Tipo de campanha", "Campagnetype"),
    ],
    "ad_set.external_id": [
        *("Ad group ID", "ID du groupe d'annonces", "Anzeigengruppen-ID", "ID gruppo di annunci"),
        *(
            "ID gruppo annunci",
            "ID del grupo de anuncios",
            "ID de grupo de anuncios",
            "ID do grupo de anúncios",
        ),
        "Advertentiegroep-ID",
    ],
    "ad_set.name": [
        *("Ad group", "Ad group name", "Groupe d'annonces", "Anzeigengruppe", "Gruppo di annunci"),
        *("Gruppo annunci", "Grupo de anuncios", "Grupo de anúncios", "Advertentiegroep"),
    ],
    "ad_set.status": [
        *("Ad group status", "Ad group state", "État du groupe d'annonces", "Anzeigengruppenstatus"),
        *("Stato gruppo di annunci", "Stato gruppo annunci", "Estado del grupo de anuncios"),
        *("Status do grupo de anúncios", "Status van advertentiegroep", "Advertentiegroepstatus"),
    ],
    "ad.external_id": [
        *("Ad ID", "ID de l'annonce", "ID d'annonce", "Anzeigen-ID", "ID annuncio", "ID de anuncio"),
        *("ID del anuncio", "ID do anúncio", "Advertentie-ID"),
    ],
    "ad.name": [
        *("Ad name", "Nom de l'annonce", "Anzeigenname", "Name der Anzeige", "Nome annuncio"),
        *("Nombre del anuncio", "Nome do anúncio", "Advertentienaam", "Ad", "Annonce", "Anzeige", "Annuncio"),
        *("Anuncio", "Anúncio", "Advertentie"),
    ],
    "ad.status": [
        *("Ad status", "Ad state", "État de l'annonce", "Anzeigenstatus", "Stato annuncio"),
        *("Stato dell'annuncio", "Estado del anuncio", "Status do anúncio", "Advertentiestatus"),
    ],
    "daily_metric.metric_date": ["Day", "Date", "Jour", "Tag", "Giorno", "Día", "Dia", "Dag"],
    "daily_metric.impressions": [
        *("Impr.", "Impressions", "Impressionen", "Impressioni", "Impresiones", "Impressões"),
        *("Vertoningen", "Vert."),
    ],
    "daily_metric.clicks": ["Clicks", "Clics", "Klicks", "Clic", "Cliques", "Klikken"],
    "daily_metric.spend": ["Cost", "Coût", "Kosten", "Costo", "Coste", "Custo"],
    "daily_metric.currency": [
        *("Currency code", "Currency", "Code de devise", "Code de la devise", "Währungscode"),
        *("Codice valuta", "Código de moneda", "Moneda", "Código da moeda", "Valutacode"),
    ],
    "daily_metric.conversions": [
        *("Conversions", "Conv.", "Conversioni", "Conversiones", "Conversões", "Conversies"),
    ],
    "daily_metric.conversion_value": [
        *("Conv. value", "Conversion value", "Total conv. value", "Valeur de conv.", "Valeur de conversion"),
        *("Conv.-Wert", "Conversion-Wert", "Valore conv.", "Valore di conv.", "Valor de conv."),
        *("Valor conv.", "Valor da conv.", "Conv.waarde", "Conversiewaarde"),
    ],
    "daily_metric.reach": ["Unique users", "Reach"],
}

profile = Profile(
    name="google",
    headers=_HEADERS,
    nulls=["--", "[]", "-"],
    totals=[r"(?:total|totale|totaux|totaal|gesamt|gesamtwert|summe)\s*:.*", r"(?:grand )?total"],
    daily=Daily(
        field="daily_metric.metric_date",
        longer=[
            "Week",
            "Month",
            "Quarter",
            "Year",
            "Semaine",
            "Mois",
            "Woche",
            "Monat",
            "Semana",
            "Mes",
            "Mês",
        ],
        hint="In Google Ads add the segment Time, Day, to the report and download it again.",
    ),
    breakdowns=[
        *("Device", "Network", "Network (with search partners)", "Hour", "Hour of the day", "Click type"),
        *("Conversion action", "Conversion category", "Keyword", "Search keyword", "Search term"),
        *("Top vs. Other", "Age", "Gender", "Country/Territory", "Region", "City", "Day & hour"),
        *(
            "Gerät",
            "Appareil",
            "Dispositivo",
            "Apparaat",
            "Netzwerk",
            "Réseau",
            "Rete",
            "Red",
            "Rede",
            "Netwerk",
        ),
    ],
    expects=["campaign.name", "daily_metric.impressions", "daily_metric.clicks", "daily_metric.spend"],
)
