"""Settings: environment over file, and errors that say what was expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weighbridge import ConfigError
from weighbridge.settings import Settings, read

DOCS = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_defaults_are_those_of_the_seeds() -> None:
    settings = read()
    assert (settings.max_upload_mb, settings.batch_rows, settings.uploads_per_workspace) == (50, 1000, 3)
    assert (settings.staging_days, settings.processing_timeout_hours, settings.lease_seconds) == (7, 1, 60)


def test_the_environment_wins_over_the_file(monkeypatch: Any, tmp_path: Path) -> None:
    file = tmp_path / "weighbridge.toml"
    file.write_text('batch_rows = 10\nmax_upload_mb = 7\npipelines = ["shop.pipes"]\n')
    monkeypatch.setenv("WEIGHBRIDGE_CONFIG", str(file))
    monkeypatch.setenv("WEIGHBRIDGE_BATCH_ROWS", "20")
    settings = read()
    assert (settings.batch_rows, settings.max_upload_mb, settings.pipelines) == (20, 7, ("shop.pipes",))


def test_pipelines_are_comma_separated_in_the_environment(monkeypatch: Any) -> None:
    monkeypatch.setenv("WEIGHBRIDGE_PIPELINES", "shop.pipes, other:orders")
    assert read().pipelines == ("shop.pipes", "other:orders")


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("WEIGHBRIDGE_BATCH_ROWS", "many", "WEIGHBRIDGE_BATCH_ROWS: input should be a valid integer"),
        (
            "WEIGHBRIDGE_BATCH_ROWS",
            "0",
            "WEIGHBRIDGE_BATCH_ROWS: input should be greater than or equal to 1, got '0'",
        ),
        ("WEIGHBRIDGE_BATCH_ROW", "1", "did you mean 'WEIGHBRIDGE_BATCH_ROWS'?"),
        ("WEIGHBRIDGE_CONFIG", "nowhere.toml", "WEIGHBRIDGE_CONFIG: expected a file, got 'nowhere.toml'"),
    ],
)
def test_a_wrong_setting_says_which_and_what_was_expected(
    monkeypatch: Any, name: str, value: str, sentence: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as caught:
        read()
    assert sentence in str(caught.value)


def test_an_unknown_name_in_the_file_is_refused(monkeypatch: Any, tmp_path: Path) -> None:
    file = tmp_path / "weighbridge.toml"
    file.write_text("batch_row = 10\n")
    monkeypatch.setenv("WEIGHBRIDGE_CONFIG", str(file))
    with pytest.raises(ConfigError, match="batch_row is not a setting; did you mean 'batch_rows'"):
        read()


def test_a_secret_under_a_wrong_name_is_not_shown(monkeypatch: Any, tmp_path: Path) -> None:
    file = tmp_path / "weighbridge.toml"
    file.write_text('databse_url = "postgresql://u:secret@h/db"\n')
    monkeypatch.setenv("WEIGHBRIDGE_CONFIG", str(file))
    with pytest.raises(ConfigError) as refused:
        read()
    assert str(refused.value) == (
        "Settings: databse_url is not a setting; did you mean 'database_url'? See docs/settings.md."
    )


def test_every_setting_is_in_the_documentation() -> None:
    text = DOCS.read_text()
    missing = [name for name in Settings.model_fields if f"`{name}`" not in text]
    assert not missing


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            b"port = 1\nbatch_rows = \n",
            "expected TOML, got something else: Invalid value (at line 2, column 14).",
        ),
        (b'home = "\xff"\n', "cannot be read: it is not UTF-8."),
    ],
)
def test_a_file_that_is_no_toml_is_named_with_its_line(
    monkeypatch: Any, tmp_path: Path, content: bytes, sentence: str
) -> None:
    file = tmp_path / "weighbridge.toml"
    file.write_bytes(content)
    monkeypatch.setenv("WEIGHBRIDGE_CONFIG", str(file))
    with pytest.raises(ConfigError) as refused:
        read()
    assert str(refused.value) == f"{file}: {sentence}"


def test_the_home_of_nobody_is_refused(monkeypatch: Any) -> None:
    monkeypatch.setenv("WEIGHBRIDGE_HOME", "~no-such-user/x")
    with pytest.raises(ConfigError, match="WEIGHBRIDGE_HOME: value error, there is no such user's home"):
        read()


def test_an_empty_variable_is_one_that_is_not_set(monkeypatch: Any) -> None:
    """As `${VAR:-}` in a compose file writes it. An empty folder's name would be the folder that we are in."""
    for name in (
        "UPLOAD_QUEUE_DIR",
        "WEIGHBRIDGE_BLOB_DAYS",
        "WEIGHBRIDGE_USER_MONTH_MB",
        "WEIGHBRIDGE_PORT",
    ):
        monkeypatch.setenv(name, "")
    settings = read()
    assert (settings.upload_queue_dir, settings.blob_days, settings.user_month_mb) == (None, None, None)
    assert settings.queue_folder == settings.home / "queue"
    assert settings.port == 8080


def test_the_queue_s_folder_can_stand_in_the_file(monkeypatch: Any, tmp_path: Path) -> None:
    file = tmp_path / "weighbridge.toml"
    file.write_text(f'upload_queue_dir = "{tmp_path}/waiting"\n')
    monkeypatch.setenv("WEIGHBRIDGE_CONFIG", str(file))
    assert read().queue_folder == tmp_path / "waiting"
