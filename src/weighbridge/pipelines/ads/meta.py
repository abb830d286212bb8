"""Meta Ads Manager: Facebook and Instagram.

The totals row comes directly after the header and has no names. The currency is in the header. Without
a `Day` column, a record is a day if its reporting period starts and ends on the same day. The names of the Marketing
API (`campaign_name`, `date_start`) are recognised too: underscores count as spaces.
"""

from __future__ import annotations

from weighbridge.model.profile import Daily, Profile, Results

_RESULTS = ["Results", "Résultats", "Ergebnisse", "Risultati", "Resultados", "Resultaten"]
_HEADERS = {
    "campaign.external_id": [
        *("Campaign ID", "ID de la campagne", "Kampagnen-ID", "ID der Kampagne", "ID campagna"),
        *("Identificador de la campaña", "ID de la campaña", "Identificação da campanha", "ID da campanha"),
        *("Campagne-ID", "ID van campagne"),
    ],
    "campaign.name": [
        *("Campaign name", "Nom de la campagne", "Kampagnenname", "Name der Kampagne", "Nome della campagna"),
        *("Nome campagna", "Nombre de la campaña", "Nome da campanha", "Campagnenaam", "Naam campagne"),
    ],
    "campaign.status": [
        *("Campaign delivery", "Campaign status", "Diffusion de la campagne", "Auslieferung der Kampagne"),
        *("Kampagnenauslieferung", "Pubblicazione della campagna", "Entrega de la campaña"),
        *("Veiculação da campanha", "Weergave van campagne", "Campagneweergave"),
    ],
    "campaign.objective": ["Objective", "Objectif", "Ziel", "Obiettivo", "Objetivo", "Doelstelling"],
    "ad_set.external_id": [
        *("Ad set ID", "Adset ID", "ID de l'ensemble de publicités", "Anzeigengruppen-ID"),
        *("ID der Anzeigengruppe", "ID gruppo di inserzioni", "Identificador del conjunto de anuncios"),
        *(
            "ID del conjunto de anuncios",
            "Identificação do conjunto de anúncios",
            "ID do conjunto de anúncios",
        ),
        "Advertentieset-ID",
    ],
    "ad_set.name": [
        *("Ad set name", "Adset name", "Nom de l'ensemble de publicités", "Anzeigengruppenname"),
        *("Name der Anzeigengruppe", "Nome del gruppo di inserzioni", "Nombre del conjunto de anuncios"),
        *("Nome do conjunto de anúncios", "Naam advertentieset", "Naam van advertentieset"),
    ],
    "ad_set.status": [
        *("Ad set delivery", "Ad set status", "Diffusion de l'ensemble de publicités"),
        *("Auslieferung der Anzeigengruppe", "Pubblicazione del gruppo di inserzioni"),
        *(
            "Entrega del conjunto de anuncios",
            "Veiculação do conjunto de anúncios",
            "Weergave van advertentieset",
        ),
    ],
    "ad.external_id": [
        *("Ad ID", "ID de la publicité", "Anzeigen-ID", "ID der Anzeige", "ID inserzione"),
        *("Identificador del anuncio", "ID del anuncio", "Identificação do anúncio", "ID do anúncio"),
        "Advertentie-ID",
    ],
    "ad.name": [
        *("Ad name", "Nom de la publicité", "Anzeigenname", "Name der Anzeige", "Nome dell'inserzione"),
        *("Nombre del anuncio", "Nome do anúncio", "Advertentienaam", "Naam advertentie"),
    ],
    "ad.status": [
        *("Ad delivery", "Ad status", "Diffusion de la publicité", "Auslieferung der Anzeige"),
        *("Anzeigenauslieferung", "Pubblicazione dell'inserzione", "Entrega del anuncio"),
        *("Veiculação do anúncio", "Weergave van advertentie"),
    ],
    "daily_metric.metric_date": ["Day", "Jour", "Tag", "Giorno", "Día", "Dia", "Dag"],
    "daily_metric.impressions": [
        *("Impressions", "Impressionen", "Impression", "Impressioni", "Impresiones", "Impressões"),
        *("Weergaven", "Vertoningen"),
    ],
    "daily_metric.clicks": [
        *(
            "Clicks (all)",
            "Clics (tous)",
            "Klicks (alle)",
            "Clic (tutti)",
            "Clics (todos)",
            "Cliques (todos)",
        ),
        *("Klikken (alle)", "Clicks", "Link clicks", "Clics sur un lien", "Clics sur le lien", "Link-Klicks"),
        *("Clic sul link", "Clics en el enlace", "Cliques no link", "Klikken op link"),
    ],
    "daily_metric.spend": [
        *("Amount spent", "Spend", "Montant dépensé", "Ausgegebener Betrag", "Importo speso"),
        *("Importe gastado", "Valor usado", "Montante gasto", "Valor gasto", "Besteed bedrag"),
    ],
    "daily_metric.currency": [
        *("Currency", "Account currency", "Devise", "Währung", "Valuta", "Divisa", "Moneda", "Moeda"),
    ],
    "daily_metric.conversions": [
        *("Purchases", "Website purchases", "Achats", "Käufe", "Acquisti", "Compras", "Aankopen"),
        *_RESULTS,
    ],
    "daily_metric.conversion_value": [
        *("Purchases conversion value", "Purchase conversion value", "Website purchases conversion value"),
        *("Valeur de conversion des achats", "Conversion-Wert für Käufe", "Conversion-Wert von Käufen"),
        *("Valore di conversione degli acquisti", "Valor de conversión de compras"),
        *("Valor de conversão da compra", "Valor de conversão de compras", "Conversiewaarde van aankopen"),
    ],
    "daily_metric.reach": ["Reach", "Couverture", "Portée", "Reichweite", "Copertura", "Alcance", "Bereik"],
}

