//! A watched ledger.

use crate::watch::Asked;
use crate::watch::counted::{Counted, Rules, is_damaged};
use crate::watch::look::{Counts, ItemName, Look, Row, State};
use ledgerline::{GroupId, GroupSnapshot, GroupState, OpenError, Reading, View};
use ledgerline_protocol::{Identity, program};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A watched ledger, with its title. It is read and never written; the charging programs do not notice.
#[derive(Debug)]
pub struct Source {
    view: View,
    rules: Rules,
    items: Vec<ItemName>,
    path: PathBuf,
    title: String,
}

impl Source {
    /// Opens the ledger in a file, which must be readable.
    ///
    /// # Errors
    /// A sentence that names the file: it does not exist, may not be read, is no ledger, or is one of another version.
    pub fn open(path: &Path) -> Result<Source, String> {
        let name = path.display();
        let view = open_view(path).map_err(|error| format!("{name} {error}"))?;
        let reading = view.read().map_err(|error| format!("{name} cannot be read: {error}"))?;
        let rules = Rules::new(reading.statistics.names());
        let items = view.item_names().iter().map(|item| ItemName::from(&**item)).collect();
        Ok(Source { view, rules, items, path: path.to_owned(), title: name.to_string() })
    }

    /// Returns the same ledger by another title.
    #[must_use]
    pub fn titled(self, title: String) -> Source {
        Source { title, ..self }
    }

    /// Returns the file that it was opened in.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its title: a program and its process, or a file.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Returns the ledger itself, for data that a [`Look`] lacks: events, statistics, its size.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Returns whether it is the ledger of a `ledgerline run`.
    pub fn is_run(&self) -> bool {
        self.rules.is_run()
    }

    /// Looks at all groups. Costs some two microseconds per group, and nothing for the charging programs. A file that
    /// cannot be read any more shows as a damaged root.
    pub fn look(&self) -> Look {
        self.try_look().unwrap_or_else(|_| Look {
            at: SystemTime::now(),
            clock: Duration::ZERO,
            unit: "bytes",
            steady: false,
            damaged: true,
            rows: vec![Row::damaged(GroupId::from_parts(0, 1), "/".into(), "/".into(), 0)],
        })
    }

    /// Like [`look`](Self::look), but returns an error if the file cannot be read any more.
    ///
    /// # Errors
    /// A sentence that names the file: it became shorter, for example.
    pub fn try_look(&self) -> Result<Look, String> {
        let read = self.view.read();
        let Reading { snapshot, statistics, clock, .. } =
            read.map_err(|error| format!("{} cannot be read: {error}", self.path.display()))?;
        let at = SystemTime::now();
        let first_item = statistics.names().len() - self.items.len();
        let mut rows = Vec::with_capacity(snapshot.groups.len());
        let mut damaged = snapshot.damaged;
        for (place, group) in snapshot.groups.iter().enumerate() {
            let own = |line| statistics.own(place, line);
            let subtree = |line| statistics.subtree(place, line);
            let counted = self.rules.count(own, subtree);
            let counted = if group.depth == 0 { counted.of_root() } else { counted };
            let below = snapshot.groups.get(place + 1).is_some_and(|next| next.depth > group.depth);
            // A process that is not accounted and has charged nothing has no row of numbers.
            if counted.blind.is_some() && group.charges == 0 && !below {
                continue;
            }
            if is_damaged(group, &counted, false) {
                damaged = true;
                let (path, name) = (group.path.clone(), group.name.clone());
                rows.push(Row::damaged(group.id, path, name, group.depth));
                continue;
            }
            let items = self.items.iter().enumerate();
            let items = items.map(|(item, name)| (name.clone(), subtree(first_item + item)));
            let reclaimed = statistics.line("reclaimed").map_or(0, subtree);
            rows.push(row(group, &counted, self.is_run(), reclaimed, items.collect()));
        }
        let (unit, steady) = (snapshot.unit, snapshot.steady);
        Ok(Look { at, clock, unit, steady, damaged, rows })
    }
}

/// Opens a file that may be a ledger. The error is the second half of a sentence.
pub(crate) fn open_view(path: &Path) -> Result<View, String> {
    let metadata = path.metadata().map_err(|error| format!("cannot be opened: {error}"))?;
    if !metadata.is_file() {
        return Err("is not a file".to_owned());
    }
    // The path may have become something else than a file, for which opening must not wait: a pipe would wait for a
    // writer.
    let file =
        File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path);
    let file = file.map_err(|error| format!("cannot be opened: {error}"))?;
    View::open(file).map_err(|error| match error {
        OpenError::NotALedger => "is not a ledger".to_owned(),
        error => format!("cannot be opened: {error}"),
    })
}

fn row(
    group: &GroupSnapshot,
    counted: &Counted,
    of_run: bool,
    reclaimed: i64,
    items: Vec<(ItemName, i64)>,
) -> Row {
    let ended = group.state == GroupState::Exited || counted.processes > 0;
    Row {
        id: group.id,
        path: group.path.clone(),
        name: group.name.clone(),
        depth: group.depth,
        state: if ended { State::Exited } else { State::Live },
        pid: Identity::from_owner(group.owner).pid(),
        process: (of_run && group.depth == 1 && group.owner != 0 && !counted.origin.executed)
            .then_some(Asked { owner: group.owner, started: counted.origin.started }),
        program: if group.owner == 0 { &group.name } else { program(&group.name) }.to_owned(),
        current: if ended { group.current.max(group.at_exit) } else { group.current },
        peak: group.peak.value,
        counts: Counts {
            charges: group.charges,
            uncharges: group.uncharges,
            refused: counted.refused,
            max_events: group.max_events,
            high_events: group.high_events,
            subtree_max_events: group.events.max,
            subtree_high_events: group.events.high,
            reclaimed: reclaimed.max(0).cast_unsigned(),
        },
        max: counted
            .resident_max
            .or(group.max.get().map(|max| max.saturating_add(counted.reserve))),
        high: group.high.get(),
        low: group.low.get().unwrap_or(0),
        min: group.min.get().unwrap_or(0),
        items,
    }
}
