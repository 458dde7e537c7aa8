//! Allocators whose blocks have no header: a block's charge equals what is returned for it, however rarely the
//! allocator is asked.

use crate::support::{Account, Run, compiled, library, live, modes, numbers};
use ledgerline::Ledger;
use std::path::{Path, PathBuf};

/// Preloads an allocator behind the library.
fn with(run: Run, allocator: &Path) -> Run {
    let both = [library(), allocator].map(|path| path.to_str().expect("a path in UTF-8"));
    run.env("LD_PRELOAD", &both.join(" "))
}

/// Returns the installed allocators, by Debian's names.
fn installed() -> impl Iterator<Item = PathBuf> {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let find = move |name: &str| {
        let found = folders.into_iter().map(|folder| Path::new(folder).join(name));
        let found = found.into_iter().find(|path| path.exists());
        if found.is_none() {
            eprintln!("skipped: {name} is not installed");
        }
        found
    };
    ["libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2"]
        .into_iter()
        .filter_map(find)
}

#[test]
fn an_allocator_that_says_what_it_gives_is_asked_for_no_size_again() {
    let program = compiled!("sizes.c");
    let (says, mute) = (compiled!("plugin_says.c"), compiled!("plugin_mute.c"));
    let asked = |pairs: &str, allocator: &Path| {
        let account = Account::new();
        let asked = numbers(&with(account.run(&program, &["pairs", pairs]), allocator).well())[0];
        assert!(account.rows().root().charges >= pairs.parse().unwrap(), "{allocator:?}");
        asked
    };
    if Ledger::new().unwrap().root().prepaid().is_none() {
        return eprintln!(
            "skipped: nothing is prepaid without restartable sequences and compact ids"
        );
    }
    // A cell is refilled now and then, on the longer path.
    let (few, many) = (asked("1000", &says), asked("50000", &says));
    assert!(many < few + 50_000 / 20, "{few}, then {many}");
    // If an allocator's sizes vary, it is asked for each new block.
    assert!(asked("50000", &mute) > 50_000);
}

#[test]
fn what_comes_and_goes_in_many_sizes_is_charged_as_what_it_takes() {
    let program = compiled!("sizes.c");
    let (says, mute) = (compiled!("plugin_says.c"), compiled!("plugin_mute.c"));
    let own = [&says, &mute].map(|allocator| allocator.to_path_buf());
    for allocator in own.into_iter().chain(installed()) {
        for mode in modes() {
            for by in ["thread", "process", "library"] {
                let about = format!("{allocator:?} {mode} {by}");
                for limited in [false, true] {
                    if limited && by != "thread" {
                        continue;
                    }
                    let account = match limited {
                        false => Account::new(),
                        true => Account::with_heap(None, 1 << 30),
                    };
                    let left = |arguments: &[&str]| {
                        let run = with(account.run(&program, arguments), &allocator);
                        let run = run.env("LEDGERLINE_PERCPU", mode);
                        numbers(&run.env("LEDGERLINE_BY", by).well())
                    };
                    let said = left(&["churn", "free"]);
                    assert!(said[0] > 2000, "{about}: {said:?}");
                    let rows = account.rows();
                    let freed = (live(rows.root()), rows.root().current);
                    // The rest is the C library's and C++'s own.
                    assert!(freed.0 < 20 && freed.1 < 200_000, "{about}: {freed:?}");
                    account.ledger.settle_dead(&|_| false);
                    let said = left(&["churn"]);
                    let rows = account.rows();
                    let process = rows.processes()[1];
                    let held = (live(process), process.current);
                    let more = (held.0.wrapping_sub(said[0]), held.1.wrapping_sub(said[1]));
                    assert_eq!(more, freed, "{about}: {said:?} of {held:?}");
                    if limited {
                        assert_eq!(account.heap().root().precise() - freed.1, held.1, "{about}");
                    }
                }
            }
        }
    }
}
