//! Attacks one tenant of the server in `tenants.rs`, and measures the effect on the other forty-nine.
//!
//! Rounds alternate. In one kind the attackers break every limit: large bodies, slow bodies, deep recursion of
//! spawned tasks, endless streams, panics with backtraces. In the other they send permitted requests that take as
//! much CPU time. The other tenants send at a fixed rate in both. So the difference is the effect of the limits on
//! others, without that of a busy machine.
//!
//!     attack [--seconds N] [--rounds N] [--kind NAMES] [--json]
//!
//! It attacks for N seconds (60), in N rounds (10), with the named kinds or all of them:
//! `bodies,slow,spawns,streams,panics`.
//!
//! It fails if a limit ended a request of another tenant, if `/metrics` differs from what the clients saw, or if
//! memory stays charged. No time makes it fail.

mod client;
mod load;
mod report;
mod server;

use load::{Form, Kind};
use report::Report;
use std::error::Error;
use std::time::Duration;

struct Options {
    seconds: f64,
    rounds: usize,
    kinds: Vec<Kind>,
    json: bool,
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut options = Options { seconds: 60.0, rounds: 10, kinds: Kind::ALL.to_vec(), json: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--seconds" => options.seconds = value()?.parse()?,
            "--rounds" => options.rounds = value()?.parse::<usize>()?.max(1),
            "--kind" => {
                let name = value()?;
                options.kinds.retain(|kind| name.split(',').any(|name| kind.name() == name));
            }
            "--json" => options.json = true,
            _ => {
                return Err(format!(
                    "attack [--seconds N] [--rounds N] [--kind NAMES] [--json], not {word}"
                )
                .into());
            }
        }
    }
    Ok(options)
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = options()?;
    let server = server::Server::start()?;
    let mut load = load::Load::new(&server, options.kinds)?;
    let length = Duration::from_secs_f64(options.seconds / options.rounds as f64);

    let mut rates = load.calibrate();
    let mut report = Report::default();
    for _ in 0..options.rounds {
        let attack = load.round(Form::Attack, length, &rates);
        let permitted = load.round(Form::Permitted, length, &rates);
        // The next round's permitted requests come closer to the attack's CPU time.
        rates.scale(attack.cpu().as_secs_f64() / permitted.cpu().as_secs_f64().max(0.01));
        report.rounds.push(attack);
        report.rounds.push(permitted);
    }
    report.calibration = std::mem::take(&mut load.calibration);
    report.metrics = load.metrics(&server)?;
    report.printed_backtraces = server.printed("stack backtrace:")?;
    report.resident_peak = server.resident_peak()?;
    if options.json {
        println!("{}", report.json());
        return Ok(report.check()?);
    }
    println!("{report}");
    report.check()?;
    println!("ok");
    Ok(())
}
