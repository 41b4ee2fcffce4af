"""Two releases on one page: what got worse, better, or shows no certain difference; every number is a claim."""

from benchhouse.report.pages import Block, Grid, Heading, Items, Page, Words
from benchhouse.results.release import GROUPS, TABLE_HEADS, Group, ReleaseView, Unpaired, table_cells

TITLES: dict[Group, str] = {
    "worse": "Worse",
    "better": "Better",
    "different": "Different, where neither way is better",
    "stayed": "No sure difference",
}


def release_page(view: ReleaseView) -> Page:
    by = " and ".join(dict.fromkeys(view.by))
    how = f"Releases by {by}; {view.confidence:.0%} intervals; verdicts are corrected for all numbers of this page."
    blocks: list[Block] = [Words(how)]
    for group in GROUPS:
        if rows := view.group(group):
            blocks += [Heading(TITLES[group]), Grid(TABLE_HEADS, [table_cells(row) for row in rows])]
    blocks += _alone(f"Claimed of {view.older} only", view.only_older)
    blocks += _alone(f"Claimed of {view.newer} only", view.only_newer)
    if view.left_out:
        listed = [f"`{item.claim}`: {item.reason}" for item in view.left_out]
        blocks += [Heading("Claims that are left out"), Items(listed)]
    blocks += [Heading("Notes"), Items(view.notes)] if view.notes else []
    if view.rows:
        checks = [f"bench claim verify {view.rows[0].newer.claim}", f"bench trace {view.rows[0].newer.claim}"]
        blocks += [Heading("Check a number"), Items(checks, code=True)]
    return Page(f"Release {view.older} to {view.newer}", view.headline, blocks)


def _alone(title: str, claims: list[Unpaired]) -> list[Block]:
    return [Heading(title), Items([f"`{item.claim}`: {item.statement}" for item in claims])] if claims else []
