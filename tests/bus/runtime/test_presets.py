"""PRESET names a file of defaults of scores and plans: a shipped one, or one of a user."""

from dataclasses import dataclass
from pathlib import Path

import pytest

import shipped_presets
from joulie_bus.errors import SettingsError
from joulie_bus.runtime.preset_files import SECTIONS
from joulie_bus.runtime.presets import HEADROOM, PRESET, PRESET_DOC, SHIPPED, preset
from joulie_bus.runtime.settings import (
    Source,
    boolean,
    choice,
    in_presets,
    number,
    preset_number,
    setting,
)
from joulie_extender.settings import ScoringSettings
from joulie_operator.settings import OperatorSettings


def any_table(text: str) -> str:
    """a table"""
    return text


@dataclass(frozen=True, kw_only=True)
class Scored:
    preset: str = setting(preset, PRESET, HEADROOM, PRESET_DOC)
    scoring: str = preset_number(
        choice("headroom", "energy"), "scoring", "headroom", "How", "scores"
    )
    share: float = setting(number(0, 1), "SHARE", "0.5", "How many", section="plans")
    is_capped: bool = preset_number(boolean, "is_capped", "true", "Whether", "plans")
    reserve: str = preset_number(any_table, "reserve", "", "How much", "plans", table=True)


def loaded(place: Path, text: str, **values: str) -> Scored:
    """Raises SettingsError with each mistake."""
    file = place / "mine.toml"
    file.write_text(text)
    source = Source({PRESET: str(file)} | values)
    found = source.load(Scored)
    source.finish()
    return found


def test_a_shipped_preset_replaces_defaults_and_names_itself_as_their_origin() -> None:
    source = Source.of(PRESET="savings")

    assert source.load(Scored).scoring == "energy"
    assert ("scoring", "energy", "PRESET=savings") in [*map(tuple, source.finish())]


def test_a_file_replaces_values_of_its_base(tmp_path: Path) -> None:
    text = """
base = "savings"
[plans]
share = 0.25
is_capped = false
[plans.reserve]
cards = 0.05
"""

    assert loaded(tmp_path, text) == Scored(
        preset="mine", scoring="energy", share=0.25, is_capped=False, reserve="cards=0.05"
    )


def test_the_origin_of_a_value_is_a_line_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('# mine\n[scores]\nscoring = "energy"\n')
    source = Source({PRESET: str(file)})

    source.load(Scored)

    origins = {each.name: each.origin for each in source.finish()}
    assert origins["scoring"] == f"{file}, line 3"
    assert origins["SHARE"] == "default"


def test_a_base_may_be_a_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_text("[plans]\nshare = 0.1\n")

    assert loaded(tmp_path, 'base = "ours.toml"\n').share == 0.1


def test_the_name_of_a_published_setting_wins_over_the_preset(tmp_path: Path) -> None:
    assert loaded(tmp_path, "[plans]\nshare = 0.25\n", SHARE="0.75").share == 0.75


def test_without_a_preset_the_published_formula_applies() -> None:
    assert Source.of().load(Scored) == Scored(preset="headroom", scoring="headroom")


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("[scores]\nscorings = 1", "line 2: [scores] has no scorings; did you mean scoring?"),
        ("[scores]\nshare = 0.1", "line 2: [scores] has no share; remove or rename it"),
        ("[plan]\nshare = 0.1", "line 1: there is no plan; try plans"),
        ("scores = 1", "line 1: scores is not a table; write [scores] above its keys"),
        ('\n[scores]\nscoring = "best"', "line 3): unknown; allowed: one of headroom, energy"),
        ("[plans]\nshare = 1.5", "line 2): out of range; allowed: a number from 0 to 1"),
        ('[plans]\nshare = "0.5"', "line 2: share: '0.5' is text; write it without quotes"),
        ("[plans]\nshare = true", "line 2): could not convert string to float: 'true'"),
        ("[plans]\nshare = [1]", "line 2: share: neither a number, text, true, false nor a"),
        ("[plans.share]\na = 1", "line 1: share is one value, no table"),
        ("[plans]\nreserve = 1", "line 2: reserve is a table of numbers"),
        ('[plans.reserve]\na = "1"', "line 1: reserve: a is not a number"),
        ("[plans]\nshare", "this is not TOML: Expected '=' after a key"),
        ('base = "cheap"', "cheap cannot be read: No such file or directory; name headroom"),
        ("base = 1", "line 1: base is not text; name headroom, savings, or a TOML file"),
        ('base = "mine.toml"', "line 1: more than 8 files name each other as base"),
    ],
)
def test_a_mistake_is_named_with_file_and_line(tmp_path: Path, text: str, mistake: str) -> None:
    with pytest.raises(SettingsError) as refused:
        loaded(tmp_path, f"{text}\n")

    assert mistake in str(refused.value)
    assert "mine.toml" in str(refused.value)
    assert len(refused.value.mistakes) == 1


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("cheap", "PRESET='cheap' (from environment): unknown; allowed: headroom, savings, or a"),
        ("/nope/mine.toml", "/nope/mine.toml cannot be read: No such file or directory; name"),
        ("/x/savings.toml", "savings.toml is a file that is shipped; name your own otherwise"),
    ],
)
def test_a_preset_that_is_not_there_is_one_mistake(name: str, mistake: str) -> None:
    source = Source({PRESET: name})
    source.load(Scored)

    with pytest.raises(SettingsError) as refused:
        source.finish()

    assert mistake in str(refused.value)
    assert len(refused.value.mistakes) == 1


@pytest.mark.parametrize("line", ['SCORING = "energy"', 'scoring = "energy"'])
def test_what_only_presets_give_is_refused_elsewhere(tmp_path: Path, line: str) -> None:
    file = tmp_path / "joulie.toml"
    file.write_text(f"{line}\n")
    source = Source({"SCORING": "energy"}, file)
    source.load(Scored)

    with pytest.raises(SettingsError) as refused:
        source.finish()

    name = line.partition(" ")[0]
    instead = "only a preset gives it: write `scoring = ...` below [scores] in a TOML file"
    assert f"SCORING (from environment): {instead}" in str(refused.value)
    assert f"{name} (from {file}): {instead}" in str(refused.value)
    assert len(refused.value.mistakes) == 2


@pytest.mark.parametrize("path", shipped_presets.texts(), ids=lambda path: path.name)
def test_a_shipped_file_has_each_number_with_its_sentence(path: Path) -> None:
    text = shipped_presets.texts()[path]

    assert path.read_text() == text, "renew them: make presets"


def test_the_file_of_headroom_holds_what_the_code_does_without_a_preset() -> None:
    for cls in (ScoringSettings, OperatorSettings):
        assert Source.of(PRESET=HEADROOM).load(cls) == Source.of().load(cls)


def test_one_class_reads_a_whole_section() -> None:
    scores, plans = SECTIONS

    assert len(in_presets(scores, ScoringSettings)) > 10
    assert len(in_presets(plans, OperatorSettings)) > 20
    assert in_presets(scores, OperatorSettings) == in_presets(plans, ScoringSettings) == []


@pytest.mark.parametrize("name", SHIPPED)
def test_every_value_of_a_shipped_preset_is_one_that_its_reader_takes(name: str) -> None:
    source = Source.of(PRESET=name)
    source.load(ScoringSettings)
    source.load(OperatorSettings)

    assert source.finish()
