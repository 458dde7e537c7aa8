//! `--on-refusal`: a command of the user's that is told of a refusal, at the first one and at most once a minute then.

use ledgerline::Ledger;
use ledgerline_run::account::model::{Account, Row};
use ledgerline_view::terminal::output::say;
use rustix::process::{Pid, WaitOptions, waitpid};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The interval between two commands.
const EVERY: Duration = Duration::from_secs(60);
/// The interval between looks at the rows, since each look costs the processes some of their prepaid units.
const LOOK: Duration = Duration::from_millis(100);

/// How long the end of a run waits for a command.
const PATIENCE: Duration = Duration::from_secs(5);

/// The command, and which refusals it was told of.
pub(super) struct OnRefusal<'a> {
    command: &'a OsStr,
    /// The events of the roots at the last look.
    events: u64,
    /// Whether the rows are looked at once more for them.
    again: bool,
    looked: Option<Instant>,
    started: Option<Instant>,
    /// How often each row was refused when the command was started last.
    told: HashMap<String, u64>,
    /// The sessions of the commands: their processes are not the run's.
    sessions: Vec<u32>,
}

impl<'a> OnRefusal<'a> {
    pub(super) fn new(command: &'a OsStr) -> OnRefusal<'a> {
        OnRefusal {
            command,
            events: 0,
            again: false,
            looked: None,
            started: None,
            told: HashMap::new(),
            sessions: Vec::new(),
        }
    }

    /// Returns the sessions of the commands that were started.
    pub(super) fn sessions(&self) -> &[u32] {
        &self.sessions
    }

    /// Starts the command if these ledgers refused something that it is to be told of. `account` makes the account of
    /// the run as it is now. The last look of a run is taken at once.
    pub(super) fn look<'l>(
        &mut self,
        ledgers: impl Iterator<Item = &'l Ledger>,
        account: impl FnOnce() -> Account,
        is_last: bool,
    ) {
        let recent = |at: Option<Instant>, time| at.is_some_and(|at| at.elapsed() < time);
        if recent(self.started, EVERY) || (recent(self.looked, LOOK) && !is_last) {
            return;
        }
        // Cheap, unlike the look at the rows.
        let events = ledgers.map(|ledger| ledger.root().max_events()).sum();
        if events == self.events && !self.again {
            return;
        }
        // A process notes its request a moment after the event.
        self.again = events != self.events;
        (self.events, self.looked) = (events, Some(Instant::now()));
        let account = account();
        let Some(row) = most_refused(&account.rows, &self.told) else { return };
        self.again = false;
        let variables = variables(&account, row);
        self.told = refused(&account.rows).collect();
        self.started = Some(Instant::now());
        self.start(variables);
    }

    /// Waits a bounded time for the commands that still run, so that what comes after the run finds their work done.
    pub(super) fn wait(&self) {
        let begun = Instant::now();
        for pid in self.sessions.iter().filter_map(|&pid| Pid::from_raw(pid.cast_signed())) {
            // An error means that it has been waited for already.
            while let Ok(None) = waitpid(Some(pid), WaitOptions::NOHANG)
                && begun.elapsed() < PATIENCE
            {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    fn start(&mut self, variables: Vec<(&'static str, OsString)>) {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(self.command).envs(variables).stdin(Stdio::null());
        // The program's standard output stays clean.
        match std::io::stderr().as_fd().try_clone_to_owned() {
            Ok(stderr) => command.stdout(stderr),
            Err(_) => command.stdout(Stdio::null()),
        };
        // SAFETY: all calls are async-signal-safe. A sigset_t is an array of integers, for which zeros are valid.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                // This command holds signals back.
                let mut none: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&raw mut none);
                libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
                Ok(())
            });
        }
        // The handle is dropped on purpose: the session collects every child.
        match command.spawn() {
            Ok(child) => self.sessions.push(child.id()),
            Err(error) => say(format_args!(
                "ledgerline: warning: --on-refusal: /bin/sh cannot be started ({error})"
            )),
        }
    }
}

/// Returns how often a limit refused each row, by its path.
fn refused(rows: &[Row]) -> impl Iterator<Item = (String, u64)> {
    rows.iter().map(|row| (row.path.clone(), row.counted.refused))
}

