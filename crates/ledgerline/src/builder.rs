//! Makes ledgers: in memory, in a file, or from a file that another process made.

use crate::container;
use crate::control::audit::wrong::WrongUncharge;
use crate::control::audit::{Audit, OnWrong};
use crate::control::throttle::THROTTLE_TIME;
use crate::control::victim::VICTIM_TIME;
use crate::control::{self, LONGEST, Times};
use crate::error::OpenError;
use crate::ledger::Ledger;
use crate::percpu::possible_cpus;
use crate::region::Region;
use crate::sync::Ordering;
use crate::table::handle::CAPACITY_MAX;
use crate::table::header::{Header, MAGIC, VERSION};
use crate::table::items;
use crate::table::plan::Plan;
use crate::table::{Settings, attached};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// 64 pages of 4 KiB, as in the kernel.
const DEFAULT_BATCH: u64 = 64 * 4096;
/// The capacities that a ledger may have.
const CAPACITIES: std::ops::RangeInclusive<u32> = 2..=CAPACITY_MAX as u32;
/// The batches that a ledger may have.
const BATCHES: std::ops::RangeInclusive<u64> = 1..=1 << 28;
/// The times, unless the builder sets others.
const TIMES: Times =
    Times { reclaim: Duration::from_millis(100), throttle: THROTTLE_TIME, victim: VICTIM_TIME };

/// A copy of a file's header.
#[repr(C, align(128))]
struct CopiedHeader([u8; size_of::<Header>()]);

const _: () = assert!(align_of::<CopiedHeader>() >= align_of::<Header>());

/// The settings with which a [`Ledger`] is made.
#[derive(Clone, Debug)]
#[must_use]
pub struct LedgerBuilder {
    capacity: u32,
    batch: u64,
    flows: bool,
    pub(crate) audit: bool,
    pub(crate) on_wrong: Option<OnWrong>,
    items: Vec<String>,
    times: Times,
    container: Option<container::Settings>,
}

impl LedgerBuilder {
    /// The most groups at a time, the root included: 2 to 1 Mi, which is the default. It costs address
    /// space (280 bytes a group, besides 32 MiB for each possible CPU), and memory only where it is used.
    pub fn capacity(mut self, groups: u32) -> Self {
        self.capacity = groups;
        self
    }

    /// The most units that a walk fetches for a cell at a time: 1 to 2^28 (default 262 144: 64 pages of 4
    /// KiB). With a larger batch the shared counters are touched less often, and more may lie idle
    /// ([`Estimate::bound`](crate::Estimate::bound)).
    pub fn batch(mut self, units: u64) -> Self {
        self.batch = units;
        self
    }

    /// Names the statistics that the program counts itself for each group
    /// ([`Group::add_stat`](crate::Group::add_stat)), at most [`ITEMS_MAX`](crate::ITEMS_MAX).
    /// `memory.stat` prints these names (a-z, 0-9 and `_`). Each item costs eight bytes a CPU for each
    /// group that counts any.
    pub fn items(mut self, names: &[&str]) -> Self {
        self.items = names.iter().map(|&name| name.to_owned()).collect();
        self
    }

    /// Counts the units charged and freed, too (`charged` and `freed` in
    /// [`Group::stat`](crate::Group::stat)). Then every charge takes the slow path, which takes three to
    /// six times as long.
    pub fn flows(mut self, keep: bool) -> Self {
        self.flows = keep;
        self
    }

    /// How long reclaimers may run before a charge is refused, after a charge was granted above a high, or
    /// before a lower limit is refused (default 100 ms; see
    /// [`Group::add_reclaimer`](crate::Group::add_reclaimer)). One is asked in any case, also by a thread that
    /// lost its CPU for as long.
    pub fn reclaim_time(mut self, time: Duration) -> Self {
        self.times.reclaim = time.min(LONGEST);
        self
    }

    /// The longest time for which one charge above a high is slowed down (default 2 s; see
    /// [`Charge::backoff`](crate::Charge::backoff)).
    pub fn throttle_time(mut self, time: Duration) -> Self {
        self.times.throttle = time;
        self
    }

