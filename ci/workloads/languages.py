"""Interpreters, runtimes and compilers."""

from .program import LIBRARIES, Program

PYTHON = """
import json, re, sys
n = int(sys.argv[1])
rows = [(i, str(i), {"key": i % 97}) for i in range(n)]
index = {name: row for _, name, row in rows}
text = json.dumps([index[str(i)] for i in range(0, n, 3)])
words = re.findall(r"[0-9]+", text)
print(len(text), sum(map(int, words)), len({tuple(sorted(row.items())) for row in json.loads(text)}))
for _ in range(n // 20):
    rows = rows[1:20] + [(len(words), "x" * 50, {})]
print(len(rows))
"""

PYTHON_BLOCKS = """
import sys
blocks = []
for i in range(int(sys.argv[1])):
    blocks.append(bytearray(600 + i % 3000))
    if len(blocks) > 2000:
        del blocks[:1000]
print(sum(map(len, blocks)))
"""

PYTHON_PROCESSES = """
import multiprocessing, sys
def work(i):
    return sum(len(str(j)) for j in range(i))
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(4) as pool:
        print(sum(pool.map(work, [int(sys.argv[1])] * 20)))
"""

NODE = """
const n = Number(process.argv[2]);
const rows = [];
for (let i = 0; i < n; i++) rows.push({ id: i, name: String(i), tags: [i % 7, i % 11] });
const text = JSON.stringify(rows);
const back = JSON.parse(text);
const buffers = [];
for (let i = 0; i < n / 1000; i++) buffers.push(Buffer.alloc(65536, i));
const hash = require("crypto").createHash("sha256");
for (const buffer of buffers) hash.update(buffer);
console.log(text.length, back.length, hash.digest("hex"));
"""

JAVA = """
import java.util.*;
public class Main {
    public static void main(String[] args) throws Exception {
        int n = Integer.parseInt(args[0]);
        Map<String, List<Integer>> map = new TreeMap<>();
        for (int i = 0; i < n; i++) map.computeIfAbsent("k" + i % 5003, k -> new ArrayList<>()).add(i);
        Thread[] threads = new Thread[4];
        long[] sums = new long[4];
        for (int t = 0; t < 4; t++) {
            int own = t;
            threads[t] = new Thread(() -> {
                for (int i = 0; i < n; i++)
                    sums[own] += new StringBuilder().append(i).append(own).toString().hashCode();
            });
            threads[t].start();
        }
        for (Thread thread : threads) thread.join();
        System.out.println(map.size() + " " + Arrays.toString(sums));
    }
}
"""

RUBY = """
n = ARGV[0].to_i
rows = (0...n).map { |i| { id: i, name: "n#{i}" } }
puts rows.group_by { |row| row[:id] % 101 }.values.map(&:size).sum
puts rows.map { |row| row[:name] * 3 }.sort.last
"""

PERL = """
my %h; my $n = shift;
for my $i (0 .. $n) { push @{ $h{"k" . $i % 5003} }, "v$i" }
my @k = sort { @{ $h{$a} } <=> @{ $h{$b} } || $a cmp $b } keys %h;
print scalar(@k), " ", length(join ",", map { @{ $h{$_} } } @k), "\\n";
"""

PHP = """<?php
$n = (int) $argv[1];
$rows = [];
for ($i = 0; $i < $n; $i++) $rows[] = ["id" => $i, "name" => "n$i"];
usort($rows, fn($a, $b) => $b["id"] <=> $a["id"]);
echo count($rows), " ", md5(json_encode($rows)), "\\n";
"""

LUA = """
local n = tonumber(arg[1])
local t = {}
for i = 1, n do t[i] = { id = i, name = "n" .. i } end
table.sort(t, function(a, b) return a.name < b.name end)
local s = {}
for i = 1, n, 10 do s[#s + 1] = t[i].name end
print(#t, #table.concat(s, ","))
"""

