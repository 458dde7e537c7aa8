//! The accounts of programs with known allocations.

use crate::support::{Account, account, chunk, compile, compiled, live, modes, numbers};
use ledgerline_protocol::Item;

/// Returns the blocks and bytes of `known.c`'s sizes that stay.
fn known(count: u64, keep: u64) -> (u64, u64) {
    let size = |i: u64| if i % 50 == 49 { 150_000 + 16 * i } else { i * 7919 % 4000 };
    let kept: Vec<u64> = (0..count).filter(|i| i % keep == 0).map(size).collect();
    (kept.iter().map(|&size| chunk(size)).sum(), kept.len() as u64)
}

/// If the rest of a chunk is too small for a chunk of its own, glibc adds it to the block: 16 bytes, for a few of the
/// blocks.
const UNSPLIT: u64 = 64 * 16;

#[track_caller]
fn assert_known(env: &[(&str, &str)]) {
    let program = compiled!("known.c");
    let (_, bare) = account(&program, &["0", "1"], env);
    for keep in [1, 3] {
        let (expected, blocks) = known(10_000, keep);
        let (_, full) = account(&program, &["10000", &keep.to_string()], env);
        let current = full.root().current - bare.root().current;
        assert!(
            (expected..=expected + UNSPLIT).contains(&current),
            "{current} instead of {expected} with {env:?}"
        );
        assert_eq!(live(full.root()) - live(bare.root()), blocks, "{env:?}");
        assert_eq!(full.root().charges - bare.root().charges, 10_000, "{env:?}");
        let [process] = full.processes()[..] else { panic!("{:?}", full.paths()) };
        assert_eq!((process.current, live(process)), (full.root().current, live(full.root())));
        assert!(process.path.starts_with("/known."), "{}", process.path);
    }
}

#[test]
fn current_is_the_sum_of_the_chunks_and_charges_less_uncharges_the_blocks() {
    for mode in modes() {
        for by in ["thread", "process", "library"] {
            assert_known(&[("LEDGERLINE_PERCPU", mode), ("LEDGERLINE_BY", by)]);
        }
    }
}

