"""Programs that ask for memory until a limit says no, and what the kernel saw of them meanwhile."""

import os
import re
import threading
import time

from .languages import CPP_TEMPLATES, rust_source
from .program import Failed, Growth, answers
from .servers import ask_psql, is_ready, postgres, prepare_postgres, redis

MIB = 1 << 20

JAVA = """
import java.util.*;
public class Main {
    public static void main(String[] args) {
        List<byte[]> held = new ArrayList<>();
        for (;;) { byte[] b = new byte[100000]; Arrays.fill(b, (byte) 1); held.add(b); }
    }
}
"""

CPP = """
#include <cstring>
#include <vector>
int main() {
    std::vector<char *> held;
    for (;;) { held.push_back(new char[100000]); std::memset(held.back(), 1, 100000); }
}
"""


def script(name, package, command, text, limit, **more):
    """An interpreter that is given its program on the command line."""
    return Growth(name, (package,), (command[0],), lambda context: [*command, text], limit=limit, **more)


def java(name, options, limit, **more):
    """A JVM with options."""
    return Growth(
        name,
        ("default-jdk-headless",),
        ("java", "javac"),
        lambda context: ["java", *options, "-cp", ".", "Main"],
        prepare=lambda context: (context.write("Main.java", JAVA), context.plain("javac", "Main.java")),
        limit=limit,
        **more,
    )


def grow_postgres(context):
    """A query whose memory has no end; what its client is told, and whether the server still answers."""
    query = "select count(a) from (select array_agg(repeat(md5(g::text), 8)) a from generate_series(1, 100000000) g) t"
    try:
        said = ask_psql(context, query).decode()
    except Failed as failed:
        said = str(failed)
    return f"{said}; then `select 1` gives {ask_psql(context, 'select 1').decode().strip()}".encode()


def grow_redis(context):
    """Values until the server says no, or goes."""
    loop = "local i = 0 while true do redis.call('set', i, string.rep('x', 100)) i = i + 1 end"
    try:
        said = context.plain("redis-cli", "-s", "s", "eval", loop, "0").decode()
    except Failed as failed:
        said = str(failed)
    return said.encode()


COLLECTOR = "glibc keeps what V8's collector gave back"
COMMITS = "the JVM asks for hundreds of MB at a time, and touches them later"
HEAP = "its own limit of 400 MiB came first"
RUBY = "Ruby maps 52 MB at its start and does not touch them"
NOTES = "written data of programs and libraries, and the preloaded library's notes of small blocks"
ARENAS = "glibc keeps what its arenas were given back, and libLLVM has 9 MB of written data"

PROGRAMS = [
    script("python3", "python3", ["python3", "-c"], "x = []\nwhile True: x.append((len(x), str(len(x))))", 128 * MIB),
    script(
        "node",
        "nodejs",
        ["node", "-e"],
        "const x = []; for (let i = 0; ; i++) x.push({ a: i, b: String(i) })",
        512 * MIB,
        asserted=False,
        why=COLLECTOR,
    ),
    java("java", [], 512 * MIB, why=COMMITS),
    java("java -Xms16m -Xmx512m", ["-Xms16m", "-Xmx512m"], 512 * MIB, why=COMMITS),
    java("java -Xms16m -Xmx400m", ["-Xms16m", "-Xmx400m"], 512 * MIB, why=HEAP),
    script("ruby", "ruby", ["ruby", "-e"], "x = []; loop { x << [x.size, x.size.to_s * 10] }", 128 * MIB, why=RUBY),
    script("perl", "perl", ["perl", "-e"], "my @x; push @x, [scalar(@x), 'x' x 50] while 1", 128 * MIB),
    script(
        "php",
        "php-cli",
        ["php", "-d", "memory_limit=-1", "-r"],
        "$x = []; while (1) $x[] = [count($x), str_repeat('x', 50)];",
        128 * MIB,
    ),
    script(
        "lua", "lua5.4", ["lua5.4", "-e"], "local x = {} while true do x[#x + 1] = { #x, tostring(#x) } end", 128 * MIB
    ),
    Growth(
        "C++ new",
        ("g++",),
        ("g++",),
        lambda context: ["./program"],
        prepare=lambda context: context.compile("program", CPP, compiler="g++"),
        limit=128 * MIB,
    ),
    Growth(
        "g++",
        ("g++",),
        ("g++",),
        lambda context: ["g++", "-O2", "-c", "-o", "f.o", "f.cc"],
        prepare=lambda context: context.write("f.cc", CPP_TEMPLATES),
        limit=128 * MIB,
    ),
    Growth(
        "rustc",
        ("rustc",),
        ("rustc",),
        lambda context: ["rustc", "--edition", "2021", "-O", "-o", "program", "main.rs"],
        prepare=lambda context: context.write("main.rs", rust_source(60)),
        limit=32 * MIB,
        asserted=False,
        why=ARENAS,
    ),
    script("sort", "coreutils", ["sh", "-c"], "seq 3000000 | sort -R -S 500M | tail -1 | wc -l", 64 * MIB),
    Growth(
        "PostgreSQL",
        ("postgresql",),
        ("/usr/lib/postgresql/*/bin/postgres", "initdb", "psql"),
        postgres,
        prepare=prepare_postgres,
        unprivileged=True,
        drive=grow_postgres,
        ready=lambda context: answers(context.path(".s.PGSQL.5432")),
        stop=2,
        limit=384 * MIB,
    ),
    Growth(
        "redis",
        ("redis-server", "redis-tools"),
        ("redis-server", "redis-cli"),
        redis,
        drive=grow_redis,
        ready=is_ready("s"),
        limit=128 * MIB,
        asserted=False,
        why=NOTES,
    ),
]


class Anonymous:
    """Asks the kernel, every millisecond or two, how much anonymous memory the descendants of a process have resident.

    One process: RssAnon of its status. Several: the sum of Pss_Anon, in which a page that a fork shares counts once.
    """

    def __init__(self, pid):
        self.pid = pid
        self.peak = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        while not self.ended.is_set():
            self.peak = max(self.peak, self.now())
            time.sleep(0.001)

    def now(self):
        """Bytes now."""
        below = descendants(self.pid)
        if len(below) == 1:
            return field(below[0], "status", "RssAnon")
        return sum(field(pid, "smaps_rollup", "Pss_Anon") for pid in below)

    def stop(self):
        """Ends it; what was seen stays."""
        self.ended.set()
        self.thread.join()


def descendants(pid):
    """The processes below one."""
    found = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                children = [int(child) for child in file.read().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def field(pid, file, name):
    """A field of a process in /proc, in bytes."""
    try:
        with open(f"/proc/{pid}/{file}", encoding="utf-8", errors="replace") as text:
            value = re.search(rf"^{name}:\s+(\d+) kB", text.read(), re.MULTILINE)
    except OSError:
        return 0
    return int(value.group(1)) * 1024 if value else 0
