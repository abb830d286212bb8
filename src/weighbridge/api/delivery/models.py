"""Request and response models for conversions, sites and providers."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from weighbridge.api.validation_messages import NO_NUL
from weighbridge.model.delivery import Category

Name = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]*$", min_length=1, max_length=200)]


class DeliveryStatus(StrEnum):
    QUEUED = "QUEUED"
    RETRY = "RETRY"
    PROCESSING = "PROCESSING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class DeliveryOut(BaseModel):
    """One provider that receives the conversion."""

    provider: str
    status: DeliveryStatus


class ConvertedOut(BaseModel):
    """The result for one conversion, and its deliveries."""

    sale_id: UUID
    site_id: UUID
    order_id: str
    result: Literal["created", "updated", "duplicate"]
    deliveries: list[DeliveryOut]


class ConvertedManyOut(BaseModel):
    """Several results, in the order of the request."""

    conversions: list[ConvertedOut]


class ConversionOut(BaseModel):
    """The delivery of a conversion to one provider. Click ids and digests are not shown."""

    sale_id: UUID
    site_id: UUID
    provider: str
    status: DeliveryStatus
    order_id: str
    click_type: str
    occurred_at: datetime
    clicked_at: datetime | None
    value: Decimal | None
    currency: str | None
    expires_at: datetime | None = Field(description="From then on the provider refuses it as too old.")
    next_retry_at: datetime | None
    claimed_at: datetime | None
    attempts: int = Field(description="Number of calls that contained it.")
    retries: int = Field(description="Temporary errors that count towards the limit.")
    last_error: str | None
    uploaded_at: datetime | None
    provider_request_id: str | None = Field(description="The provider's request id: proof of the delivery.")
    provider_error_code: str | None
    provider_error_category: Category | None
    duplicate: bool = Field(description="The provider already had it: an earlier call succeeded.")
    confirmation: str | None
    confirmed_at: datetime | None
    created_at: datetime
    updated_at: datetime
    upload_id: UUID | None
    line: int | None


class ConversionsOut(BaseModel):
    """A page. Pass `next` as `before` to get the next page."""

    conversions: list[ConversionOut]
    next: str | None


class EntryOut(BaseModel):
    """An entry of the ledger: STARTED before a call, FINISHED after it."""

    batch_id: UUID
    provider: str
    phase: Literal["STARTED", "FINISHED"]
    claimed_count: int | None
    completed_count: int | None
    failed_count: int | None
    retry_count: int | None
    duration_ms: int | None
    provider_request_id: str | None
    error_code: str | None
    error_category: str | None
    created_at: datetime


class LedgeredOut(ConversionOut):
    ledger: list[EntryOut] = Field(description="Ledger entries of the last call.")


class WholeConversionOut(BaseModel):
    """A sale and its delivery to each provider."""

    sale_id: UUID
    site_id: UUID
    order_id: str
    deliveries: list[LedgeredOut]


class RequeueIn(BaseModel):
    """Selects failed conversions: by sale ids, or all that match the other fields."""

    model_config = ConfigDict(extra="forbid")
    sale_ids: list[UUID] | None = Field(None, max_length=1000)
    site_id: UUID | None = None
    provider: str | None = Field(None, pattern=NO_NUL)
    category: Category | None = None
    code: str | None = Field(None, pattern=NO_NUL)


class RequeuedOut(BaseModel):
    requeued: int


class SiteIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Name
    providers: list[str] | None = Field(
        None, description="Providers that receive its sales. Default: google_datamanager."
    )


class SiteChangeIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Name | None = None
    providers: list[str] | None = Field(None, description="Providers that receive new sales.")


class SiteOut(BaseModel):
    site_id: UUID
    name: str
    providers: list[str]
    created_at: datetime


class SitesOut(BaseModel):
    """A page, by name. Pass `next` as `after` to get the next page."""

    sites: list[SiteOut]
    next: str | None


class CredentialsOut(BaseModel):
    """Metadata of stored credentials; the values are never returned."""

    site_id: UUID
    provider: str
    version: int
    key_id: str = Field(description="The id of the vault key that encrypts them.")
    in_use: bool = Field(description="Whether the site uses this provider.")


class RemovedOut(BaseModel):
    site_id: UUID
    provider: str
    removed: bool


class ResetOut(BaseModel):
    site_id: UUID
    provider: str
    state: Literal["CLOSED"]


class CircuitOut(BaseModel):
    state: Literal["CLOSED", "OPEN", "HALF_OPEN"]
    failure_count: int
    next_probe_at: datetime | None


class GroupCredentialsOut(BaseModel):
    """A group's credentials."""

    version: int
    key_id: str
    refused_at: datetime | None = Field(description="Time since which the provider refuses them.")
    refused_code: str | None


