"""One run of a program, plain or under `ledgerline run`, and whether two of them are the same."""

import dataclasses
import hashlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from .program import Context, Failed, environment, find, free_port, wait_until

# No program of the list takes a tenth of this on an idle machine; a busy one gets the rest.
LIMIT_SECONDS = 300


@dataclasses.dataclass
class Outcome:
    """What a run came to."""

    status: int
    stdout: bytes
    stderr: bytes
    files: dict
    seconds: float
    cpu_seconds: float
    said: list = dataclasses.field(default_factory=list)
    account: dict | None = None


class Place:
    """A temporary folder in which one program is prepared once and run often."""

    def __init__(self, program, quick):
        self.program = program
        self.quick = quick
        self.top = tempfile.mkdtemp(prefix="programs-")
        os.chmod(self.top, 0o755)
        self.user = "nobody" if program.unprivileged and os.getuid() == 0 else None
        # That user has no home, and the command puts its library into no folder below one where others may write.
        self.cache = tempfile.mkdtemp(prefix="ledgerline-programs-", dir="/var/lib") if self.user else None
        if self.cache:
            self.own(self.cache)
        try:
            self.template = self.context("template")
            os.mkdir(self.template.folder)
            self.own(self.template.folder)
            program.prepare(self.template)
        except BaseException:
            self.remove()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()

    def remove(self):
        """Removes all of it."""
        for folder in filter(None, (self.top, self.cache)):
            shutil.rmtree(folder, ignore_errors=True)

    def context(self, name):
        """What the program may use in a folder of this place."""
        folder = os.path.join(self.top, name)
        variables = environment(folder) | self.program.environment
        if self.cache:
            variables["XDG_CACHE_HOME"] = self.cache
        return Context(folder, self.quick, variables, self.user)

    def own(self, folder):
        """Gives a folder to the user that the program runs as."""
        if self.user:
            entry = pwd.getpwnam(self.user)
            for path, _, files in os.walk(folder):
                for each in [path] + [os.path.join(path, name) for name in files]:
                    os.chown(each, entry.pw_uid, entry.pw_gid, follow_symlinks=False)

    def fresh(self):
        """A copy of what was prepared, in the same folder each time."""
        context = self.context("work")
        shutil.rmtree(context.folder, ignore_errors=True)
        shutil.copytree(self.template.folder, context.folder, symlinks=True)
        self.own(context.folder)
        context.port = free_port()
        return context

    def reachable(self, command):
        """The command, where the program's user can read it: a copy."""
        if not self.user:
            return command
        folder = os.path.join(self.top, "bin")
        if not os.path.isdir(folder):
            os.mkdir(folder)
            shutil.copy(command[0], folder)
        return [os.path.join(folder, os.path.basename(command[0])), *command[1:]]

    def run(self, before=None, watch=None):
        """Runs the program once, behind the command `before` (given the files for its account), and lets `watch`
        look at it."""
        program, context = self.program, self.fresh()
        out = os.path.join(self.top, "out")
        shutil.rmtree(out, ignore_errors=True)
        os.mkdir(out)
        self.own(out)
        json_file = os.path.join(out, "account.json")
        command = [str(word) for word in program.command(context)]
        command[0] = find(command[0]) or command[0]
        if before:
            before = self.reachable(before)
            command = [*before, "--json", json_file, "--account", os.path.join(out, "account"), "--", *command]
        answer = b""
        with open(os.path.join(out, "stdout"), "wb") as stdout, open(os.path.join(out, "stderr"), "wb") as stderr:
            started = time.monotonic()
            process = subprocess.Popen(
                command,
                cwd=context.folder,
                env=context.environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                user=self.user,
            )
            with Watchdog(process) as dog:
                watching = watch(process.pid) if watch else None
                if program.drive:
                    answer, seconds = self.drive(process, context)
                status, usage = finish(process)
                if not program.drive:
                    seconds = time.monotonic() - started
                if watching:
                    watching.stop()
        if dog.bit:
            status = "did not end"
        stdout, stderr = (read(os.path.join(out, name)) for name in ("stdout", "stderr"))
        said = []
        if before:
            lines = stderr.splitlines(keepends=True)
            said = [line.decode(errors="replace").strip() for line in lines if line.startswith(b"ledgerline: ")]
            stderr = b"".join(line for line in lines if not line.startswith(b"ledgerline: "))
        if program.drive:
            # A server's log has times and process IDs; the answers to its clients are compared.
            log, stdout, stderr = stderr + stdout, answer, b""
        account = read_account(json_file) if before else None
        outcome = Outcome(
            status,
            program.normalise(stdout),
            program.normalise(stderr),
            digests(context, program.files),
            seconds,
            usage.ru_utime + usage.ru_stime,
            said,
            account,
        )
        if program.drive:
            outcome.log = log
        return outcome

    def drive(self, process, context):
        """Runs a server's clients, and stops it; what they learnt, and how long it took."""
        try:
            if not wait_until(lambda: self.program.ready(context), 60, lambda: exists(process.pid)):
                return b"the server never answered", 0.0
            started = time.monotonic()
            try:
                answer = self.program.drive(context)
            except (Failed, subprocess.TimeoutExpired) as failed:
                answer = f"a client failed: {failed}".encode()
            return answer, time.monotonic() - started
        finally:
            if exists(process.pid):
                process.send_signal(self.program.stop)


class Watchdog:
    """Kills a run that does not end, or that this script gives up."""

    def __init__(self, process):
        self.process = process
        self.bit = False
        self.timer = threading.Timer(LIMIT_SECONDS, self.bite)

    def __enter__(self):
        self.timer.start()
        return self

    def __exit__(self, kind, *_):
        self.timer.cancel()
        if kind and self.process.returncode is None:
            self.bite()

    def bite(self):
        self.bit = True
        os.killpg(self.process.pid, signal.SIGKILL)


def exists(pid):
    """Whether a child has not ended."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def finish(process):
    """Waits for a child: its status as a shell has it, and what it and its children used."""
    _, status, usage = os.wait4(process.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    process.returncode = code
    return (128 - code if code < 0 else code), usage


def read(path):
    with open(path, "rb") as file:
        return file.read()


def read_account(path):
    """The account as JSON; None if the command wrote none."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def digests(context, names):
    """What the files of a run hold, in short."""
    found = {}
    for name in names:
        path = context.path(name)
        found[name] = hashlib.sha256(read(path)).hexdigest()[:16] if os.path.exists(path) else "absent"
    return found


def differences(plain, run):
    """What differs between two runs, in words."""
    found = []
    if plain.status != run.status:
        found.append(f"exit status {run.status} instead of {plain.status}")
    for name in ("stdout", "stderr"):
        one, other = getattr(plain, name), getattr(run, name)
        if one != other:
            found.append(f"{name}: {first_difference(one, other)}")
    for name, digest in plain.files.items():
        if run.files[name] != digest:
            found.append(f"the file {name} differs")
    return found


def first_difference(one, other):
    """The first line that differs."""
    theirs, ours = (text.decode(errors="replace").splitlines() for text in (one, other))
    for number in range(max(len(theirs), len(ours)) + 1):
        left, right = (lines[number] if number < len(lines) else None for lines in (theirs, ours))
        if left != right:
            shown = ["nothing" if line is None else repr(line[:100]) for line in (right, left)]
            return f"line {number + 1} is {shown[0]} instead of {shown[1]}"
    return "the ends of lines differ"
