//! Decides how the wrapper changes a call: by words to add, by a refusal, or not at all.

use super::arguments::Call;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The flags with which a compiler adds probes, and the library that programs are linked with.
pub(super) struct Probes<'a> {
    pub flags: &'a [OsString],
    pub library: &'a Path,
}

/// The decision on a call.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    /// Words that follow all others.
    pub added: Vec<OsString>,
    /// Words of the user's build that are left out.
    pub without: &'static [&'static str],
    /// Messages for the user at the end of the build.
    pub notes: Vec<String>,
    /// The objects that are compiled with probes.
    pub compiled: Vec<PathBuf>,
    /// The program or library that is linked with the recorder's.
    pub linked: Option<PathBuf>,
}

/// Spellings of the option that removes names and types from a program. No later option undoes it.
const STRIP: &[&str] = &["-s", "-Wl,-s", "-Wl,--strip-all"];

/// Sanitizers that replace the heap themselves, or that no compiler accepts beside probes.
const APART: [&str; 7] =
    ["address", "kernel-address", "hwaddress", "kernel-hwaddress", "memory", "leak", "dataflow"];

/// Decides on a call.
///
/// # Errors
/// The change that the user has to make, if the call's output cannot be recorded. The compiler fails with it, so that a
/// `configure` that tries an option finds it missing.
pub(super) fn answer(call: &Call, probes: &Probes<'_>) -> Result<Answer, String> {
    let mut answer = Answer::default();
    if call.looks || !call.has_files() {
        return Ok(answer);
    }
    if let Some(option) = &call.elsewhere {
        answer.notes.push(format!(
            "what is made with {option} stays without probes, since only x86-64 is recorded; to record it, build \
             without {option}"
        ));
        return Ok(answer);
    }
    if let Some(name) = call.sanitizers.iter().find(|name| APART.contains(&&***name)) {
        let why = "cannot stand beside the recorder's probes; build without it";
        return Err(format!("-fsanitize={name} {why}"));
    }
    if !call.sources.is_empty() {
        if call.freestanding {
            answer.notes.push(
                "what is compiled with -ffreestanding stays without probes; to record it, compile it without"
                    .to_owned(),
            );
        } else {
            compile(call, probes, &mut answer);
        }
    }
    if call.links() {
        link(call, probes, &mut answer)?;
    }
    if call.lto {
        answer.added.push("-fno-lto".into());
        answer.notes.push(
            "-flto was taken back: with it the probes would have to be put in while linking"
                .to_owned(),
        );
    }
    Ok(answer)
}

fn compile(call: &Call, probes: &Probes<'_>, answer: &mut Answer) {
    answer.added.extend_from_slice(probes.flags);
    if !call.described {
        answer.added.push("-g".into());
    }
    if call.split {
        answer.added.push("-gno-split-dwarf".into());
    }
    if call.compiles {
        let object =
            |source: &PathBuf| PathBuf::from(source.with_extension("o").file_name()?).into();
        answer.compiled = match &call.output {
            Some(output) => vec![output.clone()],
            None => call.sources.iter().filter_map(object).collect(),
        };
    }
}

