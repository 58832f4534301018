"""What many tests share: a real broker, a migrated database, both gone afterwards."""

import gc
import shutil
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import hypothesis
import pytest
from sqlalchemy import Engine

import joulie_migrations
from bus_kit import connected, running_broker
from joulie_bus.broker.embedded import Embedded
from joulie_bus.core import redaction
from joulie_bus.jetstream.connection import Connection
from joulie_bus.jetstream.log import JetStreamLog
from joulie_bus.runtime import logging
from joulie_projections.store import database
from projections_kit import Postgres, PostgresMissing

gc.disable()  # until the tests are collected: half of that time was the search for garbage

# A test is slow if it has one of these fixtures, or if its module uses one of these kits: it starts
# a process. A test that computes for seconds has the mark in its file.
BROWSER = "chromium"  # each worker that runs such a test starts one: they are long
SLOW_FIXTURES = {"broker", "server", "spare_broker", "postgres", BROWSER}
SLOW_KITS = {"joulie_demo", "joulie_forked", "joulie_process", "kube_real", "nats_trust"}

# The contract of the store is tested on both databases each time. What else runs on both runs on
# PostgreSQL before a release.
EACH_DATABASE = ("projections/store", "projections/decision_log", "migrations")

# A law fails by what it finds, never by the time that a loaded machine takes.
hypothesis.settings.register_profile(
    "untimed",
    parent=hypothesis.settings.default,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("untimed")
QUICK, QUICK_EXAMPLES = "quick", 10  # a profile of hypothesis, for `make quick`
hypothesis.settings.register_profile(QUICK, max_examples=QUICK_EXAMPLES)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    is_quick = config.getoption("--hypothesis-profile") == QUICK
    for item in items:
        if isinstance(item, pytest.Function):
            if waits_for_a_process(item):
                item.add_marker("slow")
            if BROWSER in item.fixturenames:
                item.add_marker("long")
            if is_of_a_second_database(item):
                item.add_marker("postgres")
            if is_quick:
                shorten(item.obj)


def shorten(test: object) -> None:
    """A law has its number of examples beside it, where no profile changes it."""
    given = getattr(test, "_hypothesis_internal_use_settings", None)
    if isinstance(given, hypothesis.settings):
        examples = min(given.max_examples, QUICK_EXAMPLES)
        shorter = hypothesis.settings(given, max_examples=examples)
        setattr(test, "_hypothesis_internal_use_settings", shorter)  # noqa: B010


def is_of_a_second_database(item: pytest.Function) -> bool:
    folder = item.path.parent.relative_to(Path(__file__).parent).as_posix()
    return "postgres" in parameters(item) and not folder.startswith(EACH_DATABASE)


def parameters(item: pytest.Function) -> set[str]:
    callspec = getattr(item, "callspec", None)
    return {one for one in callspec.params.values() if isinstance(one, str)} if callspec else set()


def waits_for_a_process(item: pytest.Function) -> bool:
    if SLOW_FIXTURES & {*item.fixturenames, *parameters(item)}:  # a parameter may name a fixture
        return True
    return any(origin(one) in SLOW_KITS for one in vars(item.module).values())


def origin(thing: object) -> str:
    """The module that a name was imported from, or that it names."""
    found = getattr(thing, "__module__", None) or getattr(thing, "__name__", "")
    return str(found)


@pytest.fixture(autouse=True)
def own_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret setting that one test reads is not hidden in the text of the next."""
    monkeypatch.setattr(redaction, "_secrets", dict[str, None]())


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Before each test: some of them configure the log for the whole process."""
    logging.configure("warning", "console", "test")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncGenerator[Embedded, None]:
    async with running_broker(tmp_path / "broker") as running:
        yield running


@pytest.fixture
async def connection(broker: Embedded) -> AsyncGenerator[Connection, None]:
    async with connected(broker) as opened:
        yield opened


@pytest.fixture
async def bus(connection: Connection) -> AsyncGenerator[JetStreamLog, None]:
    async with JetStreamLog.over(connection) as opened:
        yield opened


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file at today's schema, to be copied."""
    path = tmp_path_factory.mktemp("migrated") / "joulie.db"
    engine = database.migrator(path)
    joulie_migrations.upgrade(engine)
    engine.dispose()
    return path


@pytest.fixture
def database_file(migrated_file: Path, tmp_path: Path) -> Path:
    """A SQLite file of the test's own at today's schema."""
    return shutil.copyfile(migrated_file, tmp_path / "joulie.db")


@pytest.fixture
def writer(database_file: Path) -> Generator[Engine, None, None]:
    engine = database.writer(database_file)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def postgres() -> Generator[Postgres, None, None]:
    """One server for all; every test gets a database of its own in it."""
    try:
        with Postgres.running() as server:
            yield server
    except PostgresMissing as missing:
        pytest.skip(f"wants {missing}")
