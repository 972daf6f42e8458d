"""Redaction of secrets in a command's words and in scripts of shells.

train.py --api-key X                       the word after an option that asks for a secret
env HF_TOKEN=X torchrun train.py           all that is assigned
bash -c "HF_TOKEN='X' torchrun train.py"   a word that is a script is read as a shell does
curl -H "X-Auth: X"                        a header
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import accumulate

from analyzers.redaction import HIDDEN, LONGEST, SCHEME_WORD, Sort, is_random, is_secret, redacted, sort_of

_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
# A configuration's key with its value behind it, as yacs has them: detectron2, DINO.
_KEY = re.compile(r"[A-Z][A-Z0-9_]*(?:\.[A-Z][A-Z0-9_]*)+")
_ASSIGNED = re.compile(r"[+~-]*(\w[\w.\[\]/-]*)\+?=")
_HEADER = re.compile(r"([A-Za-z][\w-]*)\s*[:=]\s*")
# Behind which a name and its value stand, as in `aws configure set aws_secret_access_key X`.
_SETS = frozenset(("set", "setenv"))
_HEADER_OPTION = re.compile(r"-H|--?(?i:(?:\w+[-_]|extra)*headers?)")

_SHELL = re.compile(r"(?:.*/)?(?:ba|da|z|k|a)?sh")
_RUNS_SCRIPT = re.compile(r"-[a-z]*c")
_TAKES_SCRIPT = frozenset(("--wrap", "--command", "--cmd", "-S", "--split-string", "eval"))
# What a script that is given without a shell (to ssh, to sbatch --wrap) begins its commands with.
_PROGRAM = re.compile(
    r"(?:^|[\s;&|(/=])(?:accelerate|axolotl|bash|cd|composer|conda|deepspeed|docker|env|exec|export|hf|huggingface-cli|"
    r"litgpt|mpiexec|mpirun|nohup|nsys|numactl|pip|poetry|python[\d.]*|ray|set|sh|source|srun|torchrun|uv|wandb)\s"
)
# Words of a shell, whose quotes hold together what they enclose; between them separators, and quotes without an end.
_SHELL_WORD = re.compile(r"""(?:[^\s'"\\;&|()<>`]|\\[^\n]|'[^']*'|"[^"\\]*(?:\\.[^"\\]*)*")+""", re.DOTALL)
_QUOTING = re.compile(r"""'([^']*)'|"([^"\\]*(?:\\.[^"\\]*)*)"|\\(.)""", re.DOTALL)
_ESCAPED = re.compile(r'\\(["\\$`\n])')
_SEPARATOR = re.compile(r"[;&|()\n`]")
# Scripts in scripts: each level is read anew.
_DEEPEST = 3


def redacted_command(words: Sequence[str]) -> list[str]:
    """Return a command's words, of which only those change that hold what its user alone should know.

    What is behind more characters than any command has is hidden: looking for secrets takes time.
    """
    ends = accumulate(map(len, words))
    return list(_redacted([word if end <= LONGEST else HIDDEN for word, end in zip(words, ends, strict=True)], 0))


def _redacted(words: Sequence[str], depth: int) -> Iterator[str]:
    set_by, previous, in_shell = "", "", False
    for word in words:
        after_c = in_shell and _RUNS_SCRIPT.fullmatch(previous) is not None
        if _is_asked_for(previous, word) or (set_by in _SETS and is_secret(sort_of(previous), word)):
            yield HIDDEN
        elif depth < _DEEPEST and (after_c or _is_script(previous, word)):
            yield _redacted_script(word, depth + 1)
        else:
            yield _redacted_word(word, _HEADER_OPTION.fullmatch(previous) is not None)
        in_shell = _SHELL.fullmatch(word) is not None or (in_shell and word.startswith("-"))
        set_by, previous = previous, word


def _is_asked_for(previous: str, word: str) -> bool:
    """Whether a word is the secret that an option before it asks for, and not the next option."""
    if not (_OPTION.fullmatch(previous) or _KEY.fullmatch(previous)):
        return False
    if word.startswith("--") or (_OPTION.match(word) and not is_random(word)):
        return False
    return is_secret(sort_of(previous), word)


def _is_script(previous: str, word: str) -> bool:
    if not any(map(str.isspace, word)):
        return False
    assigned = _ASSIGNED.match(word)
    if word.startswith("-") and assigned and sort_of(assigned[1]) is not Sort.OPEN:
        return False
    return previous in _TAKES_SCRIPT or _PROGRAM.search(word) is not None


def _redacted_word(word: str, is_header: bool) -> str:
    assigned = _ASSIGNED.match(word)
    if assigned and not is_header and _HEADER_OPTION.fullmatch(f"--{assigned[1].rpartition('.')[2]}"):
        return word[: assigned.end()] + _redacted_word(word[assigned.end() :], True)
    header = _HEADER.match(word)
    if header and sort_of(header[1]) is not Sort.OPEN:
        named = "-" in header[1] or header[1].lower() in ("authorization", "cookie")
        meant = SCHEME_WORD.match(word, header.end())
        start = meant.end() if meant else header.end()
        if (is_header or (named and ":" in header[0])) and is_secret(Sort.SECRET, word[start:]):
            return word[:start] + HIDDEN
    secret = _secret_from(word)
    return redacted(word) if secret is None else word[:secret] + HIDDEN


def _secret_from(word: str) -> int | None:
    """Return where a secret begins that is assigned in a word: in the last of several, as in --set=db.password=X."""
    start = 0
    while assigned := _ASSIGNED.match(word, start):
        start, sort = assigned.end(), sort_of(assigned[1])
        if sort is not Sort.OPEN:
            return start if is_secret(sort, word[start:]) else None
    return None


def _redacted_script(script: str, depth: int) -> str:
    """Redact each command of a script; what stays keeps its quotes."""
    commands: list[list[re.Match[str]]] = [[]]
    end = 0
    for word in _SHELL_WORD.finditer(script):
        if _SEPARATOR.search(script[end : word.start()].replace("\\\n", "")):
            commands.append([])
        commands[-1].append(word)
        end = word.end()
    shown, at = [], 0
    for command in commands:
        plain = [_unquoted(word[0]) for word in command]
        for word, before, after in zip(command, plain, _redacted(plain, depth), strict=True):
            if before != after:
                shown += [script[at : word.start()], _in_its_quotes(word[0], before, after)]
                at = word.end()
    return "".join([*shown, script[at:]])


def _unquoted(raw: str) -> str:
    """Return what a shell makes of a word, but for what it would look up."""

    def content(match: re.Match[str]) -> str:
        single, double, escaped = match.groups()
        if double is not None:
            return _ESCAPED.sub(r"\1", double)
        return single if single is not None else escaped

    return _QUOTING.sub(content, raw)


def _in_its_quotes(raw: str, before: str, after: str) -> str:
    """Return a changed word quoted as it was, where that says the same."""
    start = _shared(before, after)
    end = _shared(before[start:][::-1], after[start:][::-1])
    secret, shown = (text[start : len(text) - end] for text in (before, after))
    if secret and raw.count(secret) == 1:
        quoted = raw.replace(secret, shown)
        if _SHELL_WORD.fullmatch(quoted) and _unquoted(quoted) == after:
            return quoted
    return shlex.quote(after)


def _shared(one: str, other: str) -> int:
    """Count the characters with which both begin."""
    alike = (at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    return next(alike, min(len(one), len(other)))