fn link(call: &Call, probes: &Probes<'_>, answer: &mut Answer) -> Result<(), String> {
    if let Some(option) = call.is_static {
        return Err(format!(
            "{option}: what is statically linked cannot be recorded; link it without, often by `make LDFLAGS=`"
        ));
    }
    if let Some(option) = &call.bare
        && !call.named_libc
    {
        answer.notes.push(format!(
            "what is linked with {option} is left without the recorder's library, which needs the C library; to \
             record it, link it without {option}, or with -lc"
        ));
        return Ok(());
    }
    if call.sanitizers.contains("thread") {
        answer.added.push("-fno-sanitize=thread".into());
        answer.notes.push(
            "the thread sanitizer's library was left out: the recorder's takes its place"
                .to_owned(),
        );
    }
    if call.strips {
        answer.without = STRIP;
        answer.notes.push(
            "-s was left out: the names of types and functions in the program are needed"
                .to_owned(),
        );
    }
    if call.language {
        answer.added.extend(["-x".into(), "none".into()]);
    }
    answer.added.push(probes.library.into());
    // With -Xlinker, because a comma in the path would end an argument of -Wl.
    let folder = probes.library.parent().unwrap_or(Path::new("/"));
    for word in ["-rpath".as_ref(), folder.as_os_str()] {
        answer.added.extend(["-Xlinker".into(), word.to_owned()]);
    }
    answer.linked = Some(call.output.clone().unwrap_or("a.out".into()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::arguments::read;
    use super::*;

    fn answer_to(line: &str) -> Result<Answer, String> {
        let flags = ["-specs=p".into()];
        let call = read(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        answer(&call, &Probes { flags: &flags, library: Path::new("/l,l/lib.so") })
    }

    fn added(line: &str) -> String {
        answer_to(line).unwrap().added.join(" ".as_ref()).into_string().unwrap()
    }

    const LINKED: &str = "/l,l/lib.so -Xlinker -rpath -Xlinker /l,l";

    #[test]
    fn probes_where_it_compiles_and_the_library_where_it_links() {
        assert_eq!(added("-O2 -c a.c"), "-specs=p -g");
        assert_eq!(added("-g -gsplit-dwarf -c a.c"), "-specs=p -gno-split-dwarf");
        assert_eq!(added("a.o"), LINKED);
        assert_eq!(added("a.c -g"), format!("-specs=p {LINKED}"));
        assert_eq!(added("-x c -"), format!("-specs=p -g -x none {LINKED}"));
        assert_eq!(
            added("-shared a.o -fsanitize=thread"),
            format!("-fno-sanitize=thread {LINKED}")
        );
        assert_eq!(added("-flto -c a.c"), "-specs=p -g -fno-lto");
        assert_eq!(added("-nostdlib a.o -lc"), LINKED);
    }

    #[test]
    fn what_is_no_program_is_left_alone() {
        for line in ["-E a.c", "-v", "-c a.s", "-r -nostdlib a.o -o b.o", "-MM a.c", "-static -v"] {
            assert_eq!(answer_to(line), Ok(Answer::default()), "{line}");
        }
    }

    #[test]
    fn what_cannot_be_recorded_is_left_with_a_note_or_refused() {
        for (line, option) in [
            ("-m32 -c a.c", "-m32"),
            ("-m32 -static a.o", "-m32"),
            ("-ffreestanding -c a.c", "-ffreestanding"),
            ("-nostdlib a.o", "-nostdlib"),
        ] {
            let answer = answer_to(line).unwrap();
            assert!(answer.added.is_empty() && answer.linked.is_none(), "{line}: {answer:?}");
            assert!(answer.notes[0].contains(option) && answer.notes[0].contains("without"));
        }
        for (line, option) in [
            ("-static a.o", "-static"),
            ("-static-pie a.c", "-static-pie"),
            ("-fsanitize=address -c a.c", "-fsanitize=address"),
            ("-fsanitize=undefined,leak a.o", "-fsanitize=leak"),
        ] {
            let refused = answer_to(line).unwrap_err();
            assert!(refused.contains(option) && refused.contains("without"), "{line}: {refused}");
        }
        assert!(answer_to("-fsanitize=undefined -c a.c").is_ok());
        assert_eq!(answer_to("-s a.o").unwrap().without, STRIP);
    }

    #[test]
    fn what_comes_out_is_named() {
        let compiled = |line| answer_to(line).unwrap().compiled;
        assert_eq!(compiled("-c x/a.c y/b.cc"), [PathBuf::from("a.o"), "b.o".into()]);
        assert_eq!(compiled("-c x/a.c -o z.o"), [PathBuf::from("z.o")]);
        assert!(compiled("a.c -o a").is_empty());
        assert_eq!(answer_to("a.c").unwrap().linked, Some("a.out".into()));
    }
}
