//! A store with budgets in it: a real redis if one is installed, else books in memory.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use ledgerline_fleet::book::Change;
use ledgerline_fleet::store::{Access, Memory, Store, open};

use crate::server::Server;

/// A store, and the server behind it.
pub struct Stage {
    pub store: Arc<dyn Store>,
    _server: Option<Server>,
}

impl Stage {
    /// Prepares the store and the budgets with their limits; all of them belong to the first one's organisation.
    pub async fn with(budgets: &[(&str, u64)]) -> Result<Self, Box<dyn Error>> {
        let server = Server::redis()?;
        let store = match &server {
            Some(server) => open(&server.address, &Access::default())?,
            None => {
                let start = Instant::now();
                Arc::new(Memory::new(move || start.elapsed().as_millis() as u64 + 1))
            }
        };
        store.prepare().await?;
        for (path, limit) in budgets {
            let change =
                Change::Set { path: (*path).to_owned(), limit: Some(*limit), minimum: None };
            let organisation = path[1..].split('/').next().unwrap_or_default();
            store.administer(organisation, &change).await?;
        }
        Ok(Self { store, _server: server })
    }
}
