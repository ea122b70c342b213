"""The TensorBoard plugin: the class that its entry point names, and the routes of the tab.

A plugin without a build step: `/index.js` sends the frame that TensorBoard makes for it to our own
page.  Loading this module must stay cheap and must not fail: every TensorBoard does it at start.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from tensorboard.plugins.base_plugin import FrontendMetadata, TBContext, TBPlugin
from werkzeug.wrappers import Request, Response

from trainperf.core.errors import TrainPerfError
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.html.palette import page_style
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
        data: dict[str, Callable[[Request], bytes]] = {
            "/runs": lambda _: self._store.runs(),
            "/run": self._run,
            "/compare": lambda query: self._store.compare(
                query.args.get("before", ""), query.args.get("after", "")
            ),
            "/capture": lambda query: self._store.capture(
                query.args.get("run", ""), query.args.get("key", "")
            ),
            "/picture": self._picture,
        }
        files: dict[str, Handler] = {
            f"/{path.name}": partial(_file, path)
            for path in sorted(STATIC.iterdir())
            if path.suffix in _KINDS
        }
        routes: dict[str, Handler] = {
            **{route: partial(_json, answer) for route, answer in data.items()},
            **files,
            f"/{_PAGE}": self._page,
            "/page.css": lambda query: responses.answered(
                query, page_style().encode(), _KINDS[".css"]
            ),
            "/trace": self._trace,
        }
        return {route: _app(handler) for route, handler in routes.items()}

    def _page(self, request: Request) -> Response:
        """The page; the run that it will ask for is read while the browser builds it."""
        self._store.prepare()
        return _file(STATIC / _PAGE, request)

    def _run(self, request: Request) -> bytes:
        rank, first, last = (request.args.get(name, type=int) for name in ("rank", "first", "last"))
        view = View(rank=rank, first=first, last=last)
        return self._store.run(request.args.get("run", ""), view)

    def _picture(self, request: Request) -> bytes:
        place = request.args.get("place", type=int) or 0
        ends = (request.args.get(name, type=float) for name in ("first_s", "last_s"))
        run, key = (request.args.get(name, "") for name in ("run", "key"))
        return self._store.picture(run, key, place, (next(ends), next(ends)))

    def _trace(self, request: Request) -> Response:
        run, file = (request.args.get(name, "") for name in ("run", "file"))
        return responses.download(request, self._store.trace(run, file))


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


def _json(answer: Callable[[Request], bytes], request: Request) -> Response:
    return responses.answered(request, answer(request), responses.JSON)


def _file(path: Path, request: Request) -> Response:
    return responses.answered(request, path.read_bytes(), _KINDS[path.suffix])
