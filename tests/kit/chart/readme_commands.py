"""The commands of the README for a cluster, word for word, and those of the page that it names."""

import re

from kube_real import ROOT

SECTION = (ROOT / "README.md").read_text().split("\n## Run it on a cluster\n")[1].split("\n## ")[0]
UNINSTALL = (ROOT / "docs/install.md").read_text().split("\n## Uninstall\n")[1].split("\n## ")[0]
# Of the block; the first line of the block loads the image into nodes.
INSIDE: list[str] = re.findall(r"^\$ ((?:helm|kubectl) .*)$", SECTION, re.MULTILINE)
# Where no kubelet runs the pods of the chart, none becomes ready.
AT_ONCE = [command.removesuffix(" --wait") for command in INSIDE]
# Of the list below it.
EXPLAIN: list[str] = re.findall(r"`(kubectl joulie explain [^`]*)`", SECTION)
TOMORROW: list[str] = re.findall(
    r"`(helm test [^`]*|kubectl joulie status|helm status [^`]*)`", SECTION
)
END: list[str] = re.findall(r"`(helm uninstall [^`]*|kubectl delete [^`]*)`", SECTION)
DELETIONS: list[str] = re.findall(r"^(kubectl .*)$", UNINSTALL, re.MULTILINE)
# For the components on this machine.
OUTSIDE: list[str] = re.findall(r"`(kubectl apply [^`]*)`", SECTION)
