//! Reactions of machines and the store to events.

use ledgerline_fleet::message::{Reply, Sync};
use ledgerline_fleet::node::{Action, Scope};

use super::machine::{Charge, readings};
use super::replica::Deed;
use super::world::{Event, Mistake, World};

impl World {
    pub fn handle(&mut self, event: Event) -> Result<(), String> {
        if self.traces {
            println!("{} {event:?}", self.now);
        }
        match event {
            Event::Wake { machine, organisation } => self.wake(machine, organisation),
            Event::Arrive { machine, organisation, message } => {
                self.arrive(machine, organisation, message)
            }
            Event::Answer { machine, organisation, incarnation, sequence, reply } => {
                if !self.is_up(machine, incarnation) {
                    return Ok(());
                }
                let paused = self.machines[machine].paused;
                if paused > self.now {
                    let wait = paused - self.now;
                    let event =
                        Event::Answer { machine, organisation, incarnation, sequence, reply };
                    self.after(wait, event);
                    return Ok(());
                }
                self.act(machine, organisation, |node, now| {
                    let mut actions = node.end(now);
                    actions.extend(node.take(now, sequence, reply));
                    actions
                })
            }
            Event::TimeOut { machine, organisation, incarnation, sequence } => {
                if self.is_up(machine, incarnation) && self.machines[machine].paused <= self.now {
                    self.act(machine, organisation, |node, now| {
                        node.failed(now, sequence);
                        Vec::new()
                    })?;
                }
                Ok(())
            }
            Event::Nudge { machine, organisation, nudge } => {
                if self.machines[machine].alive && self.machines[machine].paused <= self.now {
                    self.act(machine, organisation, |node, now| {
                        node.nudged(now, &nudge);
                        Vec::new()
                    })?;
                }
                Ok(())
            }
            Event::Load { machine } => self.load(machine),
            Event::Replicate { organisation } => {
                self.replicas[organisation].catch_up();
                self.check.replicated(organisation);
                let wait = self.random.between(100, 2_000);
                self.after(wait, Event::Replicate { organisation });
                Ok(())
            }
            Event::Fault => self.fault(),
        }
    }

    fn is_up(&self, machine: usize, incarnation: u64) -> bool {
        let machine = &self.machines[machine];
        machine.alive && machine.incarnation == incarnation
    }

    /// Makes the machine read its clock and its groups, and take its turn if that is due.
    fn wake(&mut self, number: usize, organisation: usize) -> Result<(), String> {
        let machine = &mut self.machines[number];
        let now = self.now;
        let clock = machine.clock(now);
        let Some(party) = machine.parties.get_mut(&organisation) else { return Ok(()) };
        if !machine.alive || party.wake != now {
            return Ok(());
        }
        if machine.paused > now {
            let wait = machine.paused - now;
            party.wake = machine.paused;
            self.after(wait, Event::Wake { machine: number, organisation });
            return Ok(());
        }
        party.wake = u64::MAX;
        let late = if self.mistake == Mistake::EndLate { 2 * self.size.terms.grace } else { 0 };
        let actions = party.node.end(clock.saturating_sub(late));
        party.looked = clock;
        party.node.look(clock, readings(&party.groups));
        let due = party.node.due().is_some_and(|due| due <= clock);
        self.carry_out(number, organisation, actions)?;
        if due {
            self.turn(number, organisation, Scope::All)?;
        }
        self.schedule(number, organisation);
        Ok(())
    }

    pub fn turn(
        &mut self,
        number: usize,
        organisation: usize,
        scope: Scope<'_>,
    ) -> Result<(), String> {
        let mistake = self.mistake;
        let machine = &mut self.machines[number];
        let clock = machine.clock(self.now);
        let Some(party) = machine.parties.get_mut(&organisation) else { return Ok(()) };
        let mut turn = party.node.begin(clock, scope, readings(&party.groups));
        let mut freed = Vec::new();
        for lower in turn.lowers() {
            let path = lower.path().to_owned();
            if mistake == Mistake::TellFirst {
                lower.done(lower.to(), 0);
                continue;
            }
            if lower.reclaims() {
                freed.extend(machine.reclaim(organisation, &path, lower.to()));
            }
            let used = machine.used(organisation, &path);
            let party = machine.parties.get_mut(&organisation).expect("its own");
            let group = party.groups.get_mut(&path).expect("its own");
            group.max = group.max.min(lower.to().max(used));
            lower.done(group.max, used);
        }
        let party = machine.parties.get_mut(&organisation).expect("its own");
        let begun =
            if mistake == Mistake::MeasureLate { clock + self.size.terms.ttl } else { clock };
        let message = party.node.say(begun, turn);
        if mistake == Mistake::RaiseFirst {
            for line in &message.lines {
                let group = party.groups.get_mut(&line.path).expect("its own");
                group.max = group.max.max(line.want);
            }
        }
        self.freed(freed);
        self.send(number, organisation, message);
        self.check_touched(number, organisation)
    }

