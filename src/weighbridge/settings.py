"""Settings, from the environment and from weighbridge.toml; the environment takes precedence.

WEIGHBRIDGE_MAX_UPLOAD_MB=200 in the environment is max_upload_mb = 200 in the file. DATABASE_URL and REDIS_URL have no
prefix, because these names are common, nor have the names that docs/contracts.md fixes. WEIGHBRIDGE_CONFIG names
another file.
"""

from __future__ import annotations

import os
import re
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Annotated, get_args

from pydantic import AliasChoices, Field, SecretStr, ValidationError, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from weighbridge.model.errors import ConfigError, did_you_mean
from weighbridge.model.retry import CONVERSION_RETRIES, MAX_CRASHES, STORAGE_RETRIES


class Settings(BaseSettings):
    """All settings, with their defaults."""

    model_config = SettingsConfigDict(
        env_prefix="WEIGHBRIDGE_", env_ignore_empty=True, extra="forbid", frozen=True
    )

    home: Path = Field(
        Path("~/.weighbridge"),
        description="Folder of the embedded database, stored files, waiting files and scratch files.",
    )
    database_url: str | None = Field(
        None,
        validation_alias="DATABASE_URL",
        description="Address of your own Postgres, 15 or newer. Empty: the embedded one.",
    )
    blob_url: str | None = Field(
        None, description="Where files are stored: a folder, or s3://bucket/prefix. Empty: home/blobs."
    )
    upload_queue_dir: Path | None = Field(
        None,
        validation_alias="UPLOAD_QUEUE_DIR",
        description="Folder for files that wait for the store, and for unfinished resumable uploads. "
        "Empty: home/queue.",
    )
    store_seconds: float = Field(
        30, gt=0, description="Timeout of one request to the file store, such as one part of a file."
    )
    storage_retries: int = Field(
        STORAGE_RETRIES, ge=1, le=1000, description="Retries of a file that the store could not accept."
    )
    blob_days: int | None = Field(
        None,
        ge=1,
        le=36_500,
        description="Retention of stored files in days after their upload has ended. Empty: no limit.",
    )
    workspace_month_mb: int | None = Field(
        None, ge=0, description="Storage quota per workspace and month, in MB. Empty: no limit."
    )
    workspace_total_mb: int | None = Field(
        None, ge=0, description="Storage quota per workspace, in MB. Empty: no limit."
    )
    user_month_mb: int | None = Field(
        None, ge=0, description="Storage quota per user (created_by) and month, in MB. Empty: no limit."
    )
    user_total_mb: int | None = Field(
        None, ge=0, description="Storage quota per user (created_by), in MB. Empty: no limit."
    )
    resumable_hours: float = Field(
        24,
        gt=0,
        le=8760,
        description="Retention of an unfinished resumable upload in hours after its last part.",
    )
    pipelines: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Modules with your own pipelines, separated by commas: shop.pipes."
    )
    max_upload_mb: int = Field(50, ge=1, description="Largest accepted file, in MB.")
    batch_rows: int = Field(1000, ge=1, description="Rows written to production in one transaction.")
    stage_rows: int = Field(40_000, ge=1, description="Approximate number of rows staged in one transaction.")
    uploads_per_workspace: int = Field(
        3, ge=1, description="Maximum number of concurrent uploads per workspace."
    )
    worker_slots: int = Field(
        3,
        ge=1,
        description="Maximum number of concurrent uploads per worker process. With more than one, the last free slot "
        "is kept for a workspace that has no upload in the process yet.",
    )
    lease_seconds: float = Field(
        60,
        gt=0,
        description="Lease of an attempt: after this time without a heartbeat, another worker takes the work over.",
    )
    processing_timeout_hours: float = Field(
        1,
        gt=0,
        validation_alias=AliasChoices("WEIGHBRIDGE_PROCESSING_TIMEOUT_HOURS", "PROCESSING_TIMEOUT_HOURS"),
        description="Maximum time a worker may renew its lease without making progress, in hours.",
    )
    max_crashes: int = Field(
        MAX_CRASHES,
        ge=1,
        description="Worker crashes after which an upload fails. A conversion fails at the next crash after that.",
    )
    poll_seconds: float = Field(2, gt=0, description="Polling interval when no notification arrives.")
    staging_days: int = Field(
        7, ge=0, description="Retention of staged rows, and of previews without a decision, in days."
    )
    attempt_days: int = Field(
        30,
        ge=1,
        le=36_500,
        description="Retention of closed attempts in days: which worker processed an upload, and when.",
    )
    event_days: int = Field(
        30,
        ge=1,
        le=36_500,
        description="Retention in days of events that every consumer has received, of closed alerts and of "
        "confirmations.",
    )
    rejection_days: int = Field(
        365,
        ge=1,
        le=36_500,
        description="Retention of rejected rows, warnings and repeated files in days after their upload has ended. "
        "The counts stay; the upload page and `uploads rejects` report that the rows were deleted.",
    )
    audit_days: int = Field(730, ge=1, le=36_500, description="Retention of the audit log, in days.")
    parse_memory_mb: int = Field(
        96, ge=64, description="Memory for checking one file, in MB; beyond it, data is written to disk."
    )
    statement_timeout_seconds: float = Field(
        120, ge=0, description="Timeout of one database statement; 0: no limit."
    )
    stop_seconds: float = Field(
        110,
        gt=0,
        le=3600,
        description="Maximum time from SIGTERM or SIGINT to the end of the process; an API process without a worker: "
        "25 at most.",
    )
    alert_hook: str | None = Field(
        None, description="module:function that receives each IngestionCompleteEvent."
    )
    alert_urls: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Addresses for alerts, separated by commas: apprise URLs such as discord://id/token."
    )
    alert_dead_letters: int = Field(
        5,
        ge=0,
        description="An alert is raised when there are more dead letters than this: failed uploads that no "
        "operator has retried or dismissed.",
    )
    alert_backlog: int = Field(
        100, ge=0, description="An alert is raised when more uploads than this are waiting or in progress."
    )
    alert_storage_queue: int = Field(
        100,
        ge=0,
        description="An alert is raised when more files than this have waited 15 minutes for the store.",
    )
    sender_seconds: float = Field(
        60, gt=0, description="Timeout while a client sends no data in the middle of a request."
    )
    vault_key: SecretStr | None = Field(
        default_factory=lambda: _secret("OPSMANTIK_VAULT_KEY"),  # a fixed name, see docs/contracts.md
        description="Key that encrypts the credentials of ad platforms: 32 bytes in base64.",
    )
    environment: str | None = Field(
        None,
        description="staging, development or test. Empty or any other value: production, where seed-credentials is "
        "closed.",
    )
    node_env: str | None = Field(
        None,
        validation_alias="NODE_ENV",
        description="Another name for environment. If both are set and one of them means production, it is production.",
    )
    cron_secret: SecretStr | None = Field(
        None,
        validation_alias="CRON_SECRET",
        description="Bearer token of /api/cron/…. Empty: these routes are closed.",
    )
    trust_vercel_cron: bool = Field(
        False,
        description="Accept the header x-vercel-cron: 1 instead of CRON_SECRET. Only behind a proxy that removes it "
        "from outside requests.",
    )
    redis_url: SecretStr | None = Field(
        None,
        validation_alias="REDIS_URL",
        description="Redis that holds the slots for calls to providers. Empty: Postgres holds them.",
    )
    concurrency_per_site_provider: int = Field(
        2,
        ge=1,
        le=1000,
        validation_alias="CONCURRENCY_PER_SITE_PROVIDER",
        description="Maximum number of concurrent calls to a provider for one site.",
    )
    concurrency_global_per_provider: int = Field(
        10,
        ge=0,
        le=10_000,
        validation_alias="CONCURRENCY_GLOBAL_PER_PROVIDER",
        description="Maximum number of concurrent calls to a provider for all sites together; 0: no limit.",
    )
    semaphore_ttl_ms: int = Field(
        120_000,
        ge=10_000,
        le=3_600_000,
        validation_alias="SEMAPHORE_TTL_MS",
        description="Lease of a call and of its slot, in milliseconds.",
    )
    full_opens_circuit: bool = Field(
        True, description='Whether the circuit breaker counts "no free slot" as a failure.'
    )
    deliver: bool = Field(True, description="Whether workers deliver queued conversions.")
    deliver_limit: int = Field(
        10_000, ge=1, le=1_000_000, description="Maximum number of conversions in one delivery run."
    )
    deliver_retries: int = Field(
        CONVERSION_RETRIES, ge=0, le=100, description="Retries of a conversion before it fails."
    )
    provider_seconds: float = Field(30, gt=0, le=600, description="Timeout of one request to a provider.")
    providers: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Modules with your own providers, separated by commas: shop.platforms."
    )
    provider_urls: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Other addresses of providers, for tests: google_ads=http://127.0.0.1:9000,…"
    )
    webhook_private: bool = Field(
        False, description="Whether webhooks may be sent to private and loopback addresses."
    )
    host: str = Field("127.0.0.1", description="Address on which the API listens.")
    port: int = Field(8080, ge=0, le=65535, description="Port on which the API listens.")
    cors_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Origins whose pages may upload from a browser, separated by commas: https://app.example.com.",
    )
    metrics_token: SecretStr | None = Field(
        None, description="Bearer token of /metrics, for Prometheus. Empty: the route is closed."
    )

    @field_validator("pipelines", "alert_urls", "providers", "provider_urls", "cors_origins", mode="before")
    @classmethod
    def _comma_separated(cls, value: object) -> object:
        return tuple(p.strip() for p in value.split(",") if p.strip()) if isinstance(value, str) else value

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            if each == "*":
                raise ValueError(
                    "expected the origins of your own pages; with *, any web page could upload files with a token that "
                    "it obtained"
                )
            if not re.fullmatch(r"https?://[a-z0-9.-]+(:[0-9]+)?|https?://\[[0-9a-f:]+\](:[0-9]+)?", each):
                raise ValueError(
                    "expected origins such as https://app.example.com: a scheme, a host in lower case, perhaps a "
                    "port, and no path"
                )
        return value

    @field_validator("home", "upload_queue_dir")
    @classmethod
    def _expand(cls, value: Path | None) -> Path | None:
        try:
            return value and value.expanduser().absolute()
        except RuntimeError:
            raise ValueError("there is no such user's home") from None

    @property
    def queue_folder(self) -> Path:
        return self.upload_queue_dir or self.home / "queue"

    @property
    def in_production(self) -> bool:
        names = [each.strip().lower() for each in (self.environment, self.node_env) if each]
        return not names or not set(names) <= {"staging", "development", "test"}

    @property
    def lease(self) -> timedelta:
        return timedelta(seconds=self.lease_seconds)

    @property
    def processing_timeout(self) -> timedelta:
        return timedelta(hours=self.processing_timeout_hours)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=_file())


