"""The command line."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trueup.errors import TrueupError

if TYPE_CHECKING:
    from trueup.multiverse.multiverse import Multiverse
    from trueup.plan import Plan

app = typer.Typer(
    help="Regression on LLM labels, trued up with a human-coded sample.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def main() -> None:
    """Regression on LLM labels, trued up with a human-coded sample."""


@app.command()
def demo(
    figure: Annotated[
        Path, typer.Option(help="Where to save the figure (PNG, PDF or SVG).")
    ] = Path("trueup-demo.png"),
) -> None:
    """Correct a real study, its human labels hidden, and compare with the all-human answer."""
    from trueup.demo import run

    if not figure.parent.is_dir():
        typer.echo(f"Folder {figure.parent} does not exist: choose another --figure.", err=True)
        raise typer.Exit(2)
    try:
        run(figure, typer.echo)
    except TrueupError as error:
        typer.echo(str(error), err=True)
        sys.exit(1)


def _fit(plan: Plan, out: Path, n_jobs: int | None) -> Multiverse:
    """Fit what a plan says, resuming what a folder of results holds."""
    from trueup.api import multiverse
    from trueup.plan import check_columns, plan_study, read_data

    study = plan_study(plan, read_data(plan.data))
    check_columns(plan, study)
    return multiverse(
        plan.formulas,
        study,
        focus=plan.focus,
        family=plan.family,
        llm=plan.use,
        corrections=plan.corrections,
        subsets=plan.subsets,
        vcov=plan.vcov,
        exclude=plan.exclude,
        level=plan.level,
        n_jobs=n_jobs,
        store=out / "store",
        seed=plan.seed,
    )


def _refused(error: Exception) -> typer.Exit:
    """Say what went wrong, and return the exit that says so to the shell."""
    typer.echo(f"Error: {error}", err=True)
    return typer.Exit(1)


def _stop_if_all_failed(mv: Multiverse) -> None:
    """Say why no universe could be fitted, and tell the shell so."""
    from trueup.plan import commonest_failures

    if any(o.status == "ok" for o in mv.outcomes):
        return
    typer.echo(f"Error: none of {len(mv.outcomes)} universes could be fitted.", err=True)
    for reason in commonest_failures(mv):
        typer.echo(f"  {reason}", err=True)
    raise typer.Exit(1)


@app.command()
def run(
    plan: Annotated[Path, typer.Argument(help="Plan file (TOML).")],
    out: Annotated[Path, typer.Option(help="Folder for results; a second run resumes.")] = Path(
        "results"
    ),
    jobs: Annotated[int, typer.Option(help="Worker processes.")] = 1,
) -> None:
    """Run the multiverse of a plan: estimates, manifest and report."""
    from trueup.plan import read_plan, write_results

    started = datetime.now(UTC)
    try:
        said = read_plan(plan)
        mv = _fit(said, out, jobs)
        typer.echo(f"{mv.study}\n")
        files = write_results(mv, said, out, started)
    except (TrueupError, OSError) as error:
        raise _refused(error) from error
    typer.echo(f"{mv.summary()}\n")
    for file in files:
        typer.echo(f"Written: {file}")
    _stop_if_all_failed(mv)


@app.command()
def report(
    results: Annotated[Path, typer.Argument(help="Folder that `trueup run` made.")],
    jobs: Annotated[int, typer.Option(help="Worker processes, for what is missing.")] = 1,
) -> None:
    """Build the report of a results folder anew, from what its store keeps."""
    from trueup.plan import REPORT, results_plan

    try:
        plan = results_plan(results)
        mv = _fit(plan, results, jobs)
        file = mv.report(results / REPORT, title=plan.title or None, plan=plan.text)
    except (TrueupError, OSError) as error:
        raise _refused(error) from error
    typer.echo(f"Written: {file}")
    _stop_if_all_failed(mv)
