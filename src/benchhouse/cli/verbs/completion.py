"""Print the shell completion script: eval "$(bench completion bash)"."""

import click

from benchhouse.cli.commands import help_with


@click.command(
    cls=click.Command,
    **help_with(
        __doc__,
        "bench completion bash > ~/.local/share/bash-completion/completions/bench",
        "bench completion fish > ~/.config/fish/completions/bench.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    from click.shell_completion import get_completion_class

    completion = get_completion_class(shell)
    assert completion is not None
    name = ctx.find_root().info_name or "bench"
    click.echo(completion(ctx.find_root().command, {}, name, f"_{name.upper()}_COMPLETE").source())
