"""What an entry of the list is, and where its program is found."""

import dataclasses
import glob
import os
import shutil
import socket
import subprocess
import sys
import time

# Debian's own programs precede others of the same name on a machine.
DEBIAN = ("/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/lib/postgresql/*/bin")
LIBRARIES = "/usr/lib/x86_64-linux-gnu"


class Failed(Exception):
    """What is not under test failed: a client, a compiler that prepares a program."""


def find(name):
    """The path of a command, or of a file that is named by its path; None if it is not there."""
    for pattern in [name] if "/" in name else [f"{folder}/{name}" for folder in DEBIAN]:
        found = sorted(path for path in glob.glob(pattern) if os.path.isfile(path))
        if found:
            return found[-1]
    return None if "/" in name else shutil.which(name)


@dataclasses.dataclass
class Context:
    """What an entry may use: its folder, how large its work is, tools that are not under test."""

    folder: str
    quick: bool
    environment: dict
    user: str | None = None
    port: int = 0

    def size(self, full, quick):
        """One of two sizes of the work."""
        return quick if self.quick else full

    def path(self, name):
        """A path in the program's folder."""
        return os.path.join(self.folder, name)

    def write(self, name, text):
        """Writes a file into the program's folder."""
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def plain(self, *command, text=None):
        """Runs a tool that is not under test, and gives what it printed."""
        done = subprocess.run(
            [find(command[0]) or command[0], *command[1:]],
            cwd=self.folder,
            env=self.environment,
            user=self.user,
            input=text.encode() if text is not None else b"",
            capture_output=True,
            timeout=300,
        )
        if done.returncode != 0:
            said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
            raise Failed(f"{os.path.basename(command[0])} ended with {done.returncode}: {' '.join(said[-2:])}")
        return done.stdout

    def compile(self, name, source, *options, compiler="gcc"):
        """Compiles a C or C++ program; its path."""
        file = self.write(f"{name}.{'cc' if compiler == 'g++' else 'c'}", source)
        self.plain(compiler, "-O2", "-o", self.path(name), file, *options)
        return self.path(name)


def nothing(context):
    """No preparation."""


@dataclasses.dataclass
class Program:
    """A program that is run plain and under `ledgerline run`.

    `prepare` fills a folder once; each run begins with a fresh copy of it in the same place. A program that has
    `drive` is a server: it is started, `drive` runs plain clients and gives what they learnt, `stop` ends it.
    """

    name: str
    packages: tuple
    needs: tuple
    command: object
    prepare: object = nothing
    compared: str = "status, stdout, stderr"
    normalise: object = bytes
    files: tuple = ()
    environment: dict = dataclasses.field(default_factory=dict)
    accounted: bool = True
    # The names of started programs, or parts of them, that cannot be accounted.
    unseen: tuple = ()
    unprivileged: bool = False
    drive: object = None
    ready: object = None
    stop: int = 15

    def missing(self):
        """What this machine lacks of what the program needs."""
        return [need for need in self.needs if not find(need)]


@dataclasses.dataclass
class Growth(Program):
    """A program that asks for memory until a limit says no."""

    limit: int = 128 << 20
    # Whether it is an error if the kernel sees more than a twentieth above the limit. If it is not, `why` explains why
    # the kernel may; if the kernel sees far less than the limit, `why` explains that, too.
    asserted: bool = True
    why: str = ""


def environment(home):
    """The environment of every run: no user's settings, one locale, one time zone."""
    kept = {name: os.environ[name] for name in ("RUSTUP_HOME", "CARGO_HOME", "RUSTUP_TOOLCHAIN") if name in os.environ}
    rustup = os.path.expanduser("~/.rustup")
    if os.path.isdir(rustup):
        kept.setdefault("RUSTUP_HOME", rustup)
    day = "2020-01-01T00:00:00Z"
    return {
        "PATH": os.pathsep.join(["/usr/bin", "/usr/sbin", "/bin", "/sbin", os.environ.get("PATH", "")]),
        "HOME": home,
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_AUTHOR_DATE": day,
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.org",
        "GIT_COMMITTER_DATE": day,
        "SOURCE_DATE_EPOCH": "1577836800",
        "DEBUGINFOD_URLS": "",
        **kept,
    }


def free_port():
    """A TCP port of this machine that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(address):
    """Whether somebody listens: at a port, or at a socket with a path."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as probe:
        try:
            probe.connect(address if isinstance(address, str) else ("127.0.0.1", address))
        except OSError:
            return False
        return True


def wait_until(condition, seconds, alive):
    """Waits for a condition while something lives; whether it came."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and alive():
        if condition():
            return True
        time.sleep(0.02)
    return False


def say(line):
    """A line of progress."""
    print(line, file=sys.stderr, flush=True)
