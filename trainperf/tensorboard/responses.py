"""Responses to a browser: a policy on every one, and a body only if it is new.

The policy lets the page load from this server and nothing else: a name in a file that reads like
markup could neither run nor fetch anything, even if it became markup.
"""

import gzip
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from werkzeug.wrappers import Request, Response

from trainperf.tensorboard.data import Answer


# Pictures place their marks by style attributes, hence the one exception.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)

_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_JSON = "application/json"
_WORTH_PACKING = 4096
_CHUNK_BYTES = 1 << 16


def json(request: Request, answer: Answer) -> Response:
    """An answer; *not modified* without a body if the browser has it already."""
    headers = {"Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if answer.etag in request.if_none_match:
        return _response(b"", 304, _JSON, {**headers, "ETag": f'"{answer.etag}"'})
    body = answer.body
    if len(body) > _WORTH_PACKING and "gzip" in request.headers.get("Accept-Encoding", ""):
        body = gzip.compress(body, 1)
        headers["Content-Encoding"] = "gzip"
    return _response(body, 200, _JSON, {**headers, "ETag": f'"{answer.etag}"'})


def problem(sentence: str, status: int) -> Response:
    """Why there is no answer: `{"error": …}`."""
    body = msgspec.json.encode({"error": sentence})
    return _response(body, status, _JSON, {"Cache-Control": "no-store"})


def static(request: Request, path: Path, kind: str) -> Response:
    """A file of the page, asked for again only when it has changed."""
    status = path.stat()
    etag = f"{status.st_size:x}-{status.st_mtime_ns:x}"
    return _cached(request, etag, kind, path.read_bytes)


def generated(request: Request, body: bytes, kind: str) -> Response:
    """A file of the page that is made from the code."""
    return _cached(request, hashlib.blake2b(body, digest_size=12).hexdigest(), kind, lambda: body)


def download(path: Path) -> Response:
    """A file to keep, under its own name, as the bytes it has on disk."""
    response = Response(_chunks(path), 200, content_type="application/octet-stream")
    response.headers.update({**_HEADERS, "Cache-Control": "no-store"})
    response.headers.set("Content-Disposition", "attachment", filename=path.name)
    response.content_length = path.stat().st_size
    return response


def _cached(request: Request, etag: str, kind: str, body: Callable[[], bytes]) -> Response:
    headers = {"Cache-Control": "no-cache", "ETag": f'"{etag}"'}
    if etag in request.if_none_match:
        return _response(b"", 304, kind, headers)
    return _response(body(), 200, kind, headers)


def _response(body: bytes, status: int, kind: str, headers: dict[str, str]) -> Response:
    return Response(body, status, {**_HEADERS, **headers}, content_type=kind)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
