"""Tools of the shell, of media, of debugging; and what only a system's insides see."""

import re

from .program import Program

THREADS = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static void *work(void *argument) {
    void *block = malloc(1000 + (long)argument % 100);
    free(block);
    return argument;
}
int main(int count, char **arguments) {
    int threads = atoi(arguments[1]);
    pthread_t *ids = malloc(threads * sizeof *ids);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    long sum = 0;
    for (long i = 0; i < threads; i++)
        if (pthread_create(&ids[i], &small, work, (void *)i)) return perror("pthread_create"), 1;
    for (int i = 0; i < threads; i++) {
        void *result;
        pthread_join(ids[i], &result);
        sum += (long)result;
    }
    printf("%ld\\n", sum);
    free(ids);
    return 0;
}
"""

LEAK = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int count, char **arguments) {
    char *kept[200];
    for (int i = 0; i < 200; i++) kept[i] = strdup("a block that is freed, but one");
    printf("%s\\n", kept[199]);
    for (int i = 0; i < 199; i++) free(kept[i]);
    kept[199] = NULL;
    return count > 1 ? (int)strlen(kept[199]) : 0;
}
"""

SQL = """
create table t (id integer primary key, name text, value integer);
with recursive n(i) as (select 1 union all select i + 1 from n where i < {n})
insert into t select i, 'name' || i, i * 7919 % 10007 from n;
create index by_value on t (value);
select count(*), sum(value), max(name) from t where value % 3 = 1;
select value, count(*) from t group by value order by count(*) desc, value limit 5;
"""

GIT = """set -e
git init -q repository
cd repository
i=0
while [ $i -lt $1 ]; do
    cp ../text "file$i"; echo $i >>"file$i"; i=$((i + 1))
done
git add .
git commit -q -m one
for f in file?; do echo more >>$f; done
git commit -q -a -m two
git gc -q --aggressive
git fsck
git log -p | sha256sum
git rev-parse HEAD
"""


def text(context, lines):
    """A file of lines in no order."""
    rows = (
        f"{i * 7919 % 1000003} line {i * 104729 % 999983} of a text that has words, {i % 17}\n" for i in range(lines)
    )
    return context.write("text", "".join(rows))


def on_text(name, package, command, full=1_000_000, quick=50_000, files=(), **more):
    """A program that reads a file of lines."""
    needs = (command[0],) + more.pop("needs", ())
    return Program(
        name,
        (package,),
        needs,
        lambda context: command,
        prepare=lambda context: text(context, context.size(full, quick)),
        files=files,
        **more,
    )


def shell(name, package, needs, line, **more):
    """A line for the shell."""
    return Program(name, (package,), needs, lambda context: ["sh", "-c", line(context)], **more)


def without_numbers(output):
    """Process IDs and addresses, left out."""
    return re.sub(rb"0x[0-9A-Fa-f]+|==\d+==|\bLWP \d+|process \d+", b"N", output)