    /// How long a cancelled victim may take to return what it holds, before another one is cancelled
    /// (default 1 s; see [`Request::oom`](crate::Request::oom)).
    pub fn victim_time(mut self, time: Duration) -> Self {
        self.times.victim = time.min(LONGEST);
        self
    }

    /// Has the root follow the limit that the kernel sets for this process's container, with the defaults of
    /// [`container::Settings`]: its max is the kernel's limit less a margin, and what the kernel charges and the ledger
    /// does not know takes from the room, as the row [`container::UNTRACKED`]. So the ledger refuses before the kernel
    /// kills. The ledger's units are bytes then. [`container`] says what is measured how often, and
    /// [`Ledger::container`] what was found.
    ///
    /// It starts two threads, which end with the ledger. A sample takes some 0.12 ms of a CPU's time (a
    /// virtual Xeon of 2026, in the cgroup of `tests/container_cgroup.rs`), and there are 4 to 200 a second: many
    /// where the room is short. The second thread runs reclaimers, when memory is short. In a ledger in a file
    /// ([`create_in`](Self::create_in)) the process that makes it follows the container for all; the limits of its
    /// cgroup must be those of the others'. A forked child's copy of a ledger in memory is not followed any further.
    ///
    /// ```
    /// # use ledgerline::{Ledger, container::UNTRACKED};
    /// let ledger = Ledger::builder().container().anonymous()?;
    /// let query = ledger.root().create("q1")?;
    /// let buffer = query.try_charge(1 << 20)?;
    /// println!("{}", ledger.container().expect("it was built with one"));
    /// assert!(ledger.root().child(UNTRACKED).is_some());
    /// # drop(buffer);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn container(self) -> Self {
        self.container_with(container::Settings::new())
    }

    /// As [`container`](Self::container), with other settings.
    ///
    /// # Errors
    /// Making the ledger fails when its capacity has no room for the row, or when the thread cannot be started. A limit
    /// that cannot be read is no error: the root then has none but that of the settings.
    pub fn container_with(mut self, settings: container::Settings) -> Self {
        self.container = Some(settings);
        self
    }

    fn settings(&self) -> io::Result<Settings> {
        let names: Vec<&str> = self.items.iter().map(String::as_str).collect();
        let refuse = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        items::check(&names).or_else(refuse)?;
        if !CAPACITIES.contains(&self.capacity) {
            let Self { capacity, .. } = self;
            refuse(format!("a capacity of {capacity} groups: it is 2 to {CAPACITY_MAX}"))?;
        }
        if !BATCHES.contains(&self.batch) {
            refuse(format!("a batch of {} units: it is 1 to {}", self.batch, BATCHES.end()))?;
        }
        let plan = Plan {
            capacity: self.capacity as usize,
            columns: possible_cpus() as usize,
            items: names.len(),
        };
        Ok(Settings {
            plan,
            batch: self.batch,
            flows: self.flows,
            detour: self.flows || self.audit,
            opened: false,
        })
    }

    /// Makes the ledger in memory of this process. A forked child has its own copy.
    ///
    /// # Errors
    /// When the address space cannot be reserved, or when the [`capacity`](Self::capacity), the
    /// [`batch`](Self::batch) or the [`items`](Self::items) are not as described there.
    pub fn anonymous(self) -> io::Result<Ledger> {
        // An allocator cannot register handlers before `main`; it uses a file (`create_in`).
        crate::gate::lock::guard_forks();
        let settings = self.settings()?;
        let region = Region::anonymous_at(settings.plan.size(), settings.plan.place())?;
        self.initialise(settings, region)
    }

    /// Makes the ledger in an empty file, so that other processes can read it ([`Ledger::open_in`]) and
    /// charge rows of their own ([`Ledger::attach_process`]).
    ///
    /// Whoever has the file open may write over the ledger, by mistake too. That harms no process that uses it:
    /// charges may be refused then ([`Reason::Damaged`](crate::Reason::Damaged)), and what makes no sense is
    /// [damaged](crate::GroupState::Damaged) in snapshots. But the file must not become shorter (a file in memory
    /// can be sealed): a process that has it mapped would be killed.
    ///
    /// # Errors
    /// When the file is not empty, cannot be extended or cannot be mapped; and as
    /// [`anonymous`](Self::anonymous).
    pub fn create_in(self, file: &File) -> io::Result<Ledger> {
        let settings = self.settings()?;
        let region = Region::create_in(file, settings.plan.size(), settings.plan.place())?;
        attached::note_here();
        self.initialise(settings, region)
    }

    fn initialise(self, settings: Settings, region: Region) -> io::Result<Ledger> {
        let plan = settings.plan;
        let audit = self.audit.then(|| Audit::new(self.on_wrong));
        let ledger = control::lay(settings, audit, self.times, region)?;
        let header = ledger.table().header();
        header.version.store(VERSION, Ordering::Relaxed);
        header.columns.store(plan.columns as u32, Ordering::Relaxed);
        header.capacity.store(self.capacity, Ordering::Relaxed);
        header.batch.store(self.batch, Ordering::Relaxed);
        header.given.high_water.store(1, Ordering::Relaxed);
        header.item_count.store(self.items.len() as u32, Ordering::Relaxed);
        header.flows.store(u32::from(self.flows), Ordering::Relaxed);
        header.audit.store(u32::from(self.audit), Ordering::Relaxed);
        for (into, name) in header.items.iter().zip(&self.items) {
            items::set_name(into, name);
        }
        let root = ledger.table().row(0);
        root.counter.reset();
        root.begin_root();
        root.counter.open();
        // Release: a process that sees the magic sees a whole header and a root.
        header.magic.store(MAGIC, Ordering::Release);
        if let Some(settings) = self.container {
            container::start(&ledger, settings)?;
        }
        Ok(ledger)
    }
}