GO = """package main

import "fmt"

func main() {
	m := map[string][]byte{}
	for i := 0; i < 200000; i++ {
		m[fmt.Sprint(i%5003)] = make([]byte, 1000)
	}
	fmt.Println(len(m))
}
"""

CPP = """
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>
static unsigned long work(int n) {
    std::map<std::string, std::unique_ptr<std::vector<int>>> map;
    for (int i = 0; i < n; i++) {
        auto &place = map["key" + std::to_string(i % 5003)];
        if (!place) place = std::make_unique<std::vector<int>>();
        place->push_back(i);
        char *block = static_cast<char *>(malloc(16 + i % 500));
        block[0] = 1;
        free(block);
    }
    unsigned long sum = 0;
    for (auto &entry : map) sum += entry.first.size() * entry.second->size();
    return sum;
}
int main(int, char **arguments) {
    int n = atoi(arguments[1]);
    std::vector<unsigned long> sums(4);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++) threads.emplace_back([&, t] { sums[t] = work(n); });
    for (auto &thread : threads) thread.join();
    std::printf("%lu %lu\\n", sums[0], sums[3]);
}
"""

CPP_TEMPLATES = """
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <vector>
int main() {
    std::map<std::string, std::function<int(int)>> map{{"a", [](int x) { return x; }}};
    std::vector<std::string> words{"x", "y"};
    std::sort(words.begin(), words.end());
    std::regex pattern("[a-z]+(b|c)*");
    std::cout << map.size() << std::regex_match("abc", pattern) << words[0] << '\\n';
}
"""


def c_source(number, functions):
    """A C file with so many functions."""
    lines = ["#include <stdio.h>", "#include <stdlib.h>", "#include <string.h>"]
    for i in range(functions):
        lines.append(
            f"int f{number}_{i}(int n) {{ int s = {i}; char *p = malloc(n + 9); for (int j = 0; j < n; j++) "
            f'{{ p[j] = (char)(j * {i + 3}); s += p[j] ^ (s >> {i % 7}); if (s % {i + 2} == 1) s += strlen("x{i}"); }} '
            f"free(p); return s; }}"
        )
    return "\n".join(lines) + "\n"


def rust_source(functions):
    """A Rust program with so many functions."""
    lines = ["use std::collections::BTreeMap;"]
    for i in range(functions):
        lines.append(
            f"fn f{i}(n: u64) -> u64 {{ let mut m = BTreeMap::new(); for j in 0..n {{ m.insert(j * {i + 3} % 101, "
            f"vec![j as u{(8, 16, 32, 64)[i % 4]}; {i % 5 + 1}]); }} m.values().map(|v| v.len() as u64).sum() }}"
        )
    calls = " + ".join(f"f{i}(9)" for i in range(functions))
    return "\n".join(lines) + f'\nfn main() {{ println!("{{}}", {calls}); }}\n'


def make_tree(context):
    """A C program of many files with its Makefile."""
    count = context.size(20, 8)
    for number in range(count):
        context.write(f"f{number}.c", c_source(number, context.size(40, 20)))
    names = " ".join(f"f{number}.o" for number in range(count))
    calls = "".join(f"s += f{number}_0(9); " for number in range(count))
    declared = "".join(f"int f{number}_0(int); " for number in range(count))
    context.write("main.c", f"{declared}int main(void) {{ int s = 0; {calls} return s == 0; }}\n")
    context.write("Makefile", f"program: main.o {names}\n\tgcc -o $@ $^\n%.o: %.c\n\tgcc -O2 -c -o $@ $<\n")


def script(name, package, command, file, text, full, quick):
    """A program of a few lines for an interpreter; the last argument is how much it does."""
    return Program(
        name,
        (package,),
        (command,),
        lambda context: [command, file, context.size(full, quick)],
        prepare=lambda context: context.write(file, text),
    )


def with_allocator(name, package, library):
    """The C++ program with an allocator of its own."""
    path = f"{LIBRARIES}/{library}"
    return Program(
        f"C++ with {name}",
        (package, "g++"),
        (path, "g++"),
        lambda context: ["./program", context.size(1_500_000, 100_000)],
        prepare=lambda context: context.compile("program", CPP, "-pthread", compiler="g++"),
        environment={"LD_PRELOAD": path},
    )


