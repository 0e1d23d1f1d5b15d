"""Ranks in a storage that only a network reaches: listed by the client, read by workers in processes of their own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("distributed", reason="needs the fleet extra")
pytest.importorskip("requests", reason="fsspec's WebHDFS needs it")

from fleet_job import written_job
from xpu_triage.fleet.contract import to_json
from xpu_triage.fleet.diagnosis import diagnose_fleet, judge_ranks
from xpu_triage.fleet.inputs import find_ranks
from xpu_triage.fleet.summary import diagnose_rank


class WebHdfs(BaseHTTPRequestHandler):
    """The three operations of Hadoop's REST interface that reading needs, on a local folder."""

    folder: Path
    asked: list[str]

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        path = self.folder / unquote(url.path).removeprefix("/webhdfs/v1").strip("/")
        options = dict(part.partition("=")[::2] for part in url.query.split("&"))
        self.asked.append(options["op"])
        if not path.exists():
            self._answer(404, {"RemoteException": {"exception": "FileNotFoundException", "message": "not found"}})
        elif options["op"] == "GETFILESTATUS":
            self._answer(200, {"FileStatus": self._status(path, "")})
        elif options["op"] == "LISTSTATUS":
            below = sorted(path.iterdir()) if path.is_dir() else [path]
            self._answer(200, {"FileStatuses": {"FileStatus": [self._status(one, one.name) for one in below]}})
        elif options["op"] == "OPEN":
            start = int(options.get("offset", 0))
            self._send(200, path.read_bytes()[start:][:int(options.get("length", 1 << 40))])

    def _status(self, path: Path, suffix: str) -> dict[str, object]:
        return {"pathSuffix": suffix, "type": "DIRECTORY" if path.is_dir() else "FILE",
                "length": path.stat().st_size if path.is_file() else 0}

    def _answer(self, code: int, content: object) -> None:
        self._send(code, json.dumps(content).encode())

    def _send(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing to the terminal."""


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[tuple[str, type[WebHdfs]]]:
    handler = type("Handler", (WebHdfs,), {"folder": tmp_path, "asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"webhdfs://127.0.0.1:{server.server_port}", handler
        finally:
            server.shutdown()
            thread.join(60)


def test_ranks_behind_a_network_give_what_the_same_files_give_here(tmp_path: Path,
                                                                storage: tuple[str, type[WebHdfs]]) -> None:
    url, handler = storage
    (tmp_path / "job").mkdir()
    written_job(tmp_path / "job", 5, slower={3: 1.5})

    there = diagnose_fleet(f"{url}/job/rank*.json", workers=2)

    here = judge_ranks([diagnose_rank(piece) for piece in find_ranks([str(tmp_path / "job")]).pieces])
    assert there.verdict.rank == "rank 3"
    assert there.verdict.evidence == f"{url}/job/rank3.json"
    ours, theirs = to_json(here), to_json(there)
    assert [rank["signals"] for rank in theirs["ranks"]] == [rank["signals"] for rank in ours["ranks"]]
    assert theirs["signals"] == ours["signals"]
    assert handler.asked.count("OPEN") >= 5


def test_what_is_not_there_is_said_by_its_url(tmp_path: Path, storage: tuple[str, type[WebHdfs]]) -> None:
    url, _ = storage
    written_job(tmp_path, 2)
    pieces = find_ranks([f"{url}/rank0.json", f"{url}/rank9.json"]).pieces

    assert diagnose_rank(pieces[0]).error == ""
    assert diagnose_rank(pieces[1]).error.startswith(f"{url}/rank9.json: no such file or folder")
