"""The rules of the house that a machine can check: one order of imports, light reading, who may print."""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# A module imports only what stands before it. `analyzers` and `tracer` themselves come after their own modules.
READS = """
    errors saved places units intervals stretches modules marks calls classify controls
    instants lenient header inflate chunks arguments syncs events kineto retime
    manifest calibration recording rank run activity steps host
    autograd forwards
    breakdown fetching operators communication attribution work reductions contention sharding occupancy pace
    summary kernels alignment offsets pairing collectives clocks
    transfer waiting bandwidth exchange entries digest document rows
    buckets reducing layers timeline synccost advice summaries spread frames report lanes
    bucketing links replay runlinks model whatif scenarios
    gradients sweeps study cells scaling series
    permutation changes comparison compare cellchanges gates figures
    hta_figures holistic hta hta_tables critical
"""
RECORDS = """
    version errors config files compat models meeting profiles
    ranges links manifest recorder ranks finish session
    beat attach hook.sitecustomize hook
    workloads step epochs calibrate train environments launch
    scripts sweep cluster workers serving board listing
"""
SHOWS = """
    palette terminal ranks communication buckets layers timeline epochs
    advice text calibration
    tables templates scaling compare axes plots page curve whatif capline strips html
    tracks hta perfetto
    sheet charts lanes pictures forecast blocks events tab
"""
COMMANDS = """
    devices hosts progress usage workload reading output gates
    report export whatif view outside record calibrate sweep compare plot tensorboard hta
"""


def _in(package: str, modules: str) -> list[str]:
    return [f"{package}.{name}" for name in modules.split()] + [package]


ORDER = [
    *_in("analyzers", READS),
    *_in("tracer", RECORDS)[:-1],
    *_in("tracer.views", SHOWS),
    "tracer.plugin",
    *_in("tracer.commands", COMMANDS),
    *_in("tracer", "cli __main__"),
]

# The only modules that may import torch, besides the commands that call them.
WITH_TORCH = {
    f"tracer.{name}"
    for name in ("compat", "models", "profiles", "ranges", "manifest", "recorder", "ranks", "session", "attach")
} | {f"tracer.{name}" for name in ("workloads", "step", "epochs", "calibrate", "train", "launch")}
MAY_PRINT = ("tracer.commands", "tracer.cli", "tracer.__main__")


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


SOURCES = {
    module_name(file): ast.parse(file.read_text())
    for package in ("analyzers", "tracer")
    for file in (ROOT / package).rglob("*.py")
}


def imported(tree: ast.Module) -> set[str]:
    """Every module of the project that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            submodules = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (submodules & set(ORDER)) or {node.module}
    return found


def test_the_order_lists_every_module_once():
    assert sorted(ORDER) == sorted(SOURCES)


def test_no_import_runs_against_the_order():
    for name, tree in SOURCES.items():
        for other in imported(tree) & set(ORDER):
            assert ORDER.index(other) < ORDER.index(name), f"{name} imports {other}, which stands below it"


def test_torch_is_imported_only_where_it_runs():
    for name, tree in SOURCES.items():
        body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        top = {module.split(".")[0] for module in imported(ast.Module(body, []))}
        assert name in WITH_TORCH or "torch" not in top, f"{name} imports torch"


def test_reading_and_reporting_load_no_torch_and_no_plots():
    code = (
        "import sys, analyzers, tracer, tracer.cli, tracer.views.text;"
        "assert issubclass(tracer.SessionIncomplete, tracer.TracerError);"
        "assert issubclass(tracer.UsageError, tracer.TracerError);"
        "heavy = ('torch', 'matplotlib', 'tensorboard', 'rich', 'google.protobuf', 'hta', 'plotly');"
        "print(*[m for m in heavy if m in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == ""


def test_only_commands_print_and_analyzers_and_views_read_no_environment():
    for name, tree in SOURCES.items():
        if name.startswith(MAY_PRINT):
            continue
        for node in ast.walk(tree):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            assert not called, f"{name} prints"
            stream = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "sys"
            assert not (stream and node.attr in ("stdout", "stderr")), f"{name} writes to sys.{node.attr}"
            assert not (isinstance(node, ast.keyword) and node.arg == "stderr"), f"{name} writes to stderr"
        if name.startswith(("analyzers", "tracer.views")):
            assert "os" not in imported(tree), f"{name} reads the environment"