    fn send(&mut self, number: usize, organisation: usize, message: Sync) {
        let machine = &self.machines[number];
        let incarnation = machine.incarnation;
        let sequence = message.sequence;
        let timeout = Event::TimeOut { machine: number, organisation, incarnation, sequence };
        let cut_off = machine.cut_off > self.now;
        self.after(self.size.terms.ttl / 6, timeout);
        if self.mistake == Mistake::AdoptAgain {
            let again =
                Sync { sequence: message.sequence + 1, taken: message.sequence, ..message.clone() };
            let wait = self.size.promise();
            self.after(wait, Event::Arrive { machine: number, organisation, message: again });
        }
        while !cut_off && !self.loses() {
            let wait = self.delay();
            let message = message.clone();
            self.after(wait, Event::Arrive { machine: number, organisation, message });
            if self.quiet || !self.random.chance(30) {
                break;
            }
        }
    }

    fn loses(&mut self) -> bool {
        !self.quiet && self.size.faults > 0 && self.random.chance(20)
    }

    /// Returns the travel time of a message. Some messages arrive much later than others, even after leases have ended.
    fn delay(&mut self) -> u64 {
        if self.quiet || self.size.faults == 0 || !self.random.chance(20) {
            self.random.between(1, 20)
        } else if self.random.chance(100) {
            self.random.between(100, 3 * self.size.promise())
        } else {
            self.random.between(20, 600)
        }
    }

    /// Delivers a message to the store.
    fn arrive(&mut self, number: usize, organisation: usize, message: Sync) -> Result<(), String> {
        let name = &super::world::organisation(organisation)[1..];
        message.check(name).map_err(|e| format!("{e}: {message:?}"))?;
        self.syncs += 1;
        let now = self.store_now();
        let before = self.check.before(&self.books[organisation], &message);
        let reply = self.books[organisation].apply(now, &message);
        let nudges = self.books[organisation].nudged();
        self.check.after(organisation, self.now, &self.books[organisation], &message, &before)?;
        let (incarnation, sequence, left) = (message.incarnation, message.sequence, message.left);
        self.replicas[organisation].done(now, Deed::Sync(message));
        self.renewed(number, organisation, left, &reply);
        if self.machines[number].cut_off <= self.now && !self.loses() {
            let wait = self.delay();
            let event =
                Event::Answer { machine: number, organisation, incarnation, sequence, reply };
            self.after(wait, event);
        }
        for nudge in nudges {
            for at in 0..self.members[organisation].len() {
                let other = self.members[organisation][at];
                let hears = self.machines[other].cut_off <= self.now
                    && self.machines[other]
                        .parties
                        .get(&organisation)
                        .is_some_and(|party| party.groups.contains_key(nudge.path()));
                if hears && !self.random.chance(100) {
                    let wait = self.delay();
                    let nudge = nudge.clone();
                    self.after(wait, Event::Nudge { machine: other, organisation, nudge });
                }
            }
        }
        self.check_ended(organisation)?;
        self.check_touched(number, organisation)
    }

    /// Records when the book frees the machine's units, if it renewed their leases just now.
    fn renewed(&mut self, number: usize, organisation: usize, left: u64, reply: &Reply) {
        if let Reply::Synced { at, ttl, grace, .. } = reply
            && let Some(party) = self.machines[number].parties.get_mut(&organisation)
            && *at != party.renewed
        {
            let freed = self.now + left.max(ttl + grace);
            (party.freed, party.renewed) = (freed, *at);
            self.ends[organisation].insert((freed, number));
        }
    }

    /// Runs a step of a machine's node, and carries out its actions.
    pub fn act(
        &mut self,
        number: usize,
        organisation: usize,
        what: impl FnOnce(&mut ledgerline_fleet::node::Node, u64) -> Vec<Action>,
    ) -> Result<(), String> {
        let machine = &mut self.machines[number];
        let clock = machine.clock(self.now);
        let Some(party) = machine.parties.get_mut(&organisation) else { return Ok(()) };
        let actions = what(&mut party.node, clock);
        self.carry_out(number, organisation, actions)?;
        self.schedule(number, organisation);
        Ok(())
    }

