"""Errors of analyses: one line that names file and remedy."""

from __future__ import annotations


class AnalysisError(Exception):
    """Base of every error that a user can mend; its text is one line."""


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
    """A URL of a kind that nothing here can open."""


class LostRank(AnalysisError):
    """A rank whose reading ended without a result, through no fault of its file."""


def install_hint(extra: str) -> str:
    """Return what to type for the libraries of an extra: they are named in setup.cfg."""
    return f"pip install 'tracer-toolkit[{extra}]' (in a checkout: pip install '.[{extra}]')"
