import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from joulie_bus.errors import SettingsError
from joulie_bus.runtime.settings import Source
from joulie_operator.cluster_settings import ApplierSettings, LeaseSettings
from joulie_operator.planning.policies import BUILT_IN, Share, Situation, static_partition
from joulie_operator.planning.reconcile import CODE_VERSION, LoadedPolicy
from joulie_operator.planning.rules import Rules, rules_of, values_of
from joulie_operator.plugins import load_policy
from joulie_operator.settings import OperatorSettings
from joulie_projections.catalog_file import shipped_catalog

Install = Callable[..., None]
NOWHERE = Situation([], demand=None, now_s=0, numbers={})  # type: ignore[arg-type]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """A third-party package with one policy, as pip installs it."""

    def put(name: str, code: str, value: str = "acme_policies:policy") -> None:
        (tmp_path / "acme_policies.py").write_text(code)
        info = tmp_path / "acme-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[joulie.policies]\n{name} = {value}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "acme_policies", raising=False)

    return put


def loaded(**values: str) -> OperatorSettings:
    source = Source.of(**values)
    settings = source.load(OperatorSettings)
    source.finish()
    return settings


def test_the_defaults_of_settings_and_rules_are_equal() -> None:
    assert loaded().rules() == Rules()


def test_encoded_rules_are_decoded_unchanged() -> None:
    rules = loaded(
        POLICY_NUMBERS="reserve=1, max_step=0.5",
        QUEUE_HP_MIN="3",
        CPU_ECO_CAP_PCT_OF_MAX="none",
        GPU_WRITE_ABSOLUTE_CAPS="true",
        profile_min_dwell="90s",
    ).rules()
    travelled: dict[str, float | str | bool] = {
        name: float(value) if type(value) is int else value
        for name, value in values_of(rules).items()
    }

    assert rules_of(travelled) == rules
    assert repr(rules_of(travelled)) == repr(rules)
    assert (rules.cpu_eco_pct, rules.queue_hp_min, rules.dwell_s) == (None, 3, 90)


def test_policies_receive_numbers_by_the_names_of_settings() -> None:
    numbers = loaded(STATIC_HP_FRAC="0.25", POLICY_NUMBERS="sleep_after_s=3").rules().numbers()

    assert (numbers["STATIC_HP_FRAC"], numbers["sleep_after_s"]) == (0.25, 3)


@pytest.mark.parametrize(
    ("name", "value", "cause"),
    [
        ("POLICY_TYPE", "fastest", f"available: {', '.join(BUILT_IN)}"),
        ("POLICY_NUMBERS", "a=many", "could not convert"),
        ("POLICY_NUMBERS", "a=nan", "not finite"),
        ("POLICY_NUMBERS", "=1", "not a list of name=number"),
        ("NODE_SELECTOR", "managed", "not a list of label=value"),
        ("family_floor", "never", "one of within, always"),
        ("CPU_ECO_CAP_PCT_OF_MAX", "101", "more than 100 percent; allowed: a number from 1 to 100"),
        ("CPU_ECO_CAP_PCT_OF_MAX", "100.5", "more than 100 percent"),
        ("CPU_ECO_CAP_PCT_OF_MAX", "-1", "not a percentage; allowed: a number from 1 to 100"),
        ("CPU_ECO_CAP_PCT_OF_MAX", "nan", "not a percentage"),
        ("CPU_ECO_CAP_PCT_OF_MAX", "0", "less than one percent"),
        ("GPU_ECO_CAP_PCT_OF_MAX", "0.9", "less than one percent"),
        ("QUEUE_PERF_PER_HP_NODE", "0", "at least 1"),
        ("GPU_MODEL_CAPS_JSON", '{"L4": 72}', r"at `\$\[\.\.\.\]`"),
        ("GPU_MODEL_CAPS_JSON", '{"L4": {"maxCapWatts": 40, "minCapWatts": 72}}', "minCapWatts"),
        ("GPU_MODEL_CAPS_JSON", '{"L4": {"maxCapWatts": 72, "maxCapwatts": 70}}', "maxCapwatts"),
        ("GPU_MODEL_CAPS_JSON", '{"L4": {"maxWatts": 40}}', "maxWatts"),
        ("ECO_CAP_WATTS", "0", "from 1"),
    ],
)
def test_an_invalid_setting_stops_the_start(name: str, value: str, cause: str) -> None:
    with pytest.raises(SettingsError, match=rf"(?s){name}=.*{cause}"):
        loaded(**{name: value})


