//! Parses the arguments of a call of a compiler.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Options whose value is the next argument. A value that is joined to the option is part of one argument.
const WITH_VALUE: &str = "-o -x -I -D -U -L -l -T -u -z -e -h -A -B -G -F -b -R -MF -MT -MQ -MJ -Xlinker -Xassembler \
    -Xpreprocessor -Xclang -mllvm -include -imacros -idirafter -iprefix -iwithprefix -iwithprefixbefore -iquote \
    -isystem -isysroot -imultilib -iframework -include-pch -aux-info -dumpbase -dumpbase-ext -dumpdir -wrapper \
    -arch -target -framework -rpath -Ttext -Tdata -Tbss -gcc-toolchain --param --sysroot --target --serialize-diagnostics";

/// Suffixes of header files.
const HEADERS: &str = "h hh H hp hxx hpp HPP h++ tcc";
/// Suffixes of files that are compiled.
const SOURCES: &str = "c i ii cc cp cxx cpp CPP c++ C m mi mm M mii";

fn is_one_of(words: &str, word: &str) -> bool {
    words.split(' ').any(|known| known == word)
}

/// Most levels of nested response files.
const NESTED: u32 = 16;

/// The parts of a call that matter for probes.
#[derive(Debug, Default)]
pub(super) struct Call {
    /// It preprocesses, checks or answers a question, and writes no object.
    pub looks: bool,
    /// It ends with objects or assembly: `-c`, `-S`.
    pub compiles: bool,
    /// It links objects to one object: `-r`.
    pub relocatable: bool,
    /// C, C++ and the like.
    pub sources: Vec<PathBuf>,
    /// Other inputs of the linker, and assembly.
    pub others: Vec<PathBuf>,
    pub output: Option<PathBuf>,
    /// Whether `-x` applies to files that are added at the end.
    pub language: bool,
    /// Whether the types are described, like with `-g`.
    pub described: bool,
    pub split: bool,
    pub lto: bool,
    pub strips: bool,
    pub is_static: Option<&'static str>,
    /// The option that makes code for another machine.
    pub elsewhere: Option<String>,
    pub freestanding: bool,
    /// The option that leaves the C library out.
    pub bare: Option<String>,
    /// The C library is named in spite of that option.
    pub named_libc: bool,
    pub sanitizers: BTreeSet<String>,
}

/// Parses the arguments of a call, and those of response files (`@file`).
pub(super) fn read(arguments: &[OsString]) -> Call {
    let mut all = Vec::new();
    arguments.iter().for_each(|argument| expand(argument, &mut all, NESTED));
    let mut call = Call::default();
    let mut of_language = None;
    let mut words = all.iter();
    let mut only_files = false;
    while let Some(word) = words.next() {
        let bytes = word.as_bytes();
        if only_files || !bytes.starts_with(b"-") || bytes == b"-" {
            call.file(Path::new(word), of_language);
        } else if bytes == b"--" {
            only_files = true;
        } else {
            let text = word.to_string_lossy();
            let value = if is_one_of(WITH_VALUE, &text) { words.next() } else { None };
            let next = value.map(|value| value.to_string_lossy().into_owned());
            if let Some(language) = with_value("-x", &text, next.as_deref()) {
                of_language = language_of(language);
                call.language = language != "none";
            } else if text == "-o" {
                call.output = next.map(PathBuf::from);
            } else if let Some(joined) = text.strip_prefix("-o") {
                call.output = Some(PathBuf::from(joined));
            } else {
                call.option(&text, next.as_deref());
            }
        }
    }
    call
}

fn with_value<'a>(option: &str, text: &'a str, next: Option<&'a str>) -> Option<&'a str> {
    if text == option { next } else { text.strip_prefix(option) }
}

/// Returns whether sources of a language are compiled; `None` if the file's name decides.
fn language_of(language: &str) -> Option<bool> {
    match language {
        "none" => None,
        "assembler" | "assembler-with-cpp" => Some(false),
        _ => Some(true),
    }
}

