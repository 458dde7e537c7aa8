//! Code that a program loads or brings runs as it does without the library, with any operators and functions of
//! malloc's family; and a process that cannot be accounted is named.

use crate::support::{Account, Ended, Program, Run, compile_with, compiled, library, live};
use ledgerline_protocol::Item;
use ledgerline_protocol::blind::Blind;
use std::path::{Path, PathBuf};

/// glibc's malloc, and the allocators that are installed here.
fn beneath() -> Vec<Option<PathBuf>> {
    let names = ["libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2"];
    let folder = Path::new("/usr/lib/x86_64-linux-gnu");
    let found = names.into_iter().map(|name| folder.join(name)).filter(|path| {
        let exists = path.exists();
        if !exists {
            eprintln!("skipped: {path:?} is not installed");
        }
        exists
    });
    std::iter::once(None).chain(found.map(Some)).collect()
}

/// A program that is run without and with the library, both times with an allocator beneath.
struct Pair<'p> {
    program: &'p Path,
    arguments: Vec<&'p str>,
    env: Vec<(&'p str, String)>,
}

impl Pair<'_> {
    fn run(&self, run: Run, preloads: &[&Path]) -> Ended {
        let preloads: Vec<_> = preloads.iter().map(|path| path.to_str().unwrap()).collect();
        let run = match preloads[..] {
            [] => run,
            _ => run.env("LD_PRELOAD", &preloads.join(" ")),
        };
        self.env.iter().fold(run, |run, (name, value)| run.env(name, value)).end()
    }

    /// Checks that both runs end with the same status and the same output. Returns the account; `None` if the program
    /// does not end well over another allocator than glibc's, since one that lacks some operators mixes them by itself.
    #[track_caller]
    fn same(&self, beneath: Option<&Path>) -> Option<Account> {
        let account = Account::new();
        let bare = self.run(Run::bare(self.program, &self.arguments), &Vec::from_iter(beneath));
        if beneath.is_some() && !bare.status.success() {
            eprintln!("skipped: {:?} ends by {} over {beneath:?}", self.arguments, bare.status);
            return None;
        }
        self.same_in(&account, beneath);
        Some(account)
    }

    /// Like [`same`](Self::same), but returns the library's messages.
    #[track_caller]
    fn same_in(&self, account: &Account, beneath: Option<&Path>) -> String {
        let plain: Vec<_> = beneath.into_iter().collect();
        let bare = self.run(Run::bare(self.program, &self.arguments), &plain);
        let both: Vec<_> = std::iter::once(library()).chain(beneath).collect();
        let ended = self.run(account.run(self.program, &self.arguments), &both);
        let about = format!("{:?} {:?} over {beneath:?}", self.program, self.arguments);
        assert!(bare.status.success(), "plain {about}: {bare:#?}");
        assert_eq!(
            (ended.status, &ended.stdout),
            (bare.status, &bare.stdout),
            "{about}: {ended:#?}"
        );
        ended.stderr
    }
}

/// Returns the reasons in the rows of processes that are not accounted.
fn reasons(account: &Account) -> Vec<Option<Blind>> {
    let why = |row: &ledgerline::GroupSnapshot| {
        let stat = account.ledger.group(row.id).stat();
        Blind::from_number(stat.get(Item::Blind.name()).map_or(0, |line| line.own))
    };
    account.rows().processes().into_iter().map(why).collect()
}

fn plugin(options: &[&str]) -> Option<Program> {
    compile_with("g++", "plugin_cxx.cc", &[&["-std=c++17"], options].concat())
}

/// Runs the plug-ins in every way, over every allocator.
fn in_every_way(plugins: &[&Program], ways: &[&str]) {
    let program = compiled!("loads.c");
    for beneath in beneath() {
        for way in ways {
            let mut arguments = vec![*way];
            arguments.extend(plugins.iter().map(|plugin| plugin.to_str().unwrap()));
            let pair = Pair { program: &program, arguments, env: Vec::new() };
            let Some(account) = pair.same(beneath.as_deref()) else { continue };
            let rows = account.rows();
            let root = rows.root();
            assert!(root.charges > 500, "{way} over {beneath:?}: {root:#?}");
            assert!(root.current < 1 << 20, "{way} over {beneath:?}: {root:#?}");
            let is_bound_to_itself = way.contains('d');
            let told = reasons(&account);
            assert_eq!(told, [is_bound_to_itself.then_some(Blind::OwnScope)], "{way}");
        }
    }
}

const WAYS: [&str; 12] =
    ["ln", "lz", "gn", "gz", "lnc", "lzc", "gnc", "gzc", "lnct", "gzt", "lnh", "gzh"];

#[test]
fn a_plug_in_with_the_shared_cxx_library_runs_as_plain_and_is_charged() {
    let Some(plugin) = plugin(&[]) else { return };
    in_every_way(&[&plugin], &WAYS);
}

