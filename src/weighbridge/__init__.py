"""Weighbridge: export files into Postgres, every row exactly once and accounted for.

This module exports the names that authors of pipelines need; all other modules are internal.

cli/, __main__  commands
console/        web pages
api/            HTTP routes
settings, app   the settings are read once, and the parts built from them
worker          the queues and chores of a worker; service_figures counts the work of all subjects
retention       removes history whose retention period is over
delivery/       conversions → ad platforms and webhooks
projects/       keyword projects and their groups
uploads/        files → production tables
storage/        stored files and quotas
engine/         claim, lease, retry, recover, events: shared by all queues
access/         API keys and sessions
pipelines/      the built-in pipelines
formats/        bytes → text columns
rules/          text columns → typed columns
observe/        logs, metrics, traces, alerts
postgres/       connections, roles, schema
model/          states, declarations, errors: standard library only
testing/        generated files and fake providers, for tests
"""

from weighbridge.model import upsert
from weighbridge.model.errors import (
    ConfigError,
    FileRefused,
    LeaseLost,
    Refused,
    RequestRefused,
    RetryLater,
    WeighbridgeError,
)
from weighbridge.model.pipeline import Computed, ComputedDefault, Entity, Field, NamePath, Pipeline, Ref
from weighbridge.model.profile import Profile
from weighbridge.model.rule import Normaliser, Validator
from weighbridge.rules import n, v

__version__ = "0.1.0"

__all__ = [
    "Computed",
    "ComputedDefault",
    "ConfigError",
    "Entity",
    "Field",
    "FileRefused",
    "LeaseLost",
    "NamePath",
    "Normaliser",
    "Pipeline",
    "Profile",
    "Ref",
    "Refused",
    "RequestRefused",
    "RetryLater",
    "Validator",
    "WeighbridgeError",
    "__version__",
    "n",
    "upsert",
    "v",
]
