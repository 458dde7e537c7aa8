//! What always holds, looked at after each event.

use std::collections::{BTreeMap, HashMap};

use ledgerline_fleet::book::{Book, BudgetView};
use ledgerline_fleet::message::{Line, Sync, above};
use ledgerline_fleet::node::{AtEnd, Event};

use crate::world::{TERMS, World};

/// For how long after a failover machines may hold what the book has yet to hear of.
const SETTLING: u64 = 3 * (TERMS.ttl + TERMS.grace);

#[derive(Debug)]
pub struct Check {
    organisations: Vec<Organisation>,
    pub events: BTreeMap<&'static str, u64>,
    pub largest_over: u64,
}

#[derive(Debug, Default)]
struct Organisation {
    /// The last failover.
    failed_over: Option<u64>,
    /// What may be leased until machines have settled after a failover: the limit, or what lost writes had granted.
    bounds: HashMap<String, u64>,
    /// What was granted since the replica was brought up to date.
    granted: HashMap<String, u64>,
    used: HashMap<String, u64>,
    /// Budgets that use more than their limit for a stated reason, until they do not.
    excused: HashMap<String, bool>,
}

/// Budgets before a message, as far as it names them.
pub struct Before {
    node: String,
    incarnation: u64,
    /// With what the node has left of its lease before the message is granted anything.
    budgets: Vec<(String, Option<BudgetView>, u64)>,
}

impl Check {
    pub fn new(organisations: usize) -> Self {
        let organisations = (0..organisations).map(|_| Organisation::default()).collect();
        Self { organisations, events: BTreeMap::new(), largest_over: 0 }
    }

    pub fn told(&mut self, event: Event) {
        let name = match event {
            Event::Ended => "ended",
            Event::Resumed => "resumed",
            Event::Fenced => "fenced",
            Event::Doubled => "doubled",
            Event::Over { .. } => "over",
            Event::Closing { .. } => "closing",
            Event::Unknown { .. } => "unknown",
            Event::Open { .. } => "open",
        };
        *self.events.entry(name).or_default() += 1;
    }

    pub fn before(&self, book: &Book, message: &Sync) -> Before {
        let row = |line: &Line| {
            let hold = book.hold(&line.path, &message.node, message.incarnation);
            let lease = hold.map_or(0, |hold| hold.lease).min(line.lease).min(line.want);
            (line.path.clone(), book.budget(&line.path), lease)
        };
        let budgets = message.lines.iter().map(row).collect();
        Before { node: message.node.clone(), incarnation: message.incarnation, budgets }
    }

    /// The sum of leases is at most the limit, and does not grow while it is more.
    pub fn after(
        &mut self,
        number: usize,
        now: u64,
        book: &Book,
        before: &Before,
    ) -> Result<(), String> {
        for (path, row, lease) in &before.budgets {
            let Some(budget) = book.budget(path) else { continue };
            if let Some(hold) = book.hold(path, &before.node, before.incarnation) {
                let granted = self.organisations[number].granted.entry(path.clone()).or_default();
                *granted += hold.lease.saturating_sub(*lease);
            }
            let was = row.as_ref().map_or(0, |before| before.leased);
            self.largest_over = self.largest_over.max(budget.over);
            if budget.leased <= budget.limit || budget.leased <= was {
                continue;
            }
            let organisation = &self.organisations[number];
            let bound = organisation.bounds.get(path).copied().unwrap_or(0).max(budget.limit);
            if organisation.is_settling(now) && budget.leased <= bound {
                continue;
            }
            return Err(format!(
                "{now}: {path} leases {} of {} (before: {was}, after the last failover at {:?}: {bound})",
                budget.leased, budget.limit, organisation.failed_over
            ));
        }
        Ok(())
    }

    /// What lost writes had granted may be adopted, and no more.
    pub fn fail_over(&mut self, number: usize, now: u64, replica: &Book, at: u64) {
        let organisation = &mut self.organisations[number];
        organisation.failed_over = Some(now);
        for budget in replica.clone().view(at).budgets {
            // A failover before machines settled after the last: its bound may still be adopted as well.
            let bound = organisation.bounds.entry(budget.path).or_default();
            *bound = (*bound).max(budget.limit).max(budget.leased);
        }
        for (path, granted) in organisation.granted.drain() {
            *organisation.bounds.entry(path).or_default() += granted;
        }
        organisation.excused.extend(organisation.used.keys().map(|path| (path.clone(), true)));
    }

    /// The replica has all.
    pub fn replicated(&mut self, number: usize) {
        self.organisations[number].granted.clear();
    }

    /// A limit was changed.
    pub fn changed(&mut self, number: usize, path: &str) {
        self.excuse(number, path);
    }

    pub fn excuse(&mut self, number: usize, path: &str) {
        self.organisations[number].excused.insert(path.to_owned(), true);
    }

    /// A machine charged, or returned, on each level.
    pub fn used(&mut self, number: usize, path: &str, units: i64) {
        let mut level = Some(path);
        while let Some(path) = level {
            let used = self.organisations[number].used.entry(path.to_owned()).or_default();
            *used = used.checked_add_signed(units).expect("no more is returned than was charged");
            level = above(path);
        }
    }

