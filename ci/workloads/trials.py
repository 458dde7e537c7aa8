"""Made-up programs by which `ci/programs --self-test` tries itself."""

from .growth import MIB, script
from .program import Growth, Program, answers

UNDER = 'case "$LD_PRELOAD" in *ledgerline*) {then};; *) {otherwise};; esac'


def trial(name, line, **more):
    """A line for the shell."""
    return Program(name, ("dash",), ("sh",), lambda context: ["sh", "-c", line], **more)


def differing(name, then, otherwise=":", **more):
    """A program that does one thing under the command, and another without it."""
    return trial(name, UNDER.format(then=then, otherwise=otherwise), **more)


SERVER = """
import os, signal, socket, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
server = socket.socket(socket.AF_UNIX)
server.bind("s")
server.listen()
while True:
    client, _ = server.accept()
    with client:
        if client.recv(1):
            client.sendall(b"ledgerline" if "ledgerline" in os.environ.get("LD_PRELOAD", "") and {tells} else b"plain")
"""


def server(name, tells):
    """A server that may tell its clients that it runs under the command."""
    return Program(
        name,
        ("python3",),
        ("python3",),
        lambda context: ["python3", "-c", SERVER.format(tells=tells)],
        drive=lambda context: context.plain(
            "python3",
            "-c",
            "import socket; s = socket.socket(socket.AF_UNIX); s.connect('s'); s.send(b'?'); print(s.recv(99))",
        ),
        ready=lambda context: answers(context.path("s")),
    )


# The programs of the self-test, and the expected properties of their results.
PROGRAMS = [
    (trial("the same", "echo a; echo b >&2; echo c >file", files=("file",)), "yes"),
    (trial("the same, killed", "kill -TERM $$"), "yes"),
    (differing("another status", "exit 3"), "no exit status 3 instead of 0"),
    (differing("killed", "kill -KILL $$"), "no exit status 137 instead of 0"),
    (differing("another stdout", "echo a; echo b", "echo a; echo c"), "no stdout: line 2 is 'b' instead of 'c'"),
    (differing("another stderr", "echo b >&2"), "no stderr: line 1 is 'b' instead of nothing"),
    (differing("another file", "echo b >file", "echo c >file", files=("file",)), "no the file file differs"),
    (differing("a file that is absent", ":", "echo c >file", files=("file",)), "no the file file differs"),
    (differing("what is left out", "echo 12", "echo 13", normalise=lambda output: b""), "yes"),
    (trial("not named", ":", accounted=False), "no a program that is not accounted is not named"),
    (trial("named", "env -i sh -c :"), "no not accounted: sh (environment cleared)"),
    (trial("named rightly", "env -i sh -c :", accounted=False), "yes"),
    (trial("unsteady", "cat /proc/sys/kernel/random/uuid"), "unsteady stdout"),
    (Program("missing", ("none",), ("a-command-that-is-not-there",), lambda context: []), "missing a-command"),
    (server("a server", False), "yes"),
    (server("a server that tells", True), "no stdout: line 1 is \"b'ledgerline'\" instead of \"b'plain'\""),
]

# Memory from a system call that no library sees.
UNSEEN = """
import ctypes
kernel = ctypes.CDLL(None).syscall
kernel.restype = ctypes.c_void_p
place = kernel(9, None, ctypes.c_size_t(64 << 20), 3, 0x22, -1, ctypes.c_long(0))
ctypes.memset(place, 1, 64 << 20)
import time
time.sleep(0.2)
"""

# Limits that hold, and one that does not.
LIMITS = [
    (
        script(
            "a limit that holds",
            "python3",
            ["python3", "-c"],
            "x = []\nwhile True: x.append(bytearray(100000))",
            64 * MIB,
        ),
        True,
    ),
    (script("a limit that does not", "python3", ["python3", "-c"], UNSEEN, 32 * MIB), False),
    (Growth("missing", ("none",), ("a-command-that-is-not-there",), lambda context: []), None),
]
