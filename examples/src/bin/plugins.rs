//! A host of plug-ins, each in a group of its own. One that leaks is unloaded, and the host knows which and why.
//!
//! A plug-in is any code behind a trait. It knows nothing of groups, and keeps what it allocates for as long as it
//! likes. The host limits it, reads its usage, and ends it. Code with threads of its own needs a `catch` in each.

use ledgerline::{Alloc, Group, Ledger};
use std::collections::BTreeMap;
use std::error::Error;

#[global_allocator]
static ALLOC: Alloc = Alloc::system();

/// The reaction of a plug-in to each event.
trait Plugin {
    fn handle(&mut self, event: &str);
}

/// Counts words: its memory grows with the number of different words.
#[derive(Default)]
struct Words(BTreeMap<String, u64>);

impl Plugin for Words {
    fn handle(&mut self, event: &str) {
        event.split(' ').for_each(|word| *self.0.entry(word.to_owned()).or_default() += 1);
    }
}

/// Keeps every event for ever.
#[derive(Default)]
struct Hoarder(Vec<String>);

impl Plugin for Hoarder {
    fn handle(&mut self, event: &str) {
        self.0.push(event.repeat(100));
    }
}

/// A plug-in with its group.
struct Loaded {
    group: Group<'static>,
    plugin: Box<dyn Plugin>,
}

impl Loaded {
    fn new(
        plugins: Group<'static>,
        name: &str,
        make: impl FnOnce() -> Box<dyn Plugin>,
    ) -> Result<Loaded, Box<dyn Error>> {
        let group = plugins.create(name)?;
        group.set_max("2M".parse()?)?;
        let plugin = group.scope(make);
        Ok(Loaded { group, plugin })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let ledger = Ledger::new()?.into_static();
    let plugins = ledger.root().create("plugins")?;
    let mut loaded = vec![
        Loaded::new(plugins, "words", || Box::new(Words::default()))?,
        Loaded::new(plugins, "hoarder", || Box::new(Hoarder::default()))?,
    ];

    let mut unloaded = Vec::new();
    for number in 0..2_000 {
        let event = format!("event {} of kind {}", number, number % 50);
        loaded.retain_mut(|Loaded { group, plugin }| {
            let refused = match group.catch(|| plugin.handle(&event)) {
                Ok(()) => return true,
                Err(refused) => refused,
            };
            println!("event {number}: {refused}");
            unloaded.push(group.name());
            // Its memory is credited to its group, whichever thread drops it.
            *plugin = Box::new(Words::default());
            println!("{}", group.destroy().expect("it has no groups below"));
            false
        });
    }
    for Loaded { group, plugin } in loaded {
        println!("{} holds {} bytes after 2000 events", group.path(), group.precise());
        assert!(group.precise() > 0);
        drop(plugin);
        assert_eq!(group.precise(), 0, "a plug-in that is dropped gives all back");
    }
    assert_eq!(unloaded, ["hoarder"]);
    assert_eq!((plugins.precise(), ledger.leaks().len()), (0, 0));
    println!("ok");
    Ok(())
}
