"""Least versions of what is installed."""

import configparser

from tests.support.lowest import SETUP, lowest


def test_each_requirement_has_a_least_version():
    config = configparser.ConfigParser()
    config.read_string(SETUP.read_text())
    required = [line for line in config["options"]["install_requires"].splitlines() if line and line[0] != "#"]
    assert len(lowest(SETUP.read_text())) == len(required)


def test_a_bound_is_the_version_that_is_installed():
    text = "[options]\ninstall_requires =\n    # why\n    a-b>=6.31.1,<8\n    c>=3\n"
    assert lowest(text) == ["a-b==6.31.1", "c==3"]