    fn carry_out(
        &mut self,
        number: usize,
        organisation: usize,
        actions: Vec<Action>,
    ) -> Result<(), String> {
        if actions.is_empty() {
            return Ok(());
        }
        let now = self.now;
        for action in actions {
            let machine = &mut self.machines[number];
            let party = machine.parties.get_mut(&organisation).expect("its own");
            match action {
                Action::Raise { path, max } => {
                    let group = party.groups.get_mut(&path).expect("its own");
                    if max < group.max && self.mistake == Mistake::None {
                        return Err(format!(
                            "{now}: a raise of {path} from {} to {max}",
                            group.max
                        ));
                    }
                    group.max = max;
                }
                Action::Lower { path, max } => {
                    party.groups.get_mut(&path).expect("its own").max = max;
                    let freed = machine.reclaim(organisation, &path, max);
                    self.freed(freed);
                }
                Action::Hold { path, max } => {
                    party.groups.get_mut(&path).expect("its own").max = max;
                }
                Action::Tell(event) => self.check.told(event),
            }
        }
        self.check_touched(number, organisation)
    }

    fn check_total(&mut self, organisation: usize, path: &str) -> Result<(), String> {
        let now = self.now;
        if self.check.total(organisation, path, now, &self.books[organisation]).is_ok() {
            return Ok(());
        }
        // The reason may be a machine that is paused, or goes on without leases.
        self.check_members(organisation)?;
        self.check.total(organisation, path, now, &self.books[organisation])
    }

    pub fn freed(&mut self, charges: Vec<Charge>) {
        for charge in charges {
            self.check.used(charge.organisation, &charge.path, -(charge.units as i64));
        }
    }

    /// Lets a node look for freed units that others wait for.
    fn awaited(&mut self, number: usize, organisation: usize) {
        let clock = self.machines[number].clock(self.now);
        let Some(party) = self.machines[number].parties.get_mut(&organisation) else { return };
        if party.node.is_awaited() {
            party.node.freed(clock, readings(&party.groups));
            self.schedule(number, organisation);
        }
    }

    /// Does the machine's work: charges, or returns a charge.
    fn load(&mut self, number: usize) -> Result<(), String> {
        let now = self.now;
        if self.quiet || !self.machines[number].alive {
            return Ok(());
        }
        let wait = self.random.between(1, self.size.load * 2);
        self.after(wait, Event::Load { machine: number });
        if self.machines[number].paused > now {
            return Ok(());
        }
        // After a pause, its threads end leases before they work.
        let parties: Vec<usize> = self.machines[number].parties.keys().copied().collect();
        for organisation in &parties {
            if self.mistake != Mistake::EndLate {
                self.act(number, *organisation, |node, now| node.end(now))?;
            }
        }
        if self.random.chance(20) {
            self.machines[number].appetite = self.random.between(200, 800);
        }
        let machine = &mut self.machines[number];
        if !self.random.chance(machine.appetite) {
            if !machine.charges.is_empty() {
                let which = self.random.below(machine.charges.len() as u64) as usize;
                let charge = machine.free(which);
                let organisation = charge.organisation;
                self.freed(vec![charge]);
                self.awaited(number, organisation);
            }
            return Ok(());
        }
        let Some(organisation) = self.random.pick(&parties).copied() else { return Ok(()) };
        let Some(path) = self.random.pick(&machine.parties[&organisation].opened).cloned() else {
            return Ok(());
        };
        let units = self.random.between(1, 6);
        if self.machines[number].try_charge(organisation, &path, units) {
            self.check.used(organisation, &path, units as i64);
            return self.check_total(organisation, &path);
        }
        if self.random.chance(500) {
            let clock = self.machines[number].clock(now);
            let party = self.machines[number].parties.get_mut(&organisation).expect("its own");
            let fenced = party.node.is_fenced();
            party.node.need(clock, &path, units);
            if !fenced {
                self.turn(number, organisation, Scope::Path(&path))?;
            }
            let party = self.machines[number].parties.get_mut(&organisation).expect("its own");
            party.node.served(clock, &path, units);
            self.schedule(number, organisation);
        }
        Ok(())
    }
}
