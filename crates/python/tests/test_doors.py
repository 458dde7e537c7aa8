"""The doors of frameworks, each with the real thing. A framework that is not installed is skipped."""

import asyncio
import json
import os
import subprocess
import sys
import textwrap
import threading
import urllib.error
import urllib.request
import wsgiref.simple_server

import pytest

import ledgerline
import ledgerline.asgi
import ledgerline.wsgi


def grow():
    kept = []
    while True:
        kept.append([len(kept)])


# ---- ASGI


def requests_at_once(app, paths):
    """Sends requests at once to an ASGI application; their statuses and texts."""
    httpx = pytest.importorskip("httpx")

    async def main():
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            answers = await asyncio.gather(*map(client.get, paths))
        return [(answer.status_code, answer.text) for answer in answers]

    return asyncio.run(main())


def fastapi_app(**settings):
    fastapi = pytest.importorskip("fastapi")
    app = fastapi.FastAPI()

    @app.get("/{tenant}/steady")
    async def steady(tenant: str):
        kept = []
        for n in range(50):
            kept.append([n] * 100)
            await asyncio.sleep(0)
        return {"group": ledgerline.current().path, "count": len(kept)}

    @app.get("/{tenant}/runaway")
    async def runaway(tenant: str):
        kept = []
        while True:
            kept.append([len(kept)] * 10)
            if len(kept) % 1000 == 0:
                await asyncio.sleep(0)

    @app.get("/{tenant}/thread")
    def thread(tenant: str):
        grow()

    @app.get("/{tenant}/error")
    async def error(tenant: str):
        raise ValueError("of its own")

    app.add_middleware(ledgerline.asgi.Middleware, tenant=lambda scope: scope["path"].split("/")[1], **settings)
    return app


@pytest.mark.parametrize("runaway", ["runaway", "thread"])
def test_of_fastapi_requests_at_once_the_runaway_alone_gets_507(runaway):
    app = fastapi_app(max="8M", max_tenant="64M")
    paths = [f"/t{n}/{runaway if n % 7 == 0 else 'steady'}" for n in range(22)]
    answers = requests_at_once(app, paths)
    for n, (status, text) in enumerate(answers):
        if n % 7 == 0:
            assert status == 507 and "limit is 8.0M" in text
        else:
            assert status == 200 and json.loads(text)["group"].startswith(f"/t{n}/GET.")
    assert all(group.children() == [] for group in ledgerline.root().children() if group.name.startswith("t"))


def test_a_tenants_limit_refuses_that_tenant_alone():
    app = fastapi_app(max_tenant="8M", status=503)
    answers = requests_at_once(app, ["/full/runaway", "/other/steady", "/other/error"])
    assert [status for status, _ in answers] == [503, 200, 500]
    assert ledgerline.group("/full").max == 8 << 20


def test_an_answer_that_has_begun_is_not_answered_again():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        grow()

    sent = []

    async def send(message):
        sent.append(message["type"])

    async def main():
        middleware = ledgerline.asgi.Middleware(app, max="2M")
        with pytest.raises(ledgerline.GroupFull):
            await middleware({"type": "http", "method": "GET"}, None, send)

    asyncio.run(main())
    assert sent == ["http.response.start", "http.response.body"]


def test_lifespan_and_settings_that_make_no_sense(capsys):
    async def app(scope, receive, send):
        assert ledgerline.current() is None

    asyncio.run(ledgerline.asgi.Middleware(app)({"type": "lifespan"}, None, None))
    for settings, error in [({"max": "8MB"}, ValueError), ({"status": 500}, ValueError), ({"tenant": "acme"}, TypeError)]:
        for door in (ledgerline.asgi, ledgerline.wsgi):
            with pytest.raises(error):
                door.Middleware(app, **settings)


SERVER = """
import asyncio, fastapi, ledgerline.asgi
app = fastapi.FastAPI()

@app.get("/runaway")
async def runaway():
    kept = []
    while True:
        kept.append([len(kept)] * 10)

@app.get("/steady")
async def steady():
    return "steady"

app.add_middleware(ledgerline.asgi.Middleware, max="8M")
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_uvicorn_answers_507_to_the_runaway_and_goes_on(tmp_path, loop):
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    (tmp_path / "served.py").write_text(SERVER)
    command = [sys.executable, "-m", "uvicorn", "served:app", "--port", "0", "--loop", loop]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server:
        try:
            for line in server.stderr:
                if "running on" in line:
                    address = line.split(" on ")[1].split()[0]
                    break
            threading.Thread(target=server.stderr.read, daemon=True).start()
            for _ in range(3):
                assert statuses(address, "/runaway", "/steady", "/steady") == [507, 200, 200]
        finally:
            server.terminate()


def statuses(address, *paths):
    found = []
    for path in paths:
        try:
            with urllib.request.urlopen(address + path, timeout=60) as answer:
                found.append(answer.status)
        except urllib.error.HTTPError as error:
            found.append(error.code)
            error.close()
    return found


# ---- WSGI


class Quiet(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *arguments):
        pass


def served(app, *paths):
    server = wsgiref.simple_server.make_server("127.0.0.1", 0, app, handler_class=Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        return statuses(f"http://127.0.0.1:{server.server_port}", *paths)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def plain_app(environ, start_response):
    if environ["PATH_INFO"] == "/runaway":
        grow()
    start_response("200 OK", [("content-type", "text/plain")])
    if environ["PATH_INFO"] == "/stream":
        return (bytes(10_000) for _ in range(10))
    if environ["PATH_INFO"] == "/late":
        return (grow() for _ in range(10))
    if environ["PATH_INFO"] == "/error":
        raise ValueError("of its own")
    return [b"steady"]


def test_of_wsgi_requests_the_runaway_alone_gets_507(capsys):
    app = ledgerline.wsgi.Middleware(plain_app, max="4M")
    paths = ["/runaway", "/steady", "/stream", "/late", "/error", "/steady"]
    assert served(app, *paths) == [507, 200, 200, 507, 500, 200]
    assert ledgerline.group("/requests").children() == []


def test_a_flask_application_answers_507_in_place_of_its_500():
    flask = pytest.importorskip("flask")
    app = flask.Flask(__name__)

    @app.get("/runaway")
    def runaway():
        grow()

    @app.get("/steady")
    def steady():
        return ledgerline.current().path

    @app.get("/error")
    def error():
        raise ValueError("of its own")

    app.logger.disabled = True
    app.wsgi_app = ledgerline.wsgi.Middleware(app.wsgi_app, max="4M", tenant=lambda environ: "flask")
    assert served(app, "/runaway", "/steady", "/error", "/steady") == [507, 200, 500, 200]


DJANGO = """
import django
from django.conf import settings
settings.configure(DEBUG=False, ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="x", LOGGING_CONFIG=None)
import logging
logging.disable(logging.CRITICAL)
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path
import ledgerline.wsgi, io

