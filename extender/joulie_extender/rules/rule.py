"""What a rule of the filter is, and what it is asked."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from joulie_bus.core.setting_fields import Before, NoSettings
from joulie_bus.events import PodAsk
from joulie_projections.twin.arrays import Bools, Ints
from joulie_projections.twin.columns import TwinColumns

Codes = npt.NDArray[np.uint8]
S_contra = TypeVar("S_contra", contravariant=True)


class Verdict(int):
    """The code of a refusal, as entries of the decision log hold it, with its words.

    A code keeps its meaning for ever: old entries have it.
    """

    few_words: str  # in a list of nodes
    sentence: str  # about one node

    def __new__(cls, code: int, few_words: str, sentence: str) -> "Verdict":
        made = super().__new__(cls, code)
        made.few_words, made.sentence = few_words, sentence
        return made


PASSED = Verdict(0, "passed", "passed")


class RuleInput:
    """A pod, its candidates, and what is known of them."""

    def __init__(
        self,
        pod: PodAsk,
        twin_columns: TwinColumns,
        rows: Ints,
        fresh: Callable[[], Bools],
        victims: tuple[str, ...] = (),
    ) -> None:
        self.pod = pod
        self.twin_columns = twin_columns
        self.rows = rows
        self.eco_labels = b""  # of the nodes in the request, one byte each; else stored ones apply
        self.victims = victims  # pods to be preempted that hold cards
        self._fresh = fresh

    @cached_property
    def fresh(self) -> Bools:
        """Whether the class of each candidate is up to date."""
        return self._fresh()


class Rule(ABC, Generic[S_contra]):
    """A rule that refuses a pod some nodes."""

    name: ClassVar[str]
    summary: ClassVar[str]  # one sentence for the documentation
    settings: ClassVar[type] = NoSettings
    # The values of its settings before the rule existed, for entries that do not have them.
    before: ClassVar[Before] = ()
    advice: ClassVar[tuple[tuple[Verdict, str], ...]]  # its verdicts, and what helps the pod
    is_about_cards: ClassVar[bool] = False  # not about energy: a verb under /gpu asks these alone
    is_about_the_pod: ClassVar[bool] = False  # refuses every node; other rules are then not asked
    reads_labels: ClassVar[bool] = False  # the entry keeps the labels of the request for it

    @abstractmethod
    def is_for(self, pod: PodAsk, /) -> bool:
        """Whether the rule is about pods of this kind."""

    def applies(self, asked: RuleInput, settings: S_contra, /) -> bool:
        """Whether there is any node that this pod might be refused."""
        del settings
        return self.is_for(asked.pod)

    @abstractmethod
    def verdicts(self, asked: RuleInput, settings: S_contra, /) -> Codes:
        """One for each candidate; `PASSED` where the rule refuses nothing."""

    @abstractmethod
    def reason(self, pod: PodAsk, settings: S_contra, /) -> str:
        """The reason in the reply, the same for all nodes: it depends on the pod alone.

        A fixed sentence without names, numbers or "%": kube-scheduler compares, counts and
        formats it.
        """
