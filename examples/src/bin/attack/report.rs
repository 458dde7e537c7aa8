//! The results, as text and as JSON, and the claims that have to hold.

use crate::client::Ends;
use crate::load::{ATTACKED, Form, Kind};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Bytes that tokio may keep of a tenant's first requests: lists of its threads, entries of timers.
const KEPT: u64 = 4096;

/// A round of one form.
pub struct Round {
    pub form: Form,
    /// The latencies of the other tenants, sorted.
    pub latencies: Vec<Duration>,
    pub server: Duration,
    pub client: Duration,
    /// The outcomes by tenant.
    pub others: Ends,
    /// The outcomes by kind of attack.
    pub attackers: Ends,
}

impl Round {
    pub fn cpu(&self) -> Duration {
        self.server + self.client
    }

    /// Returns the latency in milliseconds that `of_thousand` of a thousand requests do not exceed.
    fn percentile(&self, of_thousand: usize) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let at = (self.latencies.len() * of_thousand / 1000).min(last);
        self.latencies.get(at).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }
}

#[derive(Default)]
pub struct Report {
    pub rounds: Vec<Round>,
    /// Outcomes of the attackers' requests before the first round.
    pub calibration: Ends,
    /// The server's exports at the end.
    pub metrics: String,
    pub printed_backtraces: usize,
    pub resident_peak: u64,
}

/// A median with its quartiles.
struct Spread([f64; 3]);

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [low, median, high] = self.0;
        write!(f, "{median:.2} ({low:.2} to {high:.2})")
    }
}

/// Returns the number of requests that a limit ended: by 503, in their bodies, or with their connections.
fn refused(ends: &BTreeMap<String, u64>) -> u64 {
    ["503", "cut", "closed"].into_iter().filter_map(|end| ends.get(end)).sum()
}

fn add(sum: &mut Ends, more: &Ends) {
    for (name, ends) in more {
        for (end, count) in ends {
            *sum.entry(name.clone()).or_default().entry(end.clone()).or_default() += count;
        }
    }
}

impl Report {
    fn of(&self, form: Form) -> impl Iterator<Item = &Round> {
        self.rounds.iter().filter(move |round| round.form == form)
    }

    fn spread(&self, form: Form, value: impl Fn(&Round) -> f64) -> Spread {
        let mut values: Vec<f64> = self.of(form).map(value).collect();
        values.sort_by(f64::total_cmp);
        let at = |quarter: usize| values[(values.len() - 1) * quarter / 4];
        Spread([at(1), at(2), at(3)])
    }

    /// Returns the outcomes of requests of each kind, or of each other tenant, in the rounds of one form.
    fn ends(&self, form: Form, of: fn(&Round) -> &Ends) -> Ends {
        let mut sum = Ends::new();
        self.of(form).for_each(|round| add(&mut sum, of(round)));
        sum
    }

    /// Returns the number of requests that the clients saw refused, for the attacked tenant or for another.
    fn seen_refused(&self, tenant: &str) -> u64 {
        if tenant != ATTACKED {
            return self.rounds.iter().filter_map(|it| it.others.get(tenant)).map(refused).sum();
        }
        let rounds = self.rounds.iter().map(|round| &round.attackers);
        let all = rounds.chain([&self.calibration]).flatten();
        all.filter(|it| it.0 != Kind::Panics.name()).map(|it| refused(it.1)).sum()
    }

    /// Returns a figure of a tenant from `/metrics`.
    fn figure(&self, name: &str, tenant: &str) -> Option<u64> {
        let begin = format!("{name}{{group=\"/tenants/{tenant}\"}} ");
        let figure = self.metrics.lines().find_map(|line| line.strip_prefix(&begin))?;
        figure.parse::<f64>().ok().map(|figure| figure as u64)
    }

    fn tenants(&self) -> Vec<String> {
        let others = self.ends(Form::Attack, |round| &round.others).into_keys();
        [ATTACKED.to_owned()].into_iter().chain(others).collect()
    }

    /// Returns the relative increase of the median of the others' p99 under attack over that beside permitted
    /// requests.
    fn longer(&self) -> f64 {
        let p99 = |form| self.spread(form, |round| round.percentile(990)).0[1];
        p99(Form::Attack) / p99(Form::Permitted) - 1.0
    }

