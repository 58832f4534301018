"""Which recorded state digests a fold of the same facts must give."""

from collections import Counter
from collections.abc import Mapping

from joulie_projections.fold.manifest import CODE_VERSION, Manifest


class DigestComparison:
    """Follows the manifests of a log in order, from a recorded state on.

    Digests of another fold version are not compared: it may fold the same facts to another state.
    This version continued from that state, so its own digests are compared again only from the
    first one on that is equal.
    """

    def __init__(self) -> None:
        self.is_recorded = True  # whether the folded state is the one that the log recorded
        self.uncompared = Counter[str]()  # positions by fold version

    def decides(self, manifest: Manifest) -> bool:
        """Whether the digest of this manifest changes `is_recorded`."""
        return self.is_recorded != _is_ours(manifest)

    def accepts(self, manifest: Manifest, digest: bytes, positions: int) -> bool:
        """False if the digest of the folded state must equal that of the manifest, and does not.

        `positions` counts those that were folded since the manifest before.
        """
        if _is_ours(manifest):
            if manifest.state_digest == digest:
                self.is_recorded = True
                return True
            if self.is_recorded:
                return False
        self.is_recorded = False
        self.uncompared[manifest.fold_version] += positions
        return True

    def pass_over(self, manifest: Manifest) -> None:
        """Its facts were folded, and its digest is not compared."""
        self.is_recorded = self.is_recorded and _is_ours(manifest)

    def resume(self) -> None:
        """The folded state was replaced by a recorded one."""
        self.is_recorded = True


def uncompared_text(uncompared: Mapping[str, int]) -> str:
    """For messages; empty if every position was compared."""
    if not uncompared:
        return ""
    other = {version: count for version, count in uncompared.items() if version != CODE_VERSION}
    named = [f"{count} of version {version}" for version, count in sorted(other.items())]
    if after := uncompared.get(CODE_VERSION):
        named.append(f"{after} of version {CODE_VERSION} after them")
    return (
        f"Folded, but not compared: {' and '.join(named)} (positions, by the version of the folds; "
        f"this is {CODE_VERSION})."
    )


def _is_ours(manifest: Manifest) -> bool:
    return manifest.fold_version == CODE_VERSION