def runaway(request):
    kept = []
    while True:
        kept.append([len(kept)])

urlpatterns = [path("runaway", runaway), path("steady", lambda request: HttpResponse("steady"))]
application = ledgerline.wsgi.Middleware(get_wsgi_application(), max="8M")

for _ in range(2):
    for target in ("/steady", "/runaway"):
        environ = {"REQUEST_METHOD": "GET", "PATH_INFO": target, "SERVER_NAME": "x", "SERVER_PORT": "80", "wsgi.input": io.BytesIO(),
                   "wsgi.url_scheme": "http"}
        answer = application(environ, lambda status, headers, error=None: print(status[:3]))
        list(answer)
        answer.close()
"""


def test_a_django_application_answers_507_in_place_of_its_500(run):
    pytest.importorskip("django")
    assert run(DJANGO).split() == ["200", "507"] * 2


# ---- pytest, Jupyter, Celery


def run_pytest(folder, source, *options):
    (folder / "test_it.py").write_text(textwrap.dedent(source))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"})
    return done.stdout + done.stderr


TESTS = """
    import pytest

    @pytest.mark.memory("20M")
    def test_small():
        assert len(bytearray(1_000_000))

    @pytest.mark.memory("20M")
    def test_large():
        assert len(bytearray(100_000_000))

    def test_unmarked():
        assert len(bytearray(30_000_000))
"""


def test_a_pytest_mark_fails_the_test_that_is_too_large(tmp_path):
    said = run_pytest(tmp_path, TESTS)
    assert "1 failed, 2 passed" in said and "GroupFull: /tests/test_large" in said
    said = run_pytest(tmp_path, TESTS, "--memory-limit", "25M")
    assert "2 failed, 1 passed" in said and "max 25.0M" in said and "max 20.0M" in said


def test_pytest_reports_the_largest_tests(tmp_path):
    said = run_pytest(tmp_path, TESTS, "--memory-report", "2").split("largest tests (2)")[1]
    lines = [line for line in said.splitlines() if "test_it.py::" in line and "FAILED" not in line]
    assert "28." in lines[0] and "test_unmarked" in lines[0] and "test_small" in lines[1]


def test_a_mark_or_an_option_that_makes_no_sense_is_told(tmp_path):
    assert "memory limit '20MB'" in run_pytest(tmp_path, TESTS, "--memory-limit", "20MB")
    said = run_pytest(tmp_path, TESTS.replace('"20M"', '"lots"'))
    assert "lots" in said and "3 passed" not in said


def test_a_notebooks_cell_has_a_limit_and_an_account(run):
    pytest.importorskip("IPython")
    program = """
import gc
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "ledgerline.jupyter")
shell.run_cell("%%memory 50M\\nkept = bytes(1_000_000)")
shell.run_cell("%%memory 50M\\nrows = []\\nwhile True: rows.append(bytes(10_000))")
shell.run_cell("%%memory\\nprint(len(kept))")
"""
    said = run(program)
    assert "memory: peak" in said and "of 50.0M, 97" in said
    assert "GroupFull" in said and "/cells/2 is full" in said and "Unexpected" not in said and "refused" in said and "1000000" in said


@pytest.mark.parametrize("pool", ["solo", "threads"])
def test_a_celery_task_that_is_too_large_fails_alone(run, pool):
    pytest.importorskip("celery")
    program = f"""
import celery
from celery.contrib.testing.worker import start_worker
app = celery.Celery("jobs", broker="memory://", backend="cache+memory://", task_cls="ledgerline.celery:Task")

@app.task(memory_limit="8M")
def grow(n):
    return len([[i] for i in range(n)])

@app.task
def steady():
    import ledgerline
    return str(ledgerline.current())

with start_worker(app, pool="{pool}", perform_ping_check=False, loglevel="CRITICAL"):
    results = [grow.delay(100), grow.delay(10_000_000), steady.delay(), grow.delay(1000)]
    for result in results:
        try:
            print(result.get(timeout=30))
        except Exception as error:
            print(type(error).__name__)
"""
    lines = [line for line in run(program).splitlines() if line in ("100", "TaskFull", "None", "1000")]
    assert lines == ["100", "TaskFull", "None", "1000"]