#[test]
fn a_plug_in_with_a_cxx_library_inside_runs_as_plain_and_is_charged() {
    let Some(plugin) = plugin(&["-static-libstdc++", "-static-libgcc"]) else { return };
    in_every_way(&[&plugin], &WAYS);
}

#[test]
fn a_plug_in_with_operators_of_its_own_runs_as_plain_and_is_charged() {
    let Some(plugin) = plugin(&["-DOWN"]) else { return };
    in_every_way(&[&plugin], &WAYS);
}

#[test]
fn of_plug_ins_side_by_side_each_has_its_own_operators() {
    let (Some(shared), Some(inside), Some(own), Some(other)) = (
        plugin(&[]),
        plugin(&["-static-libstdc++", "-static-libgcc"]),
        plugin(&["-DOWN"]),
        plugin(&["-DOWN", "-static-libstdc++", "-static-libgcc"]),
    ) else {
        return;
    };
    // With global loading the first plug-in serves all, with and without the library. A C++ library that was loaded for
    // a plug-in with its own operators is bound to those, which no other plug-in survives.
    in_every_way(&[&shared, &own, &inside, &other], &["ln", "lz", "lnc", "lzct"]);
    in_every_way(&[&other, &shared], &["ln", "lz", "gn", "gz", "lnc", "gnc"]);
    in_every_way(&[&shared, &own], &["ln", "lz", "gn", "gz", "lnc", "gnc"]);
}

#[test]
fn a_plug_in_that_is_bound_to_itself_runs_as_plain_and_is_named() {
    let (Some(shared), Some(own)) = (plugin(&[]), plugin(&["-DOWN"])) else { return };
    let program = compiled!("loads.c");
    for plugin in [&shared, &own] {
        for way in ["lnd", "lzd", "gnd"] {
            let arguments = vec![way, plugin.to_str().unwrap()];
            let pair = Pair { program: &program, arguments, env: Vec::new() };
            assert_eq!(reasons(&pair.same(None).unwrap()), [Some(Blind::OwnScope)], "{way}");
        }
    }
}

#[test]
fn what_no_library_has_is_missing_as_it_is_plain() {
    let program = compiled!("callers.c");
    let options = ["-std=c++17", "-nostdlib", "-fno-exceptions"];
    let Some(plugin) = compile_with("g++", "plugin_delete.cc", &options) else { return };
    let arguments = [plugin.to_str().unwrap()];
    let bare = Run::bare(&program, &arguments).end();
    let ended = Account::new().run(&program, &arguments).end();
    assert!(bare.stdout.contains("undefined symbol: _Z"), "{bare:#?}");
    assert_eq!((ended.status, ended.stdout), (bare.status, bare.stdout));
}

#[test]
fn a_program_whose_malloc_is_the_next_one_runs_as_plain_and_is_accounted() {
    for options in [&[][..], &["-DJUMP"], &["-DMOST"], &["-DJUMP", "-DMOST"]] {
        for more in [&["-O2"][..], &["-O2", "-rdynamic"], &["-no-pie", "-O0"]] {
            let options = [options, more].concat();
            let Some(program) = compile_with("cc", "own_next.c", &options) else { return };
            for beneath in beneath() {
                let pair = Pair { program: &program, arguments: Vec::new(), env: Vec::new() };
                let Some(account) = pair.same(beneath.as_deref()) else { continue };
                let (about, rows) = (format!("{options:?} over {beneath:?}"), account.rows());
                assert_eq!(reasons(&account), [None], "{about}");
                assert!(live(rows.root()) >= 50, "{about}: {:#?}", rows.root());
                assert!(rows.root().current >= 50 * 6000, "{about}: {:#?}", rows.root());
            }
        }
    }
}

#[test]
fn a_second_namespace_is_named_in_the_row_and_at_a_limit_at_once() {
    let (program, plugin) = (compiled!("namespaces.c"), compiled!("plugin.c"));
    let path = plugin.to_str().unwrap();
    let folder = plugin.parent().unwrap().to_str().unwrap().to_owned();
    let env = vec![("LD_LIBRARY_PATH", folder)];
    let named = Some(Blind::Namespace);
    for (arguments, told) in [
        (vec![path], vec![named]),
        (vec!["libplugin.so", "name"], vec![named]),
        (vec![path, "fork"], vec![named, named]),
        (vec!["/no/such/file", "missing"], vec![None]),
    ] {
        let pair = Pair { program: &program, arguments: arguments.clone(), env: env.clone() };
        let account = Account::new();
        let said = pair.same_in(&account, None);
        assert_eq!((said.as_str(), reasons(&account)), ("", told.clone()), "{arguments:?}");
        // At a limit each process reports it.
        let limited = Account::limited(50 << 20);
        let said = pair.same_in(&limited, None);
        assert_eq!(reasons(&limited), told, "{arguments:?}");
        let lines = said.lines().filter(|line| {
            line.starts_with("ledgerline: namespaces.")
                && line.contains(": a second namespace (dlmopen): not accounted")
        });
        assert_eq!(lines.count(), told.iter().flatten().count(), "{arguments:?}: {said}");
    }
}
