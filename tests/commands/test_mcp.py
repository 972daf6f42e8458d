"""The server for agents, asked by a client of the SDK, over stdin and stdout."""

import asyncio
import json
import os
import shutil
import sys

import pytest

from tests.support.commands import fails
from tests.support.samples import SAMPLES
from tracer.commands.mcp import Tools

SICK, CURED = "resnet18-ddp2-sick", "resnet18-ddp2-cured"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("agent") / "runs"
    for name in (SICK, CURED):
        shutil.copytree(SAMPLES / name, folder / name)
    (folder / "out").symlink_to(SAMPLES / SICK)
    (folder / "holds").mkdir()
    (folder / "holds" / "rank0.json.gz").symlink_to(SAMPLES / SICK / "rank0.json.gz")
    (folder / "beside").mkdir()
    shutil.copy(SAMPLES / SICK / "rank0.json.gz", folder / "beside")
    (folder / "beside" / "links.json").symlink_to(SAMPLES / "resnet18-ddp4" / "links.json")
    os.mkfifo(folder / "fifo.json")
    return folder


def answers(root, *calls):
    """What a client gets: the tools' names and whether they only read, then each answer and whether it is an error."""
    mcp = pytest.importorskip("mcp", reason="the SDK is not installed: pip install '.[mcp]'")
    words = ["-m", "tracer", "mcp", str(root)]
    server = mcp.StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ), cwd=SAMPLES.parent)

    async def asked():
        async with mcp.Client(server) as client:
            tools = {tool.name: tool.annotations.read_only_hint for tool in (await client.list_tools()).tools}
            found = [await client.call_tool(name, given) for name, given in calls]
            return tools, [(each.is_error, "".join(part.text for part in each.content)) for each in found]

    return asyncio.run(asked())


@pytest.mark.slow
def test_a_client_is_told_what_the_commands_say(root):
    gate = "not (changed(unprofiled_step_ns) and unprofiled_step_ns < baseline)"
    tools, found = answers(
        root,
        ("summary", {"run": SICK}),
        ("table", {"run": SICK, "by": "charge", "limit": 2}),
        ("compare", {"a": SICK, "b": CURED, "fail_on": gate}),
        ("compare", {"a": SICK, "b": SICK, "fail_on": gate}),
        ("whatif", {"run": str(root / SICK), "only": "buffers"}),
        ("doctor", {}),
    )
    assert tools == dict.fromkeys(["summary", "table", "compare", "whatif", "doctor"], True)
    assert [is_error for is_error, _ in found] == [False] * 6
    summary, table, gained, same, whatif, doctor = (text for _, text in found)
    assert json.loads(summary)["headline"]["code"] == "straggler"
    assert len(json.loads(table)["charges"]) == 2
    assert "32.8 % shorter" in gained and "--fail-on" not in gained
    assert "holds" in same.splitlines()[-1]
    assert json.loads(whatif)["schema"] == "tracer.whatif/3"
    assert {"Python", "torch"} <= {finding["what"] for finding in json.loads(doctor)["findings"]}


OUTSIDE = ["..", "/etc", "out", "holds", "beside/rank0.json.gz", f"../{SICK}", "\0"]
NOTHING = ["none", "--help", "s3://bucket/run", "fifo.json"]


@pytest.mark.slow
def test_nothing_outside_of_the_root_is_read_and_an_error_is_a_line(root):
    calls = [("summary", {"run": run}) for run in (*OUTSIDE, *NOTHING)]
    wrong = [("table", {"run": SICK, "by": "nothing"}), ("compare", {"a": SICK, "b": SICK, "fail_on": "x >"})]
    wrong.append(("whatif", {"run": SICK, "only": "a\0b"}))
    _, found = answers(root, *calls, *wrong)
    assert all(is_error for is_error, _ in found)
    for run, (_, text) in zip((*OUTSIDE, *NOTHING), found, strict=False):
        assert "\n" not in text and "Traceback" not in text and "shorter" not in text, run
    assert all("below" in text for _, text in found[: len(OUTSIDE)])


def test_every_tool_says_in_a_line_what_it_tells(tmp_path):
    assert all((tool.__doc__ or "").split("\n")[0].endswith(".") for tool in Tools(tmp_path).all())


def test_without_the_sdk_and_without_a_folder_it_is_a_line(tmp_path, monkeypatch, capsys):
    pytest.importorskip("mcp", reason="the SDK is not installed: pip install '.[mcp]'")
    assert fails(capsys, "mcp", str(tmp_path / "none"))[0] == 1
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    code, err = fails(capsys, "mcp", str(tmp_path))
    assert code == 1 and "pip install 'tracer-toolkit[mcp]'" in err
