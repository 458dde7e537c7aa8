//! A user of etcd, and the token that stands for its password until etcd forgets it.

use std::sync::Mutex;

use serde_json::json;

use crate::lock;
use crate::store::{Answer, Kind, StoreError};

use super::gateway::Member;

/// A user and what it last got for its password. All members know a token.
pub(super) struct User {
    name: String,
    password: String,
    token: Mutex<Option<String>>,
}

impl User {
    pub(super) fn new(name: String, password: String) -> Self {
        Self { name, password, token: Mutex::new(None) }
    }

    /// Sends with a token; with a new one if etcd does not know the old one any more.
    pub(super) async fn ask<T>(
        &self,
        member: &Member,
        send: impl for<'a> Fn(&'a Member, Option<String>) -> Answer<'a, T>,
    ) -> Result<T, StoreError> {
        let kept = lock(&self.token).clone();
        if let Some(token) = kept {
            match send(member, Some(token)).await {
                Err(error) if is_old(&error) => {}
                answered => return answered,
            }
        }
        // A password costs etcd a tenth of a second, by intent: so it is shown as seldom as can be.
        let token = self.authenticate(member).await?;
        send(member, Some(token)).await
    }

    async fn authenticate(&self, member: &Member) -> Result<String, StoreError> {
        let shown = json!({ "name": self.name, "password": self.password }).to_string();
        let answered = member.post("/v3/auth/authenticate", shown, None).await;
        let answered = answered.map_err(|error| match error.detail.contains("not enabled") {
            true => member.error(
                Kind::Address,
                "it has no users (authentication is not enabled), so name none",
            ),
            false => error,
        })?;
        let token = answered.body["token"].as_str().map(str::to_owned);
        let token = token.ok_or_else(|| member.error(Kind::Nonsense, "no token"))?;
        *lock(&self.token) = Some(token.clone());
        Ok(token)
    }
}

/// The token has expired, or users have changed since.
fn is_old(error: &StoreError) -> bool {
    let says = |part: &str| error.detail.contains(part);
    says("invalid auth token")
        || says("revision of auth store is old")
        || says("revision in header is old")
}
