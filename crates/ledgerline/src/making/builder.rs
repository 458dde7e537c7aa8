//! Creates ledgers: in memory, or in a file. `open.rs` opens ledgers of other processes.

use crate::announced::Announcement;
use crate::container;
use crate::control::audit::wrong::WrongUncharge;
use crate::control::audit::{Audit, OnWrong};
use crate::control::throttle::THROTTLE_TIME;
use crate::control::victim::VICTIM_TIME;
use crate::control::{self, LONGEST, Times};
use crate::ledger::Ledger;
use crate::percpu::{columns_in_files, columns_in_memory};
use crate::region::Region;
use crate::sync::Ordering;
use crate::table::handle::CAPACITY_MAX;
use crate::table::header::{MAGIC, VERSION};
use crate::table::plan::Plan;
use crate::table::{Settings, attached, items};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// 64 pages of 4 KiB, as in the kernel.
const DEFAULT_BATCH: u64 = 64 * 4096;
/// The allowed capacities.
pub(crate) const CAPACITIES: std::ops::RangeInclusive<usize> = 2..=CAPACITY_MAX;
/// The allowed batches.
pub(crate) const BATCHES: std::ops::RangeInclusive<u64> = 1..=1 << 28;
/// The default times.
pub(crate) const TIMES: Times =
    Times { reclaim: Duration::from_millis(100), throttle: THROTTLE_TIME, victim: VICTIM_TIME };

/// The settings of a new [`Ledger`].
#[derive(Clone, Debug)]
#[must_use]
pub struct LedgerBuilder {
    /// For a table that has no columns and no items yet.
    settings: Settings,
    on_wrong: Option<OnWrong>,
    spares_addresses: bool,
    items: Vec<String>,
    times: Times,
    container: Option<container::Settings>,
}

impl LedgerBuilder {
    /// Sets the most groups at a time, the root included: 2 to 1 Mi, which is the default. A group costs 284 bytes of address
    /// space, besides 32 MiB for each possible CPU, and memory only where it is used.
    pub fn capacity(mut self, groups: u32) -> Self {
        self.settings.plan.capacity = groups as usize;
        self
    }

    /// Sets the most units that a walk fetches for a cell at a time: 1 to 2^28. The default is 262 144, 64 pages of 4 KiB.
    /// With a larger batch the shared counters are touched less often, and more units may lie idle
    /// ([`Estimate::bound`](crate::Estimate::bound)).
    pub fn batch(mut self, units: u64) -> Self {
        self.settings.batch = units;
        self
    }

    /// Names the statistics that the program itself counts for each group
    /// ([`Group::add_stat`](crate::Group::add_stat)), at most [`ITEMS_MAX`](crate::ITEMS_MAX). `memory.stat` prints these
    /// names (a-z, 0-9 and `_`). Each item costs eight bytes a CPU for each group that counts any.
    pub fn items(mut self, names: &[&str]) -> Self {
        self.items = names.iter().map(|&name| name.to_owned()).collect();
        self
    }

    /// Counts the units charged and freed, too (`charged` and `freed` in [`Group::stat`](crate::Group::stat)). Then every
    /// charge takes the slow path, which takes three to six times as long.
    pub fn flows(mut self, keep: bool) -> Self {
        self.settings.flows = keep;
        self
    }

    /// Sets how long reclaimers may run before a charge is refused, after a charge was granted above a high, or before a
    /// lower limit is refused (default 100 ms; see [`Group::add_reclaimer`](crate::Group::add_reclaimer)). At least one
    /// reclaimer is asked, even if the thread was preempted for all of that time.
    pub fn reclaim_time(mut self, time: Duration) -> Self {
        self.times.reclaim = time.min(LONGEST);
        self
    }

    /// Sets the longest time by which one charge above a high is delayed (default 2 s; see
    /// [`Charge::backoff`](crate::Charge::backoff)).
    pub fn throttle_time(mut self, time: Duration) -> Self {
        self.times.throttle = time;
        self
    }

    /// Sets how long a cancelled victim may take to return its units before another one is cancelled (default 1 s; see
    /// [`Request::oom`](crate::Request::oom)).
    pub fn victim_time(mut self, time: Duration) -> Self {
        self.times.victim = time.min(LONGEST);
        self
    }

    /// Makes the root follow the limit that the kernel sets for this process's container, with the defaults of
    /// [`container::Settings`]. The root's max is the kernel's limit less a margin. Memory that the kernel charges and the
    /// ledger does not know reduces the room, as the row [`container::UNTRACKED`]. So the ledger refuses before the kernel
    /// kills. The ledger's units are then bytes. [`container`] documents the measurements and their rate, and
    /// [`Ledger::container`] returns the results.
    ///
    /// It starts two threads, which end with the ledger. A sample takes some 0.12 ms of CPU time (a virtual Xeon of 2026, in
    /// the cgroup of `tests/main/container_cgroup.rs`), and there are 4 to 200 a second, more when the room is short. The
    /// second thread runs reclaimers when memory is short. For a ledger in a file ([`create_in`](Self::create_in)) the
    /// process that creates it follows the container for all processes; they must be under the limits of its cgroup. A
    /// forked child's copy of a ledger in memory is not followed any further.
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

