//! `ledgerline fleet`: budgets that hold on many machines, for their operators.
//!
//! | module   | contents                                     |
//! |----------|----------------------------------------------|
//! | `change` | changes, and their reports                   |
//! | `top`    | books as they change                         |
//! | `serve`  | books for browsers and Prometheus            |

mod change;
mod serve;
mod top;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use ledgerline_fleet::book::{Change, View};
use ledgerline_fleet::store::{Access, Store, StoreError, open};
use ledgerline_view::fleet::{
    Damaged, Reader, Size, advised, milliseconds, organisation, size_of, unknown,
};
use ledgerline_view::terminal::output::{plain_json, print, status};
use ledgerline_view::terminal::style::Style;
use tokio::runtime::{Builder, Runtime};

/// The introduction of `ledgerline fleet --help`.
pub const LONG_ABOUT: &str = "\
Operate budgets that hold on many machines (ledgerline-fleet): who has what of them, and how much there is.

A budget is a path, organisation/tenant/job, with a limit that lies in a store: Redis or Valkey (7.0 or later), or etcd. \
Nodes lease parts of it, and charge what they leased without asking.

STORE is redis://host:port, redis-sentinel://host:port,host:port/primary, redis-cluster://host:port, redis+unix:///path or \
etcd://host:port,host:port; with TLS rediss://, rediss-sentinel://, rediss-cluster:// and etcds:// (if the command was \
built with its feature tls). A password goes to another machine by TLS alone, unless --insecure allows it plainly. A user goes before the host, user@host. The environment has what must not be in a list of \
processes: LEDGERLINE_FLEET_STORE, LEDGERLINE_FLEET_USER, LEDGERLINE_FLEET_PASSWORD or LEDGERLINE_FLEET_PASSWORD_FILE.";

const EXAMPLES: &str = "\
Examples:
  export LEDGERLINE_FLEET_STORE=redis://10.0.0.5:6379
  ledgerline fleet load                                once for each Redis
  ledgerline fleet set /acme max=200G
  ledgerline fleet set /acme/batch max=100G min=1G
  ledgerline fleet show                                all that this store has
  ledgerline fleet show acme
  ledgerline fleet top                                 the same, as it changes
  ledgerline fleet show --json acme | jq '.books[].budgets[] | select(.over > 0)'
  ledgerline fleet drain acme node-7                   before that machine goes away";

/// Where the books lie.
#[derive(Args, Debug)]
pub struct Place {
    /// The store's address
    #[arg(long, value_name = "STORE", env = "LEDGERLINE_FLEET_STORE", hide_env_values = true)]
    store: String,

    /// Send a password without encryption to a store beyond this machine
    #[arg(long)]
    insecure: bool,
}

/// The subcommands of `ledgerline fleet`.
#[derive(Subcommand, Debug)]
#[command(after_help = EXAMPLES)]
pub enum FleetCommand {
    /// Print budgets, who has leased how much of them, who lacks some, what happened last, and who was refused
    Show(ShowArgs),
    /// Watch budgets on the terminal: leases, nodes and their time, who waits, who was refused
    #[command(after_help = top::after_help())]
    Top(top::TopArgs),
    /// Serve budgets, nodes and refusals: a page, OpenMetrics, JSON
    #[command(long_about = serve::LONG_ABOUT)]
    Serve(serve::ServeArgs),
    /// Make a budget, or change its limit while nodes use it
    Set(SetArgs),
    /// Delete a budget: it grants no more, and goes with its last lease
    Delete(DeleteArgs),
    /// Change how long leases hold, from each node's next message on
    Terms(TermsArgs),
    /// Ask a node for all its leases, and give it no more
    Drain(DrainArgs),
    /// Count all sums anew from what nodes hold, and drop rows that belong to nothing
    Repair(RepairArgs),
    /// Load the functions that nodes call into a Redis (etcd needs none)
    Load(Place),
}

/// The options of `ledgerline fleet show`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    #[command(flatten)]
    place: Place,
    /// The first names of budgets' paths [default: all that the store has]
    #[arg(value_name = "ORGANISATION", value_parser = organisation)]
    organisations: Vec<String>,
    /// Print JSON: sizes in bytes, times in milliseconds
    #[arg(long)]
    json: bool,
}

/// The options of `ledgerline fleet set`.
#[derive(Args, Debug)]
pub struct SetArgs {
    #[command(flatten)]
    place: Place,
    /// The budget: /organisation, /organisation/tenant, ...; the levels above must be there
    #[arg(value_name = "PATH")]
    path: String,
    /// max, which a new budget needs, or min, which is kept from others for each node that uses the budget
    #[arg(value_name = "NAME=SIZE", required = true, value_parser = size_of)]
    sizes: Vec<Size>,
}

/// The options of `ledgerline fleet delete`.
#[derive(Args, Debug)]
pub struct DeleteArgs {
    #[command(flatten)]
    place: Place,
    /// The budget; those below it are deleted first
    #[arg(value_name = "PATH")]
    path: String,
}

/// The options of `ledgerline fleet terms`.
#[derive(Args, Debug)]
#[group(required = true, multiple = true, args = ["lease", "grace"])]
pub struct TermsArgs {
    #[command(flatten)]
    place: Place,
    /// The first name of budgets' paths
    #[arg(value_name = "ORGANISATION", value_parser = organisation)]
    organisation: String,
    /// From a node's message to the end of its leases, like 10s or 1500ms
    #[arg(long, value_name = "TIME", value_parser = milliseconds)]
    lease: Option<u64>,
    /// From the end of a lease until its units go to others: more than clocks differ over one lease
    #[arg(long, value_name = "TIME", value_parser = milliseconds)]
    grace: Option<u64>,
}