    /// After a charge: what all machines use is at most the limit.
    pub fn total(
        &mut self,
        number: usize,
        path: &str,
        now: u64,
        book: &Book,
    ) -> Result<(), String> {
        let organisation = &mut self.organisations[number];
        let mut level = Some(path);
        while let Some(path) = level {
            let used = organisation.used.get(path).copied().unwrap_or(0);
            if let Some(budget) = book.budget(path) {
                let over = budget.over > 0 || organisation.is_settling(now);
                if used <= budget.limit && !over {
                    organisation.excused.remove(path);
                } else if used > budget.limit && !organisation.excused.contains_key(path) && !over {
                    return Err(format!(
                        "{now}: {used} are used of {path}, whose limit is {}",
                        budget.limit
                    ));
                }
            }
            level = above(path);
        }
        Ok(())
    }

    pub fn nothing_is_used(&self) -> Result<(), String> {
        for organisation in &self.organisations {
            if let Some((path, used)) = organisation.used.iter().find(|(_, used)| **used > 0) {
                return Err(format!("{used} of {path} are still used"));
            }
        }
        Ok(())
    }
}

impl Organisation {
    fn is_settling(&self, now: u64) -> bool {
        self.failed_over.is_some_and(|at| now < at + SETTLING)
    }
}

impl World {
    /// What a machine can use is no more than what the book has for it.
    pub fn check_touched(&mut self, number: usize, organisation: usize) -> Result<(), String> {
        let machine = &self.machines[number];
        let Some(party) = machine.parties.get(&organisation) else { return Ok(()) };
        let book = &self.books[organisation];
        let settling = self.check.organisations[organisation].is_settling(self.now);
        // A paused process cannot end its leases, and one that goes on does not.
        let clock = machine.clock(self.now);
        let ended = party.node.until().is_some_and(|until| until <= clock);
        let frozen = machine.paused > self.now && ended;
        let goes_on = machine.at_end == AtEnd::GoOn && party.node.has_ended();
        let mut excused = Vec::new();
        for (path, group) in &party.groups {
            let lease = book.hold(path, &machine.name, machine.incarnation).map_or(0, |h| h.lease);
            let usable = party.usable(path);
            // What was in use when a limit was lowered at once stays until it is returned.
            if usable <= lease {
                if group.used > lease {
                    excused.push(path.clone());
                }
                continue;
            }
            if frozen || goes_on || settling || book.budget(path).is_none() {
                excused.push(path.clone());
                continue;
            }
            return Err(format!(
                "{}: {} (incarnation {}) can use {usable} of {path}, for which the book has {lease}\n{:?}\n{:?}",
                self.now,
                machine.name,
                machine.incarnation,
                party.node.holding(path),
                book.hold(path, &machine.name, machine.incarnation)
            ));
        }
        for path in excused {
            self.check.excuse(organisation, &path);
        }
        Ok(())
    }

    pub fn check_all(&mut self) -> Result<(), String> {
        for number in 0..self.machines.len() {
            let parties: Vec<usize> = self.machines[number].parties.keys().copied().collect();
            for organisation in parties {
                self.check_touched(number, organisation)?;
            }
        }
        Ok(())
    }

    /// Everything heals (who is paused goes on in its time), all work ends, everybody gives back: nothing is left.
    pub fn ends_clean(&mut self) -> Result<(), String> {
        self.quiet = true;
        let now = self.now;
        for number in 0..self.machines.len() {
            let machine = &mut self.machines[number];
            machine.cut_off = machine.cut_off.min(now);
            let charges = std::mem::take(&mut machine.charges);
            for charge in charges {
                let machine = &mut self.machines[number];
                machine.charges.push(charge);
                let charge = machine.free(machine.charges.len() - 1);
                self.freed(vec![charge]);
            }
            let clock = self.machines[number].clock(now);
            let parties: Vec<usize> = self.machines[number].parties.keys().copied().collect();
            for organisation in parties {
                let party = self.machines[number].parties.get_mut(&organisation).expect("its own");
                for path in party.opened.clone() {
                    party.node.close(clock, &path);
                }
                party.wake = u64::MAX;
                self.schedule(number, organisation);
            }
        }
        self.check.nothing_is_used()?;
        self.run_until(now + 6 * (TERMS.ttl + TERMS.grace))?;
        let at = self.store_now();
        for book in &mut self.books {
            for budget in book.view(at).budgets {
                if budget.leased > 0
                    || budget.excess > 0
                    || !budget.holds.is_empty() && budget.unmet > 0
                {
                    return Err(format!("at the end: {budget:?}"));
                }
            }
        }
        for machine in &self.machines {
            for party in machine.parties.values() {
                let left = party.node.budgets().next();
                if let Some(holding) = left.filter(|_| !party.node.is_fenced()) {
                    return Err(format!("at the end {} has {holding:?}", machine.name));
                }
            }
        }
        Ok(())
    }
}
