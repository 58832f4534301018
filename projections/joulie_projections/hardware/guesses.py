"""The power of hardware that nothing describes."""

from joulie_projections.hardware.models import vendor_of

UNKNOWN_GPU_W = 350.0
UNKNOWN_AMD_GPU_W = 400.0
IDLE_CPU_SHARE = 0.5  # of the rated CPU watts: measured servers draw 45 to 50 % when idle
IDLE_CARD_SHARE = 0.1  # of the rated watts of a card: idle data-centre cards draw 16 to 70 W


def guessed_cpu_max_w(cores: float) -> float:
    return max(150.0, cores * 3.5)


def guessed_gpu_max_w(model: str, vendor: str = "") -> float:
    is_amd = vendor_of(vendor, model) == "amd"
    return UNKNOWN_AMD_GPU_W if is_amd else UNKNOWN_GPU_W