#[test]
fn where_glibc_registers_no_thread_the_account_is_the_same() {
    let tunables = ("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
    for mode in ["rseq", "fallback"] {
        assert_known(&[("LEDGERLINE_PERCPU", mode), tunables]);
    }
}

#[test]
fn what_another_thread_frees_or_reallocs_leaves_the_row_that_allocated_it() {
    let program = compiled!("across.c");
    for (mode, arenas) in modes().iter().flat_map(|mode| [(mode, "1"), (mode, "16")]) {
        let env = [("LEDGERLINE_PERCPU", *mode), ("MALLOC_ARENA_MAX", arenas)];
        let (said, rows) = account(&program, &[], &env);
        let moved: u64 = said.trim().parse().expect("the mover's sum");
        assert!((100 * chunk(2000)..=100 * (chunk(2000) + 16)).contains(&moved), "{moved}");
        let producer = rows.row("producer");
        assert_eq!((producer.current, producer.charges, live(producer)), (0, 20_100, 0), "{mode}");
        // The C library may allocate something when a thread starts or ends.
        if let [consumer] = rows.named("consumer")[..] {
            assert_eq!((consumer.current, live(consumer)), (0, 0), "{mode}");
        }
        let mover = rows.row("mover");
        assert_eq!((mover.current, live(mover)), (moved, 100), "{mode}");
    }
}

#[test]
fn by_process_there_is_one_row() {
    let program = compiled!("across.c");
    let (_, rows) = account(&program, &[], &[("LEDGERLINE_BY", "process")]);
    assert_eq!(rows.0.groups.len(), 2, "{:?}", rows.paths());
}

#[test]
fn a_thread_that_names_itself_is_charged_under_its_new_name() {
    let program = compiled!("rename.c");
    for mode in modes() {
        let (_, rows) = account(&program, &[], &[("LEDGERLINE_PERCPU", mode)]);
        // A character that is not allowed in a path becomes an underscore.
        let (one, two) = (rows.row("one_er"), rows.row("two"));
        assert_eq!((one.current, one.charges), (99 * chunk(1000), 100), "{mode}");
        assert_eq!((two.current, two.charges), (50 * chunk(3000), 50), "{mode}");
    }
}

#[test]
fn a_thread_whose_name_is_no_text_has_a_row_of_its_own_all_the_same() {
    let program = compiled!("rename.c");
    let (_, rows) = account(&program, &["odd"], &[]);
    for (charges, name) in [(1, "_evil_"), (2, "gr\u{f6}_"), (3, "__[2J")] {
        let row = rows.row(name);
        assert_eq!((row.current, row.charges), (charges * chunk(1000), charges), "{name}");
    }
}

#[test]
fn names_beyond_254_are_charged_to_the_process() {
    let program = compiled!("rename.c");
    let account = Account::new();
    account.run(&program, &["many"]).well();
    let rows = account.rows();
    let named: Vec<_> = rows.0.groups.iter().filter(|row| row.name.starts_with("name ")).collect();
    let below = rows.0.groups.iter().filter(|row| row.depth == 2);
    assert_eq!(below.clone().count(), 254);
    for row in &named {
        let charges = if row.name == "name 7" { 4 } else { 3 };
        assert_eq!((row.current, row.charges), (charges * chunk(1000), charges), "{}", row.path);
    }
    let (current, charges) = below
        .fold((0, 0), |(current, charges), row| (current + row.current, charges + row.charges));
    let beyond = 3 * (300 - named.len() as u64);
    let process = rows.processes()[0];
    // Each thread looked for its row once.
    let folded = account.ledger.group(process.id).stat().get(Item::Folded.name()).unwrap().own;
    assert_eq!(folded, 300 - named.len() as i64);
    assert_eq!(process.charges - charges, beyond);
    assert_eq!(process.current - current, beyond * chunk(1000));
}

#[test]
fn by_library_the_row_is_named_after_who_called_malloc() {
    let (program, plugin) = (compiled!("callers.c"), compiled!("plugin.c"));
    for mode in modes() {
        let env = [("LEDGERLINE_BY", "library"), ("LEDGERLINE_PERCPU", mode)];
        let (_, rows) = account(&program, &[plugin.to_str().unwrap()], &env);
        let own = rows.row("callers");
        assert_eq!((own.current, own.charges), (100 * chunk(1000), 100), "{mode}");
        let plugin = rows.row("libplugin.so");
        let truth = 300 * chunk(2000) + chunk(5000);
        assert_eq!((plugin.current, plugin.charges), (truth, 301), "{mode}");
    }
}

#[test]
fn by_library_one_that_was_loaded_where_another_lay_is_charged_by_its_own_name() {
    let (program, plugin) = (compiled!("reload.c"), compiled!("plugin.c"));
    let other = plugin.with_file_name("libother.so");
    std::fs::copy(&*plugin, &other).unwrap();
    let paths = [plugin.to_str().unwrap(), other.to_str().unwrap(), plugin.to_str().unwrap()];
    for mode in modes() {
        let env = [("LEDGERLINE_BY", "library"), ("LEDGERLINE_PERCPU", mode)];
        let (said, rows) = account(&program, &paths, &env);
        let places = numbers(&said);
        // The kernel reuses the place that was freed last, unless another mapping took it.
        if places[0] != places[1] {
            eprintln!("the libraries lay in different places: {places:?}");
        }
        let truth = 300 * chunk(2000);
        assert_eq!(rows.row("libother.so").current, truth, "{mode}: {:?}", rows.paths());
        assert_eq!(rows.row("libplugin.so").current, 2 * truth, "{mode}");
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn by_library_the_caller_of_operator_new_is_charged() {
    let program = compiled!("callers.c");
    let plugin = match compile("plugin_new.cc") {
        Some(plugin) => plugin,
        None => return,
    };
    let env = [("LEDGERLINE_BY", "library")];
    let (_, rows) = account(&program, &[plugin.to_str().unwrap()], &env);
    let plugin = rows.row("libplugin_new.so");
    // The aligned ones may take a little for their alignment.
    let truth = 300 * chunk(2000) + 100 * chunk(1024);
    assert!((truth..truth + 100 * 80).contains(&plugin.current), "{} {truth}", plugin.current);
    // Two exceptions came and went.
    assert_eq!((plugin.charges, live(plugin)), (402, 400));
}

#[test]
fn a_program_without_a_block_has_its_row_and_no_heap_for_it() {
    let program = compiled!("quiet.c");
    for mode in modes() {
        for by in ["thread", "process", "library"] {
            let env = [("LEDGERLINE_PERCPU", *mode), ("LEDGERLINE_BY", by)];
            let (said, rows) = account(&program, &[], &env);
            assert_eq!(said, "0\n", "{mode} {by}");
            let [root, process] = &rows.0.groups[..] else { panic!("{:?}", rows.paths()) };
            assert!(process.name.starts_with("quiet."), "{:?}", rows.paths());
            assert_eq!((root.charges, root.peak.value), (0, 0), "{mode} {by}");
        }
    }
}
