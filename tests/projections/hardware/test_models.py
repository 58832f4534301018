"""Spellings of one model match it, and similar names of other models do not."""

import pytest

from joulie_projections.catalog_file import shipped_catalog
from joulie_projections.hardware.models import card_name, mig_profile, vendor_of, whole_card

CATALOG = shipped_catalog()

# As printed by device plugins, feature discovery, nvidia-smi, the DCGM exporter (modelName),
# rocm-smi, amd-smi, lspci and Intel's plugin, and as users write them.
SPELLINGS = {
    "NVIDIA A100 SXM4 80GB": [
        "NVIDIA-A100-SXM4-80GB",
        "NVIDIA A100-SXM4-80GB",
        "NVIDIA-A100-SXM4-80GB-SHARED",
        "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb",
        "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb-SHARED",
        "nvidia_a100_sxm4_80gb",
        "A100-SXM-80GB",
        "A100 80GB SXM",
        "A100-80G",
    ],
    "NVIDIA A100 SXM4 40GB": ["NVIDIA-A100-SXM4-40GB", "A100", "A100-40GB", "A100 SXM4"],
    "NVIDIA A100 PCIe 40GB": ["NVIDIA-A100-PCIE-40GB", "NVIDIA A100-PCIE-40GB", "A100 PCI-E"],
    "NVIDIA A100 80GB PCIe": [
        "NVIDIA A100 80GB PCIe",
        "NVIDIA-A100-80GB-PCIe",
        "NVIDIA-A100-80GB-PCIe-SHARED",
        "A100-PCIE-80GB",
    ],
    "NVIDIA H100 SXM5": ["NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3", "H100SXM5", "H100-SXM"],
    "NVIDIA H100 PCIe": ["NVIDIA H100 PCIe", "NVIDIA-H100-PCIe", "H100-PCIe-80GB"],
    "NVIDIA H100 NVL": ["NVIDIA H100 NVL", "NVIDIA-H100-NVL", "NVIDIA-H100-NVL-MIG-1g.12gb"],
    "NVIDIA H200": ["NVIDIA H200", "NVIDIA-H200", "H200 SXM", "NVIDIA-H200-141GB"],
    "NVIDIA H200 NVL": ["NVIDIA H200 NVL", "NVIDIA-H200-NVL"],
    "NVIDIA GH200": ["NVIDIA GH200 480GB", "NVIDIA-GH200-480GB", "NVIDIA GH200 144G HBM3e"],
    "NVIDIA B200": ["NVIDIA B200", "NVIDIA-B200"],
    "NVIDIA GB200": ["NVIDIA GB200", "NVIDIA-GB200"],
    "NVIDIA L4": ["NVIDIA L4", "NVIDIA-L4", "NVIDIA-L4-SHARED", "l4"],
    "NVIDIA L40": ["NVIDIA L40", "NVIDIA-L40"],
    "NVIDIA L40S": ["NVIDIA L40S", "NVIDIA-L40S"],
    "NVIDIA T4": ["Tesla T4", "Tesla-T4", "NVIDIA T4", "Tesla-T4-SHARED"],
    "NVIDIA A2": ["NVIDIA A2", "NVIDIA-A2"],
    "NVIDIA A10": ["NVIDIA A10", "NVIDIA-A10"],
    "NVIDIA A16": ["NVIDIA A16", "NVIDIA-A16"],
    "NVIDIA A30": ["NVIDIA A30", "NVIDIA-A30", "NVIDIA-A30-MIG-1g.6gb"],
    "NVIDIA A40": ["NVIDIA A40", "NVIDIA-A40"],
    "NVIDIA V100 SXM2 32GB": ["Tesla V100-SXM2-32GB", "Tesla-V100-SXM2-32GB"],
    "NVIDIA V100 PCIe 16GB": ["Tesla V100-PCIE-16GB", "Tesla-V100-PCIE-16GB"],
    "NVIDIA V100S PCIe 32GB": ["Tesla V100S-PCIE-32GB"],
    "NVIDIA P100 PCIe 16GB": ["Tesla P100-PCIE-16GB", "Tesla-P100-PCIE-16GB"],
    "NVIDIA P100 SXM2 16GB": ["Tesla P100-SXM2-16GB"],
    "NVIDIA RTX 6000 Ada Generation": ["NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"],
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": [
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
    ],
    "AMD Instinct MI100": ["Arcturus GL-XL [Instinct MI100]", "AMD_Instinct_MI100"],
    "AMD Instinct MI210": ["Instinct MI210", "AMD_Instinct_MI210"],
    "AMD Instinct MI250": ["AMD INSTINCT MI250 (MCM) OAM AC MBA", "MI250"],
    "AMD Instinct MI250X": ["AMD Instinct MI250X / MI250", "AMD_Instinct_MI250X_/_MI250", "MI250X"],
    "AMD Instinct MI300A": ["AMD Instinct MI300A", "AMD_Instinct_MI300A"],
    "AMD Instinct MI300X": ["AMD Instinct MI300X", "AMD_Instinct_MI300X_OAM", "AMD-MI300X-VF"],
    "AMD Instinct MI325X": ["AMD Instinct MI325X", "AMD_Instinct_MI325X"],
    "AMD Instinct MI350X": ["AMD Instinct MI350X"],
    "AMD Instinct MI355X": ["AMD Instinct MI355X", "AMD_Instinct_MI355X"],
    "Intel Data Center GPU Max 1550": ["Max_1550", "Intel(R) Data Center GPU Max 1550"],
    "Intel Data Center GPU Flex 170": ["Flex_170", "Intel Data Center GPU Flex 170"],
    "Intel Gaudi 2": ["HL-225", "Gaudi2", "Intel-Gaudi-2"],
    "Intel Gaudi 3": ["HL-325L", "Gaudi3", "Intel Gaudi 3"],
}


