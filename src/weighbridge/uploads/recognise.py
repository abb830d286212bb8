"""The first bytes of a file → the pipeline and platform that recognise its header.

A file fits a pipeline if the parse step would find every column it needs. If several pipelines fit, the one that reads
clearly more columns than any other is chosen; if there is none, the sender must choose.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from weighbridge.formats import UnknownHeader, open_sheet, text_of, without_added_columns
from weighbridge.model.errors import FileRefused, RequestRefused
from weighbridge.model.pipeline import Pipeline
from weighbridge.model.profile import Profile
from weighbridge.model.read_options import DETECT_ALL, ReadOptions
from weighbridge.model.sheet import Sheet
from weighbridge.rules.headers import (
    CLEARLY,
    field_counter,
    find_columns,
    list_header,
    match,
    missing_expected,
    missing_required,
    synonyms,
)
from weighbridge.rules.unknown_header import is_value
from weighbridge.uploads.check_request import AUTO, Request
from weighbridge.uploads.context import Context
from weighbridge.uploads.file_kind import kind_of, shown_name
from weighbridge.uploads.read_options import read_options

HEAD = 1 << 16  # bytes that are examined
SHOWN = 12  # pipelines listed in a message


@dataclass(frozen=True)
class Fit:
    """The result of comparing a file with a pipeline and one of its platforms."""

    pipeline: Pipeline
    platform: str | None
    matched: tuple[str, ...] = ()  # the file's columns that it reads
    missing: tuple[str, ...] = ()  # expected columns that the file does not have
    complaint: str = ""  # why it would refuse the file; empty: it fits
    listed: bool = False  # a list of values without a header

    @property
    def name(self) -> str:
        return f"{self.pipeline.name}/{self.platform}" if self.platform else self.pipeline.name


@dataclass(frozen=True)
class Recognised:
    """The pipelines that a file fits: one if it is certain, several to choose from, or none and the nearest."""

    fits: tuple[Fit, ...]
    nearest: Fit | None
    sentence: str

    @property
    def fit(self) -> Fit | None:
        return self.fits[0] if len(self.fits) == 1 else None


async def recognised_request(ctx: Context, request: Request, head: bytes) -> Request:
    """The request with the pipeline of its file, if it is to be recognised; RequestRefused if that is not possible.

    Scope fields that the pipeline does not have are dropped: files of several types may be sent with the same fields.
    """
    if request.pipeline != AUTO:
        return request
    reading = read_options(vars(request))
    found = await recognise(ctx, head, request.filename, request.platform or None, reading)
    fit = found.fit
    if fit is None:
        raise RequestRefused(422, "unrecognised_file", found.sentence)
    return with_pipeline(request, fit)


def with_pipeline(request: Request, fit: Fit) -> Request:
    """The request for this pipeline. Fields that a token sets stay: the check refuses those that do not fit."""
    scope, bound = fit.pipeline.scope, request.bound
    of_project = "project_id" in scope
    of_client = not of_project or "client_id" in scope
    return replace(
        request,
        pipeline=fit.pipeline.name,
        platform=request.platform if "platform" in bound else fit.platform,
        project_id=request.project_id if of_project or "project_id" in bound else None,
        client_id=request.client_id if of_client or "client_id" in bound else None,
    )


async def recognise(
    ctx: Context,
    head: bytes,
    filename: str | None,
    platform: str | None = None,
    reading: ReadOptions = DETECT_ALL,
) -> Recognised:
    """Recognise a file by its first bytes, with the given encoding and delimiter or those that parsing would detect.

    RequestRefused for a file that is neither CSV nor JSON.
    """
    kind = kind_of(head[:HEAD], filename)
    text = await asyncio.to_thread(text_of, head[:HEAD], reading.encoding)
    beginning = _Beginning(text, kind, cut=len(head) >= HEAD, delimiter=reading.delimiter)
    return await asyncio.to_thread(_recognise, ctx, beginning, filename, platform)


async def peeked(chunks: AsyncIterator[bytes]) -> tuple[bytes, AsyncIterator[bytes]]:
    """The first bytes of a stream, and the whole stream."""
    head = bytearray()
    async for chunk in chunks:
        head += chunk
        if len(head) >= HEAD:
            break

    async def whole() -> AsyncIterator[bytes]:
        yield bytes(head)
        async for chunk in chunks:
            yield chunk

    return bytes(head[:HEAD]), whole()


def first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD)


@dataclass(frozen=True)
class _Beginning:
    """The first bytes of a file as text; `cut` if the file is longer."""

    text: str
    kind: str
    cut: bool
    delimiter: str  # as given by the sender; empty: detected


def _recognise(ctx: Context, beginning: _Beginning, filename: str | None, platform: str | None) -> Recognised:
    accepting = {name: each for name, each in ctx.pipelines.items() if beginning.kind in each.accepts}
    ctx.scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="recognise-", dir=ctx.scratch) as folder:
        path = Path(folder, "head")
        path.write_bytes(beginning.text.encode())
        reader = _HeadReader(path, beginning.kind, cut=beginning.cut, delimiter=beginning.delimiter)
        tried = [reader.hold(pipeline, profile) for pipeline, profile in _candidates(accepting, platform)]
    known = [fit for fit in tried if isinstance(fit, Fit)]
    if any(
        not fit.listed for fit in known
    ):  # a file counts as a list only if no pipeline recognises a column
        known = [fit for fit in known if not fit.listed]
    fits = tuple(_clearest(list(_of_platforms([fit for fit in known if not fit.complaint]))))
    nearest = max(known, key=lambda fit: (len(fit.matched), -len(fit.missing)), default=None)
    sentence = _sentence(fits, nearest, tried, sorted(ctx.pipelines))
    return Recognised(fits, nearest, f"{shown_name(filename)}: {sentence}")


def _candidates(
    pipelines: Mapping[str, Pipeline], platform: str | None
) -> Iterator[tuple[Pipeline, Profile | None]]:
    """Only one platform if the sender names it. Pipelines without platforms always take part."""
    for pipeline in pipelines.values():
        if not pipeline.profiles or (platform is None and "platform" not in pipeline.scope):
            yield pipeline, None
        for profile in pipeline.profiles:
            if platform in (None, profile.name):
                yield pipeline, profile


@dataclass(frozen=True)
class _HeadReader:
    """Reads the beginning of a file as each pipeline would."""

    path: Path
    kind: str
    cut: bool
    delimiter: str

    def hold(self, pipeline: Pipeline, profile: Profile | None) -> Fit | FileRefused:
        """The fit with this pipeline; FileRefused if no header is found."""
        platform = profile.name if profile else None
        try:
            sheet = without_added_columns(
                open_sheet(
                    self.path,
                    self.kind,
                    count_fields=field_counter(pipeline, profile),
                    scratch=self.path.parent,
                    headerless=list_header(pipeline, profile),
                    head_only=self.cut,
                    options=ReadOptions(delimiter=self.delimiter),
                )
            )
            if self.kind == "csv" and sheet.header_line == 0:
                return self._list(pipeline, platform)
            if len(sheet.header) == 1 and sheet.header_line > 1 and not pipeline.headerless:
                return UnknownHeader((), 1, ())  # a word in a list, such as Total
            layout = find_columns(sheet.header, pipeline, profile)
        except FileRefused as refusal:
            return refusal
        places = {place for places in layout.columns.values() for place in places} | {layout.period_end} - {
            None
        }
        matched = tuple(cell for place, cell in enumerate(sheet.header) if place in places)
        expected = {*missing_required(layout, pipeline), *missing_expected(layout, pipeline, profile)}
        lost = (
            synonyms(name, pipeline.fields[name], pipeline, profile)
            for name in pipeline.fields
            if name in expected
        )
        complaint = _complaint(sheet, pipeline, profile)
        return Fit(pipeline, platform, matched, tuple(names[0] for names in lost if names), complaint)

    def _list(self, pipeline: Pipeline, platform: str | None) -> Fit | FileRefused:
        """One value per line, no header. Unlikely for this pipeline if the values are figures or addresses."""
        lines = [line for line in self.path.read_text().splitlines()[:50] if line.strip()]
        if sum(map(is_value, lines)) * 2 > len(lines):
            return UnknownHeader((), 1, ())
        return Fit(pipeline, platform, listed=True)


def _complaint(sheet: Sheet, pipeline: Pipeline, profile: Profile | None) -> str:
    try:
        match(sheet.header, pipeline, profile)
    except FileRefused as refusal:
        return refusal.message
    return ""


def _of_platforms(fits: list[Fit]) -> Iterator[Fit]:
    """For a pipeline whose platform is optional only the best fit; without a platform if that is equally good."""
    for fit in fits:
        others = [other for other in fits if other.pipeline is fit.pipeline]
        best = max(others, key=lambda other: len(other.matched))
        if "platform" in fit.pipeline.scope or fit is best:
            yield fit


def _clearest(fits: list[Fit]) -> list[Fit]:
    """The fits that no other fit clearly beats, by the number of columns read minus the number missing."""
    worth = [len(fit.matched) - len(fit.missing) for fit in fits]
    return [fit for fit, worth_of_fit in zip(fits, worth, strict=True) if worth_of_fit > max(worth) - CLEARLY]


def _sentence(
    fits: tuple[Fit, ...], nearest: Fit | None, tried: list[Fit | FileRefused], known: list[str]
) -> str:
    if len(fits) == 1:
        return f"recognised as {fits[0].name.replace('/', ', ')}."
    if fits:
        return f"it fits {_and([fit.name for fit in fits], 'and')}; choose one."
    if nearest is not None:
        return f"it fits no pipeline. The nearest is {nearest.name}: {nearest.complaint}"
    for refusal in tried:
        if isinstance(refusal, FileRefused) and not isinstance(refusal, UnknownHeader):
            return f"it cannot be recognised. {refusal.message}"
    names = _and(known, "and")
    return f"it fits no pipeline: {names} recognise none of its columns. Its first line must be the header."


def _and(names: list[str], word: str) -> str:
    names = [*names[:SHOWN], f"{len(names) - SHOWN} more"] if len(names) > SHOWN + 1 else names
    return f" {word} ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
