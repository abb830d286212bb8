"""Google's own types, of the google-ads package. Its import takes seconds: only processes that use them import it."""

from __future__ import annotations

import importlib
from typing import Any

V26 = "google.ads.googleads.v26"


def google_type(module: str, name: str) -> Any:
    """`google_type("errors.types.errors", "ErrorCode")`."""
    return getattr(importlib.import_module(f"{V26}.{module}"), name)


def conversion_upload_errors() -> set[str]:
    """The names of all errors of a conversion upload."""
    enum = google_type("errors.types.conversion_upload_error", "ConversionUploadErrorEnum")
    return {value.name for value in enum.ConversionUploadError}
