//! Books in etcd, 3.4 or later. A book is one key. A change reads it, applies itself, and writes it if it is unchanged meanwhile.
//!
//! That is safe with any number of nodes, but slower than Redis: each sync writes its organisation's whole book. etcd reports the
//! time only in the date of its replies, in whole seconds by the clock of the member that answers. So leases may be freed up to a
//! second early, and the grace must be longer than a second plus the difference of the members' clocks.

mod gateway;
mod list;
mod user;

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::book::{Book, Change, View};
use crate::message::{Nudge, Reply, Sync, check_name};

use super::tls::{Certificates, Secured};
use super::{Answer, Kind, Nudges, Options, Store, StoreError, Tls};

use gateway::{Member, decode, encode};
use user::User;

/// Books in etcd.
pub struct Etcd {
    members: Vec<Member>,
    prefix: String,
    user: Option<User>,
    /// The member that answered last time.
    first: AtomicUsize,
    /// A replacement of the clock for tests.
    clock: Option<Box<dyn Fn(u64) -> u64 + Send + std::marker::Sync>>,
}

/// The value under a book's key.
#[derive(Serialize, Deserialize)]
struct Kept {
    format: u32,
    book: Book,
}

/// The format's number alone.
#[derive(Deserialize)]
struct Version {
    format: u64,
}

/// Maximum length of a line of a watch, which names the changes.
const LONGEST_LINE: usize = 1 << 20;

/// The format that this version reads and writes.
const FORMAT: u32 = 4;

/// A book that was read.
struct Found {
    book: Book,
    /// 0 if there is no book yet.
    revision: i64,
    now: u64,
}

/// The result of a write.
enum Written {
    Done,
    /// Another client changed the book since it was read. This is its new state.
    Overtaken(Box<Found>),
}

impl Etcd {
    /// Number of attempts of a change while others change the same book.
    const TRIES: u32 = 32;

    /// Upper bound of the unit of the back-off, so that one slow reply of a member does not delay a change for long.
    const STEP: Duration = Duration::from_millis(50);

    /// Resolution of etcd's dates, in milliseconds.
    const PRECISION: u64 = 1_000;

    /// Creates a store from the addresses of its members, as in `10.0.0.1:2379`. They are tried in turn.
    ///
    /// # Errors
    /// [`Kind::Address`] if there is no address or no prefix.
    pub fn new(addresses: &[&str], options: Options) -> Result<Self, StoreError> {
        Self::secured(addresses, options, None)
    }

    /// Like [`new`](Self::new), but with TLS. Reads the files once.
    ///
    /// # Errors
    /// Those of [`new`](Self::new); [`Kind::Address`] also if a file cannot be read or has other contents, and without this
    /// crate's feature `tls`.
    pub fn with_tls(addresses: &[&str], options: Options, tls: &Tls) -> Result<Self, StoreError> {
        let certificates = Certificates::read(tls)?;
        Self::secured(addresses, options, Some((&certificates, tls.server_name.as_deref())))
    }

    fn secured(
        addresses: &[&str],
        options: Options,
        tls: Option<(&Certificates, Option<&str>)>,
    ) -> Result<Self, StoreError> {
        let malformed = |detail: &str| Err(StoreError::new("etcd", Kind::Address, detail));
        if addresses.is_empty() {
            return malformed("no address");
        }
        if check_name(&options.prefix).is_err() {
            return malformed(&format!(
                "{:?} is no prefix of keys: no slash, no control character",
                options.prefix
            ));
        }
        let member = |address: &&str| {
            let secured = tls.map(|(certificates, name)| {
                Secured::new(certificates, name.unwrap_or_else(|| host(address)))
            });
            Ok(Member::new(address, options.timeout, secured.transpose()?))
        };
        let members = addresses.iter().map(member).collect::<Result<_, StoreError>>()?;
        let (prefix, first) = (options.prefix, AtomicUsize::new(0));
        Ok(Self { members, prefix, user: None, first, clock: None })
    }

    /// Sets a user, if etcd has users. Its role must allow to read and write all keys below `prefix/v1/`.
    #[must_use]
    pub fn with_user(self, name: String, password: String) -> Self {
        Self { user: Some(User::new(name, password)), ..self }
    }

    /// Replaces the clock, for tests. `clock` maps etcd's time to the time to use.
    #[doc(hidden)]
    #[must_use]
    pub fn with_clock(
        mut self,
        clock: impl Fn(u64) -> u64 + Send + std::marker::Sync + 'static,
    ) -> Self {
        self.clock = Some(Box::new(clock));
        self
    }

    fn key(&self, organisation: &str, key: &str) -> String {
        encode(&format!("{}/v1/{organisation}/{key}", self.prefix))
    }

    fn error(&self, kind: Kind, detail: impl fmt::Display) -> StoreError {
        self.members[0].error(kind, detail)
    }