def read(**overrides: object) -> Settings:
    """The settings, or a ConfigError that names the invalid one, the expected value and the given value."""
    _refuse_unknown_names()
    named = os.environ.get("WEIGHBRIDGE_CONFIG")
    if named and not Path(named).is_file():
        raise ConfigError(f"WEIGHBRIDGE_CONFIG: expected a file, got {named!r}, which does not exist.")
    try:
        return Settings(**overrides)  # type: ignore[arg-type]
    except ValidationError as error:
        complaints = "; ".join(map(_complaint, error.errors()))
        end = "" if complaints.endswith("?") else "."
        raise ConfigError(f"Settings: {complaints}{end} See docs/settings.md.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{_file()}: expected TOML, got something else: {error}.") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{_file()}: cannot be read: {reason}.") from None


def _secret(name: str) -> SecretStr | None:
    found = os.environ.get(name)
    return SecretStr(found) if found else None


def _file() -> Path:
    return Path(os.environ.get("WEIGHBRIDGE_CONFIG", "weighbridge.toml"))


def _complaint(error: ErrorDetails) -> str:
    """The error of one setting. The value is shown only if it cannot be a secret: numbers, not addresses."""
    name = str(error["loc"][0])
    if error["type"] == "extra_forbidden":
        return f"{name} is not a setting{did_you_mean(name, Settings.model_fields)}"
    complaint = f"{_spelled(name)}: {error['msg'][0].lower()}{error['msg'][1:]}"
    declared = Settings.model_fields.get(name)
    secret = "url" in name.lower() or (declared and SecretStr in get_args(declared.annotation))
    return complaint if secret else f"{complaint}, got {error['input']!r}"


def _refuse_unknown_names() -> None:
    known = {f"WEIGHBRIDGE_{name.upper()}" for name in Settings.model_fields} | {"WEIGHBRIDGE_CONFIG"}
    for name in os.environ:
        if (
            name.startswith("WEIGHBRIDGE_")
            and name not in known
            and not name.startswith("WEIGHBRIDGE_BENCH_")
        ):
            raise ConfigError(
                f"{name} is not a setting{did_you_mean(name, known) or '.'} See docs/settings.md."
            )


def _spelled(name: str) -> str:
    return name if name.isupper() else f"WEIGHBRIDGE_{name.upper()}"
