//! Invariants, checked after each event.

use std::collections::{BTreeMap, HashMap};

use ledgerline_fleet::book::Book;
use ledgerline_fleet::message::{Line, State, Sync, above};
use ledgerline_fleet::node::{AtEnd, Event};

use super::world::World;

#[derive(Debug)]
pub struct Check {
    organisations: Vec<Organisation>,
    /// How long after a failover machines may hold leases that the book does not know yet.
    settling: u64,
    pub events: BTreeMap<&'static str, u64>,
    pub largest_over: u64,
}

#[derive(Debug, Default)]
struct Organisation {
    /// Time of the last failover.
    failed_over: Option<u64>,
    /// When machines have settled after it.
    settled: u64,
    /// Upper bounds of leases until machines have settled after a failover: the limit plus the units that lost writes had granted
    /// or renewed.
    bounds: HashMap<String, u64>,
    /// Units granted since the replica was last up to date.
    granted: HashMap<String, u64>,
    used: HashMap<String, u64>,
    /// Budgets that use more than their limit for a stated reason, until they no longer do.
    excused: HashMap<String, bool>,
}

/// The state of a budget before a message that names it.
pub struct Before {
    leased: u64,
    /// The rest of the node's lease before the message is granted anything.
    lease: u64,
}

impl Check {
    pub fn new(organisations: usize, settling: u64) -> Self {
        let organisations = (0..organisations).map(|_| Organisation::default()).collect();
        Self { organisations, settling, events: BTreeMap::new(), largest_over: 0 }
    }

    pub fn told(&mut self, event: Event) {
        let name = match event {
            Event::Ended => "ended",
            Event::Resumed => "resumed",
            Event::Fenced => "fenced",
            Event::Doubled => "doubled",
            Event::Budget { state, .. } => match state {
                State::Over { .. } => "over",
                State::Closing => "closing",
                State::Unknown => "unknown",
                State::Open => "open",
                State::Drained => "drained",
                State::Learning => "learning",
            },
        };
        *self.events.entry(name).or_default() += 1;
    }

    pub fn before(&self, book: &Book, message: &Sync) -> Vec<Before> {
        let row = |line: &Line| {
            let lease = book.lease(&line.path, &message.node, message.incarnation);
            let lease = lease.min(line.lease).min(line.want);
            let leased = book.budget(&line.path).map_or(0, |budget| budget.leased);
            Before { leased, lease }
        };
        message.lines.iter().map(row).collect()
    }

    /// Checks that the sum of leases is at most the limit, and does not grow while it is more.
    pub fn after(
        &mut self,
        number: usize,
        now: u64,
        book: &Book,
        message: &Sync,
        before: &[Before],
    ) -> Result<(), String> {
        for (Line { path, .. }, Before { leased: was, lease }) in message.lines.iter().zip(before) {
            let Some(budget) = book.budget(path) else { continue };
            let now_leased = book.lease(path, &message.node, message.incarnation);
            if let more @ 1.. = now_leased.saturating_sub(*lease) {
                *at(&mut self.organisations[number].granted, path) += more;
            }
            self.largest_over = self.largest_over.max(budget.over);
            if budget.leased <= budget.limit || budget.leased <= *was {
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

    /// Raises the bounds after a failover. The book may adopt units that lost writes had granted, and no others. The same goes
    /// for leases that they had renewed, if these have ended as far as the replica knows.
    pub fn fail_over(&mut self, number: usize, now: u64, replica: &Book, at: u64) {
        let organisation = &mut self.organisations[number];
        organisation.failed_over = Some(now);
        organisation.settled = now + self.settling;
        for budget in replica.clone().view(at).budgets {
            // If machines had not settled since the previous failover, its bound may still be adopted as well.
            let known = replica.budget(&budget.path).map_or(0, |known| known.leased);
            let ended = known.saturating_sub(budget.leased);
            let bound = organisation.bounds.entry(budget.path).or_default();
            *bound = (*bound).max(budget.limit.max(budget.leased) + ended);
        }
        for (path, granted) in organisation.granted.drain() {
            *organisation.bounds.entry(path).or_default() += granted;
        }
        organisation.excused.extend(organisation.used.keys().map(|path| (path.clone(), true)));
    }

    /// Notes that the replica is up to date.
    pub fn replicated(&mut self, number: usize) {
        self.organisations[number].granted.clear();
    }

    /// Notes that a limit was changed.
    pub fn changed(&mut self, number: usize, path: &str) {
        self.excuse(number, path);
    }

    pub fn excuse(&mut self, number: usize, path: &str) {
        self.organisations[number].excused.insert(path.to_owned(), true);
    }

    /// Notes that a machine charged or returned units, on each level.
    pub fn used(&mut self, number: usize, path: &str, units: i64) {
        let mut level = Some(path);
        while let Some(path) = level {
            let used = at(&mut self.organisations[number].used, path);
            *used = used.checked_add_signed(units).expect("no more is returned than was charged");
            level = above(path);
        }
    }

    /// Checks after a charge that all machines together use at most the limit.
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

/// Returns the number of a path, initially 0.
fn at<'m>(numbers: &'m mut HashMap<String, u64>, path: &str) -> &'m mut u64 {
    if !numbers.contains_key(path) {
        numbers.insert(path.to_owned(), 0);
    }
    numbers.get_mut(path).expect("it is there")
}

impl Organisation {
    fn is_settling(&self, now: u64) -> bool {
        now < self.settled
    }
}

impl World {
    /// Checks that a machine can use no more than the book has for it.
    pub fn check_touched(&mut self, number: usize, organisation: usize) -> Result<(), String> {
        let machine = &self.machines[number];
        let Some(party) = machine.parties.get(&organisation) else { return Ok(()) };
        let book = &self.books[organisation];
        let settling = self.check.organisations[organisation].is_settling(self.now);
        // A paused process cannot end its leases, and one with `GoOn` does not.
        let clock = machine.clock(self.now);
        let ended = party.node.until().is_some_and(|until| until <= clock);
        let frozen = machine.paused > self.now && ended;
        let goes_on = machine.at_end == AtEnd::GoOn && party.node.has_ended();
        let mut excused = Vec::new();
        let mut leases = book.leases(&machine.name, machine.incarnation).peekable();
        for (path, group, usable) in party.usable() {
            while leases.next_if(|(other, _)| *other < path.as_str()).is_some() {}
            let lease = leases.next_if(|(other, _)| other == path).map_or(0, |(_, lease)| lease);
            // Units in use when a limit was lowered at once stay until they are returned.
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

    /// Checks all machines that a change of a book concerns.
    pub fn check_members(&mut self, organisation: usize) -> Result<(), String> {
        for at in 0..self.members[organisation].len() {
            self.check_touched(self.members[organisation][at], organisation)?;
        }
        Ok(())
    }

    /// Checks machines that did not renew their leases and whose units the book has freed by now.
    pub fn check_ended(&mut self, organisation: usize) -> Result<(), String> {
        let now = self.now;
        while let Some((freed, number)) = self.ends[organisation].first().copied()
            && freed <= now
        {
            self.ends[organisation].pop_first();
            let party = self.machines[number].parties.get(&organisation);
            if party.is_some_and(|party| party.freed <= now) {
                self.check_touched(number, organisation)?;
            }
        }
        Ok(())
    }

    pub fn check_all(&mut self) -> Result<(), String> {
        (0..self.books.len()).try_for_each(|organisation| self.check_members(organisation))
    }

    /// Heals all faults, ends all work and returns all charges, and checks that nothing is left. Paused machines continue in
    /// their own time.
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
        self.run_until(now + 6 * self.size.promise())?;
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
