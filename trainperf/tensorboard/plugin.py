"""The TensorBoard plugin: the class that its entry point names, and the routes of the tab.

A plugin without a build step: `/index.js` sends the frame that TensorBoard makes for it to our own
page.  Loading this module must stay cheap and must not fail: every TensorBoard does it at start.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path

from tensorboard.plugins.base_plugin import FrontendMetadata, TBContext, TBPlugin
from werkzeug.wrappers import Request, Response

from trainperf.core.errors import TrainPerfError
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.html.palette import tab_style
from trainperf.tensorboard import responses
from trainperf.tensorboard.data import NotFoundError, Store, View


Handler = Callable[[Request], Response]

STATIC = Path(__file__).parent / "static"

_KINDS: Mapping[str, str] = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
}
_PAGE = "index.html"


class TrainPerfPlugin(TBPlugin):  # type: ignore[misc]  # TensorBoard has no annotations
    """The `trainperf` tab: runs below the log directory that TensorBoard was started with."""

    plugin_name = "trainperf"

    def __init__(self, context: TBContext) -> None:
        super().__init__(context)
        self._store = Store(
            log_directories(context), lambda: datetime.now(tz=timezone.utc).timestamp()
        )

    def is_active(self) -> bool:
        """Whether there is a run to show; TensorBoard asks when a browser opens it.

        So a run is being read while TensorBoard's own page is still loading.
        """
        if not self._store.any():
            return False
        self._store.prepare()
        return True

    def frontend_metadata(self) -> FrontendMetadata:
        """Where TensorBoard finds the page; it updates by itself, so no reload button."""
        return FrontendMetadata(
            es_module_path="/index.js", tab_name="trainperf", disable_reload=True
        )

    def get_plugin_apps(self) -> dict[str, Callable[..., object]]:
        """Every route below `/data/plugin/trainperf`."""
        routes: dict[str, Handler] = {
            "/runs": lambda request: responses.json(request, self._store.runs()),
            "/run": self._run,
            "/capture": self._capture,
            "/picture": self._picture,
            "/trace": self._trace,
            "/compare": self._compare,
            "/page.css": _style,
        }
        for path in sorted(STATIC.iterdir()):
            if path.suffix in _KINDS:
                routes[f"/{path.name}"] = _file(path)
        routes[f"/{_PAGE}"] = self._page
        return {route: _app(handler) for route, handler in routes.items()}

    def _page(self, request: Request) -> Response:
        """The page; the run that it will ask for is read while the browser builds it."""
        self._store.prepare()
        return responses.static(request, STATIC / _PAGE, _KINDS[".html"])

    def _run(self, request: Request) -> Response:
        view = View(
            rank=_whole(request, "rank"),
            first=_whole(request, "first"),
            last=_whole(request, "last"),
        )
        return responses.json(request, self._store.run(_text(request, "run"), view))

    def _compare(self, request: Request) -> Response:
        before, after = _text(request, "before"), _text(request, "after")
        return responses.json(request, self._store.compare(before, after))

    def _capture(self, request: Request) -> Response:
        run, key = _text(request, "run"), _text(request, "key")
        return responses.json(request, self._store.capture(run, key))

    def _picture(self, request: Request) -> Response:
        run, key = _text(request, "run"), _text(request, "key")
        place = _whole(request, "place") or 0
        window = (_number(request, "first_s"), _number(request, "last_s"))
        return responses.json(request, self._store.picture(run, key, place, window))

    def _trace(self, request: Request) -> Response:
        path = self._store.trace(_text(request, "run"), _text(request, "file"))
        return responses.download(path)


def log_directories(context: TBContext) -> list[Path]:
    """The directories of `--logdir`, or those of `--logdir_spec`, with or without their names."""
    spec = getattr(context.flags, "logdir_spec", "") if context.flags else ""
    if not spec:
        return [Path(context.logdir)] if context.logdir else []
    parts = [part for part in spec.split(",") if part]
    return [Path(part.split(":", 1)[1] if ":" in part else part) for part in parts]


def _app(handler: Handler) -> Callable[..., object]:
    """A route as TensorBoard calls it: errors of the user's files become a sentence."""

    @Request.application
    def app(request: Request) -> Response:
        if request.method not in {"GET", "HEAD"}:
            return responses.problem("only GET", 405)
        try:
            return handler(request)
        except NotFoundError as error:
            return responses.problem(plain(str(error)), 404)
        except TrainPerfError as error:
            return responses.problem(plain(str(error)), 422)
        except OSError as error:
            reason = error.strerror or "it cannot be read"
            return responses.problem(plain(f"{error.filename}: {reason}"), 422)

    return app


def _file(path: Path) -> Handler:
    def handler(request: Request) -> Response:
        return responses.static(request, path, _KINDS[path.suffix])

    return handler


def _style(request: Request) -> Response:
    """The style sheet of the pages."""
    return responses.generated(request, tab_style().encode(), _KINDS[".css"])


def _text(request: Request, name: str) -> str:
    return request.args.get(name, "")


def _whole(request: Request, name: str) -> int | None:
    return request.args.get(name, type=int)


def _number(request: Request, name: str) -> float | None:
    return request.args.get(name, type=float)
