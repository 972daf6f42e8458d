import errno
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from torch import nn

import tracer
from tracer import atomic_files
from tracer.atomic_files import (
    OWNER,
    has_ended,
    hidden_folder,
    hidden_name,
    own,
    put_in_place,
    refuse_folder,
    remove_abandoned,
    this_process,
    write_text,
)
from tracer.errors import TracerError

MARKER = "run.json"


def recording(path, *parts):
    for place in [path / part for part in parts] or [path]:
        place.mkdir(parents=True)
        (place / MARKER).touch()
    return path


def dead_pid():
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_folders_of_killed_recordings_are_removed(tmp_path):
    def hidden(name, owner):
        folder = hidden_name(tmp_path / "mine", name)
        folder.mkdir()
        (folder / OWNER).write_text(owner)
        return folder

    here, dead = socket.gethostname(), dead_pid()
    killed = hidden("a", f"{here} {dead}")
    unnamed = hidden("e", "")
    os.utime(unnamed / OWNER, (1, 1))
    kept = [hidden("b", this_process()), hidden("c", f"elsewhere {dead}"), hidden("f", ""), hidden("d", "garbage")]
    (kept[-1] / OWNER).unlink()
    other = hidden_name(tmp_path / "other", "a")
    own(other)
    said = []
    with hidden_folder(tmp_path / "mine", said.append):
        assert not killed.exists()
    assert sorted(said) == [f"removed {folder}, left by a recording that was killed" for folder in (killed, unnamed)]
    assert all(folder.exists() for folder in (*kept, other))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say when a process began")
def test_a_process_is_told_from_a_later_one_of_its_number(tmp_path):
    def ended(words):
        (tmp_path / "process").write_text(words)
        return has_ended(tmp_path / "process")

    host, pid, began, namespace = this_process().split()
    assert not ended(this_process())
    assert ended(f"{host} {pid} {int(began) - 1} {namespace}")
    # A container's numbers are its own; what an earlier version wrote says less, and one just being written nothing.
    assert not ended(f"{host} {pid} {int(began) - 1} pid:[1]")
    assert not any(ended(words) for words in (f"{host} {pid}", host, ""))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say how a process is")
def test_a_process_that_nobody_has_waited_for_has_ended(tmp_path):
    words = "from tracer.atomic_files import this_process; print(this_process())"
    with (tmp_path / "process").open("w") as out, subprocess.Popen([sys.executable, "-c", words], stdout=out) as killed:
        os.waitid(os.P_PID, killed.pid, os.WEXITED | os.WNOWAIT)
        assert has_ended(tmp_path / "process")


