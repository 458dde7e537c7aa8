//! Each block is sound and counts for its owner, with any allocator behind the library, and with any events during its
//! look-up.
//!
//! musl's allocator never lies behind the library, which is for glibc: a program for musl brings its own C library. The
//! test's own allocator places blocks as closely as musl's does.

use crate::support::{Account, Rows, Run, chunk, compiled, library, live, numbers};
use ledgerline::Limit;
use ledgerline_protocol::Item;
use ledgerline_protocol::blind::Blind;
use std::path::{Path, PathBuf};

/// The way in which a test puts an allocator behind the library.
struct Behind {
    preloaded: Option<PathBuf>,
    env: Option<(&'static str, &'static str)>,
    /// Whether blocks are charged with glibc's header: a word, or two for a block in its own mapping.
    header: bool,
}

impl Behind {
    /// glibc's own: its header counts.
    fn glibc() -> Behind {
        Behind { preloaded: None, env: None, header: true }
    }

    /// Another allocator, which is asked for the sizes of its blocks.
    fn other(library: PathBuf) -> Behind {
        Behind { preloaded: Some(library), env: None, header: false }
    }

    fn run(&self, account: &Account, program: &Path) -> Run {
        let arguments: &[&str] = if self.header { &["header"] } else { &[] };
        let run = preload(account.run(program, arguments), self.preloaded.as_deref());
        self.env.iter().fold(run, |run, (name, value)| run.env(name, value))
    }
}

/// Preloads a library behind the one under test.
fn preload(run: Run, behind: Option<&Path>) -> Run {
    let both = library().to_str().into_iter().chain(behind.and_then(Path::to_str));
    run.env("LD_PRELOAD", &both.collect::<Vec<_>>().join(" "))
}

/// Returns a shared library of the system; prints a line and returns `None` if it is not installed.
fn installed(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let found =
        folders.into_iter().map(|folder| Path::new(folder).join(name)).find(|at| at.exists());
    if found.is_none() {
        eprintln!("skipped: {name} is not installed");
    }
    found
}

/// Checks that the charges of the two names match the program's own report.
#[track_caller]
fn assert_owned(rows: &Rows, said: &str, header: bool, about: &str) {
    let numbers = numbers(said);
    for (name, said) in ["even", "odd"].into_iter().zip(numbers.chunks_exact(3)) {
        let &[left, usable, mapped] = said else { unreachable!() };
        let truth = usable + if header { 8 * (left + mapped) } else { 0 };
        let row = rows.row(name);
        assert!(left > 1000, "{about}: {said:?}");
        assert_eq!(header && mapped > 0, about.contains("mmap_threshold"), "{about}: {said:?}");
        assert_eq!((live(row), row.current), (left, truth), "{about}, {name}");
    }
}

#[test]
fn blocks_side_by_side_count_for_their_owners_whichever_allocator_made_them() {
    let (program, own) = (compiled!("owners.c"), compiled!("plugin_malloc.c"));
    let wrapper = compiled!("plugin_wrapper.c");
    let mut behind = vec![Behind::glibc(), Behind::other(own.to_path_buf())];
    behind.push(Behind::other(wrapper.to_path_buf()));
    for name in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2"] {
        behind.extend(installed(name).map(Behind::other));
    }
    // glibc's allocator, mapping each block of a page and more by itself.
    let env = Some(("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=4096"));
    behind.push(Behind { env, ..Behind::glibc() });
    for one in behind {
        let account = Account::new();
        let said = one.run(&account, &program).well();
        let about = format!("{:?} {:?}", one.preloaded, one.env);
        assert_owned(&account.rows(), &said, one.header, &about);
    }
}

#[test]
fn a_header_that_does_not_tell_what_may_be_used_is_not_believed() {
    let (program, usable) = (compiled!("owners.c"), compiled!("plugin_usable.c"));
    let account = Account::new();
    let said = preload(account.run(&program, &[]), Some(&usable)).well();
    assert_owned(&account.rows(), &said, false, "usable");
}

