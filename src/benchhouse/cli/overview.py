"""The verbs by what people want to do, for `bench --help`: in the order in which a newcomer needs them."""

from collections.abc import Sequence

GROUPS = {
    "Begin": ("init", "list", "show", "new", "validate", "plan", "convert", "fetch"),
    "Run": ("run", "time", "import", "submit", "start", "status", "stop", "collect", "logs"),
    "Read results": ("report", "compare", "leaderboard", "views", "query", "why", "serve", "mcp"),
    "Watch over time": ("history", "baseline", "gate", "selftest", "slo", "alarms", "schedule", "agent", "github"),
    "Prove and publish": ("trace", "verify", "claim", "contracts", "export"),
    "Servers, machines, packages": (
        "servers",
        "clients",
        "monitors",
        "dashboards",
        "images",
        "site",
        "infra",
        "packages",
    ),
}
REST = "Look after"


def grouped(verbs: Sequence[str]) -> dict[str, list[str]]:
    """Return each verb once, by group. A verb without a group comes last, so that a new verb needs only its file."""
    named = {verb for group in GROUPS.values() for verb in group}
    groups = {title: [verb for verb in group if verb in verbs] for title, group in GROUPS.items()}
    groups[REST] = [verb for verb in verbs if verb not in named]
    return {title: group for title, group in groups.items() if group}


def first_clause(sentence: str) -> str:
    """Return what comes before `:` or `;`. The rest is for the verb's own help."""
    return sentence.partition(": ")[0].partition("; ")[0]
