"""The documentation as a site: `make docs`. Pages stay plain Markdown, readable without a build."""

project = "Joulie"
author = "The Joulie authors"
extensions = ["myst_parser"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "Joulie"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
# Anchors of headings, as code hosts make them; links to files beside the pages become downloads.
myst_heading_anchors = 4
myst_fence_as_directive: list[str] = []
suppress_warnings = ["misc.highlighting_failure"]  # transcripts with placeholders