PROGRAMS = [
    Program(
        "git",
        ("git",),
        ("git", "sha256sum"),
        lambda context: ["sh", "-c", GIT, "sh", context.size(300, 100)],
        prepare=lambda context: text(context, 200),
    ),
    shell(
        "sh, true in a loop",
        "dash",
        ("sh",),
        lambda c: f"i=0; while [ $i -lt {c.size(2000, 100)} ]; do /bin/true; i=$((i+1)); done; echo $i",
    ),
    Program(
        "bash",
        ("bash",),
        ("bash",),
        lambda context: [
            "bash",
            "-c",
            f"declare -A a; for ((i = 0; i < {context.size(200000, 10000)}; i++)); do a[k$((i % 5003))]+=$i; done; "
            "echo ${#a[@]} | (read x; echo $(($x + $(echo 1))))",
        ],
    ),
    Program(
        "10 000 threads",
        ("gcc",),
        ("gcc",),
        lambda context: ["./threads", context.size(10000, 2000)],
        prepare=lambda context: context.compile("threads", THREADS, "-pthread"),
    ),
    on_text(
        "sort", "coreutils", ["sort", "-n", "-S", "64M", "--parallel=2", "-o", "sorted", "text"], files=("sorted",)
    ),
    on_text("grep", "grep", ["grep", "-cE", "(line|text) [0-9]*7[0-9]* .*words, (1|3)$", "text"]),
    on_text("ripgrep", "ripgrep", ["rg", "-c", "(line|text) [0-9]*7[0-9]* .*words, (1|3)$", "text"]),
    on_text("awk", "mawk", ["awk", '{ n[$3 % 5003] += $1 } END { for (i in n) s += n[i]; printf "%d\\n", s }', "text"]),
    on_text("sed", "sed", ["sed", "-n", "s/line \\([0-9]*\\) of/\\1/; /7 .*, 3$/p", "text"], 300_000),
    on_text("gzip", "gzip", ["gzip", "-n", "-9", "text"], 150_000, files=("text.gz",)),
    on_text(
        "tar, xz",
        "xz-utils",
        ["tar", "-I", "xz -T2 -3", "--mtime=@0", "-cf", "t.tar.xz", "text"],
        60_000,
        needs=("xz",),
        files=("t.tar.xz",),
    ),
    on_text(
        "tar, zstd",
        "zstd",
        ["tar", "-I", "zstd -T2 -12", "--mtime=@0", "-cf", "t.tar.zst", "text"],
        400_000,
        needs=("zstd",),
        files=("t.tar.zst",),
    ),
    Program(
        "jq",
        ("jq",),
        ("jq",),
        lambda context: ["jq", "-c", "group_by(.key) | map({key: .[0].key, n: length}) | .[0:3]", "rows.json"],
        prepare=lambda context: context.write(
            "rows.json",
            "[" + ",".join(f'{{"id":{i},"key":"k{i % 101}"}}' for i in range(context.size(100_000, 20_000))) + "]",
        ),
    ),
    Program(
        "sqlite3",
        ("sqlite3",),
        ("sqlite3",),
        lambda context: ["sqlite3", "base", SQL.format(n=context.size(800_000, 50_000))],
    ),
    on_text(
        "vim",
        "vim",
        ["vim", "-es", "-u", "NONE", "-i", "NONE", "text", "-c", "%s/line/row/g", "-c", "sort n", "-c", "wq"],
        100_000,
        10_000,
        files=("text",),
    ),
    Program(
        "ffmpeg",
        ("ffmpeg",),
        ("ffmpeg",),
        lambda context: [
            "ffmpeg",
            "-loglevel",
            "error",
            "-f",
            "lavfi",
            "-i",
            f"testsrc2=size=640x360:rate=25:duration={context.size(8, 1)}",
            "-threads",
            "2",
            "-c:v",
            "mpeg4",
            "-flags",
            "+bitexact",
            "-fflags",
            "+bitexact",
            "out.avi",
        ],
        files=("out.avi",),
    ),
    Program(
        "imagemagick",
        ("imagemagick-6.q16",),
        ("convert-im6.q16",),
        lambda context: [
            "convert-im6.q16",
            "-size",
            context.size("1600x1200", "400x300"),
            "gradient:red-blue",
            "-swirl",
            "90",
            "-blur",
            "0x6",
            "-resize",
            "50%",
            "out.ppm",
        ],
        files=("out.ppm",),
    ),
    shell(
        "script, a terminal",
        "bsdutils",
        ("script",),
        lambda c: "script -qec 'stty size; tty >/dev/null && echo on a terminal; seq 1000' /dev/null",
    ),
    shell(
        "tmux",
        "tmux",
        ("tmux",),
        # The session waits for its reader: the server ends with the session, and a request to an ended server is an
        # error.
        lambda c: "tmux -S ./s -f /dev/null new-session -d "
        "'seq 1000 >out; tmux -S ./s wait-for -S done; tmux -S ./s wait-for read' && "
        "tmux -S ./s wait-for done && wc -l <out && tmux -S ./s wait-for -S read; sleep 0.2",
        compared="status, stdout, stderr; the last session ends the server",
        unseen=("utempter",),
    ),
    Program(
        "valgrind",
        ("valgrind", "gcc", "libc6-dbg"),
        ("valgrind", "gcc"),
        lambda context: ["valgrind", "-q", "--leak-check=full", "--error-exitcode=9", "./leak"],
        prepare=lambda context: context.compile("leak", LEAK, "-g"),
        compared="status, stdout, stderr, without addresses and process IDs",
        normalise=without_numbers,
        unseen=("memcheck-amd64-linux",),
    ),
    Program(
        "gdb",
        ("gdb", "gcc"),
        ("gdb", "gcc"),
        lambda context: ["gdb", "-q", "-nx", "-batch", "-ex", "run", "-ex", "bt", "--args", "./leak", "crash"],
        prepare=lambda context: context.compile("leak", LEAK, "-g"),
        compared="status, stdout, stderr, without addresses and process IDs",
        normalise=without_numbers,
    ),
    Program(
        "strace",
        ("strace",),
        ("strace",),
        lambda context: ["strace", "-f", "-o", "trace", "sh", "-c", "seq 100 | sort -r | head -3"],
        compared="status, stdout, stderr; its trace has the preloaded library's calls",
    ),
]
