"""How well the cards of the pod fill up the cards of a node, or what they leave for later pods.

Of kube-scheduler's own scores none counts the devices of claims (DRA): the term `devices` keeps
whole nodes free for pods that claim all devices of one.
"""

from dataclasses import dataclass

import numpy as np

from joulie_bus.core.setting_fields import choice, preset_number
from joulie_extender.gpu.expected_loss import expected_loss, points_of
from joulie_extender.gpu.fit import (
    FRAGMENTATION,
    HIGHEST,
    GpuWeights,
    PackingWeights,
    breaks_group,
    packing,
    points,
)
from joulie_extender.gpu.free import asks_no_card, free_cards
from joulie_extender.gpu.shapes import CARD
from joulie_extender.terms.term import Term, TermInput
from joulie_projections.twin.arrays import Floats


@dataclass(frozen=True, kw_only=True)
class PackingSettings:
    gpu_packing: str = preset_number(
        choice("share", "fit", "fragmentation"),
        "gpu_packing",
        "share",
        "Packing of cards: by the card memory in use on the node (share), also by how well the "
        "pod fills a card and leaves cores for free cards (fit), or by how little of the free "
        "cards becomes useless for pods like those that asked for cards before (fragmentation)",
        "scores",
    )

    @property
    def gpu_binpack(self) -> float:
        """The weight of the packing in a score. Losses have the weight at which they were
        rehearsed (decision 0073); memory in use is only one reason beside the headroom."""
        return 1.0 if self.gpu_packing == FRAGMENTATION else GpuWeights().binpack


@dataclass(frozen=True, kw_only=True)
class DevicesSettings:
    devices_points: float = 60.0  # of 100: how few devices a pod with claims leaves on the node


class LostGpus(Term[PackingWeights]):
    name = "lost_gpus"
    head = "lost GPUs"
    unit = "GPUs"
    meaning = "Loss of GPUs for later pods beyond that on the best candidate"
    settings = PackingWeights
    is_summand = False

    def value(self, asked: TermInput, settings: PackingWeights) -> Floats | None:
        gpu = settings.gpu
        if gpu.packing != FRAGMENTATION or not gpu.binpack or asks_no_card(asked.pod):
            return None
        return expected_loss(asked.pod, asked.twin_columns, asked.rows, gpu)


class LostGpusAlone(LostGpus):
    """For all pods that are asked about: one without cards takes cores that cards need."""

    def value(self, asked: TermInput, settings: PackingWeights) -> Floats | None:
        if settings.gpu.packing != FRAGMENTATION:
            return None
        return expected_loss(asked.pod, asked.twin_columns, asked.rows, settings.gpu)


class Packing(Term[PackingWeights]):
    name = "packing"
    head = "packing"
    meaning = "Points for a node whose cards the pod fills up"
    settings = PackingWeights

    def value(self, asked: TermInput, settings: PackingWeights) -> Floats | None:
        gpu = settings.gpu
        if gpu.packing == FRAGMENTATION:
            of_ten = _by_losses(asked, gpu)
            return None if of_ten is None else gpu.binpack * (of_ten * HIGHEST)
        return packing(asked.pod, asked.twin_columns, asked.rows, settings.gpu)


class Devices(Term[DevicesSettings]):
    """A part of the score, so that a higher headroom of empty nodes cannot outweigh it."""

    name = "devices"
    head = "devices"
    meaning = (
        "Change by the devices that the pod leaves free, against the candidate with the fewest"
    )
    settings = DevicesSettings
    is_last = True

    def value(self, asked: TermInput, settings: DevicesSettings) -> Floats | None:
        pod = asked.pod
        if not (settings.devices_points and pod.devices.claims and pod.gpu_milli):
            return None
        if LostGpus.name in asked.values:  # which counts the devices, too
            return None
        cards = asked.twin_columns.floats("gpus").take(asked.rows)
        most = cards.max(initial=0.0)
        if not most:
            return None
        left = free_cards(asked.twin_columns, asked.rows) - pod.gpu_milli / CARD
        left = np.where(cards > 0, np.maximum(left, 0.0), most)  # unknown: never best
        whole = 100 * (1 - (left - left.min()) / most)
        found: Floats = settings.devices_points / 100 * (whole - asked.total)
        return found


class PackingAlone(Packing):
    """Of a score from 0 to 10, for kube-schedulers that ask about cards alone."""

    def value(self, asked: TermInput, settings: PackingWeights) -> Floats:
        of_ten = _by_losses(asked, settings.gpu)
        if of_ten is not None:
            return of_ten
        return points(asked.pod, asked.twin_columns, asked.rows, settings.gpu)


def _by_losses(asked: TermInput, gpu: GpuWeights) -> Floats | None:
    """0 to 10; None if the losses do not apply."""
    losses = asked.values.get(LostGpus.name)
    if losses is None:
        return None
    breaks = breaks_group(asked.pod, asked.twin_columns, asked.rows, gpu.aliases)
    found = points_of(losses) - gpu.links * breaks
    return np.minimum(np.maximum(found, 0.0), HIGHEST)
