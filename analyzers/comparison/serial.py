"""Correlation of steps in time, and steps freed of it.

    steps      5 6 7 7 6 5 4 3      neighbours resemble one another: eight steps say less than eight
    freed      . . . . . . . .      each less `correlation` times the one before it: these may change places

Steps that are correlated in time are not exchangeable, and a permutation test takes them for more than they are. Each
figure's are freed (Cochrane and Orcutt 1949) by as large a correlation as its own steps do not exclude, two standard
errors above what they show. It is at most what is `assumed`, unless what they show is more. A few steps exclude
nothing: what is assumed is taken. The larger it is, the larger a difference has to be. A drift that goes on from one
run to the next is no such correlation, and is a difference.
"""

from __future__ import annotations

import numpy as np

from analyzers.arrays import Float64

# From so many steps of a run on, what they show of their correlation is used.
ENOUGH_STEPS = 8
# The correlation of neighbours that a comparison withstands, however few there are: of steps that follow one another,
# and of blocks of them, which others lie between. docs/dev/decisions/comparison.md has where these come from.
OF_STEPS = 0.8
OF_BLOCKS = 0.5
# Of two runs that climb a little from step to step, and lie far apart, enough has to be left to tell.
MOST = 0.95
# How many standard errors above what steps show their correlation is taken to be: 98 %, one-sided.
MARGIN = 2.0


def correlation(a: Float64, b: Float64, assumed: float) -> Float64:
    """Return by how much the steps (rows) of two runs are to be freed of the one before, for each figure (column).

    Figures of one table come from the same steps: each is taken to be no less correlated than half of them are.
    """
    shown = _shown(a, b)
    counts = _known(a) + _known(b)
    error = np.sqrt((1 - np.clip(shown, 0, 1) ** 2) / np.maximum(counts, 1))
    bound = np.maximum(shown, np.minimum(shown + MARGIN * error, assumed))
    bound = np.where(counts < 2 * ENOUGH_STEPS, np.maximum(shown, assumed), bound)
    typical = np.median(shown) if shown.size else 0.0
    limits: Float64 = np.clip(np.maximum(bound, typical), 0, MOST)
    return limits


def freed(steps: Float64, correlation: Float64) -> Float64:
    """Return each step less `correlation` times the one before; the first, or one behind a gap, less itself so often.

    All have the same mean, and under that correlation none knows of another: the covariance of the first two is
    (1 - r) r - r (1 - r) = 0.
    """
    before = np.concatenate([steps[:1], steps[:-1]])
    before = np.where(np.isnan(before), steps, before)
    # Equal steps stay equal to the last digit.
    rest: Float64 = (1 - correlation) * steps + correlation * (steps - before)
    return rest


def _shown(a: Float64, b: Float64) -> Float64:
    """Return the correlation of neighbouring steps about their own run's mean, its bias taken off; at most 1.

    Of k steps it comes out too low by (1 + 3 r) / k: Kendall, Note on Bias in the Estimation of Autocorrelation, 1954.
    """
    products, squares = np.zeros(a.shape[1]), np.zeros(a.shape[1])
    for steps in (a, b):
        known = ~np.isnan(steps)
        mean = np.where(known, steps, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        apart = np.where(known, steps - mean, 0.0)
        products += (apart[1:] * apart[:-1]).sum(axis=0)
        squares += (apart**2).sum(axis=0)
    counts = np.maximum((_known(a) + _known(b)) / 2, ENOUGH_STEPS)
    raw = np.divide(products, squares, out=np.zeros_like(products), where=squares > 0)
    unbiased = np.where(squares > 0, (raw + 1 / counts) / (1 - 3 / counts), 0.0)
    shown: Float64 = np.minimum(unbiased, 1.0)
    return shown


def _known(steps: Float64) -> Float64:
    count: Float64 = (~np.isnan(steps)).sum(axis=0).astype(np.float64)
    return count
