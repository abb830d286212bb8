"""Parts that loading files needs: the pipelines, and a folder for scratch files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from weighbridge.model.pipeline import Pipeline
from weighbridge.storage import context


@dataclass(frozen=True, kw_only=True)
class Context(context.Context):
    pipelines: Mapping[str, Pipeline]
    scratch: Path
