"""Settings: environment over file, and errors that say what was expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import AliasChoices, SecretStr

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


def test_the_documentation_lists_every_setting_as_it_is() -> None:
    written = [line for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    assert written == [row(name) for name in Settings.model_fields], "see `row` for the expected lines"


def row(name: str) -> str:
    field = Settings.model_fields[name]
    default = field.default if field.default_factory is None else None
    shown = (
        "" if default in (None, ()) else f"`{str(default).lower() if isinstance(default, bool) else default}`"
    )
    return f"| `{name}` | {' or '.join(f'`{each}`' for each in variables(name))} | {shown} | {field.description} |"


def variables(name: str) -> list[str]:
    """The names of a setting in the environment."""
    alias = Settings.model_fields[name].validation_alias
    if isinstance(alias, AliasChoices):
        return [str(each) for each in alias.choices]
    return [str(alias) if alias else f"WEIGHBRIDGE_{name.upper()}"]


VALUES: dict[str, tuple[str, Any]] = {
    "home": ("/tmp/elsewhere", Path("/tmp/elsewhere")),
    "upload_queue_dir": ("/tmp/waiting", Path("/tmp/waiting")),
    "cors_origins": ("https://a.example,https://b.example", ("https://a.example", "https://b.example")),
}


@pytest.mark.parametrize(
    ("name", "variable"), [(name, each) for name in Settings.model_fields for each in variables(name)]
)
def test_every_documented_variable_sets_its_setting(monkeypatch: Any, name: str, variable: str) -> None:
    text, expected = VALUES.get(name) or _another(
        getattr(read(), name), Settings.model_fields[name].annotation
    )
    monkeypatch.setenv(variable, text)
    found = getattr(read(), name)
    assert (found.get_secret_value() if isinstance(found, SecretStr) else found) == expected


def _another(default: Any, kind: Any) -> tuple[str, Any]:
    """A value that is not the default, as text and as the setting has it."""
    if isinstance(default, bool):
        return str(not default).lower(), not default
    if isinstance(default, tuple):
        return "one, two", ("one", "two")
    if isinstance(default, int | float):
        return str(default + 1), default + 1
    return ("7", 7) if int in get_args(kind) else ("other", "other")


def test_the_key_of_the_vault_has_a_second_name(monkeypatch: Any) -> None:
    monkeypatch.setenv("OPSMANTIK_VAULT_KEY", "abc")
    key = read().vault_key
    assert key is not None
    assert key.get_secret_value() == "abc"


def test_settings_with_a_fixed_variable_can_stand_in_the_file(monkeypatch: Any, tmp_path: Path) -> None:
    file = tmp_path / "weighbridge.toml"
    file.write_text("processing_timeout_hours = 2\nsemaphore_ttl_ms = 60000\n")
    monkeypatch.setenv("WEIGHBRIDGE_CONFIG", str(file))
    assert (read().processing_timeout_hours, read().semaphore_ttl_ms) == (2, 60_000)


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
