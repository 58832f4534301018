"""Libraries are imported without optional dependencies that no process needs."""

import importlib
import subprocess
import sys

import pytest

from joulie_bus.runtime.lean_import import without

LOADED = "import sys; print('rich' in sys.modules, 'aiohttp' in sys.modules)"


def in_a_new_process(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_logging_and_the_bus_keep_neither_rich_nor_aiohttp_in_memory() -> None:
    bus = "import joulie_bus.jetstream.log, joulie_bus.runtime.logging"
    assert in_a_new_process(f"{bus}; {LOADED}") == "False False"


def test_both_can_be_imported_afterwards() -> None:
    bus = "import joulie_bus.jetstream.log, joulie_bus.runtime.logging"
    assert in_a_new_process(f"{bus}; import rich, aiohttp; {LOADED}") == "True True"


def test_a_module_that_is_loaded_already_stays_usable() -> None:
    with without("json"):
        import json
    assert sys.modules["json"] is json


def test_a_hidden_module_counts_as_not_installed_within_the_block() -> None:
    sys.modules.pop("this", None)
    with without("this"), pytest.raises(ImportError):
        importlib.import_module("this")
    assert "this" not in sys.modules
