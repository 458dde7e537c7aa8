//! A budget in use by this node.

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

/// A budget of a fleet on this node: a group whose `max` is the node's lease. Dropping it gives the lease back as soon as nothing
/// is charged there any more.
pub struct Budget {
    /// Dropped after this budget has reported that it closes.
    pub(super) fleet: Fleet,
    pub(super) party: Arc<Party>,
    pub(super) path: String,
    pub(super) group: OwnedGroup,
}

/// The units of a waiting charge, registered until this is dropped.
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

    /// Returns the group in which to charge, and below which to make groups of queries. A charge there is as fast as in any
    /// group.
    #[must_use]
    #[inline]
    pub fn group(&self) -> Group<'_> {
        self.group.group()
    }

    /// Returns the group, for tasks and caches that outlive a borrow.
    #[must_use]
    pub fn owned(&self) -> &OwnedGroup {
        &self.group
    }

    /// Returns the budget's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the node's current lease of the budget.
    #[must_use]
    pub fn lease(&self) -> u64 {
        self.party.lease(&self.path)
    }

    /// Returns the node's standing in the budget, which explains a lease that does not grow.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.party.standing(&self.path)
    }

    /// Returns the budget and each level above it as the store has them, root first: limits, and the sums over all nodes. Takes
    /// one round trip.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn totals(&self) -> Result<Vec<BudgetView>, FleetError> {
        let mut paths: Vec<String> = levels(&self.path).map(str::to_owned).collect();
        paths.reverse();
        let totals = self.party.store.totals(&self.party.organisation, &paths).await?;
        Ok(totals.into_iter().flatten().collect())
    }

    /// Returns the runtime on which the fleet's tasks run, for callers on other threads.
    #[must_use]
    pub fn runtime(&self) -> &Handle {
        &self.party.runtime
    }

    /// Returns the fleet that the budget belongs to.
    #[must_use]
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Charges within the node's lease. Does not ask the store; a refusal wakes the task that does.
    ///
    /// # Errors
    /// Those of [`Group::try_charge`].
    // Without inlining, a pair of charge and return takes a third longer.
    #[inline]
    pub fn try_charge(&self, units: u64) -> Result<OwnedCharge, Refused> {
        self.group.try_charge(units)
    }

    /// Charges `units`. If the lease does not suffice, asks the store for more in one round trip and tries once more. If a
    /// message is under way, waits for that first. The next message covers all charges that wait by then, so each waits for at
    /// most two answers, however many there are.
    ///
    /// # Errors
    /// [`FleetError::Refused`] if others have the rest and do not give it at once, with the node's standing in the budget;
    /// [`FleetError::Unknown`] if an operator has deleted it; or the store does not answer.
    pub async fn charge(&self, units: u64) -> Result<OwnedCharge, FleetError> {
        if let Ok(charge) = self.group.attempt(units) {
            return Ok(charge);
        }
        let _need = self.need(units);
        let asked = self.ask_once(units).await;
        asked.or_else(|error| self.finally(units, error))
    }

    /// Charges `units`, and waits up to `patience` for units that this node and others return. The store asks the others for
    /// their idle units. It is contacted in any case, and waited for as in [`charge`](Self::charge): up to two answers, each
    /// within the store's time limit.
    ///
    /// # Errors
    /// Those of [`charge`](Self::charge), when `patience` is over. A store that does not answer is tried again until then.
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
            // Units that come back here wake the request, and so does a raised limit. A request larger than the lease is refused
            // at once: it waits for a reply.
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

    /// Asks the store for a lease with `units` more than are charged, in one round trip, without charging. A program that
    /// foresees its need can so avoid a later wait. [`lease`](Self::lease) returns the result.
    ///
    /// # Errors
    /// The store does not answer, or another process has the node's name.
    pub async fn ask(&self, units: u64) -> Result<(), FleetError> {
        let has_room = || self.lease().saturating_sub(self.group().precise()) >= units;
        if has_room() {
            return Ok(());
        }
        let _need = self.need(units);
        // The message under way may have brought enough.
        self.party.sync(Some(&self.path), has_room).await
    }

    /// Tries for the last time before the caller gets the error. A refusal by a limit is counted and noted.
    fn finally(&self, units: u64, error: FleetError) -> Result<OwnedCharge, FleetError> {
        let FleetError::Refused(_) = error else { return Err(error) };
        self.try_charge(units).map_err(|refused| match self.party.failure() {
            Some(error) if self.is_lease(&refused) => FleetError::Store(error),
            _ => self.no_room(refused),
        })
    }

    /// Returns whether the full group is a lease, rather than a group of the ledger below one.
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
        // The message under way may have brought enough.
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
