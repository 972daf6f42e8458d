"""The loopback server, asked as browsers and others would."""

import http.client
import os
import re
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.support.ports import free_port
from tracer.errors import TracerError
from tracer.serving.files import LOOPBACK, Site, files_of, server

SECRET = "not to be read"


@dataclass(frozen=True)
class Address:
    """Where a site is: its port, and what stands before its paths."""

    number: int
    root: str


@contextmanager
def serving(site: Site):
    with server(site, free_port(), or_next=True) as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield Address(found.server_address[1], site.root)
        found.shutdown()
        thread.join()


def ask(port: Address, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    return ask_bare(port, port.root + path, method, **headers)


def ask_bare(port: Address, target: str, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection(LOOPBACK, port.number, timeout=5)
    connection.putrequest(method, target, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.read(), dict(answer.getheaders())
    connection.close()
    return found


@pytest.fixture
def pages(tmp_path):
    (tmp_path / "secret").write_text(SECRET)
    root = tmp_path / "pages"
    (root / "assets").mkdir(parents=True)
    (root / "index.html").write_text("<p>index")
    (root / "assets" / "a b.wasm").write_bytes(b"\0asm")
    (root / "assets" / "out").symlink_to(tmp_path / "secret")
    return root


@pytest.fixture
def port(pages):
    with serving(Site(files_of(pages), "https://ui.perfetto.dev")) as port:
        yield port


def test_files_are_served_as_they_are(port):
    status, body, headers = ask(port, "/")
    assert (status, body) == (200, b"<p>index")
    assert headers["Content-Type"] == "text/html"
    assert headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
    assert headers["X-Content-Type-Options"] == "nosniff"
    status, body, headers = ask(port, "/assets/a%20b.wasm?x=1")
    assert (status, body, headers["Content-Type"]) == (200, b"\0asm", "application/wasm")


def test_head_has_no_body(port):
    status, body, headers = ask(port, "/", "HEAD")
    assert (status, body, headers["Content-Length"]) == (200, b"", "8")


@pytest.mark.parametrize(
    "target",
    [
        "/../secret",
        "/assets/../../secret",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/assets/out",
        "//secret",
        "/etc/passwd",
        "/assets",
        "/assets/",
        "//[/",
        "*",
        "/\\..\\secret",
        "/%00",
    ],
)
def test_nothing_else_is(port, target):
    for asked in (ask, ask_bare):
        status, body, _ = asked(port, target)
        assert status in (400, 404)
        assert SECRET.encode() not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"])
def test_other_methods_are_refused(port, method):
    status, body, headers = ask(port, "/", method)
    assert status == 501
    assert b"index" not in body
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9001", "127.0.0.1.evil.example", "10.0.0.5", "", "[::1]:x"]
)
def test_other_names_of_this_machine_are_refused(port, host):
    status, body, _ = ask(port, "/", Host=host)
    assert status == 421
    assert b"index" not in body


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8080", "LOCALHOST"])
def test_a_tunnel_may_have_another_port(port, host):
    assert ask(port, "/", Host=host)[0] == 200


def test_a_page_of_another_origin_may_read_only_where_it_is_said(pages):
    with serving(Site(files_of(pages))) as port:
        assert "Access-Control-Allow-Origin" not in ask(port, "/", Origin="https://evil.example")[2]


def test_only_the_loopback_address_listens(pages):
    with server(Site(files_of(pages)), free_port(), or_next=True) as found:
        assert found.server_address[0] == "127.0.0.1"


def test_a_taken_port_is_a_line_or_the_next_one():
    with server(Site({}), free_port(), or_next=True) as first:
        port = first.server_address[1]
        with pytest.raises(TracerError, match=f"port {port} .*--port"), server(Site({}), port, or_next=False):
            pass
        with server(Site({}), port, or_next=True) as second:
            assert second.server_address[1] > port


def test_a_file_that_is_gone_is_not_found(pages):
    with serving(Site(files_of(pages))) as port:
        (pages / "index.html").unlink()
        assert ask(port, "/")[0] == 404


def test_a_browser_that_hangs_up_is_no_error(tmp_path, capfd):
    large = tmp_path / "large"
    large.write_bytes(os.urandom(1) * 30_000_000)
    with serving(Site({"/": large})) as port:
        with socket.create_connection((LOOPBACK, port.number)) as client:
            client.sendall(f"GET {port.root}/ HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            assert client.recv(10) == b"HTTP/1.0 2"
        assert ask(port, "/", "HEAD")[0] == 200
    assert capfd.readouterr().err == ""


# Other users of this machine, who reach the loopback address too.


@pytest.mark.parametrize("target", ["/", "/index.html", "/assets/a%20b.wasm", "", "//", "/?token=", "/index.html/"])
def test_without_the_token_nothing_is_served(port, target):
    for wrong in ("", "/", "/" + "A" * (len(port.root) - 1), port.root[:-1], port.root.upper(), port.root + "x"):
        status, body, _ = ask_bare(port, wrong + target)
        assert status in (400, 404) and b"index" not in body and port.root.encode() not in body


def test_every_site_has_a_token_that_nobody_guesses():
    roots = {Site({}).root for _ in range(100)}
    assert len(roots) == 100
    assert all(re.fullmatch(r"/[\w-]{22,}", root) for root in roots)


def test_a_page_tells_nobody_where_it_came_from(port):
    assert ask(port, "/")[2]["Referrer-Policy"] == "no-referrer"
