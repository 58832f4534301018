"""PRESET chooses the defaults of other settings."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from joulie_bus.errors import SettingsError
from joulie_bus.runtime.presets import HEADROOM, PRESET, PRESET_DOC, PRESETS, preset
from joulie_bus.runtime.settings import Source, choice, declared, setting
from joulie_extender.settings import ScoringSettings
from joulie_operator.settings import OperatorSettings


@dataclass(frozen=True, kw_only=True)
class Scored:
    preset: str = setting(preset, PRESET, HEADROOM, PRESET_DOC)
    scoring: str = setting(choice("headroom", "energy"), "SCORING", "headroom", "How")


def test_a_preset_replaces_defaults_and_names_itself_as_their_origin() -> None:
    source = Source.of(PRESET="savings")

    assert source.load(Scored).scoring == "energy"
    assert ("SCORING", "energy", "PRESET=savings") in [*map(tuple, source.finish())]


def test_a_setting_that_is_given_wins(tmp_path: Path) -> None:
    file = tmp_path / "joulie.toml"
    file.write_text('PRESET = "savings"\nSCORING = "headroom"\n')

    assert Source.of(PRESET="savings", SCORING="headroom").load(Scored).scoring == "headroom"
    assert Source({}, file).load(Scored).scoring == "headroom"
    assert Source({"SCORING": "energy"}, file).load(Scored).scoring == "energy"


def test_without_a_preset_the_published_formula_applies() -> None:
    assert Source.of().load(Scored) == Scored(preset="headroom", scoring="headroom")


def test_an_unknown_preset_is_a_mistake() -> None:
    source = Source.of(PRESET="cheap")
    source.load(Scored)

    with pytest.raises(SettingsError, match=r"PRESET='cheap' .*headroom or savings"):
        source.finish()


def test_a_preset_names_settings_that_exist_with_values_that_they_take() -> None:
    known = {each.name for each in declared(ScoringSettings, OperatorSettings)}

    for name, preferred in PRESETS.items():
        assert preferred.keys() <= known
        source = Source.of(PRESET=name)
        source.load(ScoringSettings)
        source.load(OperatorSettings)
        source.finish()
