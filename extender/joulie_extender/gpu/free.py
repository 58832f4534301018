"""Cores and cards of nodes that no bound pod requests, from the twins' columns."""

import numpy as np

from joulie_bus.events import PodAsk
from joulie_extender.gpu.fit import asks
from joulie_projections.twin.arrays import Floats, Ints
from joulie_projections.twin.columns import TwinColumns


def asks_no_card(pod: PodAsk) -> bool:
    return not (pod.gpu_milli or pod.gpu_cards or pod.devices.claims or asks(pod))


def free_cores(twin_columns: TwinColumns, rows: Ints) -> Floats:
    """By the requests of the bound pods; 0 for unknown hardware."""
    names = ("cores", "cpu_max_w", "pods_cpu_w")
    cores, cpu_w, pods_w = (twin_columns.floats(name).take(rows) for name in names)
    return free_cores_of(cores, cpu_w, pods_w)


def free_cores_of(cores: Floats, cpu_w: Floats, pods_w: Floats) -> Floats:
    used = np.divide(pods_w, cpu_w, out=np.ones(len(cores)), where=cpu_w > 0)
    free: Floats = cores * (1 - used)
    return free


def free_cards(twin_columns: TwinColumns, rows: Ints) -> Floats:
    cards = twin_columns.floats("gpus").take(rows)
    if not cards.any():
        return cards
    card_w, used_w = twin_columns.floats("gpu_max_w").take(rows), used_cards_w(twin_columns, rows)
    used = np.divide(used_w, card_w, out=np.zeros(len(cards)), where=card_w > 0)
    free: Floats = np.maximum(cards - used, 0.0)
    return free


def used_cards_w(twin_columns: TwinColumns, rows: Ints) -> Floats:
    standard = twin_columns.floats("pods_gpu_standard_w").take(rows)
    return standard + twin_columns.floats("pods_gpu_performance_w").take(rows)