    /// Like [`container`](Self::container), but with other settings.
    ///
    /// # Errors
    /// Creating the ledger fails if its capacity has no room for the row, or if the thread cannot be started. A limit that
    /// cannot be read is no error: the root then has only the limit of the settings.
    pub fn container_with(mut self, settings: container::Settings) -> Self {
        self.container = Some(settings);
        self
    }

    /// Sets whether other processes may set limits (default `true`). With `false`, the setters change nothing in a process
    /// that opened the ledger by [`Ledger::open_in`]: [`set_max`](crate::Group::set_max) and
    /// [`set_max_now`](crate::Group::set_max_now) return [`SetMaxError::ReadOnly`](crate::SetMaxError::ReadOnly).
    /// [`Ledger::is_steerable`] returns this beforehand, and `ledgerline set` uses it. The process that creates the ledger,
    /// and children that it forks, can still set limits.
    ///
    /// This is a convention among users of this library. A process of the same user that has the file open for writing can
    /// still write over its memory. If no other process charges the ledger, the kernel can enforce it: seal a file in memory
    /// against further writing after [`create_in`](Self::create_in) has mapped it, and no other process can open it
    /// ([`OpenError::ReadOnly`](crate::OpenError::ReadOnly)).
    ///
    /// ```
    /// # use ledgerline::{Ledger, Limit, OpenError, SetMaxError};
    /// # use std::os::fd::{AsRawFd, FromRawFd};
    /// # // SAFETY: makes a file of its own.
    /// # let file = unsafe { std::fs::File::from_raw_fd(libc::memfd_create(c"l".as_ptr(), libc::MFD_ALLOW_SEALING)) };
    /// let ledger = Ledger::builder().steerable(false).create_in(&file)?;
    /// let opened = Ledger::open_in(&file)?; // as another process does
    /// assert_eq!(opened.root().set_max(Limit::units(5)), Err(SetMaxError::ReadOnly));
    /// ledger.root().set_max(Limit::units(5))?;
    ///
    /// // SAFETY: a plain call on a descriptor that is open.
    /// unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_FUTURE_WRITE) };
    /// assert!(matches!(Ledger::open_in(&file), Err(OpenError::ReadOnly)));
    /// ledger.root().set_max(Limit::MAX)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn steerable(mut self, by_others: bool) -> Self {
        self.settings.makers_limits = !by_others;
        self
    }

    /// Sets whether a ledger in a file leaves unused address space to other mappings (default `false`).
    ///
    /// Each column lies 32 MiB behind the previous one, whatever the [`capacity`](Self::capacity). With 64 CPUs that is
    /// 2 GiB, which costs no memory, but which a limit on address space (`ulimit -v`) counts. A ledger that spares addresses
    /// maps only the used parts, one for each CPU. It charges as fast, but not by number
    /// ([`Lease::lend`](crate::Lease::lend) returns `false`). Each process chooses for itself: others
    /// [open](Ledger::open_in) the file whole or [in parts](Ledger::open_sparing). On systems other than Linux, which cannot
    /// report free addresses, the whole file is mapped. This does not change a ledger in memory.
    ///
    /// ```
    /// # use ledgerline::Ledger;
    /// # use std::os::fd::FromRawFd;
    /// # // SAFETY: makes a file of its own.
    /// # let file = unsafe { std::fs::File::from_raw_fd(libc::memfd_create(c"l".as_ptr(), 0)) };
    /// let ledger = Ledger::builder().capacity(1000).spare_addresses(true).create_in(&file)?;
    /// let whole = Ledger::open_in(&file)?; // as another process does
    /// assert!(ledger.footprint().reserved < whole.footprint().reserved / 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spare_addresses(mut self, spare: bool) -> Self {
        self.spares_addresses = spare;
        self
    }

    fn settings(&self, columns: u32) -> io::Result<Settings> {
        let names: Vec<&str> = self.items.iter().map(String::as_str).collect();
        let refuse = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        items::check(&names).or_else(refuse)?;
        let Settings { plan: Plan { capacity, .. }, batch, .. } = self.settings;
        if !CAPACITIES.contains(&capacity) {
            refuse(format!("a capacity of {capacity} groups: it is 2 to {CAPACITY_MAX}"))?;
        }
        if !BATCHES.contains(&batch) {
            refuse(format!("a batch of {batch} units: it is 1 to {}", BATCHES.end()))?;
        }
        let plan = Plan { capacity, columns: columns as usize, items: names.len() };
        Ok(Settings { plan, ..self.settings })
    }

    /// Creates the ledger in memory of this process. A forked child has its own copy.
    ///
    /// # Errors
    /// If the address space cannot be reserved, or if the [`capacity`](Self::capacity), the [`batch`](Self::batch) or the
    /// [`items`](Self::items) break the rules documented there.
    pub fn anonymous(self) -> io::Result<Ledger> {
        // An allocator cannot register handlers before `main`; it uses a file (`create_in`).
        crate::gate::lock::guard_forks();
        let settings = self.settings(columns_in_memory())?;
        let region = Region::anonymous_at(settings.plan.size(), settings.plan.place())?;
        self.initialise(settings, region)
    }

    /// Creates the ledger in an empty file, so that other processes can read it ([`Ledger::open_in`]) and charge rows of
    /// their own ([`Ledger::attach_process`]).
    ///
    /// A process that has the file open may write over the ledger, by mistake too. That harms no process that uses it:
    /// charges may then be refused ([`Reason::Damaged`](crate::Reason::Damaged)), and invalid values show as
    /// [damaged](crate::GroupState::Damaged) in snapshots. But the file must not become shorter, or every process that has
    /// it mapped would be killed. A file in memory can be sealed against that.
    ///
    /// # Errors
    /// If the file is not empty, cannot be extended or cannot be mapped, and in the cases of
    /// [`anonymous`](Self::anonymous).
    pub fn create_in(self, file: &File) -> io::Result<Ledger> {
        let settings = self.settings(columns_in_files())?;
        let plan = settings.plan;
        let region = match self.spares_addresses {
            true => Region::create_in_parts(file, plan.parts(), plan.place())?,
            false => Region::create_in(file, plan.size(), plan.place())?,
        };
        attached::note_here();
        self.initialise(settings, region)
    }

    /// Creates the ledger in a file of the user's runtime directory, where monitoring programs find it by this name, the
    /// program's name and its PID: `ledgerline top`, `show` and `serve`. [`announced`](crate::announced) lists such ledgers,
    /// and [`Ledger::announced_at`] returns the path.
    ///
    /// The name has 1 to 64 of a-z, A-Z, 0-9 and `_ . + -`, and begins with a letter or a digit. Several processes may
    /// announce one name; a process announces it once at a time.
    ///
    /// * The folder is `ledgerline` in `$XDG_RUNTIME_DIR`, else in `/run/user/UID`; else `ledgerline-UID` in `/dev/shm`,
    ///   else in `/tmp`. It is created with mode 0700. A folder that belongs to another user, that others may open, or that
    ///   is a symbolic link is not used. The file has mode 0600: this user and root may read it.
    /// * The file is removed when the ledger is dropped. If the program ends without that, because it was killed or keeps
    ///   the ledger in a `static`, the file stays readable, and is listed as ended. It is removed when a program of the same
    ///   user announces the same name again, or as soon as there are eight newer ones of ended programs.
    /// * It is a ledger in a file; the notes on other processes and on damage at [`create_in`](Self::create_in) apply. Its
    ///   memory is that of the file system, which must have room for it: a program that touches a row for which there is no
    ///   room is killed (`SIGBUS`).
    /// * A forked child shares the ledger, whereas it would have a copy of one in memory. It must not use the groups that it
    ///   inherited until it has called [`Ledger::attach_process`]. When it drops the ledger or ends, the file stays. A
    ///   program that this one executes does not count as having it.
    ///
    /// ```
    /// # use ledgerline::Ledger;
    /// # // A folder of its own, as a program has it that the user started.
    /// # let folder = std::env::temp_dir().join(format!("announce-{}", std::process::id()));
    /// # std::fs::create_dir(&folder)?;
    /// # use std::os::unix::fs::PermissionsExt;
    /// # std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700))?;
    /// # unsafe { std::env::set_var("XDG_RUNTIME_DIR", &folder) };
    /// let ledger = Ledger::builder().announce("orders")?;
    /// let listed = ledgerline::announced();
    /// let found = listed.iter().find(|found| found.name == "orders" && found.running).unwrap();
    /// assert_eq!((found.pid, Some(&found.path)), (std::process::id(), ledger.announced_at().as_ref()));
    /// drop(ledger);
    /// assert!(!found.path.exists());
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the name breaks these rules, if there is no folder for it (the error lists those that were tried), if this process
    /// has already announced the name, and in the cases of [`create_in`](Self::create_in).
    pub fn announce(self, name: &str) -> io::Result<Ledger> {
        let announcement = Announcement::new(name)?;
        let ledger = self.create_in(announcement.file())?;
        let announced = ledger.control().announcement.set(announcement);
        debug_assert!(announced.is_ok(), "it is set here alone");
        Ok(ledger)
    }

    fn initialise(self, settings: Settings, region: Region) -> io::Result<Ledger> {
        let Settings { plan, batch, flows, audit: followed, makers_limits, .. } = settings;
        let audit = followed.then(|| Audit::new(self.on_wrong));
        let ledger = control::lay(settings, audit, self.times, region)?;
        let header = ledger.table().header();
        header.version.store(VERSION, Ordering::Relaxed);
        header.columns.store(plan.columns as u32, Ordering::Relaxed);
        header.capacity.store(plan.capacity as u32, Ordering::Relaxed);
        header.batch.store(batch, Ordering::Relaxed);
        header.given.high_water.store(1, Ordering::Relaxed);
        header.item_count.store(plan.items as u32, Ordering::Relaxed);
        header.flows.store(u32::from(flows), Ordering::Relaxed);
        header.audit.store(u32::from(followed), Ordering::Relaxed);
        header.makers_limits.store(u32::from(makers_limits), Ordering::Relaxed);
        for (into, name) in header.items.iter().zip(&self.items) {
            items::set_name(into, name);
        }
        let root = ledger.table().row(0);
        root.counter.reset();
        root.begin_root();
        root.counter.open();
        // Release: a process that sees the magic sees a complete header and a root.
        header.magic.store(MAGIC, Ordering::Release);
        if let Some(settings) = self.container {
            container::start(&ledger, settings)?;
        }
        Ok(ledger)
    }

    /// Follows each charge, to find wrong uncharges. An uncharge by [`Group::uncharge_units`](crate::Group::uncharge_units)
    /// that returns units no charge took changes nothing, and [`Ledger::audit_report`] names its group and its line.
    ///
    /// The limits of the audit:
    /// * An uncharge must return the units of *one* charge by `try_charge_units` or `charge_units`: as many units, in the
    ///   same group. It reports units that are returned in parts, or those of several charges returned together. A
    ///   [`Charge`](crate::Charge) can be [split](crate::Charge::split) and merged.
    /// * Two charges of one size in one group are interchangeable. A line that returns such a size once too often takes the
    ///   units of another charge, and the last line to return is reported. The report lists the lines that charged and
    ///   uncharged that size, with their counts, so that the wrong line can be found.
    /// * Only a [`Charge`](crate::Charge) itself returns its units. A line that forgets one by `mem::forget` and uncharges
    ///   its units is reported.
    /// * Only charges of this process are followed, in a ledger in a file too. Uncharges of groups of other processes are
    ///   not checked if no charge here matches them.
    ///
    /// It is meant for tests and for finding a mistake. No charge takes the fast path, and each takes a lock and allocates
    /// now and then. A charge and its uncharge take about 0.15 µs instead of a few nanoseconds, or 0.25 µs if two threads do
    /// nothing else and wait for each other, and are not async-signal-safe. An allocator that charges its blocks may be
    /// audited: the audit's own allocations are charged as usual, and not followed. Memory grows with the different sizes,
    /// groups and lines of the outstanding charges, not with the number of charges.
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
        self.settings.audit = follow;
        self
    }

    /// Like [`audit`](Self::audit), and calls `act` for each wrong uncharge, in the thread that made it. That thread has
    /// changed nothing and holds no lock. So a test can panic there, and a program can log it with a backtrace.
    pub fn on_wrong_uncharge(
        mut self,
        act: impl Fn(&WrongUncharge) + Send + Sync + 'static,
    ) -> Self {
        self.on_wrong = Some(OnWrong::new(act));
        self.audit(true)
    }
}

impl Ledger {
    /// Creates a ledger in memory of this process, with the defaults of [`builder`](Ledger::builder).
    ///
    /// The first ledger of a process runs the self-test of [`detect`](crate::percpu::detect).
    ///
    /// # Errors
    /// If the address space cannot be reserved.
    pub fn new() -> io::Result<Ledger> {
        Ledger::builder().anonymous()
    }

    /// Returns the file in which monitoring programs find this ledger, if this process
    /// [announced](LedgerBuilder::announce) it.
    pub fn announced_at(&self) -> Option<PathBuf> {
        self.control().announcement.get().map(Announcement::path)
    }

    /// Returns a builder for a ledger with other settings, or in a file.
    pub fn builder() -> LedgerBuilder {
        let plan = Plan { capacity: CAPACITY_MAX, ..Plan::default() };
        LedgerBuilder {
            settings: Settings { plan, batch: DEFAULT_BATCH, ..Settings::default() },
            on_wrong: None,
            spares_addresses: false,
            items: Vec::new(),
            times: TIMES,
            container: None,
        }
    }
}
