"""Print the shell completion script: eval "$(bench completion bash)"."""

import click

from benchhouse.cli.examples import examples


@click.command(
    help=__doc__
    + examples(
        "bench completion bash > ~/.local/share/bash-completion/completions/bench",
        "bench completion fish > ~/.config/fish/completions/bench.fish",
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(ctx.find_root().command, {}, "bench", "_BENCH_COMPLETE").source())
