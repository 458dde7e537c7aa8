//! Redis or Valkey, 7.0 or later. Books change in a library of functions, which the server runs one at a time.
//!
//! An operator loads the library once (`Redis::load`); nodes call it and need no more than the rights that
//! [`Redis::RIGHTS`] lists. All keys of a book have one hash tag, so they lie on one node of a cluster.

mod address;
mod bounded;
mod codec;
mod connect;
mod health;
mod link;
mod list;
mod way;
mod wrong;

use redis::Cmd;

use crate::book::{BudgetView, Change, View};
use crate::message::{Reply, Sync, check_name};

use super::{Answer, Kind, Nudges, Options, Store, StoreError, Tls};

pub use address::Address;

use link::Link;

/// Books in Redis or Valkey.
#[derive(Debug)]
pub struct Redis {
    link: Link,
    options: Options,
}

impl Redis {
    /// The source of the functions, for `FUNCTION LOAD REPLACE`, if an operator does by hand what [`load`](Self::load) does.
    pub const LIBRARY: &'static str = concat!(
        include_str!("fleet/rows.lua"),
        include_str!("fleet/share.lua"),
        include_str!("fleet/ends.lua"),
        include_str!("fleet/refusals.lua"),
        include_str!("fleet/apply.lua"),
        include_str!("fleet/operate.lua"),
    );

    /// The ACL rules of a node's user, in addition to its password: `ACL SETUSER node on >password` and these words, if the
    /// prefix is `ledgerline`. Such a user can lease, but cannot call functions that change budgets. It can run the commands that
    /// the function uses directly, too: the rules protect the book from mistakes, not from a thief of a node's password.
    /// Operators need [`OPERATORS_RIGHTS`](Self::OPERATORS_RIGHTS) as well.
    pub const RIGHTS: &'static str = "resetkeys ~{ledgerline:v1:* resetchannels &{ledgerline:v1:* -@all \
        +fcall|ledgerline_fleet_v1_sync +time +hget +hmget +hgetall +hkeys +hset +hdel +zadd +zrem +zrangebylex +zrangebyscore +hlen +zcard \
        +rpush +ltrim +lrange +publish +subscribe +unsubscribe";

    /// The additional ACL rules of an operator's user: to call all functions, to load them, to read the server's settings by
    /// `INFO`, and to list organisations, which shows the names of all keys of the server. In a cluster, all users
    /// need `+cluster|slots` as well.
    pub const OPERATORS_RIGHTS: &'static str = "+fcall +function|load +scan +info";

    /// Creates a store at an address. It connects when it is first used, and again after the connection broke.
    ///
    /// # Errors
    /// [`Kind::Address`] if the address or the prefix is invalid.
    pub fn new(address: Address, options: Options) -> Result<Self, StoreError> {
        Self::with_tls(address, options, &Tls::default())
    }

    /// Like [`new`](Self::new), but with the options of an address that asks for TLS. Reads the files once.
    ///
    /// # Errors
    /// Those of [`new`](Self::new); [`Kind::Address`] also if a file cannot be read or has other contents, if another name of the
    /// server is asked for, and without this crate's feature `tls`.
    pub fn with_tls(address: Address, options: Options, tls: &Tls) -> Result<Self, StoreError> {
        let link = Link::new(&address, options.timeout, tls)?;
        if options.prefix.contains(['{', '}']) || check_name(&options.prefix).is_err() {
            let detail = format!(
                "{:?} is no prefix of keys: no slash, no brace, no control character",
                options.prefix
            );
            return Err(StoreError::new(&link.name, Kind::Address, detail));
        }
        Ok(Self { link, options })
    }

    /// Loads the functions into the server, or into each primary of a cluster. They replace those of any revision, even a later
    /// one.
    ///
    /// # Errors
    /// Any error of the store; [`Kind::TooOld`] before 7.0, [`Kind::Denied`] if the user is not an operator.
    pub async fn load(&self) -> Result<(), StoreError> {
        let mut command = redis::cmd("FUNCTION");
        command.arg("LOAD").arg("REPLACE").arg(Self::LIBRARY);
        self.link.call(&command).await.map(drop)
    }

    fn command(&self, function: &str, organisation: &str) -> Cmd {
        let mut command = redis::cmd("FCALL");
        command.arg(format!("ledgerline_fleet_v1_{function}")).arg(codec::KEYS.len());
        for key in codec::KEYS {
            command.arg(self.key(organisation, key));
        }
        command.arg(codec::REVISION);
        command
    }

    fn key(&self, organisation: &str, key: &str) -> String {
        format!("{{{}:v1:{organisation}}}:{key}", self.options.prefix)
    }

    fn error(&self, kind: Kind, detail: impl std::fmt::Display) -> StoreError {
        StoreError::new(&self.link.name, kind, detail)
    }

    fn parsed<T>(&self, reply: codec::Read<T>) -> Result<T, StoreError> {
        reply.map_err(|nonsense| self.error(Kind::Nonsense, nonsense))
    }
}

