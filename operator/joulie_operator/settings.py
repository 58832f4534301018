"""The operator's settings: the seeds' names."""

from dataclasses import dataclass

from joulie_bus.settings import Parser, choice, integer, number, setting, some_time
from joulie_operator.decide import Rules
from joulie_operator.reconcile import Caps


def selector(text: str) -> dict[str, str]:
    """label=value pairs, separated by commas; empty selects every node"""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if any(not key.strip() or not equals for key, equals, _ in pairs):
        raise ValueError("not a list of label=value")
    return {key.strip(): value.strip() for key, _, value in pairs}


_percent: Parser[int] = integer(0, 100)


@dataclass(frozen=True, kw_only=True)
class OperatorSettings:
    interval_s: float = setting(
        some_time, "RECONCILE_INTERVAL", "1m", "Longest time between two looks at the cluster"
    )
    node_selector: dict[str, str] = setting(
        selector, "NODE_SELECTOR", "joulie.io/managed=true", "Nodes that the operator plans for"
    )
    policy: str = setting(
        choice("static_partition"), "POLICY", "static_partition", "How nodes are divided"
    )
    hp_frac: float = setting(
        number(0, 1), "STATIC_HP_FRAC", "0.5", "static_partition: share of performance nodes"
    )
    cpu_performance: int = setting(
        _percent, "CPU_PERFORMANCE_CAP_PCT_OF_MAX", "100", "CPU cap of performance nodes"
    )
    cpu_eco: int = setting(_percent, "CPU_ECO_CAP_PCT_OF_MAX", "60", "CPU cap of eco nodes")
    gpu_performance: int = setting(
        _percent, "GPU_PERFORMANCE_CAP_PCT_OF_MAX", "100", "GPU cap of performance nodes"
    )
    gpu_eco: int = setting(_percent, "GPU_ECO_CAP_PCT_OF_MAX", "60", "GPU cap of eco nodes")

    def rules(self) -> Rules:
        caps = Caps(self.cpu_performance, self.cpu_eco, self.gpu_performance, self.gpu_eco)
        return Rules(self.policy, self.hp_frac, self.node_selector, caps)
