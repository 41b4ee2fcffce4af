"""`ws.views`: the curated store seen from one side, such as that of a release."""

from benchhouse.api.answers import Release
from benchhouse.api.verb_group import VerbGroup


class Views(VerbGroup):
    """Views of the curated store."""

    def release(self, older: str, newer: str, *, realism: bool = False, confidence: float = 0.95) -> Release:
        """What got better, worse or stayed from `older` to `newer`, by claims that hold.

        A release is named by the version of the server (`0.9.1`, `vllm 0.9.1`), an image digest, a commit, a framework,
        a package version, or a run (`@last`). `realism` takes in REALISM-GRADE claims, which are marked.
        """
        from benchhouse.claims.release import release_view

        names = [self._workspace[token].id if token.startswith("@") else token for token in (older, newer)]
        view = release_view(self._folder, *names, realism=realism, confidence=confidence)
        return Release(self._workspace, view)