/// Parses bytes as a reply to each kind of call. For fuzzing only. It returns for any input.
#[doc(hidden)]
pub fn read_anything(bytes: &[u8]) {
    let Ok(value) = redis::parse_redis_value(bytes) else { return };
    let paths = ["/a".to_owned(), "/a/b".to_owned()];
    let _ = codec::read_view(&value);
    let _ = codec::read_done(&value);
    let _ = codec::read_totals(&value, &paths);
    let message = Sync {
        node: "n".to_owned(),
        incarnation: 1,
        sequence: 1,
        taken: 0,
        until: 0,
        left: 0,
        ended: false,
        bye: false,
        lines: Vec::new(),
        refusals: Vec::new(),
    };
    let _ = codec::read_reply(&value, &message);
}

impl Store for Redis {
    fn sync<'a>(&'a self, organisation: &'a str, message: &'a Sync) -> Answer<'a, Reply> {
        Box::pin(async move {
            message.check(organisation).map_err(StoreError::malformed(&self.link.name))?;
            let mut command = self.command("sync", organisation);
            codec::write_sync(&mut command, message);
            let reply = self.link.call(&command).await?;
            self.parsed(codec::read_reply(&reply, message))
        })
    }

    fn administer<'a>(&'a self, organisation: &'a str, change: &'a Change) -> Answer<'a, ()> {
        Box::pin(async move {
            change.check(organisation).map_err(StoreError::malformed(&self.link.name))?;
            let mut command = self.command("administer", organisation);
            codec::write_change(&mut command, change);
            let reply = self.link.call(&command).await?;
            let done = self.parsed(codec::read_done(&reply))?;
            done.map_err(|rejected| self.error(Kind::Rejected, rejected))
        })
    }

    fn view<'a>(&'a self, organisation: &'a str) -> Answer<'a, View> {
        Box::pin(async move {
            check_name(organisation).map_err(StoreError::malformed(&self.link.name))?;
            let reply = self.link.call(&self.command("view", organisation)).await?;
            self.parsed(codec::read_view(&reply))
        })
    }

    fn organisations(&self) -> Answer<'_, Vec<String>> {
        Box::pin(list::organisations(&self.link, &self.options.prefix))
    }

    fn totals<'a>(
        &'a self,
        organisation: &'a str,
        paths: &'a [String],
    ) -> Answer<'a, Vec<Option<BudgetView>>> {
        Box::pin(async move {
            check_name(organisation).map_err(StoreError::malformed(&self.link.name))?;
            if paths.is_empty() {
                return Ok(Vec::new());
            }
            let mut command = redis::cmd("HMGET");
            command.arg(self.key(organisation, codec::BUDGETS)).arg(paths);
            let reply = self.link.call(&command).await?;
            self.parsed(codec::read_totals(&reply, paths))
        })
    }

    fn prepare(&self) -> Answer<'_, ()> {
        Box::pin(self.load())
    }

    fn warnings(&self) -> Answer<'_, Vec<String>> {
        Box::pin(health::warnings(&self.link))
    }

    fn nudges<'a>(&'a self, organisation: &'a str) -> Answer<'a, Nudges> {
        Box::pin(async move {
            check_name(organisation).map_err(StoreError::malformed(&self.link.name))?;
            self.link.listen(self.key(organisation, codec::CHANNEL)).await
        })
    }
}
