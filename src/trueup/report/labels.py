"""Names beside points, none upon another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from trueup.study.design import Float

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Places that are tried, best first: direction from the point, in points of an inch.
_PLACES = [
    (dx * far, dy * far)
    for far in (1.0, 1.9, 3.0)
    for dx, dy in ((6, 0), (-6, 0), (4, 7), (-4, 7), (4, -7), (-4, -7), (0, 9), (0, -9))
]
#: A name farther away than this gets a thin line to its point.
_NEAR = 10.0


def place_labels(axes: Axes, x: Float, y: Float, names: Sequence[str]) -> int:
    """Write each name beside its point where there is room.

    Points at the edge of the cloud come first: they are the ones a reader looks for.

    Returns
    -------
    int
        How many names found no room.
    """
    figure = axes.get_figure()
    assert figure is not None
    figure.draw_without_rendering()  # type: ignore[union-attr]
    scale = figure.dpi / 72
    points = np.asarray(axes.transData.transform(np.column_stack([x, y])), dtype=float)
    frame = axes.get_window_extent()
    taken = np.column_stack([points - 4 * scale, points + 4 * scale])
    centre = points.mean(axis=0)
    left_out = 0
    for i in np.argsort(-np.abs(points - centre).sum(axis=1), kind="stable"):
        width, height = _size(axes, names[i])
        for dx, dy in _PLACES:
            box = _box(points[i], dx * scale, dy * scale, width, height)
            others = np.delete(taken, i, axis=0) if i < len(taken) else taken
            inside = (
                box[0] >= frame.x0
                and box[2] <= frame.x1
                and box[1] >= frame.y0
                and box[3] <= frame.y1
            )
            if inside and not _overlaps(box, others):
                _write(axes, (float(x[i]), float(y[i])), names[i], dx, dy)
                taken = np.vstack([taken, box])
                break
        else:
            left_out += 1
    return left_out


def _size(axes: Axes, name: str) -> tuple[float, float]:
    text = axes.annotate(name, (0.5, 0.5), xycoords="axes fraction", fontsize=7.5)
    extent = text.get_window_extent()
    text.remove()
    return float(extent.width), float(extent.height)


def _box(point: Float, dx: float, dy: float, width: float, height: float) -> Float:
    x0 = point[0] + dx - (width if dx < 0 else width / 2 if dx == 0 else 0)
    y0 = point[1] + dy - (height if dy < 0 else height / 2 if dy == 0 else 0)
    return np.array([x0, y0, x0 + width, y0 + height])


def _overlaps(box: Float, others: Float) -> bool:
    apart = (
        (others[:, 2] <= box[0])
        | (others[:, 0] >= box[2])
        | (others[:, 3] <= box[1])
        | (others[:, 1] >= box[3])
    )
    return bool((~apart).any())


def _write(axes: Axes, at: tuple[float, float], name: str, dx: float, dy: float) -> None:
    far = np.hypot(dx, dy) > _NEAR
    line = {"arrowstyle": "-", "color": "0.6", "linewidth": 0.5} if far else None
    axes.annotate(
        name,
        at,
        (dx, dy),
        textcoords="offset points",
        ha="right" if dx < 0 else "center" if dx == 0 else "left",
        va="top" if dy < 0 else "center" if dy == 0 else "bottom",
        fontsize=7.5,
        arrowprops=line,
        zorder=5,
    ).set_in_layout(False)
