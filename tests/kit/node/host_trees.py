"""Builds trees of /sys and /proc in the shapes that kernels have."""

from pathlib import Path

INTEL = """\
processor\t: {thread}
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Platinum 8480+
physical id\t: {socket}
core id\t\t: {core}
cpu cores\t: 2
flags\t\t: fpu vme de pse
"""


def write(root: Path, files: dict[str, str | int]) -> Path:
    """Writes files below the root; returns the root."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


def two_sockets(root: Path) -> Path:
    """A machine of two processors with two cores of two threads each."""
    threads = [(socket, core) for _ in range(2) for socket in range(2) for core in range(2)]
    blocks = [
        INTEL.format(thread=thread, socket=socket, core=core)
        for thread, (socket, core) in enumerate(threads)
    ]
    return write(
        root,
        {
            "proc/cpuinfo": "\n".join(blocks),
            "proc/meminfo": "MemTotal:       131072000 kB\nMemFree: 1 kB",
            "sys/class/dmi/id/sys_vendor": "Dell Inc.",
            "sys/class/dmi/id/product_name": "PowerEdge R760",
        },
    )


def rapl_zone(
    root: Path, zone: str, name: str, energy_uj: int | str, wraps_at_uj: int = 262_143_328_850
) -> Path:
    """One powercap zone, such as `intel-rapl:0` or `intel-rapl:0/intel-rapl:0:1`."""
    folder = f"sys/class/powercap/{zone}"
    return write(
        root,
        {
            f"{folder}/name": name,
            f"{folder}/energy_uj": energy_uj,
            f"{folder}/max_energy_range_uj": wraps_at_uj,
        },
    )


def rapl_limit(root: Path, zone: str, watts: int, most: int) -> Path:
    folder = f"sys/class/powercap/{zone}"
    return write(
        root,
        {
            f"{folder}/enabled": 1,
            f"{folder}/constraint_0_name": "long_term",
            f"{folder}/constraint_0_power_limit_uw": watts * 1_000_000,
            f"{folder}/constraint_0_max_power_uw": most * 1_000_000,
            f"{folder}/constraint_1_name": "short_term",
            f"{folder}/constraint_1_power_limit_uw": watts * 1_200_000,
        },
    )


def xeon(root: Path) -> Path:
    """Sapphire Rapids: two packages, each with its memory, and the same package by MMIO again."""
    two_sockets(root)
    for socket in (0, 1):
        zone = f"intel-rapl:{socket}"
        rapl_zone(root, zone, f"package-{socket}", 1_000_000 * (socket + 1))
        rapl_limit(root, zone, 350, 350)
        rapl_zone(root, f"{zone}/{zone}:0", "dram", 500_000)
        rapl_zone(root, f"intel-rapl-mmio:{socket}", f"package-{socket}", 7)
    write(root, {"sys/class/powercap/intel-rapl/enabled": 1})
    return root


def epyc(root: Path) -> Path:
    """AMD under the names of Intel: a package without memory, and its cores inside it."""
    rapl_zone(root, "intel-rapl:0", "package-0", 3_000_000, 65_532_610_987)
    rapl_zone(root, "intel-rapl:0/intel-rapl:0:0", "core", 1_000_000, 65_532_610_987)
    return root


def client(root: Path) -> Path:
    """A board that meters the whole platform (psys), beside the package and its parts."""
    rapl_zone(root, "intel-rapl:0", "package-0", 3_000_000)
    rapl_zone(root, "intel-rapl:0/intel-rapl:0:0", "core", 1_000_000)
    rapl_zone(root, "intel-rapl:0/intel-rapl:0:1", "uncore", 1_000)
    rapl_zone(root, "intel-rapl:1", "psys", 9_000_000)
    return root


def sensor(root: Path, chip: int, driver: str, files: dict[str, str | int]) -> Path:
    folder = f"sys/class/hwmon/hwmon{chip}"
    return write(root, {f"{folder}/name": driver, **{f"{folder}/{k}": v for k, v in files.items()}})


def instinct(root: Path, cards: int = 2) -> Path:
    """MI300X: cards of one hive, with power, limits and memory."""
    for number in range(cards):
        card = f"sys/class/drm/card{number}/device"
        write(
            root,
            {
                f"{card}/vendor": "0x1002",
                f"{card}/device": "0x74a1",
                f"{card}/unique_id": f"8b9c3d2e1f00000{number}",
                f"{card}/product_name": "AMD Instinct MI300X",
                f"{card}/uevent": f"DRIVER=amdgpu\nPCI_SLOT_NAME=0000:{number + 1}1:00.0",
                f"{card}/numa_node": number,
                f"{card}/mem_info_vram_total": 206_141_652_992,
                f"{card}/mem_info_vram_used": 297_795_584,
                f"{card}/xgmi_hive_info/xgmi_hive_id": "0xb34a5e2f00000001",
                f"{card}/hwmon/hwmon{number + 4}/power1_average": 145_000_000 + number,
                f"{card}/hwmon/hwmon{number + 4}/power1_cap": 750_000_000,
                f"{card}/hwmon/hwmon{number + 4}/power1_cap_min": 0,
                f"{card}/hwmon/hwmon{number + 4}/power1_cap_max": 750_000_000,
                f"{card}/hwmon/hwmon{number + 4}/power1_cap_default": 750_000_000,
                f"{card}/ras/umc_err_count": "ue: 0\nce: 3",
            },
        )
        write(root, {f"sys/class/drm/card{number}-DP-1/status": "disconnected"})
    write(root, {"sys/module/amdgpu/version": "6.12.12"})
    return root
