"""An S3 API on this machine, which can be slow, break off or refuse, and remembers what it was asked for."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

ACCOUNT = {"AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "s3cr3t", "AWS_EC2_METADATA_DISABLED": "true"}
BUCKET = "indexes"


class S3:
    """A WSGI application before moto's."""

    def __init__(self) -> None:
        pytest.importorskip("moto.server", reason="moto is not installed: pip install 'moto[s3]' flask-cors")
        from moto.moto_server.threaded_moto_server import MotoRequestHandler
        from moto.server import create_backend_app
        from werkzeug.serving import make_server

        self.requests: list[tuple[str, str]] = []  # method and path
        self.pause = 0.0  # seconds before each answer
        self.cut = False  # break off in the middle of arrays
        self.refuse = False
        self._moto: Any = create_backend_app("s3")  # a server for all services would ask which one is meant
        self.server = make_server("127.0.0.1", 0, self, threaded=True, request_handler=MotoRequestHandler)

    def __call__(self, environ: dict[str, Any], start: Any) -> Any:
        self.requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
        time.sleep(self.pause)
        if self.refuse:
            start("403 Forbidden", [("Content-Type", "application/xml")])
            return [b"<Error><Code>InvalidAccessKeyId</Code><Message>There is no such key.</Message></Error>"]
        answer = self._moto(environ, start)
        if self.cut and environ["REQUEST_METHOD"] == "GET" and environ["PATH_INFO"].endswith(".npy"):
            content = b"".join(answer)
            return [content[: len(content) // 2]]  # the header says how long it should be
        return answer

    def uri(self, name: str, bucket: str = BUCKET, user: str = "") -> str:
        endpoint = f"http%3A%2F%2F127.0.0.1%3A{self.server.server_port}"
        return f"s3://{user}{bucket}/{name}?endpoint_override={endpoint}&region=us-east-1&scheme=http"

    def files(self, method: str) -> list[str]:
        """The arrays that were asked for so, by name."""
        found = (path for asked, path in self.requests if asked == method and path.endswith(".npy"))
        return [path.rpartition("/")[2] for path in found]

    @property
    def store(self) -> Any:
        from pyarrow.fs import FileSystem

        return FileSystem.from_uri(self.uri("") + "&allow_bucket_creation=true")[0]


@contextmanager
def running() -> Iterator[S3]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # else it logs every request
    s3 = S3()
    thread = threading.Thread(target=s3.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield s3
    finally:
        s3.server.shutdown()
        thread.join()
        s3.server.server_close()
