"""Settings from environment variables, a TOML file, the preset and defaults, in that order.

A process reads them once, at start, into one frozen value. All mistakes are reported together, each
with its name, its value and the allowed values; none is replaced by a default.
"""

import dataclasses
import difflib
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from joulie_bus.core.redaction import HIDDEN, masked, remember
from joulie_bus.core.setting_fields import Parser as Parser
from joulie_bus.core.setting_fields import boolean as boolean
from joulie_bus.core.setting_fields import choice as choice
from joulie_bus.core.setting_fields import duration as duration
from joulie_bus.core.setting_fields import inbox as inbox
from joulie_bus.core.setting_fields import integer as integer
from joulie_bus.core.setting_fields import number as number
from joulie_bus.core.setting_fields import pairs
from joulie_bus.core.setting_fields import preset_number as preset_number
from joulie_bus.core.setting_fields import setting as setting
from joulie_bus.core.setting_fields import some_time as some_time
from joulie_bus.core.setting_fields import some_time_or_never as some_time_or_never
from joulie_bus.core.setting_fields import text as text
from joulie_bus.core.setting_fields import token as token
from joulie_bus.errors import SettingsError
from joulie_bus.runtime import nats_keys, preset_files, presets
from joulie_bus.runtime.preset_files import Preset, PresetMistake
from joulie_bus.runtime.presets import PRESET
from joulie_bus.runtime.secret_files import SUFFIX, secret_in

T = TypeVar("T")


