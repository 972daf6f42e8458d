"""Recording of a user's unchanged script, launched and watched from outside."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from analyzers.command_lines import redacted_command
from analyzers.texts import file_name
from tracer.atomic_files import hidden_folder
from tracer.config import DeviceType, Hook, Plan
from tracer.errors import UsageError
from tracer.launching.elastic import Job, following, launch_command, launch_script
from tracer.recording import Finisher, Progress, Taking, reasons, take_notes

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Script:
    """What the user runs. Python files and `-m MODULE` are run in every rank; any other command as it is."""

    words: tuple[str, ...]

    @property
    def is_command(self) -> bool:
        """Whether it starts its ranks itself: torchrun, accelerate launch, python."""
        return self.words[0] != "-m" and not self.words[0].endswith(".py")

    @property
    def name(self) -> str:
        """Return its recording's name: from its Python file, else its module, else its command."""
        named = self.words[self.words[0] == "-m"]
        if self.is_command:
            files = [word for word in self.words if word.endswith(".py")]
            modules = [after for word, after in zip(self.words, self.words[1:], strict=False) if word == "-m"]
            named = [*files, *modules, self.words[0]][0]
        return file_name(Path(named).name.removesuffix(".py"))

    def check(self) -> None:
        """Raise UsageError where there is nothing to run."""
        if not self.words:
            raise UsageError("a script is missing after --: give a Python file, -m MODULE, or a command")
        word = self.words[0]
        if self.words == ("-m",):
            raise UsageError("-m requires a module: give -m MODULE")
        if not self.is_command and word != "-m" and not Path(word).is_file():
            raise UsageError(f"{word}: there is no such script")
        if self.is_command and shutil.which(word) is None and not Path(word).exists():
            raise UsageError(f"{word}: there is no command, Python file or option of this name")


@dataclass(frozen=True)
class Ranks:
    """How many ranks of a script this host runs, on which devices, and torchrun's options for several hosts."""

    device: DeviceType
    processes: int
    torchrun: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recording:
    """What is to be recorded of a script, and where; `ranks` is None for a command that starts its own."""

    script: Script
    ranks: Ranks | None
    plan: Plan
    output: Path
    force: bool
    once: str = ""  # the command that records it on one rank, where it was not said how many ranks there are


@dataclass
class Outcome:
    """How a recorded script ended: its exit code, the runs that were recorded, and what there is to say of them."""

    exit_code: int
    recorded: list[Path] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def record_script(recording: Recording, say: Callable[[str], object], progress: Progress) -> Outcome:
    """Run a script to its end; its recordings appear in their place as soon as they are complete.

    `progress` hears how far rank 0 is. Raises UsageError where the script cannot be run.
    """
    script, ranks, plan = recording.script, recording.ranks, recording.plan
    with hidden_folder(recording.output, say) as folder:
        finisher = Finisher(folder, recording.output, recording.force, plan.keep)
        # Other processes' environments hold the hook, and may be written down by whoever debugs them.
        command = redacted_command(["tracer", "record", "--", *script.words])
        hook = Hook(str(folder), str(ROOT), os.getpid(), command, plan, recording.once)
        taking = Taking((finisher,))

        def look() -> None:
            taking.look()
            # Whoever read stderr may have gone: what is recorded is taken all the same.
            with suppress(OSError):
                for note in take_notes(folder):
                    say(note)

        with following(folder, progress, look):
            if ranks is None:
                code = launch_command(script.words, hook, say)
            else:
                code = launch_script(Job(script.words, ranks.device, ranks.processes, ranks.torchrun), hook, say)
        taking.look_last()
        return Outcome(code, finisher.placed, [*taking.errors, *_why_not(finisher, taking, code)])


def _why_not(finisher: Finisher, taking: Taking, code: int) -> list[str]:
    """Why there is no recording, or why there is no more of it, as far as the script's processes knew."""
    why = reasons(finisher.folder)
    if finisher.placed or taking.errors:
        return [*why, *finisher.incomplete]
    if why:
        return [f"nothing was recorded: {reason}" for reason in why]
    how_far = finisher.how_far()
    if how_far is not None:
        return [f"nothing was recorded: {how_far}"]
    if code:
        return [
            f"nothing was recorded: the script ended with exit code {code} before an optimizer of torch took a step"
        ]
    return [
        "nothing was recorded: no optimizer of torch took a step in a Python process that the hook could reach "
        "(python -I, -E and -S keep it out, and steps inside of torch.compile are not seen)"
    ]
