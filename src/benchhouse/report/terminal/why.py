"""Why a run got slower: points, causes with their evidence, and what to look at next."""

from typing import TYPE_CHECKING

import click

from benchhouse.analysis.playbooks.causes import symptom_sentence
from benchhouse.report.terminal import screen
from benchhouse.results.numbers import quantity
from benchhouse.results.why import filled_in

if TYPE_CHECKING:
    from benchhouse.results.why import PointWhy, WhyAnswer

_MOST_MOVED = 5


def show_why(why: "WhyAnswer") -> None:
    click.echo(f"RUN   {why.run_id}")
    click.echo(f"BASE  {why.base or '-'}  ({why.base_chosen})")
    for reason, count in why.pending.items():
        click.echo(f"QUEUE {reason}, said of {screen.count(count, 'trial')}")
    for failure in why.failures:
        click.echo(f"\n{failure.outcome}: {failure.point}  {failure.code}: {failure.message}")
        click.echo(f"  evidence  {failure.folder}\n  logs      {failure.logs}\n  again     {failure.rerun}")
    for point in why.points:
        _show_point(why, point)
    click.echo(f"\n{why.headline}")
    for line in why.differences:
        screen.note(f"differs: {line}")
    for line in why.notes:
        screen.note(line)
    if why.points:
        screen.note(f"for others:  bench report {why.base} {why.run_id} --for product")
    elif why.base:
        screen.note(f"look closer:  bench compare {why.base} {why.run_id}")
    elif why.failures:
        screen.note(f"all of it:  bench report {why.run_id}")
    else:
        screen.note(f"compare it with another:  bench why {why.run_id} --vs RUN")


def _show_point(why: "WhyAnswer", point: "PointWhy") -> None:
    click.echo(f"\n{point.point or 'all of it'}")
    for text in (symptom_sentence(number) for number in point.numbers):
        click.echo(f"  worse     {text}")
    for at, diagnosis in enumerate(point.diagnoses):
        click.echo(
            f"  {'cause' if at == 0 else 'or':9} {diagnosis.title}  [{diagnosis.certainty}: {diagnosis.why_so_sure}]"
        )
        click.echo(f"            {diagnosis.says}")
        for shown in diagnosis.evidence:
            click.echo(f"  evidence  {shown.says}")
        for line in filled_in(why, diagnosis.next):
            click.echo(f"  next      {line}")
        click.echo(f"  change    {diagnosis.change}")
        for line in diagnosis.also:
            click.echo(f"  also      {line}")
    if not point.diagnoses:
        click.echo("  cause     no evidence: no playbook fits, or no series moved far outside its repetitions' spread")
        for moved in point.moved[:_MOST_MOVED]:
            click.echo(f"  moved     {moved.says}")
        if len(point.moved) > _MOST_MOVED:
            click.echo(f"            and {len(point.moved) - _MOST_MOVED} more: --json")
    for trial in point.trials:
        value = f"{trial.number} {quantity(trial.value, trial.unit)}"
        click.echo(f"  trial     {trial.trial_id} on {trial.node}, {value}: {trial.folder}")
        for file in trial.files:
            click.echo(f"            {trial.folder}/{file}")
        for line in trial.slow:
            click.echo(f"            {trial.requests}: {line}")
    if point.trials:
        click.echo(f"  logs      {point.trials[0].logs}")
        click.echo(f"  proof     {point.trials[0].trace}")
        click.echo(f"  again     {point.repro}")
