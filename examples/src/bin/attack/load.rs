//! The requests of attackers and of the other tenants, and their rate.

use crate::client::{self, Asked, Body, Client, Ends};
use crate::report::Round;
use crate::server::{self, Server};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use std::convert::Infallible;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};

/// The tenant that is attacked.
pub const ATTACKED: &str = "t0";
const TENANTS: usize = 50;
/// Requests of each other tenant in a second.
const PER_SECOND: f64 = 10.0;

/// The work of the attackers in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Attack,
    Permitted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    LargeBodies,
    SlowBodies,
    Spawns,
    Streams,
    Panics,
}

impl Kind {
    pub const ALL: [Kind; 5] =
        [Kind::LargeBodies, Kind::SlowBodies, Kind::Spawns, Kind::Streams, Kind::Panics];

    /// Returns the number of attacks that begin in a second.
    fn per_second(self) -> f64 {
        match self {
            Kind::LargeBodies => 8.0,
            Kind::SlowBodies => 20.0,
            Kind::Spawns => 8.0,
            Kind::Streams => 8.0,
            Kind::Panics => 2.0,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Kind::LargeBodies => "bodies",
            Kind::SlowBodies => "slow",
            Kind::Spawns => "spawns",
            Kind::Streams => "streams",
            Kind::Panics => "panics",
        }
    }

    /// Returns the number of requests that are answered at a time. All permitted requests at a time fit below the
    /// tenant's max.
    fn at_once(self, form: Form) -> usize {
        match (self, form) {
            (Kind::LargeBodies | Kind::Streams, Form::Permitted) => 1,
            (Kind::Spawns, Form::Permitted) => 4,
            _ => 64,
        }
    }

    /// Returns the possible outcomes of its requests. A client that still sends when it is refused may find its
    /// connection closed, and not read the answer. A body that meets its limit at once may take the head of the
    /// answer with it.
    pub fn may_end(self, form: Form) -> &'static [&'static str] {
        match (self, form) {
            (Kind::Panics, _) => &["closed"],
            (_, Form::Permitted) => &["200"],
            (Kind::LargeBodies, _) => &["503", "closed"],
            (Kind::SlowBodies, _) => &["200", "503", "closed"],
            (Kind::Spawns, _) => &["503"],
            (Kind::Streams, _) => &["cut", "closed"],
        }
    }

    /// Returns a request. A permitted one has `share` times its kind's work, if the kind allows more than once.
    fn request(self, form: Form, share: f64) -> Asked {
        let of_zeros = |size: usize| client::whole(Bytes::from(vec![0; size]));
        let (method, path, body) = match (self, form) {
            (Kind::LargeBodies, Form::Attack) => ("POST", "/upload", of_zeros(12 << 20)),
            (Kind::LargeBodies, Form::Permitted) => ("POST", "/upload", of_zeros(3 << 20)),
            (Kind::SlowBodies, Form::Attack) => ("POST", "/upload", slowly(56, 64 << 10)),
            (Kind::SlowBodies, Form::Permitted) => ("POST", "/upload", slowly(56, 2 << 10)),
            (Kind::Spawns, Form::Attack) => ("GET", "/nest/1000000000/1", client::empty()),
            (Kind::Spawns, Form::Permitted) => {
                let path = format!("/nest/1000/{:.0}", (20.0 * share).max(1.0));
                return ("GET", path, client::empty());
            }
            (Kind::Streams, Form::Attack) => ("GET", "/download/1000000000", client::empty()),
            (Kind::Streams, Form::Permitted) => ("GET", "/download/60", client::empty()),
            (Kind::Panics, _) => ("GET", "/panics", client::empty()),
        };
        (method, path.to_owned(), body)
    }
}

