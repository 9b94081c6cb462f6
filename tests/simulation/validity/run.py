"""Run the validity study, in as many runs as it takes.

``python -m tests.simulation.validity.run --cells f --reps 1000 --jobs 2 --budget 3600`` runs what
is missing of the cells whose ids begin with "f" for an hour, and writes ``table.csv`` and
``summary.md`` beside this file (or where ``--table`` says). Run it again to go on. Replications
are kept in ``.validity`` (``--work``). After a change of a method, ``--again es`` runs that method
anew on the same data.

With ppi-python, which installs a package ``tests`` of its own, say in the folder ``tests``:
``python -m simulation.validity.run``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from joblib import Parallel, delayed

from .design import Cell, read
from .methods import COMPETITORS, DEFAULT, applies, known
from .shards import BATCH, missing, run_batch
from .summary import TABLE, build, merge, page, write_table

#: The folder ``.validity`` of the repository, which is not tracked.
WORK = Path(__file__).resolve().parents[3] / ".validity"


def choose_cells(wanted: str, cells: dict[str, Cell]) -> list[Cell]:
    """Return the cells named: ids, beginnings of ids, "all", "tuned" or "held-out"."""
    chosen: dict[str, Cell] = {}
    for name in wanted.split(","):
        found = {
            key: cell
            for key, cell in cells.items()
            if name == "all"
            or key.startswith(name)
            or (name == "tuned" and not cell.held_out)
            or (name == "held-out" and cell.held_out)
        }
        if not found:
            raise SystemExit(f"--cells {name}: no cell has that id or beginning.")
        chosen |= found
    return list(chosen.values())


def choose_methods(wanted: str | None) -> list[str]:
    """Return the methods named; without names the defaults that can run here."""
    possible = known()
    if wanted is None:
        return [m for m in (*DEFAULT, *COMPETITORS) if m in possible]
    chosen = wanted.split(",")
    unknown = [m for m in chosen if m not in possible]
    if unknown:
        raise SystemExit(f"--methods {', '.join(unknown)}: use some of {', '.join(possible)}.")
    return chosen


def tasks(
    work: Path, cells: Sequence[Cell], batches: int, methods: Sequence[str], again: Sequence[str]
) -> Iterator[tuple[Cell, int, list[str]]]:
    """Yield what is to be run: the first batch of every cell, then the second, and so on."""
    for batch in range(batches):
        for cell in cells:
            todo = missing(work, cell, batch, methods)
            todo += [m for m in again if applies(m, cell) and m not in todo]
            if todo:
                yield cell, batch, todo


def until(
    items: Iterator[tuple[Cell, int, list[str]]], deadline: float
) -> Iterator[tuple[Cell, int, list[str]]]:
    """Yield items as long as there is time."""
    for item in items:
        if time.monotonic() > deadline:
            return
        yield item


def run(arguments: argparse.Namespace) -> None:
    """Run what is missing, then write the table and the summary."""
    every = read()
    cells = choose_cells(arguments.cells, every)
    methods = choose_methods(arguments.methods)
    again = choose_methods(arguments.again) if arguments.again else []
    methods += [m for m in again if m not in methods]
    work = Path(arguments.work)
    batches = -(-arguments.reps // BATCH)
    start = time.monotonic()
    items = tasks(work, cells, batches, methods, again)
    pool = Parallel(
        n_jobs=arguments.jobs, return_as="generator_unordered", pre_dispatch=arguments.jobs
    )
    done = 0
    for rows in pool(
        delayed(run_batch)(work, cell, batch, todo)
        for cell, batch, todo in until(items, start + arguments.budget)
    ):
        done += rows
        print(f"\r{done} results in {time.monotonic() - start:.0f} s", end="", flush=True)
    print()
    left = sum(1 for _ in tasks(work, cells, batches, methods, ()))
    print(f"{left} batches of {BATCH} replications are left." if left else "All is done.")
    path = Path(arguments.table)
    table = merge(build(work, cells), path)
    write_table(table, path)
    path.with_name("summary.md").write_text(page(table, every))


def main(argv: Sequence[str] | None = None) -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.validity.run")
    parser.add_argument("--cells", default="all", help='ids or beginnings: "f,c01", "tuned"')
    parser.add_argument("--reps", type=int, default=1000, help="replications of each cell")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--budget", type=float, default=3600.0, help="seconds")
    parser.add_argument("--methods", help="names, with commas; default: all")
    parser.add_argument("--again", help="methods to run anew")
    parser.add_argument("--work", default=str(WORK), help="folder of the replications")
    parser.add_argument("--table", default=str(TABLE), help="table to update")
    run(parser.parse_args(argv))


if __name__ == "__main__":
    main()
