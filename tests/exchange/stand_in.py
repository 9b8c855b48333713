"""A stand-in for the Hugging Face Hub: the part of its HTTP interface that uploads and downloads of models use.

Large files go by Git LFS, as on the Hub without Xet. Listings have sizes, names of git blobs, hashes of LFS objects.
"""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE = (".safetensors", ".onnx", ".mp4")


@dataclass
class Repository:
    """Files of a repository by path; one commit."""

    files: dict[str, bytes] = field(default_factory=dict)
    served: dict[str, bytes] = field(default_factory=dict)
    """Contents that are sent instead of those that the listing describes."""
    listed: list[dict[str, Any]] = field(default_factory=list)
    """Further entries of the listing."""
    private: bool = False
    summary: str = ""

    @property
    def commit(self) -> str:
        return hashlib.sha1(repr(sorted(self.files.items())).encode()).hexdigest()

    def tree(self) -> list[dict[str, Any]]:
        return [self.entry(path, data) for path, data in self.files.items()] + self.listed

    @staticmethod
    def entry(path: str, data: bytes) -> dict[str, Any]:
        oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        large = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        return {"type": "file", "path": path, "size": len(data), "oid": oid} | (
            {"lfs": large} if path.endswith(LARGE) else {}
        )


class Hub:
    """State of the stand-in."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.objects: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.endpoint = ""


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def answer(self, value: Any = None, status: int = 200, headers: dict[str, str] | None = None) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def missing(self, code: str) -> None:
        self.answer({"error": code}, 404, {"X-Error-Code": code, "X-Error-Message": code})

    @property
    def place(self) -> list[str]:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        return path.strip("/").split("/")

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_GET(self) -> None:
        match self.place:
            case ["api", "models", org, name, *rest]:
                repository = self.hub.repositories.get(f"{org}/{name}")
                if repository is None:
                    self.missing("RepoNotFound")
                elif rest[:1] == ["tree"]:
                    self.answer(repository.tree())
                else:
                    siblings = [{"rfilename": each["path"]} for each in repository.tree()]
                    self.answer({"id": f"{org}/{name}", "sha": repository.commit, "siblings": siblings})
            case [org, name, "resolve", _, *path]:
                self._resolve(self.hub.repositories.get(f"{org}/{name}"), "/".join(path))
            case _:
                self.missing("RepoNotFound")

    do_HEAD = do_GET

    def _resolve(self, repository: Repository | None, path: str) -> None:
        if repository is None or path not in repository.files:
            self.missing("EntryNotFound")
            return
        data = repository.served.get(path, repository.files[path])
        entry = repository.entry(path, repository.files[path])
        headers = {"X-Repo-Commit": repository.commit, "ETag": f'"{entry["oid"]}"'}
        if "lfs" in entry:
            headers |= {"X-Linked-Etag": f'"{entry["lfs"]["oid"]}"', "X-Linked-Size": str(len(data))}
        self.answer(data, headers=headers)

    def do_POST(self) -> None:
        place, body = self.place, self.body()
        match place:
            case ["api", "repos", "create"]:
                asked = json.loads(body)
                name = f"{asked['organization']}/{asked['name']}"
                is_new = name not in self.hub.repositories
                self.hub.repositories.setdefault(name, Repository(private=asked.get("visibility") == "private"))
                self.answer({"url": f"{self.hub.endpoint}/{name}"}, 200 if is_new else 409)
            case ["api", "validate-yaml"]:
                self.answer({"errors": [], "warnings": []})
            case ["api", "models", _, _, "preupload", _]:
                files = [
                    {"path": each["path"], "shouldIgnore": False,
                     "uploadMode": "lfs" if each["path"].endswith(LARGE) else "regular"}
                    for each in json.loads(body)["files"]
                ]  # fmt: skip
                self.answer({"files": files})
            case [_, _, "info", "lfs", "objects", "batch"]:
                objects = [
                    {**each, "actions": {"upload": {"href": f"{self.hub.endpoint}/objects/{each['oid']}"}}}
                    for each in json.loads(body)["objects"]
                ]
                self.answer({"transfer": "basic", "objects": objects})
            case ["api", "models", org, name, "commit", _]:
                self._commit(f"{org}/{name}", [json.loads(line) for line in body.splitlines() if line])
            case _:
                self.missing("RepoNotFound")

    def _commit(self, name: str, lines: list[dict[str, Any]]) -> None:
        repository = self.hub.repositories[name]
        for line in lines:
            value = line["value"]
            match line["key"]:
                case "header":
                    repository.summary = value["summary"]
                case "file":
                    repository.files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    repository.files[value["path"]] = self.hub.objects[value["oid"]]
                case "deletedFile":
                    del repository.files[value["path"]]
        url = f"{self.hub.endpoint}/{name}/commit/{repository.commit}"
        self.answer({"commitUrl": url, "commitOid": repository.commit, "success": True})

    def do_PUT(self) -> None:
        place, body = self.place, self.body()
        assert place[0] == "objects" and hashlib.sha256(body).hexdigest() == place[1]
        self.hub.objects[place[1]] = body
        self.answer({})


@contextmanager
def serving() -> Iterator[Hub]:
    """Serve a stand-in on this machine until the block ends."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