def test_a_folder_that_cannot_be_owned_is_not_left(tmp_path, monkeypatch):
    def full():
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic_files, "this_process", full)
    with pytest.raises(TracerError, match="No space left"), hidden_folder(tmp_path / "mine"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_hidden_folder_is_its_process_s_while_it_is_filled(tmp_path):
    with hidden_folder(tmp_path / "mine") as folder:
        assert (folder / OWNER).read_text() == this_process()
        remove_abandoned(tmp_path / "mine")
        assert folder.exists()
    assert list(tmp_path.iterdir()) == []


def test_a_session_removes_what_a_killed_one_left_and_owns_its_folder(tmp_path):
    left = hidden_name(tmp_path / "mine", "a")
    left.mkdir()
    (left / OWNER).write_text(f"{socket.gethostname()} {dead_pid()}")
    with pytest.raises(KeyError), tracer.Session(tmp_path / "mine", nn.Linear(2, 2)):
        (folder,) = tmp_path.iterdir()
        assert folder != left
        assert (folder / OWNER).read_text() == this_process()
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_of_processes_that_fill_one_folder_the_first_owns_it(tmp_path):
    (tmp_path / OWNER).write_text("elsewhere 7")
    own(tmp_path)
    assert (tmp_path / OWNER).read_text() == "elsewhere 7"


@pytest.mark.parametrize("parts", [(), ("step10", "step110"), ("ranks0-3", "ranks4-7"), ("step10/ranks0-1",)])
def test_recordings_of_all_shapes_are_replaced_with_force_alone(tmp_path, parts):
    old, new = recording(tmp_path / "old", *parts), recording(tmp_path / "new")
    (new / "of the new").touch()
    with pytest.raises(TracerError, match="already exists: give force=True"):
        refuse_folder(old, False, MARKER)
    put_in_place(new, old, True, MARKER)
    assert sorted(file.name for file in old.iterdir()) == ["of the new", MARKER]
    assert [place.name for place in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("extra", ["notes.txt", "step10/notes.txt", "stepping/run.json", "ranks0/run.json"])
def test_what_is_no_recording_is_never_replaced(tmp_path, extra):
    old = recording(tmp_path / "old", "step20")
    (old / extra).parent.mkdir(exist_ok=True)
    (old / extra).touch()
    with pytest.raises(TracerError, match="is not a recording"):
        refuse_folder(old, True, MARKER)


def test_what_a_killed_recording_was_replacing_is_put_back(tmp_path, monkeypatch):
    old, new = recording(tmp_path / "old"), recording(hidden_name(tmp_path / "old", "a"))
    rename = Path.rename

    def killed(self, target):
        if self == new:
            raise KeyboardInterrupt
        return rename(self, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "rename", killed)
        put_in_place(new, old, True, MARKER)
    said = []
    remove_abandoned(old, said.append)
    assert (old.exists(), said) == (False, [])  # this process is still at it
    for owner in tmp_path.glob(f".*/{OWNER}"):
        owner.write_text(f"{socket.gethostname()} {dead_pid()}")
    remove_abandoned(old, said.append)
    assert (old / MARKER).is_file()
    assert said == [f"put {old} back, which a recording that was killed was about to replace"]


def test_what_came_up_meanwhile_stays_and_the_recording_lies_beside_it(tmp_path):
    old, new = recording(tmp_path / "old"), recording(tmp_path / "new")
    with pytest.raises(TracerError, match=r"The recording is in .*old-2"):
        put_in_place(new, old, False, MARKER)
    assert (tmp_path / "old-2" / MARKER).is_file()


def test_what_is_new_has_the_modes_of_the_umask_and_never_sets_it(tmp_path, monkeypatch):
    """To set it, for however short a time, is to set it for all threads."""
    mask = os.umask(0)
    os.umask(mask)
    monkeypatch.setattr(os, "umask", pytest.fail)
    write_text(tmp_path / "file", "text", force=False)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~mask
    with hidden_folder(tmp_path / "folder") as folder:
        assert folder.stat().st_mode & 0o777 == 0o777 & ~mask


# What an output's name leads to: files through links, and what is no ordinary file.


def reader_of(path):
    """What another process would read from a FIFO, or terminal, once it has been written."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK)


def test_a_link_stays_and_the_file_that_it_names_is_replaced(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    file, link = tmp_path / "elsewhere" / "file", tmp_path / "link"
    file.write_text("old")
    link.symlink_to(file)
    with pytest.raises(TracerError, match="already exists: give force=True"):
        write_text(link, "new", force=False)
    write_text(link, "new", force=True)
    assert link.is_symlink() and link.read_text() == file.read_text() == "new"
    assert not file.is_symlink()
    assert [each.name for each in file.parent.iterdir()] == ["file"]


def test_a_link_to_nothing_names_the_file_that_is_made(tmp_path):
    link, round_about = tmp_path / "link", tmp_path / "round"
    link.symlink_to("later")
    write_text(link, "new", force=False)
    assert link.is_symlink() and (tmp_path / "later").read_text() == "new"
    round_about.symlink_to(round_about)
    with pytest.raises(TracerError, match=f"{round_about}: "):
        write_text(round_about, "new", force=True)
    assert round_about.is_symlink()


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("through_link", [False, True])
def test_a_fifo_is_written_to_and_stays(tmp_path, force, through_link):
    fifo, name = tmp_path / "fifo", tmp_path / "link"
    os.mkfifo(fifo)
    name.symlink_to(fifo)
    with pytest.raises(TracerError, match="no process reads from this FIFO"):
        write_text(fifo, "words", force)
    reader = reader_of(fifo)
    write_text(name if through_link else fifo, "words", force)
    assert os.read(reader, 100) == b"words"
    os.close(reader)
    assert stat.S_ISFIFO(fifo.stat().st_mode) and name.is_symlink()
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("force", [False, True])
def test_a_terminal_is_written_to_and_stays(tmp_path, force):
    keyboard, screen = os.openpty()
    link = tmp_path / "link"
    link.symlink_to(os.ttyname(screen))
    before = Path(os.ttyname(screen)).stat()
    write_text(link, "words", force)
    assert os.read(keyboard, 100) == b"words"
    assert os.path.samestat(before, Path(os.ttyname(screen)).stat()) and link.is_symlink()
    os.close(keyboard)
    os.close(screen)


def test_a_socket_is_refused_and_stays(tmp_path):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for force in (False, True):
            with pytest.raises(TracerError, match="is a socket, not a regular file: choose another name"):
                write_text(tmp_path / "socket", "words", force)
        assert stat.S_ISSOCK((tmp_path / "socket").stat().st_mode)


@pytest.fixture
def device(tmp_path):
    """Makes devices of our own: nobody else's is at stake."""

    def made(kind, number):
        node = tmp_path / "device"
        try:
            os.mknod(node, 0o600 | kind, number)
            node.open("rb").close()
        except PermissionError:
            pytest.skip("only root makes devices, where the file system has them")
        except OSError:  # of no driver
            assert kind == stat.S_IFBLK
        return node

    return made


@pytest.mark.parametrize("force", [False, True])
def test_a_device_of_characters_is_written_to_and_stays(device, force):
    node = device(stat.S_IFCHR, os.makedev(1, 3))  # as /dev/null
    write_text(node, "words", force)
    assert stat.S_ISCHR(node.stat().st_mode)


@pytest.mark.parametrize("force", [False, True])
def test_a_disk_is_refused_and_stays(device, force):
    node = device(stat.S_IFBLK, os.makedev(240, 255))  # which no driver has
    with pytest.raises(TracerError, match="is a block device, not a regular file"):
        write_text(node, "words", force)
    assert stat.S_ISBLK(node.stat().st_mode)


REPORTS_TO = """
import sys
from pathlib import Path
from tracer.atomic_files import write_text
sys.stdout.write("before\\n")
sys.stdout.flush()
write_text(Path(sys.argv[1]), "words\\n", force=len(sys.argv) > 2)
sys.stdout.write("behind\\n")
"""


@pytest.mark.parametrize("force", [[], ["--force"]])
@pytest.mark.parametrize("mode", ["wb", "ab", "pipe"])
def test_stdout_by_its_name_is_written_to_wherever_it_leads(tmp_path, force, mode):
    """The name is a link of ours, which leads where /dev/stdout does."""
    name, file = tmp_path / "stdout", tmp_path / "file"
    name.symlink_to("/proc/self/fd/1")
    command = [sys.executable, "-c", REPORTS_TO, str(name), *force]
    if mode == "pipe":
        said = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    else:
        with file.open(mode) as out:
            subprocess.run(command, stdout=out, check=True)
        said = file.read_bytes()
    assert said == b"before\nwords\nbehind\n"
    assert name.readlink() == Path("/proc/self/fd/1")
