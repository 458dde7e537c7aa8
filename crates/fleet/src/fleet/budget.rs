//! A budget that this node uses.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ledgerline::{Group, OwnedCharge, OwnedGroup, Refused};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use crate::book::BudgetView;
use crate::message::{State, levels};

use super::Fleet;
use super::error::{FleetError, NoRoom};
use super::party::Party;
use super::standing::Standing;

/// A budget of a fleet on this node: a group whose `max` is what the node has leased. Dropping it gives the lease back as
/// soon as nothing is charged there any more.
pub struct Budget {
    /// Dropped after this budget has said that it closes.
    pub(super) fleet: Fleet,
    pub(super) party: Arc<Party>,
    pub(super) path: String,
    pub(super) group: OwnedGroup,
}

/// Units that a charge waits for, while it does.
struct Need<'b> {
    budget: &'b Budget,
    units: u64,
}

impl Budget {
    /// Asks for the first lease.
    pub(super) async fn first(&self) -> Result<(), FleetError> {
        self.party.listening().await;
        self.party.sync(Some(&self.path), || false).await?;
        match self.party.state_of(&self.path) {
            Some(State::Unknown) | None => Err(FleetError::Unknown(self.path.clone())),
            Some(_) => Ok(()),
        }
    }

    /// The group in which to charge, and below which to make groups of queries. A charge there is as fast as in any group.
    #[must_use]
    #[inline]
    pub fn group(&self) -> Group<'_> {
        self.group.group()
    }

    /// The group, for tasks and caches that outlive a borrow.
    #[must_use]
    pub fn owned(&self) -> &OwnedGroup {
        &self.group
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What the node has leased of it now.
    #[must_use]
    pub fn lease(&self) -> u64 {
        self.party.lease(&self.path)
    }

    /// Why its lease does not grow, if it does not.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.party.standing(&self.path)
    }

    /// The budget and each level above it as the store has them, root first: limits, and the sums of what all nodes have. One
    /// round trip.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn totals(&self) -> Result<Vec<BudgetView>, FleetError> {
        let mut paths: Vec<String> = levels(&self.path).map(str::to_owned).collect();
        paths.reverse();
        let totals = self.party.store.totals(&self.party.organisation, &paths).await?;
        Ok(totals.into_iter().flatten().collect())
    }

    /// The runtime on which the fleet's tasks run, for those who ask from other threads.
    #[must_use]
    pub fn runtime(&self) -> &Handle {
        &self.party.runtime
    }

    /// The fleet whose budget it is.
    #[must_use]
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Charges within what the node has leased. Does not ask the store; its refusal wakes the task that does.
    ///
    /// # Errors
    /// As [`Group::try_charge`].
    // (As a call that is not inlined it made a pair of charge and return take a third longer.)
    #[inline]
    pub fn try_charge(&self, units: u64) -> Result<OwnedCharge, Refused> {
        self.group.try_charge(units)
    }

    /// Charges. Where the lease does not suffice, asks the store for as much, in one round trip, and tries once more. Where a
    /// message is under way, that is waited for first; the next has what all charges need that wait by then, so however many
    /// do, each waits for two answers at most.
    ///
    /// # Errors
    /// [`FleetError::Refused`] where others have the rest and do not give it at once, and says how the node stands with the budget;
    /// [`FleetError::Unknown`] where an operator has deleted it; or the store does not answer.
    pub async fn charge(&self, units: u64) -> Result<OwnedCharge, FleetError> {
        if let Ok(charge) = self.group.attempt(units) {
            return Ok(charge);
        }
        let _need = self.need(units);
        let asked = self.ask_once(units).await;
        asked.or_else(|error| self.finally(units, error))
    }

    /// Charges, and waits up to `patience` for what this node and others return. The store has the others give back what
    /// they hold idle. It is asked in any case, and waited for as in [`charge`](Self::charge): up to two answers, each within
    /// the store's time limit.
    ///
    /// # Errors
    /// As [`charge`](Self::charge), when `patience` is over. A store that does not answer meanwhile may answer yet.
    pub async fn charge_within(
        &self,
        units: u64,
        patience: Duration,
    ) -> Result<OwnedCharge, FleetError> {
        if let Ok(charge) = self.group.attempt(units) {
            return Ok(charge);
        }
        let end = Instant::now() + patience;
        let mut replies = self.party.replies.subscribe();
        let _need = self.need(units);
        let mut last = self.ask_once(units).await;
        loop {
            match last {
                Ok(charge) => return Ok(charge),
                Err(error) if Instant::now() >= end || error == FleetError::Fenced => {
                    return self.finally(units, error);
                }
                Err(_) => {}
            }
            replies.mark_unchanged();
            // Units that come back here wake it, and so does a raised limit. A request that is beyond the lease is refused at
            // once: it waits for a reply.
            let rest = end.saturating_duration_since(Instant::now());
            let request = self.group.group().request(units).wait(rest).uncounted();
            last = match request.await {
                Ok(charge) => OwnedCharge::new(charge, self.fleet.ledger())
                    .map_err(|_| unreachable!("a charge of this ledger")),
                Err(refused) => {
                    let _up = timeout_at(end, replies.changed()).await;
                    self.group.attempt(units).map_err(|_| self.no_room(refused))
                }
            };
        }
    }

    /// Asks the store for a lease with `units` more than what is charged, in one round trip, and charges nothing: a program
    /// that sees its need come does not wait for it later. [`lease`](Self::lease) says what came of it.
    ///
    /// # Errors
    /// The store does not answer, or another process has the node's name.
    pub async fn ask(&self, units: u64) -> Result<(), FleetError> {
        let has_room = || self.lease().saturating_sub(self.group().precise()) >= units;
        if has_room() {
            return Ok(());
        }
        let _need = self.need(units);
        // The message that was under way may have brought enough.
        self.party.sync(Some(&self.path), has_room).await
    }

    /// The last attempt, after which the caller is told. Where a limit refuses, that counts, and is noted.
    fn finally(&self, units: u64, error: FleetError) -> Result<OwnedCharge, FleetError> {
        let FleetError::Refused(_) = error else { return Err(error) };
        self.try_charge(units).map_err(|refused| match self.party.failure() {
            Some(error) if self.is_lease(&refused) => FleetError::Store(error),
            _ => self.no_room(refused),
        })
    }

    /// Whether it was a lease that was full: no group of the ledger below.
    fn is_lease(&self, refused: &Refused) -> bool {
        self.party.state_of(&refused.group).is_some()
    }

    fn no_room(&self, refused: Refused) -> FleetError {
        let standing = match self.party.state_of(&refused.group) {
            Some(State::Unknown) => return FleetError::Unknown(refused.group.clone()),
            known => known.map(|_| self.party.standing(&refused.group)),
        };
        let room = standing.and_then(|_| self.party.room(&refused.group));
        FleetError::Refused(NoRoom { refused, standing, room })
    }

    async fn ask_once(&self, units: u64) -> Result<OwnedCharge, FleetError> {
        let mut granted = None;
        // The message that was under way may have brought enough.
        let has_room = || {
            granted = self.group.attempt(units).ok();
            granted.is_some()
        };
        self.party.sync(Some(&self.path), has_room).await?;
        match granted {
            Some(charge) => Ok(charge),
            None => self.group.attempt(units).map_err(|refused| self.no_room(refused)),
        }
    }

    fn need(&self, units: u64) -> Need<'_> {
        self.party.need(&self.path, units);
        Need { budget: self, units }
    }
}

impl Drop for Need<'_> {
    fn drop(&mut self) {
        self.budget.party.served(&self.budget.path, self.units);
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        self.party.close(&self.path);
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels: Vec<&str> = levels(&self.path).collect();
        f.debug_struct("Budget")
            .field("levels", &levels)
            .field("lease", &self.lease())
            .finish_non_exhaustive()
    }
}