/// Returns a body of `frames` frames, one each 20 ms.
fn slowly(frames: usize, size: usize) -> Body {
    let frames = stream::iter(0..frames).then(move |_| async move {
        sleep(Duration::from_millis(20)).await;
        Ok::<_, Infallible>(Frame::data(Bytes::from(vec![0; size])))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// The kinds whose permitted requests are scaled to the CPU time of the attacks. Panics and slow bodies are the same in
/// both forms, or nearly so.
const SCALED: [Kind; 3] = [Kind::LargeBodies, Kind::Spawns, Kind::Streams];

/// The number of permitted requests of each kind that stand for one attack.
#[derive(Clone, Copy, Debug)]
pub struct Rates([f64; 5]);

impl Rates {
    pub fn scale(&mut self, factor: f64) {
        for kind in SCALED {
            self.0[kind as usize] *= factor.clamp(0.5, 2.0);
        }
    }
}

/// Attackers and other tenants, each with a thread of their own.
pub struct Load {
    attackers: Runtime,
    others: Runtime,
    attacking: Client,
    asking: Client,
    kinds: Vec<Kind>,
    server: u32,
    /// Outcomes of the calibration's requests, by kind.
    pub calibration: Ends,
}

impl Load {
    pub fn new(server: &Server, kinds: Vec<Kind>) -> Result<Load, Box<dyn Error>> {
        let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let (attackers, others) = (runtime()?, runtime()?);
        // An attacker's request has a connection of its own: the server may close it in the middle.
        let [attacking, asking] = [0, 100].map(|kept| Client::new(&server.address, kept));
        Ok(Load {
            attackers,
            others,
            attacking,
            asking,
            kinds,
            server: server.id(),
            calibration: Ends::new(),
        })
    }

    /// Returns the CPU time of the server and of this process.
    fn cpu(&self) -> [Duration; 2] {
        [self.server, std::process::id()].map(server::cpu_time)
    }

    /// Measures the cost of a request of each kind in both forms.
    pub fn calibrate(&mut self) -> Rates {
        const REQUESTS: usize = 25;
        let cost = |kind: Kind, form| {
            let before = self.cpu();
            for _ in 0..REQUESTS {
                let asked = kind.request(form, 1.0);
                self.attackers.block_on(self.attacking.ask(kind.name(), ATTACKED, asked));
            }
            let after = self.cpu();
            (after[0] + after[1] - before[0] - before[1]).as_secs_f64().max(0.01)
        };
        let mut rates = [1.0; 5];
        for &kind in self.kinds.iter().filter(|kind| SCALED.contains(kind)) {
            rates[kind as usize] = cost(kind, Form::Attack) / cost(kind, Form::Permitted);
        }
        self.calibration = self.attacking.take_ends();
        Rates(rates)
    }

    pub fn round(&self, form: Form, length: Duration, rates: &Rates) -> Round {
        let before = self.cpu();
        let until = Instant::now() + length;
        let rates = *rates;
        let (client, attacking) = (self.attacking.clone(), self.kinds.clone());
        let attack = self.attackers.spawn(async move {
            let mut kinds = JoinSet::new();
            for kind in attacking {
                let share = if form == Form::Permitted { rates.0[kind as usize] } else { 1.0 };
                kinds.spawn(attack(client.clone(), kind, form, share, until));
            }
            kinds.join_all().await;
        });
        let mut latencies = self.others.block_on(ask_as_others(self.asking.clone(), until));
        self.attackers.block_on(attack).expect("no panic inside");
        let after = self.cpu();
        latencies.sort_unstable();
        let [server, client] = [0, 1].map(|who| after[who] - before[who]);
        let (others, attackers) = (self.asking.take_ends(), self.attacking.take_ends());
        Round { form, latencies, server, client, others, attackers }
    }

    /// Closes all connections, and then reads `/metrics`. A server keeps some of the last answer with each
    /// connection.
    pub fn metrics(self, server: &Server) -> Result<String, Box<dyn Error>> {
        drop((self.attacking, self.asking));
        let asked = async {
            sleep(Duration::from_millis(500)).await;
            let asked = ("GET", "/metrics".to_owned(), client::empty());
            Client::new(&server.address, 0).ask("", "", asked).await
        };
        let text = self.others.block_on(asked).ok_or("no /metrics")?;
        Ok(String::from_utf8(text.into())?)
    }
}

/// Begins requests of one kind at its rate, and waits until all have ended. `share` scales the work: that of spawns by
/// larger requests, since their CPU time comes at once in an attack as well, and that of all other kinds by more
/// requests.
async fn attack(client: Client, kind: Kind, form: Form, share: f64, until: Instant) {
    let mut asked = JoinSet::new();
    let room = Arc::new(Semaphore::new(kind.at_once(form)));
    let more = if kind == Kind::Spawns { 1.0 } else { share };
    let period = Duration::from_secs_f64(1.0 / (more * kind.per_second()).max(0.1));
    let mut ticks =
        interval_at(Instant::now() + period.mul_f64(kind as usize as f64 / 5.0), period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while ticks.tick().await < until {
        let room = room.clone().acquire_owned().await.expect("it is never closed");
        let client = client.clone();
        asked.spawn(async move {
            let _room = room;
            let answer = client.ask(kind.name(), ATTACKED, kind.request(form, share));
            // No request here takes this long, so a timeout shows as a request without an end.
            let _ = timeout(Duration::from_secs(60), answer).await;
        });
    }
    asked.join_all().await;
}

/// Sends requests of each other tenant at a fixed rate. Returns the time of each answer since its request was due.
async fn ask_as_others(client: Client, until: Instant) -> Vec<Duration> {
    let latencies = Arc::new(Mutex::new(Vec::new()));
    let mut tenants = JoinSet::new();
    let period = Duration::from_secs_f64(1.0 / PER_SECOND);
    for number in 1..TENANTS {
        let (client, latencies) = (client.clone(), latencies.clone());
        let begin = Instant::now() + period.mul_f64(number as f64 / TENANTS as f64);
        tenants.spawn(async move {
            let mut ticks = interval_at(begin, period);
            let mut asked = JoinSet::new();
            loop {
                let due = ticks.tick().await;
                if due >= until {
                    break;
                }
                let (client, latencies) = (client.clone(), latencies.clone());
                asked.spawn(async move {
                    let tenant = format!("t{number}");
                    let asked = ("GET", "/rows/500".to_owned(), client::empty());
                    let sum = client.ask(&tenant, &tenant, asked).await;
                    if sum.is_some_and(|sum| sum == "124750") {
                        latencies.lock().expect("no panic inside").push(due.elapsed());
                    }
                });
            }
            asked.join_all().await;
        });
    }
    tenants.join_all().await;
    std::mem::take(&mut latencies.lock().expect("no panic inside"))
}
