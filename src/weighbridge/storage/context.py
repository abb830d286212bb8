"""Parts that storing files needs: the file store, the folder for files that wait for it, and the limits."""

from __future__ import annotations

from dataclasses import dataclass, field

from weighbridge.engine import context
from weighbridge.model.limits import Limits
from weighbridge.storage.blobs import Blobs
from weighbridge.storage.waiting_files import Spool


@dataclass(frozen=True, kw_only=True)
class Context(context.Context):
    blobs: Blobs
    spool: Spool
    limits: Limits = field(default_factory=Limits)
