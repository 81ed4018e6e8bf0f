"""The routes: each turns a request into a job for its model's worker, waits, and answers with JSON."""

from __future__ import annotations

import asyncio
import mimetypes
import re
import warnings
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException

from whence.apps.serve import schema
from whence.apps.serve.answers import Json, error, explained, played, predicted
from whence.apps.serve.game import Play
from whence.apps.serve.gate import Gate
from whence.apps.serve.jobs import Explain, Job
from whence.apps.serve.look import scale_css
from whence.apps.serve.pictures import TYPES, picture
from whence.apps.serve.predict import Predict
from whence.apps.serve.settings import Settings
from whence.apps.serve.survey import Facts, Survey, description, examples
from whence.apps.serve.worker import Abandoned, Pending, Unavailable, Worker
from whence.errors import Incomplete, InputError, ModelError, NotSupported, UnknownName, WhenceError
from whence.explainer import Explainer
from whence.registry import all_methods
from whence.tasks import TASKS
from whence.version import __version__

STATIC = Path(__file__).parent / "static"
STATUSES = {
    400: "not a request for this server",
    401: "the token is missing or wrong",
    403: "from another origin",
    404: "no such model or method",
    405: "no such verb here",
    408: "the request was not sent in time",
    413: "too large",
    422: "cannot be done, and why",
    429: "too many at once",
    503: "not now",
    504: "took too long",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schema.Error, "description": text} for status, text in STATUSES.items()
}


class Server:
    """The models that are served, their workers, and what the survey found out about them."""

    def __init__(self, models: Mapping[str, Explainer], settings: Settings, sources: Mapping[str, str]) -> None:
        if not models:
            raise InputError("there is no model to serve: name one.")
        for name, explainer in models.items():
            if explainer.tokenizer is None:
                raise InputError(f"{name} has no tokenizer, and requests are texts: load it with one.")
            explainer.name = name  # answers name a model as requests do, and never by its path
        self.settings, self.sources = settings, sources
        self.workers = {name: Worker(explainer, settings) for name, explainer in models.items()}
        self.surveys: dict[str, Pending] = {}
        self._drained = False

    def start(self) -> None:
        for name, worker in self.workers.items():
            worker.start()
            self.surveys[name] = worker.submit(Survey())

    async def drain(self) -> None:
        """Refuse what waits; what runs has the grace period to end, all models at once."""
        if self._drained:
            return
        self._drained = True
        loop, workers = asyncio.get_running_loop(), self.workers.values()
        with ThreadPoolExecutor(len(workers)) as pool:
            await asyncio.gather(*(loop.run_in_executor(pool, w.drain, self.settings.grace) for w in workers))

    def worker(self, name: str | None) -> Worker:
        if name is None:
            return next(iter(self.workers.values()))
        if name not in self.workers:
            raise UnknownName("model", name, self.workers)
        return self.workers[name]

    async def facts(self, name: str) -> Facts:
        found: Facts = await asyncio.shield(asyncio.wrap_future(self.surveys[name].future))
        return found

    async def method_for(self, worker: Worker, given: str | None) -> str:
        return given or (await self.facts(worker.explainer.name)).default_method

    def check(self, given: schema.Given) -> Worker:
        if given.characters > self.settings.max_characters:
            raise HTTPException(
                413, f"{given.characters:,} characters; this server takes {self.settings.max_characters:,} at most."
            )
        worker = self.worker(given.model)
        task = worker.explainer.task
        if given.question is not None and task in TASKS and task != "question-answering":
            raise InputError(
                f'{worker.explainer.name} is a {task} model and answers no question: give "text", or "text" with "pair".'
            )
        return worker

    async def do(self, request: Request, worker: Worker, job: Job) -> Any:
        """The result of a job; a client that leaves, or waits too long, takes its job with it."""
        pending = worker.submit(job)
        done = asyncio.wrap_future(pending.future)
        gone = asyncio.ensure_future(left(request))
        try:
            await asyncio.wait({done, gone}, timeout=self.settings.timeout, return_when=asyncio.FIRST_COMPLETED)
            if done.done():
                return done.result()
            if gone.done():
                raise HTTPException(499, "the client has gone.")
            if pending.future.running():
                raise HTTPException(
                    504, f"this took longer than {self.settings.timeout:g} seconds: shorten the text, or do less."
                )
            raise Unavailable(f"nobody was free for {self.settings.timeout:g} seconds: try again in a moment.")
        finally:
            gone.cancel()
            if not done.done():
                done.add_done_callback(seen)
                pending.drop()


def seen(done: asyncio.Future[Any]) -> None:
    """How a job ended that nobody waits for any more; asyncio would else write its traceback to the log."""
    if not done.cancelled():
        done.exception()


