"""How the two Google providers are built and faked."""

from __future__ import annotations

from tests.providers.cases import Case
from weighbridge.providers.google_ads import GoogleAds
from weighbridge.providers.google_datamanager import GoogleDataManager
from weighbridge.testing._google_ads import FakeGoogleAds
from weighbridge.testing._google_datamanager import FakeGoogleDataManager

CREDENTIALS = {
    "customer_id": "123-456-7890",
    "developer_token": "DEVELOPERcanary",
    "client_id": "4711.apps.googleusercontent.com",
    "client_secret": "SECRETcanary",
    "refresh_token": "REFRESHcanary",
    "conversion_action_resource_name": "customers/1234567890/conversionActions/987",
}
GOOGLE_ADS = Case(
    "google_ads",
    FakeGoogleAds,
    lambda fake: GoogleAds(base_url=fake.url),
    CREDENTIALS,
    "gclid",
    ("INVALID_GCLID", "INVALID_GCLID"),
    "refresh_token",
)
GOOGLE_DATAMANAGER = Case(
    "google_datamanager",
    FakeGoogleDataManager,
    lambda fake: GoogleDataManager(base_url=fake.url),
    CREDENTIALS,  # a site changes over with those it has
    "gclid",
    ("INVALID_CURRENCY_CODE", "INVALID_CURRENCY_CODE"),
    "refresh_token",
)
