"""`ws.views`: the curated store from one point of view, such as that of a release."""

from typing import TYPE_CHECKING

from benchhouse.api.answers import Release
from benchhouse.api.verb_group import VerbGroup

if TYPE_CHECKING:
    from benchhouse.report.pages import Page


class Views(VerbGroup):
    """Views of the curated store."""

    def audience(self, audience: str, run: str = "@last", vs: str | None = None) -> "Page":
        """Return the page of a run for one reader (engineering, product, or partner), as `bench report --for` writes
        it.

        The difference is that a partner sees only publishable values: those of publication-grade claims.
        """
        from benchhouse.api.why import page_content

        why = self._workspace.why(run, vs).why
        claims = [(item.id, item.statement, item.signature) for item in self._workspace.claims.of_run(why.run_id)]
        return page_content(self._folder, why, audience, claims)

    def release(self, older: str, newer: str, *, realism: bool = False, confidence: float = 0.95) -> Release:
        """Return what got better, got worse, or stayed the same from `older` to `newer`, by claims that hold.

        A release is named by the version of the server (`0.9.1`, `vllm 0.9.1`), an image digest, a commit, a framework,
        a package version, or a run (`@last`). `realism` includes REALISM-GRADE claims, which are marked.
        """
        from benchhouse.claims.release import release_view

        names = [self._workspace[token].id if token.startswith("@") else token for token in (older, newer)]
        view = release_view(self._folder, *names, realism=realism, confidence=confidence)
        return Release(self._workspace, view)
