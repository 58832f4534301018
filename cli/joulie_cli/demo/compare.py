"""`joulie demo --compare`: the same pods with the defaults, and with the energy score and sleep.

Both runs are whole demos, one after the other, each with its own data. Energy comes from the
ledger, work from the simulated cluster; every decision is then recomputed.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from joulie_bus.errors import NotCompared
from joulie_bus.runtime import presets
from joulie_bus.runtime.child_process import die_with_parent
from joulie_bus.runtime.presets import PRESET
from joulie_cli.demo import comparison
from joulie_cli.demo.comparison import Measured
from joulie_cli.display.output import show
from joulie_cli.supervisor.supervisor import free_addresses
from joulie_projections.component.wiring import Wiring
from joulie_simulator.service import SimulatorOptions

HOURS = "1"
# The defaults of the operator, in simulated time.
RECONCILE_S = 60.0
TIMES_S = {"sleep_after_s": 600.0, "wake_timeout_s": 900.0}
HEADROOM, ENERGY = "headroom", "energy-sleep"
# Each run has its own database.
ITS_OWN = {"DATABASE_URL": "", "DATABASE_URL_FILE": "", "ARCHIVE_DIR": ""}
FAILED = 2


def run(
    args: argparse.Namespace,
    wires: Wiring,
    options: SimulatorOptions,
    arguments: Mapping[str, str],
) -> int:
    wires.data.create()
    now = time.strftime("%Y%m%d-%H%M%S", time.gmtime(time.time_ns() // 10**9))
    place = wires.data.path / "compare" / now
    words = [word for pair in ({"--hours": HOURS} | dict(arguments)).items() for word in pair]
    measured: dict[str, Measured] = {}
    for name, settings in settings_of(options.speed).items():
        _say(f"Running the demo with {_as_text(settings)} ...")
        measured[name] = _Run(place / name, args.config, settings).measured(words)
    data = comparison.as_json(measured[HEADROOM], measured[ENERGY], options.speed)
    show(args, data, comparison.as_text(data, f"{options.nodes} nodes, seed {options.seed}"))
    return 0 if not data["mismatches"] else 1


def settings_of(speed: float) -> dict[str, dict[str, str]]:
    """The settings of both runs. Plans are made, and nodes sleep, by the shipped numbers in
    simulated time. Full nodes would exceed their caps, and their pods would take longer: nothing
    has measured that caps save."""
    both = {"RECONCILE_INTERVAL": f"{RECONCILE_S / speed:g}s"}
    return {
        HEADROOM: both | {PRESET: presets.HEADROOM, "POLICY_TYPE": "static_partition"},
        ENERGY: both
        | {
            PRESET: presets.SAVINGS,
            "POLICY_TYPE": "consolidate_and_sleep",
            "POLICY_NUMBERS": f"{times_at(speed)},caps_where_measured=1",
        },
    }


def times_at(speed: float) -> str:
    """The times of the sleeping policy for POLICY_NUMBERS, while time runs so much faster."""
    return ",".join(f"{name}={seconds / speed:g}" for name, seconds in TIMES_S.items())


class _Run(NamedTuple):
    data: Path
    config: Path | None
    settings: Mapping[str, str]

    def measured(self, words: Sequence[str]) -> Measured:
        demo = self._answer("demo", "--headless", *words)
        self._printed("ledger", "--once")
        energy = self._answer("energy")
        _say("Recomputing its decisions ...")
        replayed = self._answer("replay")
        if demo["simulated"] is None or "simulator" in demo["restarts"]:
            raise NotCompared(
                f"The simulator was restarted during the run in {self.data}, so its work is not "
                f"known. Nothing was compared. {self.data}/logs holds the reason; run it again."
            )
        return Measured(str(self.data), self.settings, demo["simulated"], energy, replayed)

    def _answer(self, *words: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._printed(*words, "-o", "json"))
        return answer

    def _printed(self, *words: str) -> bytes:
        """Raises NotCompared with what the command wrote, if it failed."""
        config = ("--config", str(self.config)) if self.config else ()
        done = subprocess.run(
            [
                *(sys.executable, "-m", "joulie_cli.main", *words),
                *("--data", str(self.data), *config),
            ],
            env={**os.environ, **ITS_OWN, **free_addresses(), **self.settings},
            capture_output=True,
            check=False,
            preexec_fn=die_with_parent,
        )
        if done.returncode == FAILED or (done.returncode and words[0] != "replay"):
            why = done.stderr.decode(errors="replace").strip()[-2000:]
            raise NotCompared(
                f"`joulie {words[0]}` failed in {self.data}: {why} Nothing was compared."
            )
        return done.stdout


def _as_text(settings: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items())


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