def test_contradicting_bounds_stop_the_start() -> None:
    with pytest.raises(SettingsError, match="QUEUE_HP_MIN=3 is above QUEUE_HP_MAX=2"):
        loaded(QUEUE_HP_MIN="3", QUEUE_HP_MAX="2")


# --- policies of other packages ---------------------------------------------------------------


def test_built_in_policies_are_found_by_name() -> None:
    assert load_policy("static_partition") == LoadedPolicy(static_partition, CODE_VERSION)


def test_a_policy_of_another_package_is_found_by_its_entry_point(install: Install) -> None:
    install(
        "greedy",
        "from joulie_operator.planning.policies import Share\npolicy = lambda _: Share(7)\n",
    )
    settings = loaded(POLICY_TYPE="greedy")

    assert load_policy(settings.policy).decide(NOWHERE) == Share(7)
    assert load_policy(settings.policy).code == f"{CODE_VERSION} acme 1.2"


@pytest.mark.parametrize(
    ("code", "value", "cause"),
    [
        ("import nothing_like_this", "acme_policies:policy", "nothing_like_this"),
        ("", "acme_policies:policy", "has no attribute 'policy'"),
        ("policy = 7", "acme_policies:policy", "acme_policies:policy is not callable"),
    ],
    ids=["does not import", "is missing", "is not callable"],
)
def test_a_policy_that_cannot_be_loaded_stops_the_start(
    install: Install, code: str, value: str, cause: str
) -> None:
    install("greedy", code, value)

    with pytest.raises(SettingsError, match=cause):
        loaded(POLICY_TYPE="greedy")


def test_the_error_for_an_unknown_policy_lists_the_available_names(install: Install) -> None:
    install("greedy", "policy = print")

    with pytest.raises(SettingsError, match="rule_swap_v1, consolidate_and_sleep, greedy"):
        loaded(POLICY_TYPE="gredy")


@pytest.mark.parametrize(
    ("text", "percent"),
    [
        ("60", 60),
        ("60.0", 60),
        ("62.5", 62),
        ("1", 1),
        ("99.99", 99),
        ("100.0", 100),
        ("none", None),
    ],
)
def test_a_percentage_is_rounded_down(text: str, percent: int | None) -> None:
    loaded = Source.of(CPU_ECO_CAP_PCT_OF_MAX=text, GPU_ECO_CAP_PCT_OF_MAX=text)
    settings = loaded.load(OperatorSettings)
    loaded.finish()

    assert (settings.cpu_eco_pct, settings.gpu_eco_pct) == (percent, percent)


def test_caps_of_one_model_under_two_names_stop_the_start() -> None:
    said = '{"H100": {"maxCapWatts": 600}, "NVIDIA-H100-80GB-HBM3": {"maxCapWatts": 700}}'
    settings = Source.of(GPU_MODEL_CAPS_JSON=said).load(OperatorSettings)

    with pytest.raises(SettingsError, match=r"GPU_MODEL_CAPS_JSON: .*another range"):
        settings.naming_models_as(shipped_catalog())


def test_racks_with_another_feed_are_named_beside_the_usual_one() -> None:
    settings = Source.of(RACK_CAPACITY_WATTS="40000, r7=30000,r8=1e4").load(ApplierSettings)

    assert settings.racks == (40_000, {"r7": 30_000, "r8": 10_000})
    assert ApplierSettings().racks == (50_000, {})


@pytest.mark.parametrize("text", ["", "r7=30000", "0", "50000,r7=0", "50000,r7", "50000,=1"])
def test_a_capacity_that_no_rack_has_stops_the_start(text: str) -> None:
    source = Source.of(RACK_CAPACITY_WATTS=text)
    source.load(ApplierSettings)

    with pytest.raises(SettingsError, match="RACK_CAPACITY_WATTS"):
        source.finish()


@pytest.mark.parametrize("name", ["../x", "a/b", "A", "a.b", "", "a" * 64])
def test_an_invalid_namespace_stops_the_start(name: str) -> None:
    source = Source.of(POD_NAMESPACE=name)
    source.load(LeaseSettings)

    with pytest.raises(SettingsError, match="POD_NAMESPACE"):
        source.finish()