#[test]
fn where_nobody_knows_how_large_blocks_are_none_is_charged() {
    let (program, secret) = (compiled!("owners.c"), compiled!("plugin_secret.c"));
    // Preloaded alone, without a ledger, it prints nothing.
    let silent = preload(Run::bare(&program, &[]), Some(&secret)).well();
    let &[left, usable, ..] = &numbers(&silent)[..] else { panic!("{silent}") };
    assert!(left > 1000 && usable == 0, "{silent}");
    for account in [Account::new(), Account::limited(1 << 30)] {
        let ended = preload(account.run(&program, &[]), Some(&secret)).end();
        assert!(ended.status.success(), "{ended:#?}");
        assert_eq!(ended.stdout, silent);
        assert_turned_away(&account, "owners", &ended.stderr);
    }
}

#[test]
fn a_lookup_that_allocates_is_served_and_what_it_got_is_nobodys() {
    let (program, lookup) = (compiled!("lookup.c"), compiled!("plugin_lookup.c"));
    for what in ["recursion", "full"] {
        // The kernel chooses places at random: possibly no block comes near an early one.
        let mut near = 0;
        for _ in 0..40 {
            let account = Account::new();
            let run = preload(account.run(&program, &[what]), Some(&lookup)).env("LOOKUP", what);
            let said = numbers(&run.well());
            let &[early, neighbours] = &said[..] else { panic!("{said:?}") };
            assert!(early > 50, "{what}: {early}");
            let rows = account.rows();
            // Only those early blocks are charged that moved.
            let moved = early.div_ceil(2);
            let row = rows.row("later");
            assert_eq!((row.charges, live(row)), (moved, moved), "{what}");
            assert_eq!(row.current, moved * chunk(5000), "{what}");
            near += u32::from(neighbours > 0);
            if near == 3 {
                break;
            }
        }
        assert_eq!(near, 3, "{what}: no block lies in the span of an early one");
    }
}

#[test]
fn who_allocates_before_the_library_is_started_has_the_next_allocators_blocks() {
    let (program, lookup) = (compiled!("hello.c"), compiled!("plugin_lookup.c"));
    let held = |lookup_does: &str| {
        let account = Account::new();
        let run = preload(account.run(&program, &[]), Some(&lookup)).env("LOOKUP", lookup_does);
        run.well();
        let rows = account.rows();
        (live(rows.root()), rows.root().current)
    };
    let (blocks, bytes) = held("nothing");
    assert_eq!(held("constructor"), (blocks + 200, bytes + 200 * chunk(1000)));
}

#[test]
fn a_thread_that_allocates_during_the_lookup_is_served_and_charged_from_then_on() {
    let (program, lookup) = (compiled!("lookup.c"), compiled!("plugin_lookup.c"));
    for _ in 0..10 {
        let account = Account::new();
        let run = preload(account.run(&program, &["thread"]), Some(&lookup));
        assert!(numbers(&run.env("LOOKUP", "thread").well())[0] > 50);
        let rows = account.rows();
        let row = rows.row("other");
        assert_eq!((row.current, live(row)), (100 * chunk(1000), 100));
    }
}

#[test]
fn without_an_allocator_behind_it_the_program_goes_on_and_is_named() {
    let (program, lookup) = (compiled!("quiet.c"), compiled!("plugin_lookup.c"));
    for account in [Account::new(), Account::limited(1 << 30)] {
        let run = preload(account.run(&program, &[]), Some(&lookup)).env("LOOKUP", "without");
        let ended = run.end();
        assert!(ended.status.success(), "{ended:#?}");
        assert_turned_away(&account, "quiet", &ended.stderr);
    }
}

/// Checks that the only process has a row with the reason, and reports it itself if there is a limit.
#[track_caller]
fn assert_turned_away(account: &Account, program: &str, said: &str) {
    let rows = account.rows();
    let [process] = rows.processes()[..] else { panic!("{rows:#?}") };
    let blind = account.ledger.group(process.id).stat();
    let blind = blind.get(Item::Blind.name()).map_or(0, |line| line.own);
    assert_eq!((Blind::from_number(blind), process.charges), (Some(Blind::Allocator), 0));
    let told = format!(
        "ledgerline: {}: an allocator that tells no sizes: not accounted, so the limit may not hold for it\n",
        process.name
    );
    let is_limited = account.ledger.root().max() != Limit::MAX;
    assert_eq!(said, if is_limited { told.as_str() } else { "" });
    assert_eq!(ledgerline_protocol::program(&process.name), program);
}
