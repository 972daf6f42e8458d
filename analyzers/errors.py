"""Errors of analyses: one line that names file and remedy."""

from __future__ import annotations


class AnalysisError(Exception):
    """Base of every error that a user can mend; its text is one line."""


class UnreadableTrace(AnalysisError):
    """A file that should hold a trace and does not."""


class NoTraces(AnalysisError):
    """A folder (or path) in which there is no trace."""


class NoDeviceActivity(AnalysisError):
    """A trace that holds no device activity to analyze."""


class AmbiguousRun(AnalysisError):
    """Files that cannot belong to one run, such as two of the same rank."""


class UnreadableCalibration(AnalysisError):
    """A file that should hold a calibration and does not."""


class UnreadableReport(AnalysisError):
    """JSON that should be a document of this program, and is not."""


class UnreadableSweep(AnalysisError):
    """A folder that should hold a sweep and does not."""


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