class TotalsOut(BaseModel):
    attempts_total: int
    completed_total: int
    failed_total: int
    retry_total: int


class DeliveryGroupOut(BaseModel):
    """A site and a provider."""

    site_id: UUID
    site_name: str
    provider: str
    in_use: bool
    circuit: CircuitOut
    paused_until: datetime | None = Field(
        description="End of a pause that the provider requested for all sites."
    )
    waiting: int = Field(description="QUEUED and RETRY; at most 10000 are counted.")
    in_call: int = Field(description="PROCESSING: in a call, or claimed for the next one.")
    failed: int = Field(description="At most 10000 are counted.")
    credentials: GroupCredentialsOut | None = Field(
        description="null: no credentials are stored, and no conversion is sent."
    )
    totals: TotalsOut
    ledger: list[EntryOut] = Field(description="The newest entries; only with the parameter `site_id`.")


class DeliveryGroupsOut(BaseModel):
    """A page, by site and provider. Pass `next` as `after` to get the next page."""

    groups: list[DeliveryGroupOut]
    next: str | None


class ProcessedOut(BaseModel):
    """The fixed fields of the response, and further counts of the run."""

    ok: Literal[True] = True
    processed: int
    completed: int
    failed: int
    retry: int
    calls: int
    full: int = Field(description="Batches that found no free slot and were not sent.")
    parked: int = Field(description="Conversions that were postponed because their circuit is open.")
    skipped: dict[str, int] = Field(description="Number of skipped groups by reason.")


class RecoveredOut(BaseModel):
    ok: Literal[True] = True
    recovered: int


class SeededOut(BaseModel):
    ok: Literal[True] = True


_TIME = {"type": "string", "format": "date-time"}
_ONE: dict[str, Any] = {
    "type": "object",
    "required": ["site_id", "occurred_at"],
    "properties": {
        "site_id": {"type": "string", "format": "uuid"},
        "order_id": {
            "type": "string",
            "maxLength": 200,
            "description": "Default: derived from click id and time.",
        },
        "occurred_at": {**_TIME, "description": "With a time zone."},
        "value": {"type": "number", "minimum": 0},
        "currency": {"type": "string", "description": "Three letters; required with a value."},
        **{
            name: {"type": "string", "maxLength": 512}
            for name in ("gclid", "wbraid", "gbraid", "fbclid", "ttclid")
        },
        "clicked_at": _TIME,
        "email": {"type": "string", "description": "Stored only as a digest."},
        "phone": {"type": "string", "description": "With country code; stored only as digests."},
        "conversation_id": {"type": "string", "format": "uuid"},
    },
}
CONVERSIONS_BODY: dict[str, Any] = {
    "anyOf": [
        _ONE,
        {
            "type": "object",
            "required": ["conversions"],
            "properties": {"conversions": {"type": "array", "items": _ONE, "minItems": 1, "maxItems": 1000}},
        },
    ]
}
CREDENTIALS_BODY: dict[str, Any] = {
    "type": "object",
    "required": ["credentials"],
    "properties": {"credentials": {"type": "object", "additionalProperties": {"type": "string"}}},
}
SEED_BODY: dict[str, Any] = {
    "type": "object",
    "required": ["site_id", "provider_key", "credentials"],
    "properties": {
        "site_id": {"type": "string", "format": "uuid"},
        "provider_key": {"type": "string"},
        "credentials": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}
