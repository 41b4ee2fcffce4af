"""The verbs by what people want to do, for `bench --help`: in the order in which a newcomer needs them."""

from collections.abc import Sequence

GROUPS = {
    "Begin": ("init", "list", "show", "new", "validate", "plan", "fetch"),
    "Run": ("run", "time", "submit", "start", "status", "stop", "collect", "logs"),
    "Read results": ("report", "compare", "leaderboard", "query", "why"),
    "Watch over time": ("history", "baseline", "gate", "selftest", "slo", "alarms", "schedule"),
    "Prove and publish": ("trace", "verify", "claim", "contracts"),
    "Servers, machines, packages": ("servers", "monitors", "dashboards", "images", "site", "packages"),
}
REST = "Look after"
EXAMPLES = {
    "collect": (("@last", "what a submitted run has sealed so far"),),
    "list": (
        ("experiments", "what can be measured"),
        ("benchmarks", "registered ones"),
        ("targets", "what was measured here"),
    ),
    "plan": (
        ("scenarios/first.yaml", "points, trials, time, digest"),
        ("scenarios/first.yaml --dry-run", "the exact jobs"),
    ),
    "run": (
        ("scenarios/first.yaml", "plan, run, collect, show"),
        ("scenarios/first.yaml --dry-run", "only print what would start"),
        ("scenarios/first.yaml --executor slurm", "elsewhere: the same plan"),
        ("--resume @last", "carry on after Ctrl-C"),
    ),
    "status": (
        ("", "the newest runs"),
        ("@last --watch", "one run, until it has ended"),
    ),
    "stop": (("@last", "what is sealed is kept"),),
    "submit": (
        ("scenarios/first.yaml", "prints the run's id"),
        ("scenarios/first.yaml --executor slurm", "one job array"),
    ),
    "validate": (("scenarios/first.yaml", "all mistakes, with line and column"),),
}
"""By verb, what to type and what it gives; verbs whose examples need more words have them in their own file."""


def grouped(verbs: Sequence[str]) -> dict[str, list[str]]:
    """Each verb once, by group; one that no group names comes last, so that a new verb needs only its file."""
    named = {verb for group in GROUPS.values() for verb in group}
    found = {title: [verb for verb in group if verb in verbs] for title, group in GROUPS.items()}
    found[REST] = [verb for verb in verbs if verb not in named]
    return {title: group for title, group in found.items() if group}


def in_short(line: str) -> str:
    """The first clause of a verb's first line: what follows `:` or `;` is for its own help."""
    return line.partition(": ")[0].partition("; ")[0]


def with_examples(verb: str, text: str) -> str:
    """A verb's help, with its examples behind the first paragraph."""
    if verb not in EXAMPLES:
        return text
    first, _, rest = text.partition("\n\n")
    lines = [(f"bench {verb} {arguments}".rstrip(), about) for arguments, about in EXAMPLES[verb]]
    widest = max(len(line) for line, _ in lines)
    shown = "\n".join(f"  {line:<{widest}}   {about}" for line, about in lines)
    return "\n\n".join(filter(None, (first, f"\b\nExamples:\n{shown}", rest)))
