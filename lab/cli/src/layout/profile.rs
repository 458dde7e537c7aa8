//! `ledgerline layout profile`, and the options that describe how types are used: a profile, and the machine for which
//! costs are predicted.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use ledgerline_advise::cost::{Question, Timed};
use ledgerline_advise::profile::{Known, Object, Profile, WorkBasis};
use ledgerline_coherence::machine::{BUILT_IN, Machine};
use ledgerline_layout::Error;
use ledgerline_layout::model::Types;

pub(super) const LONG_ABOUT: &str = "\
Print a profile as TOML, whatever wrote it, so that you can look at it and correct what its writer could not know.

A sampler sees neither operations nor what else they do besides these accesses. A table of the kernel says neither \
how often a field is touched nor how many objects there are. So in their profiles `work_ns` is 1000, rates are \
relative to the field that is touched most, or 1, and a table's type has one object that all CPUs share.";

const EXAMPLES: &str = "\
Examples:
  ledgerline layout profile ./server --profile perf.data --object stats@stats --object queue@pool+0x40
  ledgerline layout profile vmlinux --profile perf.data --object page_counter@0xffff888100a4c000
  ledgerline layout profile vmlinux --profile c2c.txt --object page_counter@0xffff888100a4c000 >charges.toml
  ledgerline layout profile vmlinux --profile Documentation/networking/net_cachelines/tcp_sock.rst";

/// The options of `ledgerline layout profile`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PrintArgs {
    /// The file that holds the types
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    profile: ProfileArgs,
}

/// Returns the profile as TOML.
pub(super) fn text(args: &PrintArgs) -> Result<Vec<u8>, Error> {
    let profile = args.profile.read(&args.file, super::types(&args.file, &[])?)?;
    let profile =
        profile.ok_or_else(|| Error::new("no profile is named").advise("add --profile FILE"))?;
    Ok(profile.to_toml().into_bytes())
}

/// The formats of a profile, for the help text.
const FORMATS: &str = "\
A file that says who reads and writes which field how often: TOML that people or `layout record` write, tables of \
the kernel's Documentation/networking/net_cachelines, a perf.data of `perf mem record`, `perf c2c record` or `perf \
record -d`, or the text of `perf c2c report --stdio`, `perf mem report --stdio`, `perf mem -D report` or `perf script \
-F comm,tid,cpu,time,period,event,addr,data_src`. What perf writes has addresses: say with --object where objects \
were.";

/// The options that name a profile.
#[derive(Args, Debug, Default)]
pub struct ProfileArgs {
    /// A file that says who reads and writes which field how often
    #[arg(long, value_name = "FILE", long_help = FORMATS)]
    pub(super) profile: Option<PathBuf>,

    /// Where an object of a type was when the profile was taken: TYPE@0xADDRESS, TYPE@SYMBOL, TYPE@SYMBOL+OFFSET
    #[arg(long = "object", value_name = "TYPE@WHERE", requires = "profile", long_help = OBJECT)]
    objects: Vec<Object>,

    /// What an operation takes today, timed without recording, in nanoseconds; for one role, ROLE=NS
    #[arg(long, value_name = "[ROLE=]NS", requires = "profile", long_help = TAKES)]
    takes: Vec<Takes>,

    /// What an operation takes today where its thread runs alone, in nanoseconds; for one role, ROLE=NS
    #[arg(long, value_name = "[ROLE=]NS", requires = "profile", long_help = ALONE)]
    alone: Vec<Takes>,
}

/// The help text of `--object`.
const OBJECT: &str = "\
Where an object of a type was when the profile was taken: TYPE@0xADDRESS, TYPE@SYMBOL, TYPE@SYMBOL+OFFSET. A symbol is \
one of FILE, by its name there or in the source (`server::STATS`), and FILE is the program, the library or the vmlinux \
that ran: a perf.data says where each process, or the kernel, had loaded it. The text of `perf mem report` names \
symbols itself. Other texts have addresses alone.";

/// The help text of `--takes`.
const TAKES: &str = "\
What an operation takes today, timed without recording, in nanoseconds, waits included; for one role of the profile, \
ROLE=NS. The work of the operation is found by simulation: with it, today's layout takes that long. It replaces \
`work_ns` and `takes_ns` of the profile. Time it on the machine that the profile or --machine names (`ledgerline \
calibrate` describes this one), with as many CPUs as the profile says. It does not tell work from waiting by itself: \
ranges go from a program that waits for every line to one that works meanwhile. --alone narrows them.";

/// The help text of `--alone`.
const ALONE: &str = "\
What an operation takes today where its thread runs alone, in nanoseconds; for one role of the profile, ROLE=NS. The \
work of the operation follows from it. With --takes beside it, what others make the operation wait is known as well: \
how much of the waiting the program hides, and by what the simulation is off, are corrected by it. Time the same \
program with one thread, on today's layout. Where it needs all of its threads, and none waits for another, keep the \
program to one CPU (`taskset -c 0`) and take the CPU's time by what all threads did.";

/// A time of an operation, for one role or for all.
#[derive(Clone, Debug)]
struct Takes {
    role: Option<String>,
    ns: f64,
}

