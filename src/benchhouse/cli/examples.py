"""The examples that a help begins with."""


def examples(*lines: str) -> str:
    """The end of a help: commands as they are typed, in the order given. What is said of one stands three blanks behind
    it."""
    parts = [line.split("   ", 1) for line in lines]
    width = max(len(typed) for typed, *_ in parts)
    told = ("   ".join([typed.ljust(width), *(words.strip() for words in said)]).rstrip() for typed, *said in parts)
    return "\n\n\b\nExamples:\n" + "\n".join(f"  {line}" for line in told)
