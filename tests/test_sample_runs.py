"""Which runs the tests read: not what a user recorded beside the samples."""

import subprocess

from tests.support.samples import known_to_git


def made(folder, *names):
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "rank0.json").write_text("[]")
    (folder / "README.md").touch()
    return folder


def git(folder, *arguments):
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


def test_what_git_does_not_know_is_not_read(tmp_path):
    traces = made(tmp_path / "traces", "sample")
    git(tmp_path, "init")
    git(tmp_path, "add", "traces")
    made(traces, "demo", "anything")
    assert known_to_git(traces) == [traces / "sample"]


def test_outside_of_a_checkout_every_folder_is_read(tmp_path):
    traces = made(tmp_path / "traces", "sample", "other", ".hidden")
    assert known_to_git(traces) == [traces / "other", traces / "sample"]


def test_where_git_knows_none_every_folder_is_read(tmp_path):
    git(tmp_path, "init")
    traces = made(tmp_path / "traces", "sample")
    assert known_to_git(traces) == [traces / "sample"]
