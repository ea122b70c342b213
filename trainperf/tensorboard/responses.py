"""Responses to a browser: a policy on every one, and a body only if it is new.

The policy lets the page load from this server and nothing else: a name in a file that reads like
markup could neither run nor fetch anything, even if it became markup.
"""

import gzip
import hashlib
from pathlib import Path

import msgspec
from werkzeug.utils import send_file
from werkzeug.wrappers import Request, Response


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
JSON = "application/json"
_WORTH_PACKING = 4096


def answered(request: Request, body: bytes, kind: str) -> Response:
    """A body of a content type; *not modified* without one if the browser has it already."""
    etag = hashlib.blake2b(body, digest_size=12).hexdigest()
    headers = {"Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    packed = "gzip" in request.headers.get("Accept-Encoding", "")
    if len(body) > _WORTH_PACKING and packed and etag not in request.if_none_match:
        body = gzip.compress(body, 1)
        headers["Content-Encoding"] = "gzip"
    response = Response(body, 200, {**_HEADERS, **headers}, content_type=kind)
    response.set_etag(etag)
    return response.make_conditional(request.environ)


def problem(sentence: str, status: int) -> Response:
    """Why there is no answer: `{"error": …}`."""
    body = msgspec.json.encode({"error": sentence})
    headers = {**_HEADERS, "Cache-Control": "no-store"}
    return Response(body, status, headers, content_type=JSON)


def download(request: Request, path: Path) -> Response:
    """A file to keep, under its own name, as the bytes it has on disk."""
    kind = "application/octet-stream"
    response = send_file(path, request.environ, kind, as_attachment=True, conditional=False)
    response.headers.update({**_HEADERS, "Cache-Control": "no-store"})
    return response
