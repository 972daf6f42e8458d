"""The version of the toolkit, as setup.cfg reads it."""

VERSION = "0.1.0"
