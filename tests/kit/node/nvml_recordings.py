"""A libnvidia-ml.so.1 that answers from a recording; compiled where a C compiler is."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).with_name("nvml_recording.c")
# One H100, shortened: the answers that the agent asks for, in the form of a recording.
H100: dict[str, Any] = {
    "nvmlDeviceGetCount": 1,
    "nvmlSystemGetDriverVersion": "580.159.04",
    "nvmlDeviceGetUUID": "GPU-00000000-1111-2222-3333-444444444444",
    "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
    "nvmlDeviceGetPowerUsage": 73_248,
    "nvmlDeviceGetTotalEnergyConsumption": 3_006_678,
    "nvmlDeviceGetPowerManagementLimit": 700_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
    "nvmlDeviceGetPowerManagementLimitConstraints": [200_000, 700_000],
    "nvmlDeviceGetMemoryInfo": {"free": 85017493504, "total": 85520809984, "used": 503316480},
    "nvmlDeviceGetPciInfo": {"busId": "00000000:00:06.0", "busIdLegacy": "0000:00:06.0"},
    "nvmlDeviceGetMigMode": [0, 0],
    "nvmlDeviceGetRemappedRows": [0, 0, 0, 0],
    "ecc10": 0,
    "clock0": 345,
    "clock1": 345,
    "maxclock0": 1980,
    "nvmlDeviceGetSupportedMemoryClocks": [2619, 1593],
    "fields": {"NVML_FI_DEV_GET_GPU_RECOVERY_ACTION": {"d": None, "ret": 0, "type": 1, "u": 0}},
}
NOT_SUPPORTED = {"error": "Not Supported", "code": 3}


def library(folder: Path) -> Path:
    """Compiles the library into the folder."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler (cc) is here to build a libnvidia-ml.so.1 that answers")
    made = folder / "libnvidia-ml.so.1"
    options = ("-std=gnu11", "-O1", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1")
    subprocess.run([compiler, *options, "-o", str(made), str(SOURCE)], check=True)
    return made


def recording(folder: Path, **changes: object) -> Path:
    """A recording of one H100 with other answers; returns its folder."""
    (folder / "nvml-static.json").write_text(json.dumps(H100 | changes))
    return folder