    pub fn json(&self) -> Value {
        let of = |form| {
            let spread = |of_thousand| self.spread(form, |round| round.percentile(of_thousand)).0;
            let seconds =
                |of: fn(&Round) -> Duration| self.spread(form, |it| of(it).as_secs_f64()).0;
            json!({
                "others_p50_ms": spread(500),
                "others_p99_ms": spread(990),
                "others_max_ms": spread(1000),
                "server_cpu_s": seconds(|round| round.server),
                "client_cpu_s": seconds(|round| round.client),
                "attackers": self.ends(form, |round| &round.attackers),
                "others": self.ends(form, |round| &round.others),
            })
        };
        let refused: Vec<Value> = self
            .tenants()
            .iter()
            .map(|tenant| {
                let exported = self.figure("ledgerline_refused_total", tenant);
                json!({"tenant": tenant, "clients": self.seen_refused(tenant), "metrics": exported})
            })
            .collect();
        json!({
            "rounds": self.rounds.len() / 2,
            "attack": of(Form::Attack),
            "permitted": of(Form::Permitted),
            "p99_longer_by": self.longer(),
            "refused": refused,
            "attacked_peak_bytes": self.figure("ledgerline_peak_bytes", ATTACKED),
            "resident_peak_bytes": self.resident_peak,
            "backtraces": self.printed_backtraces,
        })
    }

    /// Checks the claims; returns those that do not hold.
    pub fn check(&self) -> Result<(), String> {
        let mut wrong = Vec::new();
        let mut expect = |holds: bool, text: String| {
            if !holds {
                wrong.push(text);
            }
        };
        for form in [Form::Attack, Form::Permitted] {
            for (tenant, ends) in self.ends(form, |round| &round.others) {
                expect(ends.keys().eq(["200"]), format!("{tenant} was answered {ends:?}"));
            }
            for (name, ends) in self.ends(form, |round| &round.attackers) {
                let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
                let may = kind.map_or(&[][..], |kind| kind.may_end(form));
                let right = ends.keys().all(|end| may.contains(&end.as_str()));
                expect(right, format!("{form:?}, {name}: {ends:?}"));
                let is_limited = form == Form::Attack && kind != Some(Kind::Panics);
                expect(!is_limited || refused(&ends) > 0, format!("no limit ended {name}"));
            }
        }
        let tenants = self.tenants();
        expect(tenants.len() == 50, format!("{} tenants were answered", tenants.len()));
        for tenant in &tenants {
            let (seen, said) =
                (self.seen_refused(tenant), self.figure("ledgerline_refused_total", tenant));
            expect(said == Some(seen), format!("{tenant}: {seen} refused, and /metrics: {said:?}"));
            let held = self.figure("ledgerline_current_bytes", tenant);
            expect(held.is_some_and(|held| held <= KEPT), format!("{tenant} still holds {held:?}"));
        }
        let panics = self.rounds.iter().filter_map(|it| it.attackers.get(Kind::Panics.name()));
        let panics: u64 = panics.flat_map(BTreeMap::values).sum();
        let printed = self.printed_backtraces as u64;
        expect(printed == panics, format!("{panics} panics, and {printed} backtraces"));
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for form in [Form::Attack, Form::Permitted] {
            let ms = |of_thousand| self.spread(form, |round| round.percentile(of_thousand));
            writeln!(f, "{form:?}: medians of {} rounds, with quartiles", self.of(form).count())?;
            writeln!(f, "  others, ms: p50 {}, p99 {}, longest {}", ms(500), ms(990), ms(1000))?;
            let cpu = |of: fn(&Round) -> Duration| self.spread(form, |it| of(it).as_secs_f64());
            let (server, client) = (cpu(|round| round.server), cpu(|round| round.client));
            writeln!(f, "  CPU time a round, s: server {server}, clients {client}")?;
            let mut ends = self.ends(form, |round| &round.attackers);
            for others in self.ends(form, |round| &round.others).into_values() {
                add(&mut ends, &Ends::from([("others".to_owned(), others)]));
            }
            for (name, ends) in &ends {
                let ends: Vec<String> = ends.iter().map(|(end, n)| format!("{end} {n}")).collect();
                writeln!(f, "  {name}: {}", ends.join(", "))?;
            }
        }
        writeln!(f, "the others' p99 is longer by {:.1} %", 100.0 * self.longer())?;
        let said = self.figure("ledgerline_refused_total", ATTACKED);
        let seen = self.seen_refused(ATTACKED);
        writeln!(f, "{ATTACKED}: {seen} refused; /metrics: {}", said.unwrap_or_default())?;
        let peak = self.figure("ledgerline_peak_bytes", ATTACKED).unwrap_or_default();
        let max = self.figure("ledgerline_max_bytes", ATTACKED).unwrap_or_default();
        let (peak, max) = (peak as f64 / 1048576.0, max as f64 / 1048576.0);
        writeln!(f, "{ATTACKED}: peak {peak:.1} MiB, max {max:.1} MiB")?;
        write!(f, "the server had {} MiB in memory at most", self.resident_peak >> 20)?;
        write!(f, ", and printed {} backtraces", self.printed_backtraces)
    }
}
