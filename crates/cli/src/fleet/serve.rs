//! `ledgerline fleet serve`: books as a page, as metrics and as JSON.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ledgerline_view::fleet::{Reader, Served, Watch, organisation};
use ledgerline_view::serve::Other;
use ledgerline_view::terminal::output::{printable, say};

use super::top::interval;
use super::{Opened, Place};
use crate::serve::{Secret, announce};

/// The introduction of `ledgerline fleet serve --help`.
pub const LONG_ABOUT: &str = "\
Serve a fleet's books: a page, metrics and JSON.

It prints the address of the page first, and answers until it is interrupted. The address has a token, without which \
nobody is answered (`Authorization: Bearer TOKEN`, or ?token=TOKEN). Nobody but this machine can ask unless \
--listen says otherwise, pages of other sites cannot, and nothing can be changed. One serves a whole fleet: the store has \
the books once, while `ledgerline serve` shows the ledgers of its own machine.

  /             the page: budgets, nodes, who was refused, what happened
  /metrics      OpenMetrics for Prometheus, or its older text format
  /api/books    JSON

The store is read once an interval, however many ask: one call for each organisation, for 50 at most. Everybody gets what \
was read last, with its age; while the store does not answer, ledgerline_fleet_up is 0. docs/serve.md has the metrics.";

const EXAMPLES: &str = "\
Examples:
  ledgerline fleet serve --listen 127.0.0.1:9188
  ledgerline fleet serve acme --interval 15s --listen 127.0.0.1:9188
  ledgerline fleet serve --token-file ~/.config/ledgerline.token --listen 127.0.0.1:9188";

/// The options of `ledgerline fleet serve`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    #[command(flatten)]
    place: Place,
    /// The first names of budgets' paths [default: all that the store has, 50 at most]
    #[arg(value_name = "ORGANISATION", value_parser = organisation)]
    organisations: Vec<String>,
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// A name under which browsers may ask, besides localhost and the address: that of a proxy
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    #[command(flatten)]
    secret: Secret,
    /// The time between readings of the store, at least 100ms
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = interval)]
    interval: Duration,
}

/// Serves until it is interrupted.
pub(super) fn main(args: &ServeArgs) -> Result<String, String> {
    let opened = Opened::new(&args.place)?;
    let token = args.secret.token()?;
    let reader = Reader::new(opened.store.clone(), &args.organisations, Reader::MOST);
    let watch = Watch::start(reader, args.interval)
        .map_err(|error| format!("no thread to read with: {error}"))?;
    // The user learns of problems at once; the server runs nevertheless.
    for missing in watch.missing(Duration::from_secs(3)) {
        say(format_args!("ledgerline: fleet: {}", printable(&missing)));
    }
    let served = Arc::new(Served::new(watch));
    let server = Other::bind(args.listen, &args.hosts, token.clone(), served)?;
    let address = server.address();
    let announce = || announce("fleet", address, args.listen, token.as_ref(), "budgets");
    server.run_until_signal(announce)?;
    Ok(String::new())
}