/// The options of `ledgerline fleet drain`.
#[derive(Args, Debug)]
pub struct DrainArgs {
    #[command(flatten)]
    place: Place,
    /// The first name of budgets' paths
    #[arg(value_name = "ORGANISATION", value_parser = organisation)]
    organisation: String,
    /// The node's name; it may have yet to join
    #[arg(value_name = "NODE")]
    node: String,
    /// Let it lease again
    #[arg(long)]
    undo: bool,
}

/// The options of `ledgerline fleet repair`.
#[derive(Args, Debug)]
pub struct RepairArgs {
    #[command(flatten)]
    place: Place,
    /// The first name of budgets' paths
    #[arg(value_name = "ORGANISATION", value_parser = organisation)]
    organisation: String,
}

/// Executes the subcommand. The exit status is 0, or 1 with a line that explains the error.
pub fn main(command: &FleetCommand) -> ExitCode {
    let said = match command {
        FleetCommand::Show(args) => show(args),
        FleetCommand::Top(args) => top::main(args),
        FleetCommand::Serve(args) => serve::main(args),
        FleetCommand::Set(args) => {
            Opened::new(&args.place).and_then(|it| change::set(&it, &args.path, &args.sizes))
        }
        FleetCommand::Delete(args) => {
            Opened::new(&args.place).and_then(|it| change::delete(&it, &args.path))
        }
        FleetCommand::Terms(args) => Opened::new(&args.place)
            .and_then(|it| change::terms(&it, &args.organisation, args.lease, args.grace)),
        FleetCommand::Drain(args) => Opened::new(&args.place)
            .and_then(|it| change::drain(&it, &args.organisation, &args.node, !args.undo)),
        FleetCommand::Repair(args) => {
            Opened::new(&args.place).and_then(|it| change::repair(&it, &args.organisation))
        }
        FleetCommand::Load(place) => Opened::new(place).and_then(|it| change::load(&it)),
    };
    let written = said.and_then(|text| print(text, "it is done, and cannot be told"));
    status("fleet", written.map(drop))
}

fn show(args: &ShowArgs) -> Result<String, String> {
    let opened = Opened::new(&args.place)?;
    let mut reader = Reader::new(opened.store.clone(), &args.organisations, usize::MAX);
    once(&opened, &mut reader, args.json)
}

/// Reads books of existing organisations once, and returns them as they are printed.
fn once(opened: &Opened, reader: &mut Reader, json: bool) -> Result<String, String> {
    let books = opened.call(reader.read())?;
    if let Some(blank) = books.books.iter().find(|book| book.is_blank()) {
        return Err(unknown(&blank.organisation));
    }
    if json {
        let document = serde_json::to_string_pretty(&ledgerline_view::fleet::json(&books));
        return Ok(plain_json(&document.expect("names are text")) + "\n");
    }
    if let (Some(Damaged { organisation, why }), true) =
        (books.damaged.first(), books.books.is_empty())
    {
        return Err(format!("{organisation} is damaged, no figure is known: {why}"));
    }
    if books.books.is_empty() {
        return Err(
            "this store has no budgets: `ledgerline fleet set /NAME max=SIZE` makes one (a Redis wants `ledgerline fleet load` before)".to_owned()
        );
    }
    Ok(ledgerline_view::fleet::table(&books, &Style::of_stdout()))
}

/// An opened store, and the runtime for its futures.
struct Opened {
    store: Arc<dyn Store>,
    runtime: Runtime,
}

impl Opened {
    fn new(place: &Place) -> Result<Opened, String> {
        let insecure = place.insecure;
        let store = Access::from_environment()
            .and_then(|access| {
                let insecure = insecure || access.insecure;
                open(&place.store, &Access { insecure, ..access })
            })
            .map_err(|error| advised(&error))?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("no asynchronous calls here: {error}"))?;
        Ok(Opened { store, runtime })
    }

    fn call<T>(&self, answer: impl Future<Output = Result<T, StoreError>>) -> Result<T, String> {
        self.runtime.block_on(answer).map_err(|error| advised(&error))
    }

    /// Changes an organisation's book and returns its new state.
    fn administer(&self, organisation: &str, change: &Change) -> Result<View, String> {
        let change = Change::By { who: who(), change: Box::new(change.clone()) };
        self.call(self.store.administer(organisation, &change))?;
        self.view(organisation)
    }

    fn view(&self, organisation: &str) -> Result<View, String> {
        self.call(self.store.view(organisation))
    }
}

/// How the store at an address may lose books by its settings.
pub(crate) fn warnings(store: &str) -> Result<Vec<String>, String> {
    let opened = Opened::new(&Place { store: store.to_owned(), insecure: false })?;
    opened.call(opened.store.warnings())
}

/// Returns the operator's name, `root@host`, as the book notes it.
fn who() -> String {
    let name =
        ["SUDO_USER", "USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let uid = || format!("uid {}", rustix::process::getuid().as_raw());
    let host = rustix::system::uname();
    let who = format!("{}@{}", name.unwrap_or_else(uid), host.nodename().to_string_lossy());
    // As a book takes names.
    who.chars().filter(|letter| *letter != '/' && !letter.is_control()).take(60).collect()
}
