"""The names of presets, which give the defaults of scores and plans: PRESET names one.

`preset_files` reads them: headroom.toml and savings.toml beside this file, or a file of one's own.
"""

PRESET = "PRESET"
HEADROOM, SAVINGS = "headroom", "savings"
SHIPPED = (HEADROOM, SAVINGS)
ENDING = ".toml"
PRESET_DOC = (
    "Defaults of scores and plans: headroom, the published formula and no sleep; savings, scores "
    "by added watts, nodes that sleep, and no eco node without caps; or a file of your own"
)


def preset(text: str) -> str:
    """headroom, savings, or a TOML file such as /etc/joulie/mine.toml"""
    if text in SHIPPED:
        return text
    name = text.rpartition("/")[2].removesuffix(ENDING)
    if not text.endswith(ENDING) or not name:
        raise ValueError("unknown")
    if name in SHIPPED:
        raise ValueError(f"{name}{ENDING} is a file that is shipped; name your own otherwise")
    return name
