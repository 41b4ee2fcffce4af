"""Shares on the command line: `3%` or 0.03."""

import click


class Share(click.ParamType):  # type: ignore[type-arg]
    """A share above 0 and below 1, written 3% or 0.03."""

    name = "share"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
        except ValueError:
            share = 0.0
        if not 0.0 < share < 1.0:
            self.fail(f"{text!r} is not a share: write 3% or 0.03", param, ctx)
        return share


SHARE = Share()