impl Takes {
    /// Replaces the profile's time with that of the option.
    fn tell(
        &self,
        option: &str,
        profile: &mut Profile,
        basis: impl Fn(f64, WorkBasis) -> WorkBasis,
    ) -> Result<(), Error> {
        let mut told = false;
        for role in profile.types.iter_mut().flat_map(|of| &mut of.roles) {
            if self.role.as_ref().is_none_or(|name| *name == role.name) {
                role.basis = basis(self.ns, role.basis);
                role.work_ns = self.ns;
                told = true;
            }
        }
        if told {
            return Ok(());
        }
        let name = self.role.as_deref().unwrap_or_default();
        let roles = profile.types.iter().flat_map(|of| &of.roles);
        let roles: Vec<&str> = roles.map(|role| role.name.as_str()).collect();
        let error = Error::new(format!("{option}: the profile has no role {name:?}"));
        Err(error.advise(format!("it has {}", roles.join(", "))))
    }
}

impl FromStr for Takes {
    type Err = String;

    fn from_str(text: &str) -> Result<Takes, String> {
        let (role, ns) = match text.rsplit_once('=') {
            Some((role, ns)) => (Some(role.to_owned()), ns),
            None => (None, text),
        };
        let ns = ns.parse().ok().filter(|ns| (0.1..=1e9).contains(ns));
        let ns = ns.ok_or("write nanoseconds, 0.1 to 1e9, or ROLE=NANOSECONDS")?;
        Ok(Takes { role, ns })
    }
}

impl ProfileArgs {
    /// Returns these names of types and those of `--object`.
    pub(super) fn with_objects(&self, names: &[String]) -> Vec<String> {
        let objects = self.objects.iter().map(|object| object.ty.clone());
        names.iter().cloned().chain(objects).collect()
    }

    /// Reads the profile, if one is named.
    pub(super) fn read(&self, file: &Path, types: &Types) -> Result<Option<Profile>, Error> {
        let Some(path) = &self.profile else { return Ok(None) };
        let known =
            Known { types: Some(types), objects: self.objects.clone(), program: Some(file) };
        let mut profile = Profile::open(path, &known)?;
        for takes in &self.takes {
            takes.tell("--takes", &mut profile, |ns, _| WorkBasis::Takes {
                ns,
                recording_ns: 0.0,
            })?;
        }
        for alone in &self.alone {
            alone.tell("--alone", &mut profile, |ns, other| match other {
                // A time that was taken while recording includes the recording's cost, so only one without is kept.
                WorkBasis::Takes { ns: takes, recording_ns: 0.0 } => {
                    WorkBasis::Alone { ns, takes_ns: Some(takes) }
                }
                WorkBasis::Alone { takes_ns, .. } => WorkBasis::Alone { ns, takes_ns },
                _ => WorkBasis::Alone { ns, takes_ns: None },
            })?;
        }
        Ok(Some(profile))
    }
}

/// The options that choose the machine for which costs are predicted.
#[derive(Args, Debug, Default)]
pub struct MachineArgs {
    /// A built-in machine or a machine file [default: the profile's, or else haswell-ep-2699v3]
    #[arg(long, value_name = "NAME|FILE", requires = "profile")]
    machine: Option<String>,

    /// CPUs that take part [default: the profile's, or else all of the machine]
    #[arg(long, value_name = "N", requires = "profile")]
    cpus: Option<usize>,

    /// How many machines are simulated, within what is known of this one
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    points: u16,

    /// What is known of where objects begin [default: they begin a pair of lines]
    #[arg(long, value_name = "align=N", value_parser = base, requires = "profile")]
    pub(super) base: Option<u64>,
}

impl MachineArgs {
    /// Returns the machine, with as many CPUs as the options ask for.
    pub(super) fn machine(&self, profile: &Profile) -> Result<Machine, Error> {
        let name = self.machine.as_deref().or(profile.machine.as_deref());
        let machine = Machine::open(name.unwrap_or(BUILT_IN[0].0))
            .map_err(|error| Error::new(error.to_string()))?;
        let asked = self.question(profile, &machine).check();
        asked.map_err(|error| match self.cpus {
            Some(_) => error.within("--cpus"),
            None => error.in_file(Path::new(&profile.source)),
        })?;
        Ok(machine)
    }

    /// Returns the machine on which the profile's operations were timed: the one that the profile names, or else the
    /// one for which costs are predicted.
    pub(super) fn timed(&self, profile: &Profile) -> Result<Option<Timed>, Error> {
        let machine = match (&profile.machine, &self.machine) {
            (Some(machine), _) | (None, Some(machine)) => machine,
            (None, None) => BUILT_IN[0].0,
        };
        let machine = Machine::open(machine).map_err(|error| Error::new(error.to_string()))?;
        Ok(profile.cpus.map(|cpus| Timed { machine, cpus }))
    }

    /// Returns whether neither the options nor the profile name a machine.
    pub(super) fn is_assumed(&self, profile: &Profile) -> bool {
        self.machine.is_none() && profile.machine.is_none()
    }

    /// Returns the question that the cost model answers for that machine.
    pub(super) fn question<'m>(&self, profile: &Profile, machine: &'m Machine) -> Question<'m> {
        let cpus = self.cpus.or(profile.cpus).unwrap_or(machine.topology.cpus());
        Question { machine, cpus, points: self.points.into() }
    }
}

/// Parses the value of `--base`: `align=8` or `8`.
pub(super) fn base(text: &str) -> Result<u64, String> {
    let number = text.strip_prefix("align=").unwrap_or(text);
    match number.parse::<u64>() {
        Ok(bytes) if bytes.is_power_of_two() => Ok(bytes),
        _ => Err("give a power of two: align=8".to_owned()),
    }
}

/// Lists the types that a profile knows.
pub(super) fn knows(profile: &Profile) -> String {
    let names: Vec<&str> = profile.types.iter().take(8).map(|of| of.name.as_str()).collect();
    let more = profile.types.len().saturating_sub(8);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("it knows {}{more}", names.join(", "))
}
