"""The rules of the house that a machine can check: rooms and their order, light reading, who may print."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.parsed import MODULES, tree, trees

ROOT = Path(__file__).resolve().parents[1]

# A module imports root modules, its own room, and rooms above it; of another room only what that room exports.
ROOMS = [
    "analyzers.trace.libraries",
    "analyzers.trace.decoding",
    "analyzers.trace",
    "analyzers.nsys",
    "analyzers.run.health",
    "analyzers.run",
    "analyzers.rank.host",
    "analyzers.rank.idle",
    "analyzers.rank.kernels",
    "analyzers.rank.strategies",
    "analyzers.rank.columns",
    "analyzers.rank.dependencies",
    "analyzers.rank.parallelism",
    "analyzers.rank",
    "analyzers.collectives.alignment",
    "analyzers.collectives",
    "analyzers.layers.strategies",
    "analyzers.layers",
    "analyzers.causes",
    "analyzers.scenarios",
    "analyzers.settings",
    "analyzers.reporting.measures",
    "analyzers.reporting.remedies",
    "analyzers.reporting",
    "analyzers.prediction",
    "analyzers.comparison",
    "analyzers.hta",
    "analyzers",
    "tracer.recording.strategies",
    "tracer.recording.windows",
    "tracer.recording",
    "tracer.workload.strategies",
    "tracer.workload",
    "tracer.launching",
    "tracer.reading.cache",
    "tracer.reading",
    "tracer.doctor",
    "tracer.serving",
    "tracer.views",
    "tracer.views.sections.model",
    "tracer.views.sections",
    "tracer.views.sections.results",
    "tracer.views.html",
    "tracer.views.plots",
    "tracer.views.perfetto",
    "tracer.views.rows",
    "tracer.views.tensorboard",
    "tracer.results",
    "tracer.sessions",
    "tracer.callbacks",
    "tracer.commands.options",
    "tracer.commands",
    "tracer",
]
# Modules beside the rooms; a package's own exports, and what starts the program, come after its rooms.
ROOTS = {
    "analyzers": {
        *(
            "arrays",
            "command_lines",
            "errors",
            "intervals",
            "json_documents",
            "lazy_exports",
            "lazy_fields",
            "memory",
            "notices",
        ),
        *("paths", "ranks", "redaction", "statistics", "step_parts", "texts", "units"),
    },
    "tracer": {"atomic_files", "config", "environment", "errors", "own_python", "second_reading", "version"},
}
LAST = {"tracer": {"cli", "__main__"}}
MOST_MODULES = 16
MOST_WORDS = 12

# Rooms whose modules may import torch: who imports from them does so inside a function.
WITH_TORCH = (
    *("tracer.recording.strategies", "tracer.recording.windows", "tracer.recording"),
    *("tracer.workload.strategies", "tracer.workload", "tracer.launching", "tracer.sessions", "tracer.callbacks"),
)
MAY_PRINT = ("tracer.commands", "tracer.cli", "tracer.__main__")

# Calls that open a file. To read one is `analyzers.paths`' to do: whoever fills a folder may put a FIFO in its place.
OPENING = {
    *("open", "fdopen", "FileIO", "read_bytes", "read_text", "copyfile", "copy2", "copytree"),
    *("fromfile", "loadtxt", "memmap", "is_zipfile", "ZipFile", "read_csv", "read_json", "read_parquet"),
}
# A guard process reads /proc alone, with as few imports as can be.
MAY_READ = {"analyzers.paths", "tracer.launching.guard_process"}


def room_of(module: str) -> str:
    """The innermost room that a module is in; root modules are in their package."""
    return max((room for room in ROOMS if f"{module}.".startswith(f"{room}.")), key=len)


def is_root(module: str) -> bool:
    package, _, name = module.partition(".")
    return name in ROOTS.get(package, ())


def is_own(module: str) -> bool:
    return module.split(".")[0] in ROOTS


def imported(tree: ast.AST) -> set[str]:
    """Every module that another imports, wherever in it; of `from package import name` also `package.name`."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            submodules = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (submodules & MODULES.keys()) or {node.module}
    return found