profile = Profile(
    name="meta",
    headers=_HEADERS,
    nulls=["-", "--", "0", "Using campaign budget", "Using ad set budget"],
    totals=[
        r"(?:grand )?totals?:?",
        r"(?:total|overall) results|results? totals?|résultats? tota(?:l|ux)|(?:gesamt|ergebnisse gesamt)",
        r"risultati totali|resultados tota(?:les|is)|resultaten totaal",
    ],
    nameless_totals=True,
    daily=Daily(
        field="daily_metric.metric_date",
        starts=[
            *("Reporting starts", "Date start", "Début des rapports", "Berichtsstart", "Auswertungsbeginn"),
            *("Beginn des Berichtszeitraums", "Inizio dei report", "Inicio del informe"),
            *("Inicio de los informes", "Início dos relatórios", "Start rapportage", "Begin rapportage"),
        ],
        ends=[
            *("Reporting ends", "Date stop", "Fin des rapports", "Berichtsende", "Auswertungsende"),
            *("Ende des Berichtszeitraums", "Fine dei report", "Fin del informe", "Fin de los informes"),
            *("Encerramento dos relatórios", "Término dos relatórios", "Einde rapportage"),
        ],
        longer=[
            "Week",
            "Month",
            "Semaine",
            "Mois",
            "Woche",
            "Monat",
            "Settimana",
            "Mese",
            "Semana",
            "Mes",
            "Mês",
        ],
        hint="In Ads Manager choose Breakdown, By time, Day, and export again.",
    ),
    breakdowns=[
        *("Age", "Gender", "Country", "Region", "DMA region", "Placement", "Platform", "Publisher platform"),
        *("Device platform", "Impression device", "Conversion device", "Time of day (ad account time zone)"),
        *("Âge", "Sexe", "Alter", "Geschlecht", "Età", "Genere", "Edad", "Sexo", "Idade", "Gênero"),
        *("Leeftijd", "Geslacht"),
    ],
    expects=["campaign.name", "daily_metric.impressions", "daily_metric.spend"],
    results=Results(
        field="daily_metric.conversions",
        headers=_RESULTS,
        indicators=[
            *("Result indicator", "Result type", "Indicateur de résultats", "Indicateur de résultat"),
            *(
                "Ergebnisindikator",
                "Ergebnis-Indikator",
                "Indicatore del risultato",
                "Indicatore dei risultati",
            ),
            *("Indicador de resultado", "Indicador de resultados", "Resultaatindicator"),
        ],
    ),
)
