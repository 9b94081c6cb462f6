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
    for far in (1.0, 1.8)
    for dx, dy in ((6, 0), (-6, 0), (4, 7), (-4, 7), (4, -7), (-4, -7), (0, 9), (0, -9))
]
#: More names than this are a cloud of letters, even where each has room.
_MOST = 30
#: A name farther away than this gets a thin line to its point.
_NEAR = 10.0


def place_labels(axes: Axes, points: Float, names: Sequence[str], others: Float) -> int:
    """Write each name beside its point where there is room.

    Points at the edge of the cloud come first: they are the ones a reader looks for.

    Parameters
    ----------
    axes : Axes
        With everything else in it drawn.
    points : (K, 2) array
    names : K str
    others : (m, 2) array
        Further points that names should not hide.

    Returns
    -------
    int
        How many names found no room.
    """
    figure = axes.figure
    figure.draw_without_rendering()  # type: ignore[union-attr]
    scale = figure.dpi / 72
    at = np.asarray(axes.transData.transform(points), dtype=float)
    small = np.asarray(axes.transData.transform(others), dtype=float).reshape(-1, 2)
    taken = np.vstack([_around(at, 4 * scale), _around(small, 2.5 * scale)])
    frame = axes.get_window_extent()
    extremes = np.argsort(-np.abs((at - at.mean(axis=0)) / frame.size).sum(axis=1), kind="stable")
    written = 0
    for i in extremes:
        if written == _MOST:
            break
        width, height = _size(axes, names[i])
        for dx, dy in _PLACES:
            box = _box(at[i], dx * scale, dy * scale, width, height)
            inside = np.all(box[:2] >= frame.min) and np.all(box[2:] <= frame.max)
            if inside and not _overlaps(box, np.delete(taken, i, axis=0)):
                _write(axes, points[i], names[i], dx, dy)
                taken = np.vstack([taken, box])
                written += 1
                break
    return len(names) - written


def _around(points: Float, reach: float) -> Float:
    return np.column_stack([points - reach, points + reach])


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


def _write(axes: Axes, at: Float, name: str, dx: float, dy: float) -> None:
    from matplotlib.patheffects import withStroke

    far = np.hypot(dx, dy) > _NEAR
    line = {"arrowstyle": "-", "color": "0.6", "linewidth": 0.5} if far else None
    axes.annotate(
        name,
        (float(at[0]), float(at[1])),
        (dx, dy),
        textcoords="offset points",
        ha="right" if dx < 0 else "center" if dx == 0 else "left",
        va="top" if dy < 0 else "center" if dy == 0 else "bottom",
        fontsize=7.5,
        arrowprops=line,
        path_effects=[withStroke(linewidth=2, foreground="white", alpha=0.8)],
        zorder=5,
    ).set_in_layout(False)