def exports(room: str) -> set[str]:
    """The names that a room's `__init__` imports from modules, or defines; those that it imports when asked, too."""
    found = set()
    for node in (node for part in tree(room).body for node in (part.body if isinstance(part, ast.If) else [part])):
        if isinstance(node, ast.ImportFrom) and node.module != room:
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found - {"annotations", "TYPE_CHECKING", "export_lazily"}


def members(room: str) -> set[str]:
    """The modules of a room; a room inside it counts as one, whatever it holds."""
    inside = {name.removeprefix(f"{room}.").split(".")[0] for name in MODULES if name.startswith(f"{room}.")}
    return inside - {""}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_go_to_root_modules_the_own_room_and_exports_of_rooms_above(name):
    own = room_of(name)
    for other in filter(is_own, imported(tree(name))):
        room = room_of(other)
        if is_root(other) or room == own:
            continue
        assert other == room, f"{name} imports {other} past the exports of {room}"
        assert name == own or own not in ("analyzers", "tracer") or ROOMS.index(room) < ROOMS.index(own)
        assert ROOMS.index(room) < ROOMS.index(own), f"{name} imports {room}, a room below its own"


def test_every_module_beside_the_rooms_is_a_known_root():
    for package, roots in ROOTS.items():
        beside = {name for name in members(package) if f"{package}.{name}" not in ROOMS}
        beside -= {name for name in beside if any(room.startswith(f"{package}.{name}.") for room in ROOMS)}
        assert beside == roots | LAST.get(package, set())
        assert len(beside) <= MOST_MODULES


def test_root_modules_import_no_room():
    for name, parsed in trees().items():
        package = name.split(".")[0]
        own = {other for other in imported(parsed) if other.split(".")[0] == package}
        assert not is_root(name) or all(map(is_root, own)), f"{name} imports a room"


@pytest.mark.parametrize("room", ROOMS)
def test_no_export_is_named_like_a_submodule(room):
    """Such a name gives now the one, now the other."""
    assert exports(room) & members(room) <= ({"version"} if room == "tracer" else set())


@pytest.mark.parametrize("room", [room for room in ROOMS if room not in ROOTS])
def test_a_room_holds_at_most_so_many_modules_and_says_what_happens_in_it(room):
    assert len(members(room)) <= MOST_MODULES
    assert ast.get_docstring(tree(room))


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "tracer"])
def test_a_rooms_docstring_names_its_modules(room):
    told = ast.get_docstring(tree(room)) or ""
    assert not {name for name in members(room) if f"`{name}`" not in told and f"{room}.{name}" not in ROOMS}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_a_modules_first_line_is_short(name):
    """What somebody would grep for, in at most 12 words; a command's docstring is its help, which says all of it."""
    line = (ast.get_docstring(tree(name)) or "").split("\n")[0]
    assert line.endswith(".")
    assert ";" not in line
    assert len(line.split()) <= MOST_WORDS or room_of(name) == "tracer.commands"


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_leads_to_the_page_of_its_decisions(room):
    last = (ast.get_docstring(tree(room)) or "").split("\n")[-1]
    assert last.startswith("Decisions: docs/dev/decisions/")
    assert (ROOT / last.removeprefix("Decisions: ")).is_file()


