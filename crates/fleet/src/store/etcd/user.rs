//! A user of etcd, and the token that replaces its password until it expires.

use std::sync::Mutex;

use serde_json::json;

use crate::lock;
use crate::store::{Answer, Kind, StoreError};

use super::gateway::Member;

/// A user and its last token. All members accept a token.
pub(super) struct User {
    name: String,
    password: String,
    token: Mutex<Option<String>>,
}

impl User {
    pub(super) fn new(name: String, password: String) -> Self {
        Self { name, password, token: Mutex::new(None) }
    }

    /// Sends a request with a token, and with a new one if etcd no longer accepts the old one.
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
        // Checking a password takes etcd a tenth of a second, by design, so it is sent as rarely as possible.
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

/// Returns whether the token has expired, or users have changed since.
fn is_old(error: &StoreError) -> bool {
    let says = |part: &str| error.detail.contains(part);
    says("invalid auth token")
        || says("revision of auth store is old")
        || says("revision in header is old")
}