@pytest.mark.parametrize(
    ("model", "name"), [(model, name) for model, names in SPELLINGS.items() for name in names]
)
def test_every_spelling_of_a_card_finds_its_model(model: str, name: str) -> None:
    found = CATALOG.gpu(name)

    assert found is not None
    assert found.model == model


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA T400 4GB",
        "NVIDIA T4G",
        "NVIDIA A10G",
        "NVIDIA A100-10C",  # a vGPU profile
        "NVIDIA A100-SXM-64GB",
        "NVIDIA H100 64GB HBM2",
        "NVIDIA H20",
        "NVIDIA H800",
        "NVIDIA A1000",
        "NVIDIA A4000",
        "Quadro RTX 6000",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        "AMD Instinct MI308X",
        "AMD Radeon Graphics",
        "T4 Turbo",
        "NVIDIA",
        "",
    ],
)
def test_an_unknown_card_matches_no_model(name: str) -> None:
    assert CATALOG.gpu(name) is None


@pytest.mark.parametrize(
    ("name", "watts"),
    [
        ("A100-PCIE-40GB", 250),
        ("A100-PCIE-80GB", 300),
        ("A100-SXM4-40GB", 400),
        ("H100 PCIe", 350),
        ("H100 NVL", 400),
        ("H100 SXM5", 700),
        ("L4", 72),
        ("L40", 300),
        ("L40S", 350),
    ],
)
def test_form_factors_of_a_card_have_their_own_tdp(name: str, watts: int) -> None:
    found = CATALOG.gpu(name)

    assert found is not None
    assert found.tdp_w == watts


@pytest.mark.parametrize(
    ("name", "model", "cores", "watts"),
    [
        ("AMD EPYC 9534 64-Core Processor", "AMD EPYC 9534", 64, 280),
        ("AMD-EPYC-9375F-32-Core-Processor", "AMD EPYC 9375F", 32, 320),
        ("AMD EPYC 9654P 96-Core Processor", "AMD EPYC 9654", 96, 360),
        ("AMD EPYC 9684X 96-Core Processor", "AMD EPYC 9684X", 96, 400),
        ("AMD EPYC 7573X 32-Core Processor", "AMD EPYC 7573X", 32, 280),
        ("AMD EPYC 8534P 64-Core Processor", "AMD EPYC 8534P", 64, 200),
        ("AMD EPYC 9754 128-Core Processor", "AMD EPYC 9754", 128, 360),
        ("Intel(R) Xeon(R) Platinum 8480+", "Intel Xeon Platinum 8480+", 56, 350),
        ("Intel-Xeon-Platinum-8480", "Intel Xeon Platinum 8480+", 56, 350),
        ("INTEL(R) XEON(R) GOLD 6548Y+", "Intel Xeon Gold 6548Y+", 32, 250),
        ("Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz", "Intel Xeon Gold 6338", 32, 205),
        ("Intel(R) Xeon(R) CPU Max 9480", "Intel Xeon Max 9480", 56, 350),
        ("Intel(R) Xeon(R) 6980P", "Intel Xeon 6980P", 128, 500),
        ("Intel Xeon 6 6780E", "Intel Xeon 6780E", 144, 330),
    ],
)
def test_every_spelling_of_a_processor_finds_its_model(
    name: str, model: str, cores: int, watts: int
) -> None:
    found = CATALOG.cpu(name)

    assert found is not None
    assert (found.model, found.cores, found.tdp_w) == (model, cores, watts)


def test_a_processor_without_smt_has_one_thread_per_core() -> None:
    threads = [
        model.threads for name in ("9654", "9754S") if (model := CATALOG.cpu(f"EPYC {name}"))
    ]

    assert threads == [2, 1]


@pytest.mark.parametrize(
    ("product", "whole", "profile"),
    [
        ("NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB", ""),
        ("NVIDIA-A100-SXM4-40GB-SHARED", "NVIDIA-A100-SXM4-40GB", ""),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "NVIDIA-A100-SXM4-40GB", "1g.5gb"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED", "NVIDIA-A100-SXM4-40GB", "1g.5gb"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb.me", "NVIDIA-A100-SXM4-40GB", "1g.5gb.me"),
        ("", "", ""),
    ],
)
def test_a_product_name_contains_the_card_and_the_slice(
    product: str, whole: str, profile: str
) -> None:
    assert (whole_card(product), mig_profile(product)) == (whole, profile)


@pytest.mark.parametrize(
    ("names", "vendor"),
    [
        (["amd.com/gpu"], "amd"),
        (["nvidia.com/mig-1g.5gb"], "nvidia"),
        (["gpu.intel.com/i915"], "intel"),
        (["habana.ai/gaudi"], "intel"),
        (["vendor.example/gpu"], ""),
        (["AuthenticAMD"], ""),
        (["0x1002"], "amd"),
        (["", "AMD_Instinct_MI210"], "amd"),
        (["Acme", "MI210"], "amd"),
        (["Tesla T4"], "nvidia"),
        (["Gaudi2"], "intel"),
    ],
)
def test_a_vendor_is_found_by_resource_vendor_or_model(names: list[str], vendor: str) -> None:
    assert vendor_of(*names) == vendor


def test_a_vendor_alone_is_kept_as_the_name() -> None:
    assert card_name("NVIDIA").words == ("nvidia",)
