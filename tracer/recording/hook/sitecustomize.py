"""sitecustomize hook: waits for torch to be imported, then arms the recording.

It stands before the interpreter's own sitecustomize, which runs first. Nothing here may keep a script from running.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# Of tracer.config, which is not imported in processes without torch.
HOOK = "TRACER_HOOK"
FIRST_WORDS = 200


def run_the_other() -> None:
    """Run the sitecustomize that this one hides."""
    others = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


class TorchFinder:
    """Finds torch as it would be found without, and arms the recording when its import has ended."""

    def __init__(self) -> None:
        self._looking = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Follow the importlib protocol. Who only asks whether there is a torch asks here, too: each answer arms."""
        if name != "torch" or self._looking:
            return None
        self._looking = True
        try:
            # By all other finders: an editable install has one of its own.
            spec = find_spec(name)
        finally:
            self._looking = False
        if spec is None or spec.loader is None:
            return spec
        import_torch = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            import_torch(module)
            with suppress(ValueError):
                sys.meta_path.remove(self)
            arm()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # this one import's
        return spec


def arm() -> None:
    """Have the recording count this process's steps; a reason why not is left for the launcher."""
    hook = json.loads(os.environ[HOOK])
    try:
        make_importable(Path(hook["root"]))
        from tracer.recording import unchanged_script as attach

        attach.arm()
    except Exception as error:
        brief = f"{type(error).__name__}: {error}"[:FIRST_WORDS]
        why = f"tracer cannot be imported by the script's Python, {sys.executable} ({brief})"
        with suppress(OSError):
            Path(hook["folder"], "work", f"{os.getpid()}.out").write_text(why, encoding="utf-8", errors="replace")


def make_importable(root: Path) -> None:
    """Add our packages to those that the script can import, behind its own. Raises ImportError."""
    for name in ("tracer", "analyzers"):
        spec = find_spec(name)
        if spec is not None and spec.origin is not None and Path(spec.origin).resolve().parents[1] != root:
            raise ImportError(f"the script has a {name} of its own, {spec.origin}")
    if str(root) not in sys.path:
        sys.path.append(str(root))


if os.environ.get(HOOK):
    if "torch" in sys.modules:
        arm()
    else:
        sys.meta_path.insert(0, TorchFinder())
run_the_other()
