"""Protocol of a communication library: what of it shows in traces."""

from __future__ import annotations

from dataclasses import dataclass

from analyzers.trace.libraries.collective_kinds import Words

# Begins a pattern for a kernel's own name or one of its namespaces: `a::b::kernel`, without types and parameters.
START = r"(?:^|::)"


@dataclass(frozen=True)
class Library:
    """One communication library, or several with the same manners, as traces show it. Patterns are regular expressions.

    On the device:

    * `kernels`: patterns that are searched in a kernel's own name behind its namespaces; such a kernel communicates.
    * `words`: words in its kernels' names that say a kind, beside those of PyTorch's calls, which are tried after them.
    * `hints`: patterns, in any case, of names that look like its own though none of `kernels` knows them: a report
      warns of such a kernel.
    * `ranks`: patterns that are searched in a kernel's full name; their group is the number of ranks it was compiled
      for.
    * `posts`: patterns of kernels that may return while what they sent is still on its way. How much of a transfer is
      hidden does not show where these run.

    * `signals`: patterns of kernels that signal to others and wait for them, and move nothing: what a call with none
      but these moves is in its copies.

    On the host:

    * `ranges`: beginnings of the ranges in which PyTorch's process groups launch it, with their tensors' shapes.
    * `operators`: beginnings of operators that call it without a process group. Copies inside of them communicate.
    * `sized_by`: patterns that the names of operators begin with whose inputs' shapes say a collective's size.
    * `spans`: beginnings of rows that are its collectives themselves, since its work runs on the host.

    A library with neither ranges nor spans keeps communicators of its own, of which PyTorch's metadata say nothing.
    """

    name: str
    kernels: tuple[str, ...] = ()
    words: Words = ()
    hints: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()
    posts: tuple[str, ...] = ()
    signals: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    sized_by: tuple[str, ...] = ()
    spans: tuple[str, ...] = ()

    @property
    def is_of_process_groups(self) -> bool:
        """Whether PyTorch's process groups run it, whose metadata then tell of its collectives."""
        return bool(self.ranges or self.spans)