PROGRAMS = [
    script("python3", "python3", "python3", "job.py", PYTHON, 400_000, 40_000),
    script("python3, blocks", "python3", "python3", "job.py", PYTHON_BLOCKS, 2_000_000, 200_000),
    script("python3, pool", "python3", "python3", "job.py", PYTHON_PROCESSES, 300_000, 20_000),
    script("node", "nodejs", "node", "job.js", NODE, 400_000, 50_000),
    Program(
        "java",
        ("default-jdk-headless",),
        ("java", "javac"),
        lambda context: ["java", "-cp", ".", "Main", context.size(5_000_000, 100_000)],
        prepare=lambda context: (context.write("Main.java", JAVA), context.plain("javac", "Main.java")),
    ),
    script("ruby", "ruby", "ruby", "job.rb", RUBY, 1_000_000, 50_000),
    script("perl", "perl", "perl", "job.pl", PERL, 2_000_000, 100_000),
    script("php", "php-cli", "php", "job.php", PHP, 1_500_000, 100_000),
    script("lua", "lua5.4", "lua5.4", "job.lua", LUA, 500_000, 30_000),
    Program(
        "go, static",
        ("golang-go",),
        ("go",),
        lambda context: ["./program"],
        prepare=lambda context: (
            context.write("main.go", GO),
            context.plain(
                "env",
                "CGO_ENABLED=0",
                "GOCACHE=" + context.path("cache"),
                "GO111MODULE=off",
                "go",
                "build",
                "-o",
                "program",
                "main.go",
            ),
            context.plain("rm", "-rf", "cache"),
        ),
        accounted=False,
    ),
    Program(
        "gcc",
        ("gcc",),
        ("gcc",),
        lambda context: ["gcc", "-O2", "-c", "-o", "f.o", "f.c"],
        prepare=lambda context: context.write("f.c", c_source(0, context.size(600, 150))),
        files=("f.o",),
    ),
    Program(
        "g++",
        ("g++",),
        ("g++",),
        lambda context: ["g++", context.size("-O2", "-O0"), "-c", "-o", "f.o", "f.cc"],
        prepare=lambda context: context.write("f.cc", CPP_TEMPLATES),
        files=("f.o",),
    ),
    Program(
        "make -j2",
        ("make", "gcc"),
        ("make", "gcc"),
        lambda context: ["make", "-s", "-j2"],
        prepare=make_tree,
        files=("program",),
    ),
    Program(
        "rustc",
        ("rustc",),
        ("rustc",),
        lambda context: ["rustc", "--edition", "2021", "-O", "-o", "program", "main.rs"],
        prepare=lambda context: context.write("main.rs", rust_source(context.size(10, 5))),
        files=("program",),
        unseen=("rustc",),
    ),
    Program(
        "cargo build",
        ("cargo", "gcc"),
        ("cargo", "gcc"),
        lambda context: ["cargo", "build", "--quiet", "--offline"],
        prepare=lambda context: (
            context.write("Cargo.toml", '[package]\nname = "p"\nversion = "0.1.0"\nedition = "2021"\n'),
            context.write("src/main.rs", rust_source(context.size(10, 5))),
        ),
        files=("target/debug/p",),
        unseen=("rustc",),
    ),
    Program(
        "C++",
        ("g++",),
        ("g++",),
        lambda context: ["./program", context.size(1_500_000, 100_000)],
        prepare=lambda context: context.compile("program", CPP, "-pthread", compiler="g++"),
    ),
    with_allocator("jemalloc", "libjemalloc2", "libjemalloc.so.2"),
    with_allocator("tcmalloc", "libtcmalloc-minimal4", "libtcmalloc_minimal.so.4"),
    with_allocator("mimalloc", "libmimalloc2.0", "libmimalloc.so.2"),
]
