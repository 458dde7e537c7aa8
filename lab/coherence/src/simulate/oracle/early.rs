//! Requests for accesses before their turn.

use super::{Asked, Oracle};
use crate::code::{Access, Action, Instruction, Kind};
use crate::simulate::cpu::Early;
use crate::simulate::lines::Purpose;

impl Oracle<'_> {
    fn early(&self, cpu: usize, line: usize) -> Option<usize> {
        self.cpus[cpu].early.iter().position(|early| early.line as usize == line)
    }

    fn named(&self, cpu: usize, pc: u32) -> Access {
        match self.prepared.codes[self.setup.cpus[cpu]].instructions[pc as usize] {
            Instruction::Access(access) | Instruction::Ask(access) => access,
            other => panic!("{other:?} touches nothing"),
        }
    }

    fn comes_by_itself(&self, line: usize, cpu: usize, access: &Access) -> bool {
        self.suffices(line, cpu, access) || self.within_core(line, cpu, access)
    }

    /// Requests the line of an atomic that waits for stores.
    pub(super) fn ask_early(&mut self, line: usize, cpu: usize, whose: u32, time: u64) {
        let pc = self.cpus[cpu].pc;
        let access = self.named(cpu, pc);
        if !self.setup.settings.early_request
            || self.early(cpu, line).is_some()
            || self.comes_by_itself(line, cpu, &access)
        {
            return;
        }
        let early =
            Early { line: line as u32, pc, to_write: true, again: false, lost: false, comes: None };
        self.cpus[cpu].early.push(early);
        self.ask(line, cpu, whose, time, access, Purpose::Early);
    }

    /// Requests the line of an access that comes after work.
    pub(super) fn ask_ahead(&mut self, cpu: usize, access: Access, time: u64) {
        let line = self.prepared.placement.line(access.field, cpu as u32);
        if self.setup.settings.lead > 0 && self.early(cpu, line).is_none() {
            let there = self.comes_by_itself(line, cpu, &access);
            let pc = self.cpus[cpu].pc;
            self.cpus[cpu].early.push(Early {
                line: line as u32,
                pc,
                to_write: access.kind == Kind::Rmw,
                again: true,
                lost: false,
                comes: there.then_some((0, None)),
            });
            self.lines[line].wanting.push(cpu);
            if !there {
                self.ask(line, cpu, cpu as u32, time, access, Purpose::Early);
            }
        }
        self.cpus[cpu].pc += 1;
        self.clocks[cpu] = Some(time);
    }

    /// Makes the CPUs that want a line and have lost it request it again.
    pub(super) fn ask_again(&mut self, line: usize, time: u64) {
        for cpu in self.lines[line].wanting.clone() {
            let place = self.early(cpu, line).unwrap();
            let access = self.named(cpu, self.cpus[cpu].early[place].pc);
            let early = &self.cpus[cpu].early[place];
            if early.comes.is_some() && !self.comes_by_itself(line, cpu, &access) {
                let early = &mut self.cpus[cpu].early[place];
                (early.comes, early.lost) = (None, true);
                self.ask(line, cpu, cpu as u32, time, access, Purpose::Early);
            }
        }
    }

    /// Returns whether an access whose turn has come waits for the line that was requested for it.
    pub(super) fn still_comes(
        &mut self,
        line: usize,
        cpu: usize,
        access: Access,
        slot: usize,
        time: u64,
    ) -> bool {
        let reads = matches!(access.kind, Kind::Load { .. });
        let plain = access.action == Action::Nothing;
        if access.kind == Kind::Store || reads && !plain {
            return false;
        }
        let Some(place) = self.early(cpu, line) else { return false };
        let early = self.cpus[cpu].early.remove(place);
        if early.again {
            self.lines[line].wanting.retain(|&wants| wants != cpu);
        }
        if reads && early.lost {
            self.cpus[cpu].flush = self.setup.settings.flush;
        }
        let there = self.suffices(line, cpu, &access);
        let fetched = early.lost || !matches!(early.comes, Some((0, _)));
        if !reads && there && fetched {
            self.lines[line].fresh = true;
        }
        let forwarded = reads && self.stores[cpu].contains(&slot);
        let Some((arrival, spoiler)) = early.comes else {
            let of = |asked: &Asked| asked.cpu == cpu && asked.purpose == Purpose::Early;
            let at = self.lines[line].asked.iter().position(of).unwrap();
            if there || forwarded {
                self.lines[line].asked.remove(at);
                return false;
            }
            // From now on it is an ordinary access.
            let asked = &mut self.lines[line].asked[at];
            (asked.purpose, asked.at, asked.does) = (Purpose::Access, time, access);
            self.clocks[cpu] = None;
            return true;
        };
        let waits = arrival > time && there;
        if waits {
            if self.prepared.in_window(time) {
                self.tally.stall(spoiler, access.field, arrival - time);
            }
            self.clocks[cpu] = Some(arrival);
        }
        waits
    }

    /// Receives the line of an access before its turn, which is on its way.
    pub(super) fn came_early(
        &mut self,
        line: usize,
        cpu: usize,
        comes: (u64, Option<crate::layout::FieldId>),
    ) {
        let place = self.early(cpu, line).unwrap();
        self.cpus[cpu].early[place].comes = Some(comes);
    }
}