impl LedgerBuilder {
    /// Follows each charge, to find wrong uncharges. An uncharge by
    /// [`Group::uncharge_units`](crate::Group::uncharge_units) that returns what no charge took changes
    /// nothing, and [`Ledger::audit_report`] names its group and its line.
    ///
    /// What the audit can tell and what it cannot:
    /// * An uncharge must return what *one* charge by `try_charge_units` or `charge_units` took: as many
    ///   units, in the same group. It reports units that are returned in parts, or those of several charges
    ///   returned together. A [`Charge`](crate::Charge) can be [split](crate::Charge::split) and merged.
    /// * Two charges of one size in one group are interchangeable. A line that returns such a size once too
    ///   often takes what another holds, and the last line to return is reported. The report says which
    ///   lines charged and uncharged that size, and how often, so that the wrong line can be told.
    /// * Only a [`Charge`](crate::Charge) itself returns what it holds. (A line that forgets one by
    ///   `mem::forget` and uncharges its units is reported.)
    /// * Only charges of this process are followed, in a ledger in a file too. Uncharges of groups of other
    ///   processes are not checked if no charge here fits them.
    ///
    /// It is for tests and for finding a mistake. No charge takes the fast path, and each takes a lock and
    /// allocates now and then. A charge and its uncharge take about 0.15 µs instead of a few nanoseconds
    /// (0.25 µs where two threads do nothing else, and wait for each other), and are not async-signal-safe.
    /// An allocator that charges the blocks it gives out may be audited: what the audit itself allocates is
    /// charged as ever, and not followed. Memory grows with the different sizes, groups and lines of what
    /// is outstanding, not with the number of charges.
    ///
    /// ```
    /// # use ledgerline::Ledger;
    /// let ledger = Ledger::builder().audit(true).anonymous()?;
    /// let query = ledger.root().create("q1")?;
    /// let others = query.try_charge(900)?;
    /// query.try_charge_units(100)?;
    /// query.uncharge_units(100);
    /// query.uncharge_units(100); // once too often
    /// assert_eq!((query.precise(), ledger.mistakes().audited), (900, 1));
    ///
    /// let report = ledger.audit_report();
    /// let wrong = &report.wrong[0];
    /// assert_eq!((&*wrong.path, wrong.units, wrong.site.file()), ("/q1", 100, file!()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn audit(mut self, follow: bool) -> Self {
        self.audit = follow;
        self
    }

    /// As [`audit`](Self::audit), and calls `act` for each wrong uncharge, in the thread that made it. That
    /// thread has changed nothing and holds no lock. So a test can panic there, and a program can log it
    /// with a backtrace.
    pub fn on_wrong_uncharge(
        mut self,
        act: impl Fn(&WrongUncharge) + Send + Sync + 'static,
    ) -> Self {
        self.on_wrong = Some(OnWrong::new(act));
        self.audit(true)
    }
}