impl Call {
    fn file(&mut self, file: &Path, compiled: Option<bool>) {
        let ending = file.extension().and_then(OsStr::to_str).unwrap_or_default();
        let (header, source) = (is_one_of(HEADERS, ending), is_one_of(SOURCES, ending));
        // A header is precompiled, and nothing is linked.
        self.compiles |= header && compiled.is_none();
        let files = match compiled.unwrap_or(source || header) {
            true => &mut self.sources,
            false => &mut self.others,
        };
        files.push(file.to_path_buf());
    }

    fn option(&mut self, text: &str, value: Option<&str>) {
        match text {
            "-E" | "-M" | "-MM" | "-fsyntax-only" => self.looks = true,
            "-c" | "-S" => self.compiles = true,
            "-r" | "-Wl,-r" | "-Wl,--relocatable" => self.relocatable = true,
            "-s" | "-Wl,-s" | "-Wl,--strip-all" => self.strips = true,
            "-static" | "--static" => self.is_static = Some("-static"),
            "-static-pie" => self.is_static = Some("-static-pie"),
            "-m32" | "-mx32" | "-m16" => self.elsewhere = Some(text.to_owned()),
            "-m64" => self.elsewhere = None,
            "-ffreestanding" => self.freestanding = true,
            "-fhosted" => self.freestanding = false,
            "-nostdlib" | "-nodefaultlibs" | "-nolibc" => self.bare = Some(text.to_owned()),
            "-lc" => self.named_libc = true,
            "-l" => self.named_libc |= value == Some("c"),
            "-fno-lto" => self.lto = false,
            "-gsplit-dwarf" => self.split = true,
            "-gno-split-dwarf" => self.split = false,
            _ if text == "-flto" || text.starts_with("-flto=") => self.lto = true,
            _ if text.starts_with("-g") => self.debug(&text[2..]),
            _ => {
                for on in [true, false] {
                    let option = if on { "-fsanitize=" } else { "-fno-sanitize=" };
                    if let Some(list) = text.strip_prefix(option) {
                        self.sanitize(list, on);
                    }
                }
                let target = with_value("-target", text, value)
                    .or_else(|| with_value("--target", text, value))
                    .map(|target| target.trim_start_matches('='));
                if let Some(target) = target.filter(|target| !target.starts_with("x86_64")) {
                    self.elsewhere = Some(format!("--target={target}"));
                }
            }
        }
    }

    /// `-g0` describes nothing, `-g1` no types.
    fn debug(&mut self, level: &str) {
        match level {
            "0" | "1" | "gdb0" | "gdb1" | "mlt" | "line-tables-only" => self.described = false,
            "" | "2" | "3" => self.described = true,
            _ if level.starts_with("gdb") || level.starts_with("dwarf") => self.described = true,
            _ => {}
        }
    }

    fn sanitize(&mut self, list: &str, on: bool) {
        for name in list.split(',') {
            match (on, name) {
                (true, _) => drop(self.sanitizers.insert(name.to_owned())),
                (false, "all") => self.sanitizers.clear(),
                (false, _) => drop(self.sanitizers.remove(name)),
            }
        }
    }

    /// Returns whether it makes a program or a library.
    pub fn links(&self) -> bool {
        !self.looks && !self.compiles && !self.relocatable && self.has_files()
    }

    /// Returns whether the call has files. Without files, compilers answer questions: `--version`,
    /// `-print-search-dirs`.
    pub fn has_files(&self) -> bool {
        !self.sources.is_empty() || !self.others.is_empty()
    }
}

/// Appends an argument, or those of the file that it names as `@file`. Like in compilers, `@file` stands for itself if
/// it cannot be read.
fn expand(argument: &OsStr, into: &mut Vec<OsString>, deeper: u32) {
    let text = argument
        .as_bytes()
        .strip_prefix(b"@")
        .filter(|_| deeper > 0)
        .and_then(|name| std::fs::read(OsStr::from_bytes(name)).ok());
    match text {
        None => into.push(argument.to_owned()),
        Some(text) => words(&text).iter().for_each(|word| expand(word, into, deeper - 1)),
    }
}

