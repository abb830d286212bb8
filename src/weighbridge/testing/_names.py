"""Names, ids and translated headers as people and platforms write them."""

from __future__ import annotations

from itertools import cycle, islice, product

_CAMPAIGNS = product(
    ("US", "DE", "FR", "UK & IE", "São Paulo"),
    ("Prospecting", "Retargeting", "Brand", "Advantage+ Shopping"),
    ("Summer Sale", "Evergreen", 'The "Big" One', "Shoes, Bags"),
)
_AD_SETS = product(("Lookalike 1%", "Broad 18-65+", "Purchasers 180d", "Zürich + Köln"), ("IG", "FB", "All"))
_ADS = product(
    ("UGC video", "Carousel", "Static", "Founder story"), ("hook A", "hook B", "v2", "final, final")
)

_PARTS = {
    "campaign": [" | ".join(parts) for parts in _CAMPAIGNS],
    "ad_set": [" – ".join(parts) for parts in _AD_SETS],
    "ad": [" / ".join(parts) for parts in _ADS],
}


def entity_names(kind: str, count: int, *, multiline: bool = False) -> list[str]:
    """Distinct names: the words repeat, the running number does not."""
    texts = [f"{part} {number:03}" for number, part in enumerate(islice(cycle(_PARTS[kind]), count), start=1)]
    if multiline:
        texts[::3] = [name.replace(" ", "\n", 1) for name in texts[::3]]
    return texts


_FIRST_IDS = {
    ("meta", "campaign"): 120_253_000_000_410_337,  # 18 digits: more than a spreadsheet's number can hold
    ("meta", "ad_set"): 120_253_100_000_410_337,
    ("meta", "ad"): 120_253_200_000_410_337,
    ("google", "campaign"): 21_480_337_915,
    ("google", "ad_set"): 164_800_337_915,
    ("google", "ad"): 704_800_337_915,
    ("tiktok", "campaign"): 1_798_310_000_410_337,
    ("tiktok", "ad_set"): 1_798_320_000_410_337,
    ("tiktok", "ad"): 1_798_330_000_410_337,
}


def entity_ids(platform: str, kind: str, count: int) -> list[str]:
    first = _FIRST_IDS[platform, kind]
    return [str(first + number * 10_007) for number in range(count)]


HEADERS = {
    "fr": {
        "Reporting starts": "Début des rapports",
        "Reporting ends": "Fin des rapports",
        "Day": "Jour",
        "Campaign name": "Nom de la campagne",
        "Campaign ID": "ID de la campagne",
        "Ad set name": "Nom de l’ensemble de publicités",
        "Ad set ID": "ID de l’ensemble de publicités",
        "Ad name": "Nom de la publicité",
        "Ad ID": "ID de la publicité",
        "Reach": "Couverture",
        "Impressions": "Impressions",
        "Amount spent (…)": "Montant dépensé (…)",
        "Link clicks": "Clics sur un lien",
        "Purchases": "Achats",
        "Purchases conversion value": "Valeur de conversion des achats",
    },
    "it": {
        "Reporting starts": "Inizio dei report",
        "Reporting ends": "Fine dei report",
        "Day": "Giorno",
        "Campaign name": "Nome della campagna",
        "Campaign ID": "ID campagna",
        "Ad set name": "Nome del gruppo di inserzioni",
        "Ad set ID": "ID gruppo di inserzioni",
        "Ad name": "Nome dell'inserzione",
        "Ad ID": "ID inserzione",
        "Reach": "Copertura",
        "Impressions": "Impression",
        "Amount spent (…)": "Importo speso (…)",
        "Link clicks": "Clic sul link",
        "Purchases": "Acquisti",
        "Purchases conversion value": "Valore di conversione degli acquisti",
    },
}