/// Returns the row that was refused most since then, among those that made a refused request themselves; of equal ones
/// that which was refused first.
fn most_refused<'r>(rows: &'r [Row], told: &HashMap<String, u64>) -> Option<&'r Row> {
    let since =
        |row: &Row| row.counted.refused.saturating_sub(told.get(&row.path).copied().unwrap_or(0));
    rows.iter()
        .filter(|row| since(row) > 0)
        .filter_map(|row| Some((row, row.counted.most_refused?)))
        .max_by_key(|(row, refusals)| (since(row), std::cmp::Reverse(refusals.time)))
        .map(|(row, _)| row)
}

/// Returns the variables that tell the command of a refusal.
fn variables(account: &Account, row: &Row) -> Vec<(&'static str, OsString)> {
    let root = account.rows.first();
    let of_heap = row.counted.refused_heap > 0;
    let limit = root.and_then(|root| if of_heap { root.counted.max_heap } else { root.max });
    let refusals = row.counted.most_refused;
    let resident = account.resident.as_ref().filter(|_| !of_heap);
    let usage = refusals.and_then(|refusals| match resident {
        Some(resident) => resident.at(refusals.time),
        None => Some(refusals.usage),
    });
    let known = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
    [
        ("LEDGERLINE_REFUSED_ROW", row.path.clone()),
        ("LEDGERLINE_REFUSED_NAME", row.called.clone()),
        ("LEDGERLINE_REFUSED_PID", row.pid.to_string()),
        ("LEDGERLINE_REFUSED_SIZE", known(refusals.map(|refusals| refusals.first))),
        ("LEDGERLINE_REFUSED_LARGEST", known(refusals.map(|refusals| refusals.largest))),
        ("LEDGERLINE_REFUSED_IN_USE", known(usage)),
        ("LEDGERLINE_REFUSED_LIMIT", known(limit)),
        ("LEDGERLINE_REFUSED_TIMES", known(root.map(|root| root.counted.refused))),
        ("LEDGERLINE_RUN_PID", std::process::id().to_string()),
    ]
    .map(|(name, value)| (name, OsString::from(value)))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledgerline_run::account::model::{Refusals, Resident};

    fn row(path: &str, refused: u64, time: u64) -> Row {
        let mut row = Row { path: path.to_owned(), pid: 7, ..Row::default() };
        row.counted.refused = refused;
        let refusals = Refusals { first: 4096, time, largest: 9000, usage: 500 };
        row.counted.most_refused = (time > 0).then_some(refusals);
        row
    }

    #[test]
    fn the_row_that_was_refused_most_since_the_last_command_is_named() {
        let mut rows = vec![row("/", 9, 0), row("/a", 4, 20), row("/b", 4, 10), row("/c", 0, 0)];
        let first = most_refused(&rows, &HashMap::new()).unwrap();
        assert_eq!(first.path, "/b", "the first of equal ones");
        let told = refused(&rows).collect();
        assert!(most_refused(&rows, &told).is_none());
        rows[1].counted.refused += 1;
        assert_eq!(most_refused(&rows, &told).unwrap().path, "/a");
    }

    #[test]
    fn a_command_is_told_what_was_asked_for_and_what_was_in_use() {
        let mut root = row("/", 3, 0);
        root.max = Some(600);
        let of = |account: &Account, name: &str| {
            let all = variables(account, &account.rows[1]);
            let found = all.into_iter().find(|(other, _)| *other == name).expect("it is told");
            found.1.into_string().unwrap()
        };
        let mut account = Account { rows: vec![root, row("/b", 3, 10)], ..Account::default() };
        for (name, value) in [
            ("SIZE", "4096"),
            ("LARGEST", "9000"),
            ("IN_USE", "500"),
            ("LIMIT", "600"),
            ("TIMES", "3"),
        ] {
            assert_eq!(of(&account, &format!("LEDGERLINE_REFUSED_{name}")), value, "{name}");
        }
        account.resident =
            Some(Resident { limit: Some(600), peak: 900, closings: vec![(5, 700), (11, 900)] });
        assert_eq!(of(&account, "LEDGERLINE_REFUSED_IN_USE"), "700", "as it was then");
    }
}