/// Splits a response file into words: quotes of both kinds, and a backslash before any byte.
fn words(text: &[u8]) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => word.get_or_insert_default().extend(bytes.next()),
            _ if quote == Some(byte) => quote = None,
            b'"' | b'\'' if quote.is_none() => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            _ if byte.is_ascii_whitespace() && quote.is_none() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    words.into_iter().map(OsString::from_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn call(line: &str) -> Call {
        read(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn what_a_call_does_is_told_from_its_words() {
        for (line, compiles, links) in [
            ("-c a.c", true, false),
            ("-S -x c a.weird", true, false),
            ("a.c -o a", false, true),
            ("a.o b.a -lm", false, true),
            ("-o a.o -c -I x.c y.c", true, false),
            ("-E a.c", false, false),
            ("-MM a.c", false, false),
            ("--version", false, false),
            ("-print-file-name=libc.so", false, false),
            ("-Wl,--version", false, false),
            ("-r a.o b.o -o c.o", false, false),
            ("a.h", true, false),
            ("-x c -", false, true),
        ] {
            let call = call(line);
            assert_eq!((call.compiles, call.links()), (compiles, links), "{line}: {call:?}");
        }
        assert_eq!(call("-o a.o -c -I x.c y.c").sources, [PathBuf::from("y.c")]);
        assert_eq!(call("-oprogram a.o").output, Some("program".into()));
        assert_eq!(call("-x assembler a.c -x none b.c").others, [PathBuf::from("a.c")]);
        assert!(!call("-x c a -x none b.o").language && call("-xc a").language);
    }

    #[test]
    fn the_last_word_wins() {
        assert!(call("-g a.c").described && call("-g1 -ggdb3 a.c").described);
        assert!(!call("a.c").described && !call("-g -g0 a.c").described);
        assert!(call("-gz -gdwarf-4 a.c").described && !call("-gz -gpubnames a.c").described);
        assert!(call("-flto=auto a.c").lto && !call("-flto -fno-lto a.c").lto);
        assert!(call("-m32 -m64 a.c").elsewhere.is_none());
        let sanitizers = |line| call(line).sanitizers.into_iter().collect::<Vec<_>>();
        assert_eq!(sanitizers("-fsanitize=address,undefined -fno-sanitize=address"), ["undefined"]);
        assert!(sanitizers("-fsanitize=address -fno-sanitize=all").is_empty());
    }

    #[test]
    fn other_machines_are_told_in_each_spelling() {
        for line in ["-m32", "--target=aarch64-linux-gnu", "-target i686-linux", "--target arm"] {
            assert!(call(line).elsewhere.is_some(), "{line}");
        }
        assert!(call("--target=x86_64-linux-gnu").elsewhere.is_none());
    }

    #[test]
    fn a_response_file_is_read_as_compilers_read_it() {
        let told = words(b"-c 'a b.c' \"-DX=\\\"y\\\"\"\n-o c\\ d.o ''");
        assert_eq!(told, ["-c", "a b.c", "-DX=\"y\"", "-o", "c d.o", ""]);
        let folder = std::env::temp_dir().join(format!("ledgerline-rsp-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (inner, outer) = (folder.join("inner"), folder.join("outer"));
        std::fs::write(&inner, "-m32 x.c").unwrap();
        std::fs::write(&outer, format!("-c @{} @{}", inner.display(), outer.display())).unwrap();
        let call = call(&format!("@{}", outer.display()));
        assert!(call.compiles && call.elsewhere.is_some() && !call.sources.is_empty(), "{call:?}");
        assert_eq!(super::read(&["@nowhere".into()]).others, [PathBuf::from("@nowhere")]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
