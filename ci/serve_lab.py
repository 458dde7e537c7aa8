"""What the scripts that try `ledgerline serve` share: a busy ledger, a fleet, their servers, and their end."""

import contextlib
import os
import pathlib
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent


def check(good, what):
    """Ends the script where something that must hold does not."""
    if not good:
        raise SystemExit(f"FAILED: {what}")
    print(f"  ok: {what}")


def built(example):
    """The example of the crate, built where it is not."""
    subprocess.run(
        ["cargo", "build", "--release", "--quiet", "-p", "ledgerline-view", "--example", example], cwd=ROOT, check=True
    )
    return ROOT / "target/release/examples" / example


@contextlib.contextmanager
def ended(command, **options):
    """A program that ends with the block."""
    child = subprocess.Popen(command, **options)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


@contextlib.contextmanager
def served(ledgerline, groups, *options):
    """A busy ledger of so many groups and a server of it: gives the server's address."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "server.ledger"
        busy = [built("busy_ledger"), file, str(groups)]
        with ended(busy, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
            if program.stdout.readline().strip() != "ready":
                raise SystemExit("FAILED: the busy ledger did not start")
            # The page shows the file's name, so that is short.
            command = [ledgerline.resolve(), "serve", *options, file.name]
            with ended(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
                address = server.stdout.readline().strip()
                check(address.startswith("http://127.0.0.1:"), f"the address comes first: {address}")
                yield address
                server.terminate()
                check(server.wait(10) == 0, "it ends cleanly at SIGTERM")


def token_of(address):
    """The token in the address that a server printed."""
    return urllib.parse.parse_qs(urllib.parse.urlsplit(address).query)["token"][0]


def get(address, path, accept=None):
    """The status, the headers and the text of an answer, by the address that the server printed."""
    headers = {"Authorization": f"Bearer {token_of(address)}"} | ({"Accept": accept} if accept else {})
    place = urllib.parse.urlsplit(address)
    request = urllib.request.Request(f"http://{place.netloc}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.status, answer.headers, answer.read().decode()


def until(what, is_so, seconds=90):
    """Waits until something is so: only how long it takes is not known."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            value = is_so()
        except (urllib.error.URLError, ConnectionError):
            value = None
        if value:
            print(f"  ok: {what}")
            return value
        time.sleep(0.2)
    raise SystemExit(f"FAILED: {what}: not within {seconds} s")


@contextlib.contextmanager
def served_fleet(ledgerline, folder):
    """The books of a redis, of which two nodes share a budget and want more: gives the address at which they are served."""
    worker = ROOT / "target/debug/examples/worker"
    subprocess.run(["cargo", "build", "--quiet", "-p", "ledgerline-fleet", "--example", "worker"], cwd=ROOT, check=True)
    with contextlib.ExitStack() as stack:
        quiet = {"stdout": subprocess.DEVNULL, "cwd": folder}
        stack.enter_context(ended(["redis-server", "--port", "0", "--unixsocket", "redis.sock", "--save", ""], **quiet))
        until("a redis starts", (folder / "redis.sock").exists)
        store = f"redis+unix://{folder / 'redis.sock'}"
        os.environ["LEDGERLINE_FLEET_STORE"] = store
        for words in (["load"], ["set", "/acme", "max=2G"], ["set", "/acme/batch", "max=1G"]):
            subprocess.run([ledgerline, "fleet", *words], check=True, stdout=subprocess.DEVNULL)
        for name in ("node-a", "node-b"):
            node = [worker, store, name, "/acme/batch"]
            stack.enter_context(ended(node, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL))
        words = [ledgerline, "fleet", "serve", "--interval", "3s"]
        server = stack.enter_context(ended(words, stdout=subprocess.PIPE, text=True))
        yield server.stdout.readline().strip()
        server.terminate()
        check(server.wait(10) == 0, "it ends cleanly at SIGTERM")