class HostPort(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Declared(NamedTuple):
    """One setting as shown in the reference."""

    name: str
    default: str
    allowed: str
    doc: str
    secret: bool


class InForce(NamedTuple):
    name: str
    value: str
    origin: str  # environment, the path of the file, the line of a preset, or default


def named(cls: type) -> list[dataclasses.Field[Any]]:
    """The fields that an operator can set. The others are constants: only code replaces them."""
    return [field for field in dataclasses.fields(cls) if "name" in field.metadata]


def declared(*classes: type) -> list[Declared]:
    """Without the numbers that only presets give."""
    found = {m["name"]: _declared(m) for m in _metadata(*classes) if not m["only_preset"]}
    return sorted(found.values())


def in_presets(section: str, *classes: type) -> list[Declared]:
    """What a section of a preset's file may give, by the names in the file."""
    found = {key_of(m): _declared(m) for m in _metadata(*classes) if m["section"] == section}
    return [found[key]._replace(name=key) for key in sorted(found)]


def key_of(meta: Mapping[str, Any]) -> str:
    """The name in the file of a preset."""
    return str(meta["name"]).lower()


def _metadata(*classes: type) -> Iterator[Mapping[str, Any]]:
    return (field.metadata for cls in classes for field in named(cls))


def _declared(meta: Mapping[str, Any]) -> Declared:
    allowed = meta["parse"].__doc__ or ""
    return Declared(meta["name"], meta["default"], allowed, meta["doc"], meta["secret"])


@runtime_checkable
class Checked(Protocol):
    """Settings that are valid one by one, but may be invalid together."""

    def contradictions(self) -> Sequence[str]: ...


class Source:
    """The sources of values; collects mistakes until `finish`.

    `gives_numbers`: the texts may name numbers that else only presets give.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        file: Path | None = None,
        said_by: str = "environment",
        *,
        gives_numbers: bool = False,
    ) -> None:
        self._environ = environ
        self._said_by = said_by
        self._file = file
        self._gives_numbers = gives_numbers
        self._mistakes: list[str] = []
        self._of_presets: set[str] = set()  # keys of presets that were asked for
        self._misplaced: set[str] = set()  # names of the file that only a preset may give
        self._asked: set[str] = set()
        self._in_force: dict[str, InForce] = {}
        self.without_effect: dict[str, str] = {}  # settings of others, and what replaced them
        self._tables: set[str] = set()  # names of the file that are tables
        self._toml = self._read_file() if file else {}

    @classmethod
    def of(cls, **values: str) -> "Source":
        """Of texts that may name the numbers of presets, too, as those of a command do."""
        return cls(values, gives_numbers=True)

    def load(self, cls: type[T]) -> T:
        values: dict[str, Any] = {}
        for field in named(cls):
            self._read_one(field, values)
        self._note_replaced(cls)
        if self._mistakes:
            return cls()  # never used: `finish` raises
        made = cls(**values)
        if isinstance(made, Checked):
            self._mistakes.extend(made.contradictions())
        return made

    def _read_one(self, field: dataclasses.Field[Any], values: dict[str, Any]) -> None:
        meta = field.metadata
        name, is_secret = meta["name"], meta["secret"]
        self._asked |= {name, name + SUFFIX} if is_secret else {name}
        found = self._find(meta)
        if found is None:
            return
        text, origin = found
        if is_secret:
            remember(text)
        try:
            if origin == str(self._file) and name in self._tables and not meta["table"]:
                self._mistakes.append(f"{name} in {origin}: not one value but a table")
                return
            values[field.name] = meta["parse"](text)
        except ValueError as error:
            self._mistakes.append(self._mistake(meta, text, origin, error))
            return
        shown = HIDDEN if is_secret and text else masked(text)
        self._in_force[name] = InForce(name, shown, origin)

    def _note_replaced(self, cls: type) -> None:
        """Settings of the published implementation that this class reads in another way."""
        replaced: Mapping[str, str] = getattr(cls, "REPLACED", {})
        self._asked.update(replaced)
        self.without_effect |= {name: why for name, why in replaced.items() if self.names(name)}

    def names(self, name: str) -> bool:
        """Whether a setting is given explicitly, possibly with its default value, or in a file."""
        given = (self._environ, self._toml)
        return any(name in values or values.get(name + SUFFIX) for values in given)

    def given(self, name: str) -> str | None:
        """The text of a setting that is given explicitly."""
        return self._environ.get(name, self._toml.get(name))

    def from_file(self) -> dict[str, str]:
        """The values of the file that the environment does not override, for child processes."""
        return {name: text for name, text in self._toml.items() if name not in self._environ}

    def finish(self, elsewhere: Callable[[], Sequence[str]] = tuple) -> list[InForce]:
        """All settings in force; raises SettingsError with every mistake that was made.

        `elsewhere` gives the settings of other components, which one file may hold, too.
        """
        unknown = set(self._toml) - self._asked - self._misplaced
        if unknown or self._not_asked_in_preset():
            others = set(elsewhere())
            self._asked |= others
            self._of_presets |= others
        for name in sorted(unknown - self._asked):
            hint = _near(name, self._asked)
            self._mistakes.append(f"{name} in {self._file}: there is no such setting{hint}")
        self._mistakes.extend(self._unknown_in_preset())
        if self._mistakes:
            raise SettingsError(self._mistakes)
        return [self._in_force[name] for name in sorted(self._in_force)]

    def _find(self, meta: Mapping[str, Any]) -> tuple[str, str] | None:
        """The text and where it is from; None after a mistake."""
        name = meta["name"]
        if meta["section"]:
            self._of_presets.add(f"{meta['section']}.{key_of(meta)}")
        if meta["only_preset"] and not self._gives_numbers:
            if self._is_misplaced(meta):
                return None
        else:
            for values, origin in ((self._environ, self._said_by), (self._toml, str(self._file))):
                if meta["secret"] and values.get(name + SUFFIX):
                    return self._in_file(name, values, origin)
                if name in values:
                    return values[name], origin
        if meta["section"]:
            return self._in_preset(meta)
        return meta["default"], "default"

    def _in_preset(self, meta: Mapping[str, Any]) -> tuple[str, str] | None:
        """The text of the preset, or the default; None after a mistake."""
        given = self._preset.get(f"{meta['section']}.{key_of(meta)}")
        if given is None:
            return meta["default"], "default"
        if given.is_table != meta["table"]:
            kind = "a table of numbers" if meta["table"] else "one value, no table"
            self._mistakes.append(f"{given.where}: {key_of(meta)} is {kind}")
            return None
        return given.text, given.where

    @cached_property
    def _preset(self) -> Preset:
        """Empty without PRESET, and after a mistake. The defaults are those of headroom."""
        named_preset = self.given(PRESET)
        if named_preset is None:
            return {}
        try:
            presets.preset(named_preset)
        except ValueError:  # a mistake of PRESET itself
            return {}
        try:
            return preset_files.read(named_preset)
        except PresetMistake as mistake:
            self._mistakes.append(str(mistake))
            return {}

    def _not_asked_in_preset(self) -> list[str]:
        """Of the sections that are read here; the others are those of other components."""
        sections = {key.partition(".")[0] for key in self._of_presets}
        keys = (key for key, given in self._preset.items() if not given.is_shipped)
        return sorted(
            key for key in keys if key.partition(".")[0] in sections and key not in self._of_presets
        )

    def _unknown_in_preset(self) -> Iterator[str]:
        for key in self._not_asked_in_preset():
            section, _, name = key.partition(".")
            in_section = [each for each in self._of_presets if each.startswith(f"{section}.")]
            hint = _near(name, [each.partition(".")[2] for each in in_section])
            where = self._preset[key].where
            yield f"{where}: [{section}] has no {name}{hint}; remove or rename it"

    def _is_misplaced(self, meta: Mapping[str, Any]) -> bool:
        key = key_of(meta)
        places = {self._said_by: [key.upper()] if key.upper() in self._environ else []}
        places |= {str(self._file): [each for each in (key, key.upper()) if each in self._toml]}
        self._misplaced.update(places[str(self._file)])
        for origin, found in places.items():
            self._mistakes.extend(
                f"{name} (from {origin}): only a preset gives it: write `{key} = ...` below "
                f"[{meta['section']}] in a TOML file, and the path of the file in {PRESET}"
                for name in found
            )
        return any(places.values())

    def _in_file(self, name: str, values: Mapping[str, str], origin: str) -> tuple[str, str] | None:
        path = values[name + SUFFIX]
        try:
            if values.get(name):
                raise ValueError(f"{name} is given, too; give only one of them")
            return secret_in(path), path
        except ValueError as error:
            self._mistakes.append(
                f"{name}{SUFFIX}={path!r} (from {origin}): {error}; allowed: a file with {name}"
            )
            return None

    def _mistake(self, meta: Mapping[str, Any], text: str, origin: str, error: ValueError) -> str:
        shown = HIDDEN if meta["secret"] or nats_keys.looks_secret(text) else repr(masked(text))
        return f"{meta['name']}={shown} (from {origin}): {error}; allowed: {meta['parse'].__doc__}"

    def _read_file(self) -> dict[str, str]:
        assert self._file is not None
        try:
            table = tomllib.loads(self._file.read_text())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            why = getattr(error, "strerror", None) or error
            self._mistakes.append(f"--config {self._file} cannot be read: {why}")
            return {}
        self._tables = {name for name, value in table.items() if isinstance(value, dict)}
        texts = ((name, self._text_of(name, value)) for name, value in table.items())
        return {name: text for name, text in texts if text is not None}

    def _text_of(self, name: str, value: object) -> str | None:
        """None after a mistake."""
        try:
            return _as_text(value)
        except ValueError as error:
            self._mistakes.append(f"{name} in {self._file}: {error}")
            return None


def _near(name: str, names: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {found[0]}?" if found else ""


def _as_text(value: object) -> str:
    if isinstance(value, dict):
        return pairs(value)
    if isinstance(value, list):
        raise ValueError("not one value but a list")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def address(text: str) -> HostPort:
    """host:port, or :port for every interface"""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError("not an address")
    return HostPort(host.strip("[]") or "0.0.0.0", int(port))  # noqa: S104 (":9876" asks for it)


def file(path: str) -> str:
    """a file that can be read"""
    if path:
        _content(path)
    return path


def program(path: str) -> str:
    """a program that can be run"""
    if path and not (Path(path).is_file() and os.access(path, os.X_OK)):
        raise ValueError("there is no program")
    return path


def creds_file(path: str) -> str:
    """a file that holds a user's nkey seed (SU...), credentials as nsc writes them, or a token"""
    if path and not nats_keys.is_token(content := _content(path)):
        check = (
            nats_keys.check_credentials
            if nats_keys.is_credentials(content)
            else nats_keys.check_seed
        )
        check(content)
    return path


def _content(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class BusSettings:
    """The settings of the bus, logs and metrics that every process has."""

    nats_url: str = setting(
        text,
        "NATS_URL",
        "nats://127.0.0.1:4222",
        "Address of the broker; for a cluster, several addresses separated by commas",
    )
    nats_user: str = setting(text, "NATS_USER", "", "User name at the broker; empty for none")
    nats_password: str = setting(text, "NATS_PASSWORD", "", "Password at the broker", secret=True)
    nats_creds_file: str = setting(
        creds_file,
        "NATS_CREDS_FILE",
        "",
        "Instead of a password: an nkey seed, credentials (JWT and seed) as of nsc, or a token",
    )
    nats_ca_file: str = setting(
        file, "NATS_CA_FILE", "", "CA certificate (PEM) of the broker; given, TLS is spoken"
    )
    nats_cert_file: str = setting(
        file, "NATS_CERT_FILE", "", "The client certificate (PEM); enables TLS"
    )
    nats_key_file: str = setting(
        file, "NATS_KEY_FILE", "", "The key (PEM, no passphrase) of the client certificate"
    )
    nats_inbox: str = setting(
        inbox,
        "NATS_INBOX",
        "_INBOX",
        "Prefix of reply subjects; the user must be allowed to subscribe to it",
    )
    nats_server_bin: str = setting(
        program,
        "NATS_SERVER_BIN",
        "",
        "The nats-server that `joulie up` starts, unchecked; empty for the wheel's, checked",
    )
    nats_replicas: int = setting(
        integer(1, 5), "NATS_REPLICAS", "1", "Servers that keep a copy of each stream we make"
    )
    metrics_addr: HostPort = setting(
        address, "METRICS_ADDR", "127.0.0.1:9877", "Address of metrics and health checks"
    )
    cluster: str = setting(
        token, "JOULIE_CLUSTER", "local", "Name of the cluster, a part of every subject"
    )
    log_level: str = setting(
        choice("debug", "info", "warning", "error"),
        "LOG_LEVEL",
        "info",
        "From which level on lines are written",
    )
    log_format: str = setting(
        choice("console", "json"), "LOG_FORMAT", "console", "Format of log lines"
    )

    def contradictions(self) -> list[str]:
        ways = {
            "NATS_USER": self.nats_user,
            "NATS_CREDS_FILE": self.nats_creds_file,
        }
        given = [name for name, value in ways.items() if value]
        found = []
        if len(given) > 1:
            found.append(f"{' and '.join(given)}: give only one of them; they name different users")
        if self.nats_password and not self.nats_user:
            found.append("NATS_PASSWORD without NATS_USER: set both")
        if bool(self.nats_cert_file) != bool(self.nats_key_file):
            found.append("NATS_CERT_FILE and NATS_KEY_FILE: one is of no use without the other")
        return found
