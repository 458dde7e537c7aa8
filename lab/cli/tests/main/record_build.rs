//! Tests of `ledgerline layout record --build` on common kinds of source trees, whose makefiles are not prepared for
//! it.

use crate::support::{self, have, scratch, stderr};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A source tree, with the files that the command leaves elsewhere.
struct Tree {
    path: PathBuf,
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

const HEADER: &str = "struct counter { volatile long hits, last; }; void hit(struct counter *);\n";
const HIT: &str = "#include \"counter.h\"
__attribute__((noinline)) void hit(struct counter *c) { c->hits++; c->last = 1; }\n";
const MAIN: &str = "#include \"counter.h\"
#include <stdio.h>
struct counter object;
int main(void) { for (int i = 0; i < 100; i++) hit(&object); puts(\"done\"); return 0; }\n";
const MAKEFILE: &str = "prog: main.o hit.o\n\t$(CC) $(LDFLAGS) -o $@ main.o hit.o\n\
                        clean:\n\trm -f *.o prog\n";

impl Tree {
    /// Makes a program of two files; `None` if the tools to build it are missing.
    fn new() -> Option<Tree> {
        if !have("gcc") || !have("make") {
            return None;
        }
        let tree = Tree { path: scratch("tree") };
        for folder in ["", "temporary", "data"] {
            fs::create_dir(tree.path.join(folder)).unwrap();
        }
        for (name, text) in
            [("counter.h", HEADER), ("hit.c", HIT), ("main.c", MAIN), ("Makefile", MAKEFILE)]
        {
            tree.write(name, text);
        }
        Some(tree)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path.join(name), text).unwrap();
    }

    /// Returns the command in this tree, with an environment of its own.
    fn command(&self) -> Command {
        let mut command = support::lab();
        command.current_dir(&self.path);
        command.env("TMPDIR", self.path.join("temporary"));
        command.env("XDG_DATA_HOME", self.path.join("data"));
        for name in ["CC", "CXX", "CFLAGS", "LDFLAGS", "MAKEFLAGS", "MAKELEVEL"] {
            command.env_remove(name);
        }
        command
    }

    fn record(&self, build: &str, rest: &[&str]) -> Output {
        let output =
            self.command().args(["layout", "record", "--build", build]).args(rest).output();
        let output = output.expect("the command starts");
        let left: Vec<_> = fs::read_dir(self.path.join("temporary")).unwrap().flatten().collect();
        assert!(left.is_empty(), "{left:?} stayed after {build}: {}", stderr(&output));
        output
    }

    /// Builds and records, and checks that all 100 calls were seen.
    fn records(&self, build: &str) -> String {
        let output = self.record(build, &["--operation", "hit", "--", "./prog"]);
        let errors = stderr(&output);
        assert!(output.status.success(), "{build}: {errors}");
        assert!(errors.contains("1 thread, 100 operations"), "{build}: {errors}");
        assert!(errors.contains("counter, 16 bytes: 1 object"), "{build}: {errors}");
        assert_eq!(output.stdout, b"done\n", "what the build prints is not the program's");
        errors
    }

    fn plain(&self, line: &str) {
        let output = Command::new("sh").args(["-c", line]).current_dir(&self.path).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{line}: {}", stderr(&output));
    }
}

#[test]
fn a_makefile_stays_as_it_is_and_the_program_works_afterwards() {
    let Some(tree) = Tree::new() else { return };
    let errors = tree.records("make -j2");
    assert!(errors.contains("build: 2 objects compiled with probes, 1 file linked"), "{errors}");
    // The environment is empty, and the loader still finds the library.
    let output = Command::new("./prog").current_dir(&tree.path).env_clear().output().unwrap();
    assert_eq!((output.status.success(), &*output.stdout), (true, &b"done\n"[..]));
    assert_eq!(stderr(&output), "");
    // The library is written once and found again by the next build.
    let library = tree.path.join("data/ledgerline/libledgerline_record.so");
    let written = library.metadata().unwrap().modified().unwrap();
    let again = tree.records("make");
    assert!(again.contains("build: 0 objects compiled"), "{again}");
    assert_eq!(library.metadata().unwrap().modified().unwrap(), written);
}

#[test]
fn what_was_up_to_date_and_has_no_probes_is_said() {
    let Some(tree) = Tree::new() else { return };
    tree.plain("make");
    for (build, says) in [
        ("make", "the build called no compiler of PATH"),
        ("touch hit.o && cc -c main.c -o other.o", "the build linked other files"),
        ("touch hit.o && make", "none of its objects was compiled in this build"),
    ] {
        let output = tree.record(build, &["--", "./prog"]);
        let errors = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{build}: {errors}");
        assert!(errors.contains("without probes") && errors.contains(says), "{build}: {errors}");
        assert!(errors.contains("make clean && make"), "{build}: {errors}");
        assert!(output.stdout.is_empty(), "the program was not started");
        tree.plain("rm -f other.o");
    }
    // A partial build is recorded, and the object without probes is named.
    let output = tree.record("touch main.c && make", &["--", "./prog"]);
    let errors = stderr(&output);
    assert!(
        errors.contains("1 object without probes went into what was linked (hit.o)"),
        "{errors}"
    );
    tree.plain("ar rcs libhit.a hit.o");
    let errors = stderr(&tree.record("cc main.c libhit.a -o prog", &["--", "./prog"]));
    assert!(errors.contains("(libhit.a(hit.o))"), "{errors}");
    let errors = tree.records("make clean && make");
    assert!(!errors.contains("without probes"), "{errors}");
}

#[test]
fn a_build_that_fails_ends_with_its_own_code() {
    let Some(tree) = Tree::new() else { return };
    for (build, code, says) in [
        ("exit 42", 42, "the build failed with exit 42, and nothing is recorded: exit 42\n"),
        ("make no-such-target", 2, "the build failed with exit 2"),
        ("no-such-command", 127, "the build failed with exit 127"),
        ("kill -TERM $$", 128 + 15, "the build was killed by SIGTERM"),
    ] {
        let output = tree.record(build, &["--", "./prog"]);
        assert_eq!(output.status.code(), Some(code), "{build}");
        assert!(stderr(&output).contains(says), "{build}: {}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
    // Errors that do not depend on the build are found before it.
    let rest = ["-o", "/nonexistent/profile.toml", "--", "./prog"];
    let output = tree.record("touch built", &rest);
    assert_eq!(output.status.code(), Some(2));
    assert!(!tree.path.join("built").exists());
}

#[test]
fn an_interrupted_build_leaves_nothing() {
    let Some(tree) = Tree::new() else { return };
    let mut child = tree
        .command()
        .args(["layout", "record", "--build", "echo begun >&2; exec sleep 60"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut lines = std::io::BufReader::new(child.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut lines, &mut line).unwrap();
    assert_eq!(line, "begun\n");
    // SAFETY: kill takes no pointers; the child was not waited for.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    assert_eq!(fs::read_dir(tree.path.join("temporary")).unwrap().count(), 0);
}

#[test]
fn a_build_alone_says_how_to_go_on() {
    let Some(tree) = Tree::new() else { return };
    let output = tree.record("make", &[]);
    assert!(output.status.success() && output.stdout.is_empty());
    assert!(
        stderr(&output).contains("record it by `ledgerline layout record --type TYPE -- PROGRAM`")
    );
    let output = tree.command().args(["layout", "record", "--", "./prog"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let output = tree.record("touch built", &["--type", "counter"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("there is no program to record"), "{}", stderr(&output));
    assert!(!tree.path.join("built").exists());
}

#[test]
fn compilers_by_other_names_and_by_their_path_are_wrapped() {
    let Some(tree) = Tree::new() else { return };
    let mut names = vec!["gcc", "c99"];
    names.extend(["gcc-12", "x86_64-linux-gnu-gcc", "clang"].iter().filter(|name| have(name)));
    for name in names {
        tree.records(&format!("make clean && make CC={name}"));
    }
    let gcc = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|folder| folder.join("gcc"))
        .find(|path| path.is_file())
        .expect("gcc was found");
    support::executable(&tree.path.join("mycc"), b"#!/bin/sh\nexec gcc -DMINE \"$@\"\n");
    for cc in [format!("{} -O1", gcc.display()), "./mycc".to_owned(), "env X=1 gcc".to_owned()] {
        tree.plain("make clean");
        let mut command = tree.command();
        command.env("CC", &cc).args(["layout", "record", "--build", "make"]);
        let output = command.args(["--", "./prog"]).output().unwrap();
        assert!(output.status.success(), "{cc}: {}", stderr(&output));
        assert!(stderr(&output).contains("2 objects compiled with probes"), "{}", stderr(&output));
    }
    // A makefile's absolute path of a compiler cannot be wrapped, and the message says so.
    let output = tree.record(&format!("make clean; make CC={}", gcc.display()), &["--", "./prog"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(
        stderr(&output).contains("give it the name, as by `make CC=gcc`"),
        "{}",
        stderr(&output)
    );
    // A build may start with an empty environment.
    tree.records("make clean && env -i PATH=\"$PATH\" make");
}

#[test]
fn what_configure_tries_comes_out_as_ever() {
    let Some(tree) = Tree::new() else { return };
    tree.write(
        "configure",
        r#"
        fail() { echo "configure: $1" >&2; exit 9; }
        printf 'int main(void) { return 0; }' > t.c
        # A word on standard error means that an option is not known.
        for compiler in gcc $(command -v clang); do
            for flags in "-Werror -Wall" "-E" "-c" "-S" "-shared -fPIC" "-x c" "-MM" "-g0 -O2" "-no-pie -fno-pie"; do
                said=$($compiler $flags t.c -o t.out 2>&1) || fail "$compiler $flags"
                test -z "$said" || fail "$compiler $flags: $said"
            done
        done
        echo 'int main(void) { return 7; }' | gcc -xc - -o t.out; ./t.out; test $? = 7 || fail run
        test "$(gcc -dumpmachine)" = "$(/usr/bin/gcc -dumpmachine)" || fail dumpmachine
        gcc --version > /dev/null && gcc -print-search-dirs > /dev/null || fail questions
        gcc -Wl,--version > /dev/null 2>&1 || fail linker
        gcc -E -dM -x c /dev/null | grep -q SANITIZE && fail macro
        gcc -c 'no such file.c' 2> /dev/null && fail missing
        gcc -static t.c -o t.out 2> t.err && fail static
        printf '%s' '-O2 -DNAME="a b" t.c "-o" t.out' > t.rsp
        gcc @t.rsp && ./t.out || fail response
        mkdir -p 'a b' && cp t.c 'a b/t c.c' && gcc "-DX=\"1  2\"" 'a b/t c.c' -o 'a b/t' && 'a b/t' || fail spaces
        rm -rf t.* 'a b'
        "#,
    );
    let errors = tree.records("sh ./configure && make");
    assert!(errors.contains("build: 2 objects compiled with probes, 1 file linked"), "{errors}");
    assert!(!errors.contains("-static"), "what was only tried is no news: {errors}");
}

#[test]
fn flags_that_stand_in_the_way_are_named() {
    let Some(tree) = Tree::new() else { return };
    // These flags are undone, and the program is recorded.
    for (flags, says) in [
        ("CFLAGS='-O2 -flto' LDFLAGS=-flto", "-flto was taken back"),
        ("CFLAGS=-g0 LDFLAGS=-s", "-s was left out"),
        (
            "CFLAGS=-fsanitize=thread LDFLAGS=-fsanitize=thread",
            "the thread sanitizer's library was left out",
        ),
        ("CFLAGS=-gsplit-dwarf", ""),
        ("LDFLAGS='-Wl,--as-needed -Wl,-z,defs -Wl,--gc-sections'", ""),
    ] {
        let errors = tree.records(&format!("make clean && make {flags}"));
        assert!(errors.contains(says), "{flags}: {errors}");
    }
    // These flags cannot be undone: the build ends with advice.
    for (flags, says) in [
        (
            "LDFLAGS=-static",
            "-static: what is statically linked cannot be recorded; link it without",
        ),
        (
            "CFLAGS=-fsanitize=address",
            "-fsanitize=address cannot stand beside the recorder's probes",
        ),
    ] {
        let output = tree.record(&format!("make clean && make {flags}"), &["--", "./prog"]);
        assert_eq!(output.status.code(), Some(2), "{flags}: {}", stderr(&output));
        assert!(stderr(&output).contains(says), "{flags}: {}", stderr(&output));
    }
    // The recorder cannot record these: they are built without probes and named.
    for (build, says) in [
        ("gcc -m32 -c hit.c", "what is made with -m32 stays without probes"),
        ("gcc -ffreestanding -c hit.c", "what is compiled with -ffreestanding stays"),
        (
            "echo 'void _start(void) {}' | gcc -xassembler /dev/null -nostdlib -shared -o x.so",
            "with -nostdlib",
        ),
    ] {
        let errors = stderr(&tree.record(build, &[]));
        assert!(errors.contains(says), "{build}: {errors}");
    }
}

#[test]
fn cmake_builds_c_and_cplusplus_and_builds_again() {
    let Some(tree) = Tree::new() else { return };
    if !have("cmake") || !have("g++") {
        return;
    }
    tree.write(
        "CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.10)\nproject(tree C CXX)\nadd_executable(prog main.c hit.c)\n\
         add_library(cache SHARED cache.cc)\nadd_executable(user user.cc)\ntarget_link_libraries(user cache)\n",
    );
    tree.write("cache.h", "struct Cache { long used = 0, last = 0; void put(long); };\n");
    tree.write(
        "cache.cc",
        "#include \"cache.h\"\nvoid Cache::put(long n) { used += n; last = n; }\n",
    );
    tree.write(
        "user.cc",
        "#include \"cache.h\"\nint main() { Cache *c = new Cache; for (int i = 0; i < 10; i++) c->put(i);\n\
         int bad = c->last != 9; delete c; return bad; }\n",
    );
    let build = "cmake -B probes > /dev/null && cmake --build probes";
    // The second round compiles nothing, because cmake finds its compilers at the paths that it remembers.
    for objects in [4, 0] {
        let output = tree.record(build, &["--type", "counter", "--", "probes/prog"]);
        let errors = stderr(&output);
        assert!(output.status.success(), "{errors}");
        assert!(
            errors.contains(&format!("build: {objects} objects compiled with probes")),
            "{errors}"
        );
        assert!(errors.contains("hits"), "{errors}");
    }
    let arguments = ["layout", "record", "--of", "probes/libcache.so", "--operation", "Cache::put"];
    let output = tree.command().args(arguments).args(["--", "probes/user"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("1 thread, 10 operations"), "{}", stderr(&output));
}

#[test]
fn ccache_keeps_objects_with_probes_apart() {
    let Some(tree) = Tree::new() else { return };
    if !have("ccache") {
        return;
    }
    let cache = format!("CCACHE_DIR='{}'", tree.path.join("cache").display());
    let links = tree.path.join("links");
    fs::create_dir(&links).unwrap();
    let ccache = Command::new("sh").args(["-c", "command -v ccache"]).output().unwrap().stdout;
    let ccache = PathBuf::from(String::from_utf8(ccache).unwrap().trim());
    std::os::unix::fs::symlink(ccache, links.join("gcc")).unwrap();
    let plain = format!("make clean && {cache} CCACHE_COMPILERCHECK=none make CC='ccache gcc'");
    tree.plain(&plain);
    for round in ["new", "of the cache"] {
        let errors = tree.records(&plain);
        assert!(errors.contains("2 objects compiled with probes") || round != "new", "{errors}");
    }
    tree.plain(&plain);
    let nm = Command::new("nm").arg(tree.path.join("hit.o")).output().unwrap();
    assert!(!String::from_utf8_lossy(&nm.stdout).contains("tsan"), "plain builds stay plain");
    // ccache is called as `gcc`, and looks in PATH for the next compiler of that name.
    let mut command = tree.command();
    let path = std::env::var_os("PATH").unwrap();
    let first = std::env::join_paths([links].into_iter().chain(std::env::split_paths(&path)));
    command.env("PATH", first.unwrap());
    let build = format!("make clean && {cache} make CC=gcc");
    command.args(["layout", "record", "--build", &build, "--", "./prog"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn the_library_may_be_one_that_others_can_read() {
    let Some(tree) = Tree::new() else { return };
    let library = tree.path.join("libledgerline_record.so");
    fs::copy(support::recorder(), &library).unwrap();
    let build = |library: &Path| {
        let mut command = tree.command();
        command.env("LEDGERLINE_RECORD_LIBRARY", library);
        command.args(["layout", "record", "--build", "make", "--", "./prog"]).output().unwrap()
    };
    let output = build(&library);
    assert!(output.status.success(), "{}", stderr(&output));
    let mut ldd = Command::new("ldd");
    ldd.arg("./prog").current_dir(&tree.path).env_remove("LD_LIBRARY_PATH");
    let needs = ldd.output().unwrap();
    let needs = String::from_utf8(needs.stdout).unwrap();
    assert!(needs.contains(&format!("=> {}", library.display())), "{needs}");
    assert_eq!(fs::read_dir(tree.path.join("data")).unwrap().count(), 0);
    // A library with another file name is refused: the loader looks for this name.
    let other = tree.path.join("other.so");
    fs::copy(&library, &other).unwrap();
    let output = build(&other);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("by the name libledgerline_record.so"), "{}", stderr(&output));
    // Without a folder for the library, nothing is built.
    let mut command = tree.command();
    command.env_remove("XDG_DATA_HOME").env_remove("HOME");
    let output = command.args(["layout", "record", "--build", "touch built"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("set HOME, or XDG_DATA_HOME"), "{}", stderr(&output));
    assert!(!tree.path.join("built").exists());
}

#[test]
fn the_help_is_as_it_was_agreed() {
    let output =
        support::lab().args(["layout", "record", "--help"]).env("COLUMNS", "100").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/record-help.txt");
    if std::env::var_os("LEDGERLINE_BLESS").is_some() {
        fs::write(&file, &text).unwrap();
    }
    assert_eq!(text, fs::read_to_string(&file).unwrap(), "LEDGERLINE_BLESS=1 writes it anew");
}
