//! The charges that all groups hold, and the uncharges that were wrong.

use super::Site;
use super::account::{Account, due};
use super::wrong::{AUDIT_REPORTS_MAX, Outstanding, WrongUncharge};
use crate::ledger::Ledger;
use crate::table::follow;
use crate::table::id::GroupId;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;

/// The followed charges, by group.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    pub(super) accounts: HashMap<u64, Account, BuildHasherDefault<DefaultHasher>>,
    sweep_at: usize,
    /// The wrong uncharges: each group, size and line once, in order of the first occurrence.
    pub(crate) wrong: Vec<WrongUncharge>,
    /// The number of wrong uncharges beyond those.
    pub(crate) left_out: u64,
}

impl Followed {
    pub(super) fn add(
        &mut self,
        ledger: &Ledger,
        id: GroupId,
        units: u64,
        site: Site,
        guard: bool,
    ) {
        if due(self.accounts.len(), self.sweep_at) {
            self.accounts
                .retain(|_, account| std::mem::take(&mut account.used) || account.charges > 0);
            self.sweep_at = self.accounts.len() * 2;
        }
        let new = || Account { path: follow::path_of(ledger.table(), id), ..Account::default() };
        self.accounts.entry(id.raw()).or_insert_with(new).add(units, site, guard);
    }

    pub(super) fn take(&mut self, id: GroupId, units: u64, guard: bool) -> Option<Site> {
        self.accounts.get_mut(&id.raw())?.take(units, guard).map(|(site, _)| site)
    }

    /// Notes a wrong uncharge, or a repetition of a known one.
    pub(super) fn note(&mut self, ledger: &Ledger, id: GroupId, units: u64, site: Site) {
        let at = self.wrong.iter().position(|wrong| wrong.is(id, units, site));
        let at = match at {
            Some(at) => at,
            None if self.wrong.len() < AUDIT_REPORTS_MAX => {
                self.wrong.push(WrongUncharge::blank(site));
                self.wrong.len() - 1
            }
            None => {
                self.left_out += 1;
                return;
            }
        };
        let wrong = &mut self.wrong[at];
        wrong.times += 1;
        wrong.describe(ledger, self.accounts.get(&id.raw()), id, units);
    }

    /// Returns the outstanding charges by group and line, without the paths; only those of one group if it is given.
    pub(crate) fn lines(&self, only: Option<GroupId>) -> Vec<Outstanding> {
        let mut lines = Vec::new();
        for (&id, account) in &self.accounts {
            if account.charges == 0 || only.is_some_and(|only| only.raw() != id) {
                continue;
            }
            let mut by_site = BTreeMap::<(Site, bool), (u64, u64)>::new();
            for (&units, size) in &account.sizes {
                for tally in size.tallies.iter().filter(|tally| tally.held > 0) {
                    let sum = by_site.entry((tally.site, tally.guard)).or_default();
                    sum.0 += tally.held;
                    sum.1 = sum.1.saturating_add(tally.held.saturating_mul(units));
                }
            }
            let group = GroupId::from_raw(id);
            lines.extend(by_site.into_iter().map(|((site, guard), (charges, units))| {
                Outstanding { group, path: String::new(), site, guard, charges, units }
            }));
        }
        lines
    }
}
