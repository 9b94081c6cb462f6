"""The command line."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from trueup.errors import TrueupError

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


def _run(plan_file: Path, out: Path, n_jobs: int | None) -> None:
    """Run a plan into a folder, resuming what is there."""
    from trueup.api import multiverse
    from trueup.plan import plan_study, read_data, read_plan, write_results

    started = datetime.now(UTC)
    plan = read_plan(plan_file)
    study = plan_study(plan, read_data(plan.data))
    typer.echo(str(study))
    mv = multiverse(
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
    files = write_results(mv, plan, out, started)
    typer.echo("")
    typer.echo(mv.summary())
    typer.echo("")
    for file in files:
        typer.echo(f"Written: {file}")


@app.command()
def run(
    plan: Annotated[Path, typer.Argument(help="Plan file (TOML).")],
    out: Annotated[Path, typer.Option(help="Folder for results; a second run resumes.")] = Path(
        "results"
    ),
    jobs: Annotated[int, typer.Option(help="Worker processes.")] = 1,
) -> None:
    """Run the multiverse of a plan: estimates, manifest and report."""
    try:
        _run(plan, out, jobs)
    except TrueupError as error:
        typer.echo(f"Error: {error}", err=True)
        sys.exit(1)


@app.command()
def report(
    results: Annotated[Path, typer.Argument(help="Folder that `trueup run` made.")],
) -> None:
    """Build the report of a results folder anew, from what it keeps."""
    plan = results / "plan.toml"
    if not plan.is_file():
        typer.echo(f"Error: {results} has no plan.toml: run `trueup run` first.", err=True)
        sys.exit(1)
    try:
        _report(results)
    except TrueupError as error:
        typer.echo(f"Error: {error}", err=True)
        sys.exit(1)


def _report(results: Path) -> None:
    import json

    from trueup.errors import PlanError

    manifest = json.loads((results / "manifest.json").read_text(encoding="utf-8"))
    original = Path(manifest["plan"]["path"])
    if not original.is_file():
        raise PlanError(
            f"The plan {original} that these results came from has gone; put it back, or run "
            f"`trueup run {results / 'plan.toml'}` beside its data."
        )
    _run(original, results, 1)