    /// Asks the members one after the other until one can answer, starting with the one that answered last time. Returns it as
    /// well.
    async fn ask<T>(
        &self,
        send: impl for<'a> Fn(&'a Member, Option<String>) -> Answer<'a, T> + Send + std::marker::Sync,
    ) -> Result<(T, &Member), StoreError> {
        let first = self.first.load(Ordering::Relaxed);
        let mut last = None;
        for turn in 0..self.members.len() {
            let at = (first + turn) % self.members.len();
            let member = &self.members[at];
            let answered = match &self.user {
                Some(user) => user.ask(member, &send).await,
                None => send(member, None).await,
            };
            match answered {
                Ok(answered) => {
                    self.first.store(at, Ordering::Relaxed);
                    return Ok((answered, member));
                }
                Err(error) if Member::is_alone(&error) => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| self.error(Kind::Unreachable, "no address")))
    }

    async fn post(
        &self,
        path: &'static str,
        body: &Value,
    ) -> Result<(gateway::Answered, &Member), StoreError> {
        let body = body.to_string();
        self.ask(|member, token| {
            let body = body.clone();
            Box::pin(async move { member.post(path, body, token.as_deref()).await })
        })
        .await
    }

    async fn read(&self, organisation: &str) -> Result<Found, StoreError> {
        let (answered, member) =
            self.post("/v3/kv/range", &json!({ "key": self.key(organisation, "book") })).await?;
        self.found(&answered.body, answered.at, member)
    }

    /// Parses the book in the reply to a range.
    fn found(&self, range: &Value, at: u64, member: &Member) -> Result<Found, StoreError> {
        let now = self.clock.as_ref().map_or(at, |clock| clock(at));
        let nonsense = |what: &str| member.error(Kind::Nonsense, what);
        if !range["header"].is_object() {
            return Err(nonsense("a reply of etcd has a header"));
        }
        let Some(row) = range["kvs"].get(0) else {
            return Ok(Found { book: Book::new(), revision: 0, now });
        };
        let revision = row["mod_revision"].as_str().and_then(|revision| revision.parse().ok());
        let revision = revision.ok_or_else(|| nonsense("a key has a revision"))?;
        let text =
            row["value"].as_str().and_then(decode).ok_or_else(|| nonsense("a book is text"))?;
        // All other fields are skipped and take no memory.
        let format = serde_json::from_str::<Version>(&text).ok().map(|kept| kept.format);
        if let Some(format) = format.filter(|format| *format != u64::from(FORMAT)) {
            return Err(member.error(Kind::OtherVersion, format!("a book of format {format}")));
        }
        let kept: Kept = serde_json::from_str(&text)
            .map_err(|error| nonsense(&format!("what lies there is no book: {error}")))?;
        Ok(Found { book: kept.book, revision, now })
    }

    /// Writes a book if it has not changed since it was read; otherwise reads it in the same step.
    async fn write(
        &self,
        organisation: &str,
        revision: i64,
        mut book: Book,
    ) -> Result<Written, StoreError> {
        let nudged = book.nudged();
        let key = self.key(organisation, "book");
        let kept = serde_json::to_string(&Kept { format: FORMAT, book });
        let kept = kept.map_err(|error| self.error(Kind::Malformed, error))?;
        let mut writes = vec![json!({ "request_put": { "key": key, "value": encode(&kept) } })];
        if !nudged.is_empty() {
            let paths = nudged.iter().map(Nudge::text).collect::<Vec<_>>().join("\n");
            writes.push(json!({ "request_put": { "key": self.key(organisation, "nudges"), "value": encode(&paths) } }));
        }
        let unchanged = json!({ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string() });
        let look = json!({ "request_range": { "key": key } });
        let step = json!({ "compare": [unchanged], "success": writes, "failure": [look] });
        let (answered, member) = self.post("/v3/kv/txn", &step).await?;
        match &answered.body["succeeded"] {
            Value::Bool(true) => Ok(Written::Done),
            // The gateway omits values that are false.
            Value::Bool(false) | Value::Null if answered.body["header"].is_object() => {
                let range = &answered.body["responses"][0]["response_range"];
                self.found(range, answered.at, member)
                    .map(|found| Written::Overtaken(Box::new(found)))
            }
            other => {
                Err(member.error(Kind::Nonsense, format!("succeeded or not, and got {other}")))
            }
        }
    }

    /// Reads, changes and writes a book, and repeats that if another client was faster. Of clients that collide, one has written.
    async fn change<T>(
        &self,
        organisation: &str,
        change: impl Fn(&mut Book, u64) -> T + Send + std::marker::Sync,
    ) -> Result<T, StoreError> {
        let mut found = self.read(organisation).await?;
        for tried in 0..Self::TRIES {
            let Found { mut book, revision, now } = found;
            let before = book.clone();
            let result = change(&mut book, now);
            if book == before {
                return Ok(result);
            }
            let began = Instant::now();
            match self.write(organisation, revision, book).await? {
                Written::Done => return Ok(result),
                Written::Overtaken(other) => found = *other,
            }
            // After the first collision the newest book is at hand and is written at once. After further ones many clients are
            // writing: each waits for a random part of a time that doubles, and reads the book again.
            if tried > 0 {
                let most = began.elapsed().min(Self::STEP) * (1 << tried.min(5));
                let dice = RandomState::new().build_hasher().finish() as u32;
                sleep(most.mul_f64(f64::from(dice) / f64::from(u32::MAX))).await;
                found = self.read(organisation).await?;
            }
        }
        Err(self.error(Kind::Contended, format!("{} tries", Self::TRIES)))
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("members", &self.members)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl Store for Etcd {
    fn sync<'a>(&'a self, organisation: &'a str, message: &'a Sync) -> Answer<'a, Reply> {
        Box::pin(async move {
            message.check(organisation).map_err(StoreError::malformed(&self.members[0].name))?;
            self.change(organisation, |book, now| book.apply(now, message)).await
        })
    }

    fn administer<'a>(&'a self, organisation: &'a str, change: &'a Change) -> Answer<'a, ()> {
        Box::pin(async move {
            change.check(organisation).map_err(StoreError::malformed(&self.members[0].name))?;
            if let Change::Terms { grace: Some(grace), .. } = change
                && *grace <= Self::PRECISION
                && self.clock.is_none()
            {
                let detail = format!(
                    "a grace of {grace} ms is too short: etcd tells the time in whole seconds"
                );
                return Err(self.error(Kind::Rejected, detail));
            }
            let done = self.change(organisation, |book, now| book.administer(now, change)).await?;
            done.map_err(|rejected| self.error(Kind::Rejected, rejected))
        })
    }

    fn view<'a>(&'a self, organisation: &'a str) -> Answer<'a, View> {
        Box::pin(async move {
            check_name(organisation).map_err(StoreError::malformed(&self.members[0].name))?;
            let Found { mut book, now, .. } = self.read(organisation).await?;
            Ok(book.view(now))
        })
    }

    fn organisations(&self) -> Answer<'_, Vec<String>> {
        Box::pin(list::organisations(self))
    }

    /// Checks only that this user can reach the store, by reading a key below the prefix. etcd needs no preparation.
    fn prepare(&self) -> Answer<'_, ()> {
        Box::pin(async move { self.read("ready").await.map(drop) })
    }

    fn nudges<'a>(&'a self, organisation: &'a str) -> Answer<'a, Nudges> {
        Box::pin(async move {
            check_name(organisation).map_err(StoreError::malformed(&self.members[0].name))?;
            let request = json!({ "create_request": { "key": self.key(organisation, "nudges") } });
            let request = request.to_string();
            let watch = self.ask(|member, token| {
                let request = request.clone();
                Box::pin(async move { member.stream("/v3/watch", request, token.as_deref()).await })
            });
            let (mut body, _) = watch.await?;
            let (sender, nudges) = Nudges::channel();
            tokio::spawn(async move {
                let mut rest: Vec<u8> = Vec::new();
                loop {
                    let frame = tokio::select! {
                        frame = body.frame() => frame,
                        () = sender.closed() => None,
                    };
                    let Some(Ok(frame)) = frame else { return };
                    rest.extend(frame.data_ref().map(AsRef::as_ref).unwrap_or_default());
                    if rest.len() > LONGEST_LINE {
                        return;
                    }
                    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                        let line: Vec<u8> = rest.drain(..=end).collect();
                        for nudge in nudged(&line) {
                            // A slow listener loses nudges, never leases.
                            let _ = sender.try_send(nudge);
                        }
                    }
                }
            });
            Ok(nudges)
        })
    }
}

/// Parses bytes as a reply. For fuzzing only. It returns for any input.
#[doc(hidden)]
pub fn read_anything(bytes: &[u8]) {
    let _ = nudged(bytes);
    let Ok(range) = serde_json::from_slice::<Value>(bytes) else { return };
    if let Ok(etcd) = Etcd::new(&["127.0.0.1:1"], Options::default())
        && let Ok(Found { mut book, now, .. }) = etcd.found(&range, 0, &etcd.members[0])
    {
        let _ = book.view(now);
    }
}

/// Returns the nudges in one line of a watch.
fn nudged(line: &[u8]) -> Vec<Nudge> {
    let told: Value = serde_json::from_slice(line).unwrap_or_default();
    let events = told["result"]["events"].as_array().cloned().unwrap_or_default();
    let texts = events.iter().filter_map(|event| decode(event["kv"]["value"].as_str()?));
    texts.flat_map(|text| text.lines().map(Nudge::read).collect::<Vec<_>>()).collect()
}

/// Returns an address without its port.
fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}
