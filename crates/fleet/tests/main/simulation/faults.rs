//! Faults.

use ledgerline_fleet::book::{Change, Terms};

use super::replica::Deed;
use super::world::{Event, Mistake, World, organisation};

impl World {
    pub fn fault(&mut self) -> Result<(), String> {
        if self.quiet {
            return Ok(());
        }
        let wait = self.random.between(1, self.size.faults * 2);
        self.after(wait, Event::Fault);
        let Some(machine) = self.random.pick(&self.living).copied() else { return Ok(()) };
        let longest = 3 * self.size.promise();
        let what = self.random.below(22);
        if self.traces {
            println!("{} fault {what} {}", self.now, self.machines[machine].name);
        }
        match what {
            0..=3 => self.kill(machine),
            4..=7 => {
                self.note("pause");
                let machine = &mut self.machines[machine];
                machine.paused = machine.paused.max(self.now + self.random.between(1, longest));
            }
            8..=10 => {
                self.note("cut off");
                let machine = &mut self.machines[machine];
                machine.cut_off = self.now + self.random.between(1, longest);
            }
            11..=12 => return self.fail_over(),
            13..=15 => return self.set_limit(),
            16 => return self.delete(),
            17 => {
                self.note("second of a name");
                let name = self.machines[machine].name.clone();
                self.start(name);
            }
            18 => {
                self.note("clock back");
                let most = if self.random.chance(300) { 200_000 } else { 1_000 };
                self.store_clock -= self.random.between(1, most).min(self.store_clock);
            }
            19 => self.drain(machine),
            20..=21 => self.set_terms(),
            _ => {}
        }
        Ok(())
    }

    /// Kills a machine with kill -9, and starts one of the same name a while later.
    fn kill(&mut self, number: usize) {
        self.note("kill");
        let machine = &mut self.machines[number];
        machine.alive = false;
        for organisation in std::mem::take(&mut machine.parties).into_keys() {
            self.members[organisation].retain(|member| *member != number);
        }
        let machine = &mut self.machines[number];
        let name = machine.name.clone();
        let charges = std::mem::take(&mut machine.charges);
        self.freed(charges);
        // Two machines of one name live at times.
        self.living.retain(|living| *living != number);
        if self.living.len() <= self.size.machines {
            self.start(name);
        }
    }

    /// Makes the store lose the writes that the replica does not have yet.
    fn fail_over(&mut self) -> Result<(), String> {
        self.note("failover");
        let number = self.random.below(self.books.len() as u64) as usize;
        let replica = self.replicas[number].fail_over();
        self.check.fail_over(number, self.now, &replica, self.store_now());
        self.books[number] = replica;
        self.check_members(number)
    }

    fn budget(&mut self) -> (usize, String) {
        let number = self.random.below(self.books.len() as u64) as usize;
        let top = organisation(number);
        let tenant = self.random.below(self.size.tenants as u64);
        let path = match self.random.below(self.size.jobs as u64 + 2) {
            0 => top,
            1 => format!("{top}/t{tenant}"),
            job => format!("{top}/t{tenant}/j{}", job - 2),
        };
        (number, path)
    }

    fn set_limit(&mut self) -> Result<(), String> {
        self.note("limit");
        let (number, path) = self.budget();
        let machines = self.size.machines as u64;
        let most = if path.matches('/').count() == 1 { 40 } else { 8 };
        let limit = Some(self.random.between(machines, machines * most));
        let change = Change::Set { path: path.clone(), limit, minimum: None };
        let now = self.store_now();
        if self.books[number].administer(now, &change).is_ok() {
            self.check.changed(number, &path);
        }
        self.replicas[number].done(now, Deed::Change(change));
        self.check_members(number)
    }

    fn delete(&mut self) -> Result<(), String> {
        self.note("delete");
        let (number, path) = self.budget();
        let now = self.store_now();
        let change = Change::Delete { path: path.clone() };
        if self.books[number].administer(now, &change).is_ok() {
            self.check.changed(number, &path);
        }
        self.replicas[number].done(now, Deed::Change(change));
        self.check_members(number)
    }

    fn set_terms(&mut self) {
        self.note("terms");
        let number = self.random.below(self.books.len() as u64) as usize;
        let terms = *self.random.pick(&self.size.each_terms()).expect("some terms");
        let grace = if self.mistake == Mistake::NoGrace { 0 } else { terms.grace };
        let now = self.store_now();
        let change = Change::from(Terms { grace, ..terms });
        self.books[number].administer(now, &change).expect("terms that fit");
        self.replicas[number].done(now, Deed::Change(change));
    }

    fn drain(&mut self, machine: usize) {
        self.note("drain");
        let node = self.machines[machine].name.clone();
        let now = self.store_now();
        for (book, replica) in self.books.iter_mut().zip(&mut self.replicas) {
            let on = self.random.chance(300);
            let change = Change::Drain { node: node.clone(), on };
            book.administer(now, &change).expect("a name that fits");
            replica.done(now, Deed::Change(change));
        }
    }
}
