//! `ledgerline serve`: ledgers of running programs as a page, as metrics and as JSON.

use clap::Args;
use ledgerline_view::serve::{Server, Settings, Token};
use ledgerline_view::terminal::output::{print, say, status};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The introduction of `ledgerline serve --help`.
pub const LONG_ABOUT: &str = "\
Serve ledgers that run: a page, metrics and JSON.

It prints the address of the page first, and answers until it is interrupted. The address has a token, without which \
nobody is answered: other users of this machine reach the loopback, too. The page keeps the token; a program says it as \
`Authorization: Bearer TOKEN` or as ?token=TOKEN. --token-file has it in a file, for Prometheus; with --open there is none. \
Nobody but this machine can ask unless --listen says otherwise, pages of other sites cannot, and nothing can be changed: looking costs the programs nothing. \
Without arguments it serves all ledgers that run, and finds new ones by itself.

  /                               the page: who holds what, over time, and in a table
  /metrics                        OpenMetrics for Prometheus, or its older text format
  /api/ledgers                    the ledgers
  /api/ledgers/ID/groups          all groups of one, with rates
  /api/ledgers/ID/history?group=  an hour of one group, by path or id
  /api/ledgers/ID/events          server-sent events: everything, then what changes

Metrics name --groups groups of a ledger down to --depth levels, the largest first; the others are one row, `other`. \
docs/serve.md has all of it, with rules for alerts and a dashboard.";

const EXAMPLES: &str = "\
Examples:
  ledgerline serve                          all ledgers that run, at a free port
  ledgerline serve --listen 127.0.0.1:9187 4711
  ledgerline serve /dev/shm/server.ledger --interval 250ms
  ledgerline serve --listen 0.0.0.0:9187 --host build.example --groups 100
  ledgerline serve --listen 127.0.0.1:9187 --token-file ~/.config/ledgerline.token
  curl -s -H \"Authorization: Bearer $(cat ~/.config/ledgerline.token)\" http://127.0.0.1:9187/metrics | promtool check metrics";

/// The options of `ledgerline serve`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Ledgers: a PID, a file, or a name that a program announced [default: all that run]
    #[arg(value_name = "PID|FILE")]
    ledgers: Vec<String>,

    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// A name under which browsers may ask, besides localhost and the address: that of a proxy
    #[arg(long = "host", value_name = "NAME", value_parser = host)]
    hosts: Vec<String>,

    #[command(flatten)]
    secret: Secret,

    /// How often ledgers are looked at while there are requests: at least 100ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,

    /// How many groups of a ledger metrics name
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    groups: u32,

    /// Down to how many levels below the root metrics name groups
    #[arg(long, value_name = "N", default_value_t = 2)]
    depth: u32,

    /// Keep no history: ledgers are looked at only while there are requests
    #[arg(long)]
    no_history: bool,
}

/// The users that are answered.
#[derive(Args, Debug)]
pub struct Secret {
    /// Take the token from FILE, which is made for you alone where it is not there: for Prometheus, and for the same address each time
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with = "open")]
    token_file: Option<PathBuf>,

    /// Answer every request that reaches the address, without a token: every user of this machine at least
    #[arg(long)]
    open: bool,
}

impl Secret {
    /// Returns the token, if one is to be used.
    pub fn token(&self) -> Result<Option<Token>, String> {
        match &self.token_file {
            _ if self.open => Ok(None),
            Some(file) => Token::of_file(file).map(Some),
            None => Token::new()
                .map(Some)
                .map_err(|error| format!("there is no random number: {error}")),
        }
    }
}

/// Serves until it is interrupted. The exit status is 0, 1 if a ledger cannot be opened or listening fails, or 2 for a
/// bad command line.
pub fn main(args: &ServeArgs) -> ExitCode {
    status("serve", serve(args))
}

fn serve(args: &ServeArgs) -> Result<(), String> {
    let token = args.secret.token()?;
    let settings = Settings {
        listen: args.listen,
        hosts: args.hosts.clone(),
        token: token.clone(),
        named: Some(args.ledgers.clone()).filter(|ledgers| !ledgers.is_empty()),
        interval: args.interval,
        groups: args.groups as usize,
        depth: args.depth,
        history: !args.no_history,
    };
    let server = Server::bind(settings)?;
    let address = server.address();
    // A reader of the address may end the server at once.
    server.run_until_signal(|| announce("serve", address, args.listen, token.as_ref(), "groups"))
}

/// Prints the address of a server's page, with the token, and warns if other users may send requests.
pub fn announce(
    subcommand: &str,
    address: SocketAddr,
    listen: SocketAddr,
    token: Option<&Token>,
    what: &str,
) -> Result<(), String> {
    let query = token.map_or(String::new(), |token| format!("?token={}", token.as_str()));
    print(format!("http://{address}/{query}\n"), "cannot write the address")?;
    let beyond = !listen.ip().is_loopback();
    let why = match (token, beyond) {
        (Some(_), false) => return Ok(()),
        (Some(_), true) => "there is no encryption, so each reader of a request has the token",
        (None, false) => "every user of this machine does, and there is no token (--open)",
        (None, true) => "there is no token (--open), and no encryption",
    };
    let who = match token {
        Some(_) => "everyone who has the token and reaches",
        None => "everyone who reaches",
    };
    say(format_args!(
        "ledgerline: {subcommand}: {who} {address} can read the names and figures of all {what}: {why}"
    ));
    Ok(())
}

/// Parses a name as a browser sends it: without a port, since any is accepted, or a scheme, in ASCII.
fn host(name: &str) -> Result<String, String> {
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    if name.strip_suffix('.').unwrap_or(name).split('.').all(label) {
        return Ok(name.to_owned());
    }
    Err("give the name alone, like build.example: no scheme, no port; letters beyond ASCII as xn--...".to_owned())
}

/// Parses a time like `250ms` or `2s`.
fn interval(text: &str) -> Result<Duration, String> {
    let (number, unit) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 =
        number.parse().map_err(|_| format!("{text:?} is no time like 250ms or 2s"))?;
    let time = match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        _ => return Err(format!("{text:?} is no time like 250ms or 2s")),
    };
    let allowed = Duration::from_millis(100)..=Duration::from_secs(3600);
    if !allowed.contains(&time) {
        return Err("the interval is 100ms to 3600s".to_owned());
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_a_unit_and_is_neither_too_short_nor_too_long() {
        assert_eq!(interval("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(interval("2s"), Ok(Duration::from_secs(2)));
        for wrong in ["", "s", "1", "-1s", "1m", "99ms", "3601s", "18446744073709551616s", "1 s"] {
            assert!(interval(wrong).is_err(), "{wrong:?}");
        }
    }
}
