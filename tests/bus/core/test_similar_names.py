"""Known names in messages about an unknown one."""

from joulie_bus.core.similar_names import similar_names

NAMES = ["cpu-0001", "cpu-0002", "gpu-0001", "gpu-0002"]


def test_similar_names_come_first_and_others_make_three() -> None:
    assert similar_names("gpu-001", NAMES).startswith("gpu-0001, ")
    assert similar_names("zzz", NAMES) == "cpu-0001, cpu-0002, gpu-0001 (4 in all)"
    assert similar_names("gpu", ["gpu-0001", "x", "y"]) == "gpu-0001, x, y (3 in all)"


def test_without_a_known_name_there_is_none() -> None:
    assert similar_names("zzz", []) == "none"
