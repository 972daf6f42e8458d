"""Errors of analyses: one line that names file and remedy."""

from __future__ import annotations

from typing import NamedTuple


class Option(NamedTuple):
    """An option that a message names, by its name in Python; without a value it is a switch."""

    name: str
    value: object = None

    def __str__(self) -> str:
        return f"{self.name}={True if self.value is None else self.value}"

    @property
    def for_shell(self) -> str:
        """Return how the command line spells it."""
        return f"--{self.name.replace('_', '-')}" + ("" if self.value is None else f" {self.value}")


class TracerError(Exception):
    """Base of every error that a user can mend; its text is one line that names file and remedy.

    A message may be given in parts, of which some are an Option: each front end spells these in its own way.
    """

    exit_code = 1

    def __str__(self) -> str:
        return "".join(map(str, self.args))

    @property
    def for_shell(self) -> str:
        """Return the message with options as the command line has them, as notices do too."""
        return "".join(part.for_shell if isinstance(part, Option) else str(part) for part in self.args)


class AnalysisError(TracerError):
    """Base of what goes wrong with a run."""


class UnreadableTrace(AnalysisError):
    """A file that should hold a trace and does not."""


class TooLarge(UnreadableTrace):
    """A trace that cannot be read within its budget of memory, or with more in it than any machine has."""


class UnusableRun(AnalysisError):
    """Files that are no run, or not one run: none, several of one rank, or none with device activity."""


class UnreadableDocument(AnalysisError):
    """What should be a document of this program (a report, a study, a sweep), and is not."""


class UnreadableCalibration(AnalysisError):
    """A file that should hold a calibration and does not."""


class NotReplayable(AnalysisError):
    """A run whose steps cannot be replayed with other settings."""


class NotInstalled(AnalysisError):
    """A library that an analysis needs and that is not there."""


class NotAnalyzable(AnalysisError):
    """A run that an analysis of another's cannot be made of."""


class BadExpression(AnalysisError):
    """A condition of `--fail-on` that makes no sense."""


class UnknownPlace(AnalysisError):
    """What names no place, or a URL of a kind that nothing here can open."""


class LostRank(AnalysisError):
    """A rank whose reading ended without a result, through no fault of its file."""


def install_hint(extra: str) -> str:
    """Return what to type for the libraries of an extra: they are named in setup.cfg."""
    return f"pip install 'tracer-toolkit[{extra}]' (in a checkout: pip install '.[{extra}]')"
