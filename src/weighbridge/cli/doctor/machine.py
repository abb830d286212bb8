"""Checks of `weighbridge doctor` without a database: folders, file store, alerts."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from weighbridge.cli.doctor.check import Check, CheckStatus, failed, ok, warning
from weighbridge.model.errors import ConfigError, RetryLater
from weighbridge.observe.check_alert_address import problem_with
from weighbridge.settings import Settings
from weighbridge.storage import files
from weighbridge.storage.blobs import BlobMissing, Blobs
from weighbridge.storage.store import open_store

GB = 10**9
LITTLE, TOO_LITTLE = 5 * GB, GB  # free
SHARE = 0.1  # of the whole disk
_SCALE = [CheckStatus.OK, CheckStatus.WARNING, CheckStatus.FAILED]


def home(settings: Settings) -> Check:
    """Check that scratch files can be written."""
    scratch = settings.home / "scratch"
    try:
        settings.home.mkdir(parents=True, exist_ok=True)
        scratch.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryFile(dir=scratch) as file:
            file.write(b"doctor")
    except OSError as error:
        fix = "Set WEIGHBRIDGE_HOME to a folder that the user running Weighbridge can write."
        return failed("home", f"Weighbridge cannot write to {settings.home}: {error.strerror}.", fix)
    return ok("home", f"{settings.home} is writable.")


def queue_folder(settings: Settings) -> Check:
    """Check that the queue folder can be written."""
    try:
        files.make_folders(settings.queue_folder)
        with tempfile.TemporaryFile(dir=settings.queue_folder) as file:
            file.write(b"doctor")
    except OSError as error:
        message = f"Weighbridge cannot write to {settings.queue_folder}: {error.strerror}."
        fix = "Set UPLOAD_QUEUE_DIR to a folder on a persistent disk that the user running Weighbridge can write."
        return failed("queue folder", message, fix)
    return ok("queue folder", f"{settings.queue_folder} is writable.")


def disk_space(settings: Settings) -> Check:
    """Check each disk once, even if several of our folders are on it."""
    folders = {
        "home": settings.home,
        "scratch": settings.home / "scratch",
        "queue": settings.queue_folder,
    }
    if not settings.database_url:
        folders["database"] = settings.home / "postgres"
    try:
        blobs = open_store(settings.blob_url, settings.home).folder
    except ConfigError:  # reported by the check of the file store
        blobs = None
    if blobs is not None:
        folders["blobs"] = blobs
    disks: dict[int, list[str]] = {}
    there = {name: _nearest(folder) for name, folder in folders.items()}
    for name, folder in there.items():
        disks.setdefault(folder.stat().st_dev, []).append(name)
    found = [(names, *shutil.disk_usage(there[names[0]])) for names in disks.values()]
    worst = max((check_space(free, total) for _, total, _, free in found), key=_SCALE.index)
    message = "; ".join(
        f"{free / GB:,.1f} GB of {total / GB:,.1f} GB free for {', '.join(names)}"
        for names, total, _, free in found
    )
    fix = "Free up space, or move WEIGHBRIDGE_HOME or WEIGHBRIDGE_BLOB_URL to a larger disk."
    return Check("disk space", worst, f"{message}.", None if worst == CheckStatus.OK else fix)


def check_space(free: int, total: int) -> CheckStatus:
    if free < TOO_LITTLE:
        return CheckStatus.FAILED
    return CheckStatus.WARNING if free < LITTLE or free < SHARE * total else CheckStatus.OK


def _nearest(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())


async def file_store(settings: Settings) -> Check:
    """Store, read and delete a small file, as every worker and API must be able to."""
    name, fix = (
        "file store",
        "Correct WEIGHBRIDGE_BLOB_URL or the permissions; for Amazon S3 also the AWS_… variables in docs/settings.md.",
    )
    try:
        blobs = open_store(settings.blob_url, settings.home, timedelta(seconds=settings.store_seconds))
        await _put_and_fetch(blobs)
    except (ConfigError, RetryLater, BlobMissing) as error:
        return failed(name, str(error), fix)
    except OSError as error:
        return failed(name, f"No scratch file can be written: {error.strerror}.", fix)
    where = blobs.folder
    return ok(name, f"{where or 'The bucket'}: a test file was stored, read and deleted.")


async def _put_and_fetch(blobs: Blobs) -> None:
    content, workspace = os.urandom(64), uuid4()  # a random workspace: no other file can have this key
    key = f"{workspace}/1970/01/01/{hashlib.sha256(content).hexdigest()}"
    with tempfile.TemporaryDirectory(prefix="weighbridge-doctor-") as scratch:
        file = Path(scratch) / "probe"
        file.write_bytes(content)
        try:
            stored = await blobs.fetch(await blobs.put(key, file), Path(scratch))
            if stored.read_bytes() != content:
                raise RetryLater("connection", "The file store returned different content than was stored.")
        except BaseException:
            with suppress(RetryLater):  # report the first error
                await blobs.remove(workspace)
            raise
        await blobs.remove(workspace)


async def webhook(settings: Settings, *, send: bool) -> Check:
    """Check each alert address. Messages name an address by its number: it contains a secret."""
    if not settings.alert_urls:
        fix = "Set WEIGHBRIDGE_ALERT_URLS, for example to discord://webhook_id/webhook_token."
        return warning("webhook", "No alert address is set: alerts are only logged.", fix)
    count = len(settings.alert_urls)
    troubles = [await asyncio.to_thread(problem_with, url, send=send) for url in settings.alert_urls]
    faults = [f"Address {number} {trouble}." for number, trouble in enumerate(troubles, 1) if trouble]
    if faults:
        fix = "Correct WEIGHBRIDGE_ALERT_URLS; see https://appriseit.com for the formats."
        return failed("webhook", " ".join(faults), fix)
    result = (
        "accepted a test message"
        if send
        else f"{'is' if count == 1 else 'are'} valid; no test message was sent"
    )
    return ok("webhook", f"{'The address' if count == 1 else f'All {count} addresses'} {result}.")


def processing_timeout(settings: Settings) -> Check:
    hours = settings.processing_timeout_hours
    if hours != 1:
        found = f"A run without progress is taken over after {hours:g} hours; the standard value is 1."
        fix = (
            "Unset PROCESSING_TIMEOUT_HOURS and WEIGHBRIDGE_PROCESSING_TIMEOUT_HOURS unless this is intended."
        )
        return warning("processing timeout", found, fix)
    return ok("processing timeout", "A run without progress is taken over after 1 hour.")
