"""Settings, from the environment and from weighbridge.toml; the environment wins.

WEIGHBRIDGE_MAX_UPLOAD_MB=200 in the environment is max_upload_mb = 200 in the file. DATABASE_URL has no prefix, so
that the name everyone knows works; nor have REDIS_URL and the names that S4 and S5 give. WEIGHBRIDGE_CONFIG names
another file.
"""

from __future__ import annotations

import os
import re
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Annotated, get_args

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from weighbridge.model.errors import ConfigError, did_you_mean


class Settings(BaseSettings):
    """Every setting there is, with its default."""

    model_config = SettingsConfigDict(
        env_prefix="WEIGHBRIDGE_", env_ignore_empty=True, extra="forbid", frozen=True
    )

    home: Path = Field(
        Path("~/.weighbridge"), description="Holds the embedded database, blobs and scratch files."
    )
    database_url: str | None = Field(
        None,
        validation_alias="DATABASE_URL",
        description="A Postgres of your own, 15 or newer. Empty: the embedded one.",
    )
    blob_url: str | None = Field(
        None, description="Where files lie: a folder, or s3://bucket/prefix. Empty: home/blobs."
    )
    upload_queue_dir: Path | None = Field(
        None,
        validation_alias="UPLOAD_QUEUE_DIR",
        description="Where files wait that the store could not take (S5). Empty: home/queue.",
    )
    store_seconds: float = Field(
        30, gt=0, description="How long the store may take to answer one request, such as a part of a file."
    )
    storage_retries: int = Field(
        5, ge=1, le=1000, description="How often a file that the store could not take is tried again (S5)."
    )
    blob_days: int | None = Field(
        None,
        ge=1,
        le=36_500,
        description="How many days the file of an upload that has ended is kept. Empty: for ever.",
    )
    workspace_month_mb: int | None = Field(
        None, ge=0, description="What a workspace may store in a month, in MB. Empty: no limit."
    )
    workspace_total_mb: int | None = Field(
        None, ge=0, description="What of a workspace may lie in the store, in MB. Empty: no limit."
    )
    user_month_mb: int | None = Field(
        None, ge=0, description="What one user (created_by) may store in a month, in MB. Empty: no limit."
    )
    user_total_mb: int | None = Field(
        None, ge=0, description="What of one user may lie in the store, in MB. Empty: no limit."
    )
    resumable_hours: float = Field(
        24, gt=0, le=8760, description="How long an unfinished resumable upload is kept after its last part."
    )
    pipelines: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Modules with pipelines of your own, comma separated: shop.pipes."
    )
    max_upload_mb: int = Field(50, ge=1, description="The largest file that is accepted, in MB (S1 §3.2).")
    batch_rows: int = Field(
        1000, ge=1, description="Rows written to production in one transaction (S1 §5.3)."
    )
    uploads_per_workspace: int = Field(
        3, ge=1, description="How many uploads of a workspace run at once (S1 §5.3)."
    )
    worker_slots: int = Field(2, ge=1, description="How many uploads one worker process works on at once.")
    lease_seconds: float = Field(
        60, gt=0, description="How long a worker may be silent before its work is taken over."
    )
    processing_timeout_hours: float = Field(
        1, gt=0, description="How long a run may beat without progress (S3 §2)."
    )
    max_crashes: int = Field(5, ge=1, description="How often an upload may lose its worker before it fails.")
    poll_seconds: float = Field(
        2, gt=0, description="How often a worker looks for work when nobody calls it."
    )
    staging_days: int = Field(7, ge=0, description="How long staged rows are kept (S1 §8).")
    parse_memory_mb: int = Field(
        96, ge=64, description="What checking one file may take before it spills to disk."
    )
    statement_timeout_seconds: float = Field(120, ge=0, description="The longest statement; 0: no limit.")
    alert_hook: str | None = Field(None, description="module:function that gets each IngestionCompleteEvent.")
    alert_urls: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Where alerts go, comma separated: apprise URLs such as discord://id/token (S3 §5.2)."
    )
    alert_dead_letters: int = Field(
        5, ge=0, description="More failed uploads than this are alerted (S3 §5.2)."
    )
    alert_backlog: int = Field(100, ge=0, description="More waiting uploads than this are alerted (S3 §5.2).")
    alert_storage_queue: int = Field(
        100, ge=0, description="More files than this waiting for the store for 15 minutes are alerted (S5)."
    )
    sender_seconds: float = Field(
        60, gt=0, description="How long a sender may fall silent in the middle of a request."
    )
    vault_key: SecretStr | None = Field(
        default_factory=lambda: _secret("OPSMANTIK_VAULT_KEY"),  # S4's own name for it
        description="32 bytes as base64, for the credentials of ad platforms (S4).",
    )
    environment: str | None = Field(
        None,
        description="staging, development or test; else it is production (S4: no seeding over HTTP).",
    )
    node_env: str | None = Field(
        None,
        validation_alias="NODE_ENV",
        description="The same, by S4's name. Where both are set, both have to say that it is not production.",
    )
    cron_secret: SecretStr | None = Field(
        None,
        validation_alias="CRON_SECRET",
        description="Opens /api/cron/… as a bearer token (S4). Empty: it is closed.",
    )
    trust_vercel_cron: bool = Field(
        False, description="Let x-vercel-cron: 1 open /api/cron/… too: only where a proxy sets and strips it."
    )
    redis_url: SecretStr | None = Field(
        None,
        validation_alias="REDIS_URL",
        description="Where slots for calls to providers are kept (S4). Empty: in Postgres.",
    )
    concurrency_per_site_provider: int = Field(
        2,
        ge=1,
        le=1000,
        validation_alias="CONCURRENCY_PER_SITE_PROVIDER",
        description="Calls to a provider at once, for one site (S4).",
    )
    concurrency_global_per_provider: int = Field(
        10,
        ge=0,
        le=10_000,
        validation_alias="CONCURRENCY_GLOBAL_PER_PROVIDER",
        description="Calls to a provider at once, for all sites together; 0: no limit (S4).",
    )
    semaphore_ttl_ms: int = Field(
        120_000,
        ge=10_000,
        le=3_600_000,
        validation_alias="SEMAPHORE_TTL_MS",
        description="How long a call may take, and its slot be kept by a process that died (S4).",
    )
    full_opens_circuit: bool = Field(
        True, description="Whether a call that finds no free slot counts as a failure to the breaker (S4)."
    )
    deliver: bool = Field(True, description="Whether workers deliver conversions by themselves.")
    deliver_limit: int = Field(
        10_000, ge=1, le=1_000_000, description="The most conversions that a worker sends in one run."
    )
    deliver_retries: int = Field(
        10, ge=0, le=100, description="How often a conversion is tried again before it has failed."
    )
    provider_seconds: float = Field(
        30, gt=0, le=600, description="How long a provider may take to answer one request."
    )
    providers: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Modules with providers of your own, comma separated: shop.platforms."
    )
    provider_urls: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Other addresses of providers, for tests: google_ads=http://127.0.0.1:9000,…"
    )
    webhook_private: bool = Field(
        False, description="Whether webhooks may go to private and loopback addresses."
    )
    host: str = Field("127.0.0.1", description="The address the API listens on.")
    port: int = Field(8080, ge=0, le=65535, description="The port the API listens on.")
    cors_origins: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Origins whose pages may upload from a browser, comma separated: https://app.example.com.",
    )
    metrics_token: SecretStr | None = Field(
        None, description="Opens /metrics to Prometheus, as a bearer token. Empty: it is closed."
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
                    "expected the origins of pages that you know; with * every page of the web could hand files over "
                    "with a token that it got hold of"
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
        said = [each.strip().lower() for each in (self.environment, self.node_env) if each]
        return not said or not set(said) <= {"staging", "development", "test"}

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
    """The settings, or a ConfigError that says which one is wrong, what was expected and what came."""
    _refuse_unknown_names()
    named = os.environ.get("WEIGHBRIDGE_CONFIG")
    if named and not Path(named).is_file():
        raise ConfigError(f"WEIGHBRIDGE_CONFIG: expected a file, got {named!r}, which is not there.")
    try:
        return Settings(**overrides)  # type: ignore[arg-type]
    except ValidationError as error:
        told = "; ".join(map(_complaint, error.errors()))
        end = "" if told.endswith("?") else "."
        raise ConfigError(f"Settings: {told}{end} See docs/settings.md.") from None
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
    """What is wrong with one setting. What came is shown where it can be no secret: numbers, not addresses."""
    name = str(error["loc"][0])
    if error["type"] == "extra_forbidden":
        return f"{name} is not a setting{did_you_mean(name, Settings.model_fields)}"
    told = f"{_spelled(name)}: {error['msg'][0].lower()}{error['msg'][1:]}"
    declared = Settings.model_fields.get(name)
    secret = "url" in name.lower() or (declared and SecretStr in get_args(declared.annotation))
    return told if secret else f"{told}, got {error['input']!r}"


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
