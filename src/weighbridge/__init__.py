"""Weighbridge: export files into Postgres, every row exactly once and accounted for.

What an author of pipelines needs is here; the rest of the package is the system's own.
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
from weighbridge.model.pipeline import Entity, Field, Made, NamePath, OrMade, Pipeline, Ref
from weighbridge.model.profile import Profile
from weighbridge.model.rule import Normaliser, Validator
from weighbridge.rules import n, v

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "Entity",
    "Field",
    "FileRefused",
    "LeaseLost",
    "Made",
    "NamePath",
    "Normaliser",
    "OrMade",
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