async def left(request: Request) -> None:
    """Waits until the client is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def create_app(
    models: Mapping[str, Explainer], settings: Settings | None = None, sources: Mapping[str, str] | None = None
) -> Gate:
    """The ASGI application. models: the names that requests may use; sources: what each was loaded from (for examples)."""
    settings = settings or Settings()
    server = Server(models, settings, sources or {})

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        warnings.filterwarnings("ignore", message=".*were longer than")  # answers say `truncated`
        warnings.simplefilter("ignore", Incomplete)  # … and `gap`
        server.start()
        yield
        await server.drain()

    app = FastAPI(
        title="whence",
        version=__version__,
        description="Which input tokens made a language model decide as it did?",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        default_response_class=Json,
    )
    app.state.server = server
    add_routes(app, server)
    add_pages(app)
    add_errors(app)
    return Gate(app, settings, server.drain)


def add_routes(app: FastAPI, server: Server) -> None:
    def answers(model: Any) -> dict[str, Any]:
        return {"response_model": None, "responses": {200: {"model": model}, **ERRORS}}

    @app.post("/api/predict", **answers(schema.PredictAnswer))
    async def predict(given: schema.PredictRequest, request: Request) -> Response:
        """What the model says, with any words hidden."""
        worker = server.check(given)
        found = await server.do(request, worker, Predict(given.asked(), tuple(sorted(set(given.hidden)))))
        facts = await server.facts(worker.explainer.name)
        return Json(predicted(worker.explainer, found, given.hidden, facts.hidden_by))

    @app.post("/api/explain", **answers(schema.ExplainAnswer))
    async def explain(given: schema.ExplainRequest, request: Request) -> Response:
        """One method: `Explanation.to_dict()`."""
        worker = server.check(given)
        method = await server.method_for(worker, given.method)
        job = Explain(given.asked(), (method,), schema.check_options(given.options))
        return Json(explained((await server.do(request, worker, job))[method]))

    @app.post("/api/compare", **answers(schema.CompareAnswer))
    async def compare(given: schema.CompareRequest, request: Request) -> Response:
        """Up to six methods from one trace."""
        found = await several(given, request, given.methods)
        return Json({"explanations": {name: explained(e) for name, e in found.items()}})

    @app.post("/api/evaluate-text", **answers(schema.EvaluateAnswer))
    async def evaluate_text(given: schema.EvaluateRequest, request: Request) -> Response:
        """The hiding game of a method against random orders."""
        worker = server.check(given)
        method = await server.method_for(worker, given.method)
        job = Play(given.asked(), method, schema.check_options(given.options))
        return Json(played(await server.do(request, worker, job)))

    @app.post(
        "/api/figure", response_model=None, responses={200: {"content": {t: {} for t in TYPES.values()}}, **ERRORS}
    )
    async def figure(given: schema.FigureRequest, request: Request) -> Response:
        """A picture, page or JSON file to download."""
        found = await several(given, request, given.methods)
        content = await asyncio.to_thread(
            picture, found, given.format, kind=given.kind, theme=given.theme, pieces=given.pieces
        )
        name = re.sub(r"[^A-Za-z0-9.-]", "_", "-".join(["whence", *found]))
        headers = {"content-disposition": f'attachment; filename="{name}.{given.format}"'}
        return Response(content, media_type=TYPES[given.format], headers=headers)

    async def several(given: schema.WithOptions, request: Request, methods: Sequence[str]) -> dict[str, Any]:
        worker = server.check(given)
        job = Explain(given.asked(), tuple(dict.fromkeys(methods)), schema.check_options(given.options))
        found: dict[str, Any] = await server.do(request, worker, job)
        return found

    @app.get("/api/models", **answers(list[schema.ModelAnswer]))
    async def models() -> Response:
        """The models that may be asked."""
        return Json([await about_model(server, name) for name in server.workers])

    @app.get("/api/methods", **answers(list[schema.MethodAnswer]))
    async def methods() -> Response:
        """Every method, and the models that it runs on."""
        return Json(await about_methods(server))

    @app.get("/healthz", **answers(schema.Health))
    async def health() -> Response:
        """Whether every model answers: 200, or 503 with those that do not."""
        gone = [name for name, worker in server.workers.items() if not worker.answers]
        if gone:
            return error(f"{', '.join(gone)}: no more answers from there; start the server anew.", "unavailable", 503)
        return Json({"status": "ok", "models": list(server.workers), "version": __version__})


async def about_model(server: Server, name: str) -> dict[str, Any]:
    explainer, facts = server.workers[name].explainer, await server.facts(name)
    source = server.sources.get(name, name)
    return {
        "name": name,
        "task": explainer.task,
        "labels": list(explainer.labels),
        "max_length": explainer.session.task.encoder.max_length,
        "mask_token": getattr(explainer.tokenizer, "mask_token", None),
        "hidden_by": facts.hidden_by,
        "default_method": facts.default_method,
        "methods": list(facts.methods),
        "description": description(source),
        "examples": examples(source),
    }


async def about_methods(server: Server) -> list[dict[str, Any]]:
    facts = {name: await server.facts(name) for name in server.workers}
    found = []
    for method in all_methods():
        runs_on = [name for name, own in facts.items() if method.name in own.methods]
        traits = [facts[name].methods[method.name] for name in runs_on]
        found.append(
            {
                "name": method.name,
                "family": method.family,
                "paper": method.paper,
                "summary": method.summary,
                "cost": method.cost,
                "options": {k: v for k, v in method.defaults.items() if k not in schema.NOT_SERVED},
                "signed": any(t.signed for t in traits),
                "sums_to": method.meaning().sums_to,
                "knows_target": method.meaning().knows_target,
                "layers": any(t.layers for t in traits),
                "models": runs_on,
            }
        )
    return found


def add_pages(app: FastAPI) -> None:
    for ending in (".js", ".mjs"):  # some systems think otherwise, and browsers then refuse modules
        mimetypes.add_type("text/javascript", ending)

    @app.get("/static/scale.css", include_in_schema=False)
    async def scale() -> Response:
        return Response(scale_css(), media_type="text/css")

    app.mount("/static", StaticFiles(directory=STATIC, check_dir=False), name="static")

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        if not (STATIC / "index.html").is_file():
            raise HTTPException(404, "this installation has no page; the JSON interface is under /api/.")
        return FileResponse(STATIC / "index.html", media_type="text/html")


def add_errors(app: FastAPI) -> None:
    """Every error is a sentence and a short code."""

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, exception: RequestValidationError) -> Response:
        if any(e["type"] == "json_invalid" for e in exception.errors()):
            return error(NOT_JSON, "json", 400)
        return error("; ".join(dict.fromkeys(map(sentence, exception.errors()))) + ".", "invalid", 422)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, exception: HTTPException) -> Response:
        headers = dict(exception.headers or {})
        kind = HTTP_KINDS.get(exception.status_code, "refused")
        return error(told(request.method, exception, headers.get("Allow")), kind, exception.status_code, **headers)

    @app.exception_handler(WhenceError)
    async def cannot(request: Request, exception: WhenceError) -> Response:
        status, kind = status_of(exception)
        headers = {"retry-after": "1"} if status == 503 else {}
        return error(str(exception), kind, status, **headers)

    @app.exception_handler(Exception)
    async def mistaken(request: Request, exception: Exception) -> Response:
        return error("the server made a mistake; its log says more.", "internal", 500)

    @app.exception_handler(Abandoned)
    async def abandoned(request: Request, exception: Abandoned) -> Response:
        return error("nobody waited for this any more.", "abandoned", 503)


NOT_JSON = "the request is not JSON that can be read: it must be UTF-8, nested a little, with numbers of a few digits."
EXAMPLE = '{"text": "a good film"}'
HTTP_KINDS = {
    400: "json",  # only a body that cannot be read is answered so
    404: "not-found",
    405: "method-not-allowed",
    413: "too-large",
    499: "client-gone",
    504: "timeout",
}


def status_of(exception: WhenceError) -> tuple[int, str]:
    if isinstance(exception, Unavailable):
        return 503, "unavailable"
    if isinstance(exception, UnknownName):
        return (404 if exception.kind in ("model", "method") else 422), "unknown-name"
    kinds = {InputError: "input", NotSupported: "not-supported", ModelError: "model"}
    return 422, next((kind for cls, kind in kinds.items() if isinstance(exception, cls)), "error")


def told(verb: str, exception: HTTPException, allowed: str | None) -> str:
    """What is wrong with a request, where the framework has but two words for it."""
    if exception.status_code == 400:
        return NOT_JSON
    if exception.status_code == 405:
        return f"{verb} is not answered at this address" + (f": use {allowed}." if allowed else ".")
    if exception.detail == HTTPStatus.NOT_FOUND.phrase:
        return "there is nothing at this address: the page is at /, and /openapi.json lists what can be asked."
    return str(exception.detail)


def sentence(problem: Any) -> str:
    """One of pydantic's complaints, for people."""
    if len(problem["loc"]) == 1:  # about the body as a whole
        if isinstance(problem["input"], bytes):  # which the framework has not read as JSON
            return "the request does not say that it is JSON: send the header content-type: application/json"
        if problem["type"] == "missing":
            return f"the request is empty: send a JSON object, such as {EXAMPLE}"
        if problem["type"] == "model_attributes_type":
            return f"the request must be a JSON object, such as {EXAMPLE}"
    where = ".".join(str(part) for part in problem["loc"][1:] if not is_type(part))
    if problem["type"] == "extra_forbidden":
        return f"unknown field {where!r}"
    said = str(problem["msg"]).removeprefix("Value error, ")
    return f"{where}: {said[:1].lower() + said[1:]}" if where else said


def is_type(part: Any) -> bool:
    """pydantic names the members of a union in its locations; readers do not know them."""
    return (isinstance(part, str) and not part.replace("_", "").isalpha()) or part in (
        "int",
        "str",
        "list",
        "bool",
        "float",
    )
