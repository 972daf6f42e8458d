"""Colors of parts, on the light and on the dark ground: what is not told apart by a pattern differs."""

from dataclasses import replace
from itertools import combinations, pairwise
from math import dist

import pytest

from tracer.views.palette import (
    BAR_PARTS,
    CAUSE_PARTS,
    COMPUTE,
    DARK,
    HOST,
    HOST_OUTSIDE,
    IDLE_PARTS,
    LIGHT,
    SHADES,
    StepPart,
    Theme,
    in_legend,
)

# Distances in Oklab (https://bottosson.github.io/posts/oklab/), of which 0.02 is about the least that is seen.
LEAST, BESIDE, ELSEWHERE = 0.08, 0.05, 0.04
THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])


def shown(part: StepPart, theme: Theme, shade: float | None = None) -> str:
    """A part's color as it is seen on a page's ground."""
    color = part.dark or part.color if theme is DARK else part.color
    return replace(part, color=color, shade=part.shade if shade is None else shade).over(theme.ground)


def apart(one: str, other: str) -> float:
    return dist(oklab(one), oklab(other))


def oklab(color: str) -> tuple[float, float, float]:
    red, green, blue = (linear(int(color[at : at + 2], 16) / 255) for at in (1, 3, 5))
    cones = (
        0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue,
        0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue,
        0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue,
    )
    long, middle, short = (cone ** (1 / 3) for cone in cones)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


def linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


@THEMES
def test_parts_without_a_pattern_between_them_differ(theme):
    (operators,) = SHADES["operators"]
    (python,) = [part for part in IDLE_PARTS if part.field == "idle_python_ns"]
    looks = [(part.label, shown(part, theme), part.pattern) for part in in_legend(CAUSE_PARTS)]
    looks += [("ground", theme.ground, ""), ("launches", shown(HOST, theme), "")]
    looks.append(("operators", shown(HOST, theme, operators), ""))
    looks.append(("Python", shown(HOST_OUTSIDE, theme, python.shade), ""))
    for (one, color, pattern), (other, beside, its) in combinations(looks, 2):
        assert pattern != its or apart(color, beside) >= LEAST, (one, other)


@THEMES
def test_parts_of_a_bar_differ(theme):
    solid = [part for part in BAR_PARTS if not part.pattern]
    for one, other in combinations(solid, 2):
        assert apart(shown(one, theme), shown(other, theme)) >= LEAST, (one.label, other.label)


@THEMES
@pytest.mark.parametrize("strip", ["layers", "kernels"])
def test_neighbors_in_a_strip_differ(theme, strip):
    shades = [shown(COMPUTE, theme, shade) for shade in SHADES[strip]]
    assert all(apart(one, other) >= BESIDE for one, other in pairwise(shades))
    assert all(apart(shade, theme.ground) >= LEAST for shade in shades)


@THEMES
def test_layers_are_not_taken_for_idle_time(theme):
    """Both are pale, and stand in one legend."""
    idle = [shown(part, theme) for part in in_legend(CAUSE_PARTS) if part.label.startswith("idle") and not part.pattern]
    for shade in SHADES["layers"]:
        assert all(apart(shown(COMPUTE, theme, shade), gray) >= ELSEWHERE for gray in idle)