@pytest.mark.parametrize("package", ["analyzers", "tracer", "tracer.callbacks"])
def test_what_is_imported_when_asked_for_is_what_type_checkers_are_told(package):
    body = tree(package).body
    (told,) = (node for node in body if isinstance(node, ast.If))
    (given,) = (node.value for node in body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call))
    typed = {
        (node.module, f"{name.name} as {name.asname}" if name.asname else name.name)
        for node in told.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    late = {(module, name) for module, names in ast.literal_eval(given.args[1]).items() for name in names}
    assert late == typed
    assert {name.rpartition(" as ")[2] for _, name in late} <= set(import_module(package).__all__)


def test_no_test_imports_a_test():
    for file in (ROOT / "tests").rglob("*.py"):
        for other in imported(ast.parse(file.read_text())):
            assert not other.split(".")[-1].startswith("test_"), f"{file} imports {other}"


def test_torch_is_imported_only_where_it_runs():
    for name, parsed in trees().items():
        body = [node for node in parsed.body if isinstance(node, ast.Import | ast.ImportFrom)]
        top = {module.split(".")[0] for module in imported(ast.Module(body, []))}
        assert name.startswith(WITH_TORCH) or "torch" not in top, f"{name} imports torch"


def test_reading_and_reporting_load_no_torch_and_no_plots():
    code = (
        "import sys, analyzers, tracer, tracer.cli;"
        "assert issubclass(tracer.SessionIncomplete, tracer.TracerError);"
        "assert issubclass(tracer.UsageError, tracer.TracerError);"
        "[getattr(analyzers, name) for name in analyzers.__all__];"
        "tracer.report; tracer.cli.build_parser();"
        "heavy = ('torch', 'matplotlib', 'tensorboard', 'rich', 'google.protobuf', 'hta', 'plotly', 'pandas');"
        "print(*[m for m in heavy if m in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == ""


def test_a_recording_brings_no_package_into_a_training_but_what_docs_name():
    """A report's packages stay out of the training; llvmlite and NVML's are for NVIDIA GPUs alone."""
    known = sys.stdlib_module_names | {"analyzers", "tracer", "numpy", "msgspec", "torch", "llvmlite", "pynvml"}
    recording = [parsed for name, parsed in trees().items() if name.startswith("tracer.recording")]
    named = {module.split(".")[0] for parsed in recording for module in imported(parsed)}
    assert {"torch", "msgspec"} <= named <= known


def is_for_writing(call: ast.Call) -> bool:
    """Whether a mode or a flag says so, or that it is a folder; a name like `webbrowser.open` opens no file at all."""
    said = {str(node.value) for node in ast.walk(call) if isinstance(node, ast.Constant)}
    said |= {node.attr for node in ast.walk(call) if isinstance(node, ast.Attribute)}
    opened = call.func.value if isinstance(call.func, ast.Attribute) else None
    return (
        bool(said & {"w", "wb", "x", "xb", "ab", "O_WRONLY", "O_DIRECTORY"})
        or ast.unparse(opened or call) == "webbrowser"
    )


@pytest.mark.parametrize("name", sorted(MODULES.keys() - MAY_READ))
def test_files_are_opened_for_reading_in_one_place_alone(name):
    for call in (node for node in ast.walk(tree(name)) if isinstance(node, ast.Call)):
        opens = call.func.attr in OPENING if isinstance(call.func, ast.Attribute) else ast.unparse(call.func) == "open"
        assert not opens or is_for_writing(call), f"{name}:{call.lineno}: {ast.unparse(call)}"


def test_only_commands_print_and_analyzers_and_views_read_no_environment():
    for name, parsed in trees().items():
        if name.startswith(MAY_PRINT):
            continue
        for node in ast.walk(parsed):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            assert not called, f"{name} prints"
            stream = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "sys"
            assert not (stream and node.attr in ("stdout", "stderr")), f"{name} writes to sys.{node.attr}"
            assert not (isinstance(node, ast.keyword) and node.arg == "stderr"), f"{name} writes to stderr"
        if name.startswith(("analyzers", "tracer.views")):
            # What opens files and asks for the machine's memory needs `os`, and reads no environment by it either.
            needs = {*MAY_READ, "analyzers.memory"}
            assert "os" not in imported(parsed) or name in needs, f"{name} reads the environment"
            used = {node.attr for node in ast.walk(parsed) if isinstance(node, ast.Attribute)}
            assert name not in needs or not used & {"environ", "environb", "getenv", "expandvars"}, name