impl Ledger {
    /// Makes a ledger in memory of this process, with the defaults of [`builder`](Ledger::builder).
    ///
    /// The first ledger of a process runs the self-test of [`detect`](crate::percpu::detect).
    ///
    /// # Errors
    /// When the address space cannot be reserved.
    pub fn new() -> io::Result<Ledger> {
        Ledger::builder().anonymous()
    }

    /// Starts to make a ledger with other settings, or in a file.
    pub fn builder() -> LedgerBuilder {
        LedgerBuilder {
            capacity: CAPACITY_MAX as u32,
            batch: DEFAULT_BATCH,
            flows: false,
            audit: false,
            on_wrong: None,
            items: Vec::new(),
            times: TIMES,
            container: None,
        }
    }

    /// Maps a ledger that another process made in a file. Allocates nothing.
    ///
    /// # Errors
    /// When the file is not a ledger, has another version, or was made for fewer CPUs than this machine may
    /// have.
    pub fn open_in(file: &File) -> Result<Ledger, OpenError> {
        // (Not by `stat`, which costs a small program two pages more. Nobody reads at this file's position.)
        let length = (&mut &*file).seek(SeekFrom::End(0)).map_err(OpenError::Io)?;
        let length = usize::try_from(length).map_err(|_| OpenError::NotALedger)?;
        if length < Plan::PAGE {
            return Err(OpenError::NotALedger);
        }
        let mut first = CopiedHeader([0; size_of::<Header>()]);
        file.read_exact_at(&mut first.0, 0).map_err(OpenError::Io)?;
        // SAFETY: it is as large as a header, and aligned as one; any bytes are atomics.
        let header = unsafe { &*first.0.as_ptr().cast::<Header>() };
        // Acquire: partner of the Release in `initialise`. (The kernel read the page after that, or not.)
        if header.magic.load(Ordering::Acquire) != MAGIC {
            return Err(OpenError::NotALedger);
        }
        let version = header.version.load(Ordering::Relaxed);
        if version != VERSION {
            return Err(OpenError::Version { found: version, known: VERSION });
        }
        let capacity = header.capacity.load(Ordering::Relaxed);
        let columns = header.columns.load(Ordering::Relaxed);
        let batch = header.batch.load(Ordering::Relaxed);
        let items = header.item_count.load(Ordering::Relaxed) as usize;
        let flows = header.flows.load(Ordering::Relaxed);
        let audit = header.audit.load(Ordering::Relaxed);
        if !CAPACITIES.contains(&capacity)
            || columns < possible_cpus()
            || columns > 1 << 16
            || !BATCHES.contains(&batch)
            || items > items::ITEMS_MAX
            || flows > 1
            || audit > 1
        {
            return Err(OpenError::Damaged);
        }
        let plan = Plan { capacity: capacity as usize, columns: columns as usize, items };
        // The file must hold all that will be touched: a hole behind its end would be a SIGBUS. One of another length
        // was made with other numbers: this process would write over what is not its own.
        if length != plan.size() {
            return Err(OpenError::Damaged);
        }
        let region = Region::shared_at(file, plan.size(), plan.place()).map_err(|error| {
            if error.kind() == io::ErrorKind::OutOfMemory
                && let Ok(first) = Region::shared(file, Plan::PAGE)
            {
                // SAFETY: as above, of the file's own page.
                let header = unsafe { &*first.at::<Header>(0) };
                header.turned_away.fetch_add(1, Ordering::Relaxed);
            }
            OpenError::Io(error)
        })?;
        let flows = flows == 1;
        let settings = Settings { plan, batch, flows, detour: flows || audit == 1, opened: true };
        let audit = (audit == 1).then(|| Audit::new(None));
        control::lay(settings, audit, TIMES, region).map_err(OpenError::Io)
    }
}
