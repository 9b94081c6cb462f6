"""The command line."""

from __future__ import annotations

import sys
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
