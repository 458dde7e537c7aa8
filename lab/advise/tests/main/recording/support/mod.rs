//! Compiles C and C++ with probes, runs programs under the recorder's library, and reads the counts.

#[path = "../../../../../../tests/support/library.rs"]
mod library;
#[expect(dead_code, reason = "the recorder is a library: there is no command to try")]
#[path = "../../../../../../tests/support/tested.rs"]
mod tested;

pub use crate::have::have;
use ledgerline_advise::recording::plan::{Heap, Plan, Request};
use ledgerline_advise::recording::program::Program;
use ledgerline_advise::recording::read::{Recording, Row, RowKind, read};
use ledgerline_advise::recording::{VARIABLE, profile};
use ledgerline_layout::pick::{named, pick};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

pub const LOAD: usize = 0;
pub const STORE: usize = 1;
pub const ATOMIC: usize = 2;

/// Returns the path of the recorder's library.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        library::built("ledgerline-record", &["recorder"], "libledgerline_record.so")
    })
}

/// A folder of one test, which is removed on drop.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("recording-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The input of a test.
#[derive(Default)]
pub struct Test<'t> {
    pub source: &'t str,
    /// The compiler; gcc if empty.
    pub compiler: &'t str,
    pub flags: &'t [&'t str],
    /// Wanted types; all if empty.
    pub types: &'t [&'t str],
    pub operations: &'t [&'t str],
    pub sites: &'t [&'t str],
    pub heap: Heap,
    /// The signal that kills the program, instead of an exit with 0.
    pub killed_by: Option<i32>,
}

/// A program that ran, and its recordings.
pub struct Run {
    pub plan: Plan,
    pub program: Program,
    pub recordings: Vec<Recording>,
    pub output: Output,
    pub folder: Folder,
}

/// A compiled program, not yet run.
pub struct Built {
    pub folder: Folder,
    pub path: PathBuf,
}

/// Compiles and links a program like the documentation; `None` without a compiler.
pub fn build(source: &str, compiler: &str, flags: &[&str]) -> Option<Built> {
    let compiler = if compiler.is_empty() { "gcc" } else { compiler };
    let ending = if compiler.ends_with("++") { "cc" } else { "c" };
    let linker = if compiler.ends_with("++") { "g++" } else { "gcc" };
    if !have(compiler) || !have(linker) {
        return None;
    }
    let folder = Folder::new();
    let (text, object, path) = (
        folder.0.join(format!("program.{ending}")),
        folder.0.join("program.o"),
        folder.0.join("program"),
    );
    std::fs::write(&text, source).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../record/include");
    let compiled = Command::new(compiler)
        .args(["-g", "-fsanitize=thread", "-mcx16", "-c", "-o"])
        .args([&object, &text])
        .arg("-I")
        .arg(include)
        .args(flags)
        .status()
        .unwrap();
    assert!(compiled.success(), "{text:?} does not compile");
    let linked = Command::new(linker)
        .arg(&object)
        .arg("-o")
        .arg(&path)
        .arg("-L")
        .arg(library().parent().unwrap())
        .args(["-lledgerline_record", "-lpthread"])
        .status()
        .unwrap();
    assert!(linked.success(), "{object:?} does not link");
    Some(Built { folder, path })
}

/// Returns the program's command with a neutral environment.
pub fn command(path: &Path) -> Command {
    let mut command = Command::new(path);
    command.env("LD_PRELOAD", library()).env_remove(VARIABLE);
    command
}

/// Compiles, runs and reads. The program has to succeed.
pub fn record(test: &Test<'_>) -> Option<Run> {
    use std::os::unix::process::ExitStatusExt;
    let Built { folder, path } = build(test.source, test.compiler, test.flags)?;
    let program = Program::open(&path, None).expect("it has probes");
    let opened = ledgerline_layout::open(&path).expect("it has types");
    let types = &opened.types;
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let picked = if test.types.is_empty() {
        named(types)
    } else {
        pick(types, &owned(test.types)).expect("the types are there")
    };
    let request =
        Request { operations: owned(test.operations), sites: owned(test.sites), heap: test.heap };
    let plan = Plan::new(&program, types, &picked, &request).expect("a plan");
    plan.write(&folder.0).unwrap();
    let output = command(&path).env(VARIABLE, &folder.0).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), test.killed_by, "{errors}");
    assert!(test.killed_by.is_some() || output.status.success(), "{:?}: {errors}", output.status);
    let recordings = read(&folder.0, &plan).expect("recordings");
    Some(Run { plan, program, recordings, output, folder })
}

impl Run {
    fn ty(&self, name: &str) -> usize {
        self.plan.types.iter().position(|of| of.name == name).expect("a wanted type")
    }

    fn sum(&self, name: &str, field: &str, keep: impl Fn(&Row) -> bool) -> [u64; 3] {
        let ty = self.ty(name);
        let paths = &self.plan.types[ty].cells.paths;
        assert!(paths.iter().any(|path| path == field), "{field} is not one of {paths:?}");
        let mut sum = [0; 3];
        let threads = self.recordings.iter().flat_map(|recording| &recording.threads);
        for table in threads.flat_map(|thread| &thread.tables).filter(|table| table.ty == ty) {
            for row in table.rows.iter().filter(|row| keep(row)) {
                for (path, counts) in paths.iter().zip(&row.counts) {
                    if path == field {
                        (0..3).for_each(|kind| sum[kind] += counts[kind]);
                    }
                }
            }
        }
        sum
    }

    /// Returns loads, stores and atomic operations of a field, by all threads.
    pub fn all(&self, name: &str, field: &str) -> [u64; 3] {
        self.sum(name, field, |_| true)
    }

    /// Returns the same within operations.
    pub fn inside(&self, name: &str, field: &str) -> [u64; 3] {
        self.sum(name, field, |row| row.kind != RowKind::Outside)
    }

    /// Returns the number of accesses to a type.
    pub fn total(&self, name: &str) -> u64 {
        let ty = self.ty(name);
        let threads = self.recordings.iter().flat_map(|recording| &recording.threads);
        let tables = threads.flat_map(|thread| &thread.tables).filter(|table| table.ty == ty);
        tables.flat_map(|table| &table.rows).flat_map(|row| row.counts.iter().flatten()).sum()
    }

    /// Returns the number of operations of all threads.
    pub fn operations(&self) -> u64 {
        let threads = self.recordings.iter().flat_map(|recording| &recording.threads);
        threads.map(|thread| thread.operations).sum()
    }

    /// Returns how many objects of a type were used, and how many by several threads.
    pub fn objects(&self, name: &str) -> (u64, u64) {
        let ty = self.ty(name);
        let used = self.recordings.iter().flat_map(|recording| &recording.objects);
        used.filter(|used| used.ty == ty).fold((0, 0), |(all, shared), used| {
            let several = used.users.count_ones() > 1;
            (all + used.objects, shared + if several { used.objects } else { 0 })
        })
    }

    pub fn profile(&self) -> profile::Recorded {
        profile::profile(&self.plan, &self.recordings)
    }
}
