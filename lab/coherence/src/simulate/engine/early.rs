//! Accesses before their turn: their CPUs request lines for them meanwhile.

use super::{Asked, Engine};
use crate::code::{Access, Action, Kind};
use crate::simulate::cpu::{Early, Waiting};
use crate::simulate::lines::{Line, Purpose, Request};
use crate::simulate::schedule::NEVER;
use std::collections::VecDeque;

impl Engine<'_> {
    /// Requests the line of an atomic that waits for stores of its CPU.
    pub(super) fn ask_early(&mut self, line: usize, index: usize, whose: u32, time: u64) {
        let asked = self.cpus[index].early_of(line).is_some();
        if self.settings.early_request && !asked && !self.comes_by_itself(line, index, true) {
            let pc = self.cpus[index].pc;
            let early = Early { line: line as u32, pc, to_write: true, ..Early::default() };
            self.ask_for(early, index, whose, time);
        }
    }

    /// Requests the line of an access that comes after work, or makes sure that the line stays.
    pub(super) fn ask_ahead(&mut self, line: usize, index: usize, to_write: bool, time: u64) {
        if self.cpus[index].early_of(line).is_some() {
            return;
        }
        let pc = self.cpus[index].pc;
        let early = Early { line: line as u32, pc, to_write, again: true, ..Early::default() };
        self.lines.lines[line].wanting.push(index as u32);
        if self.comes_by_itself(line, index, to_write) {
            self.cpus[index].early.push(Early { comes: Some((0, None)), ..early });
        } else {
            self.ask_for(early, index, index as u32, time);
        }
    }

    fn ask_for(&mut self, early: Early, index: usize, whose: u32, time: u64) {
        self.cpus[index].early.push(early);
        let asked = Asked { cpu: index as u32, whose, pc: early.pc, purpose: Purpose::Early };
        self.ask(early.line as usize, asked, time);
    }

    fn comes_by_itself(&self, line: usize, index: usize, to_write: bool) -> bool {
        let cpu = index as u32;
        self.lines.suffices(line, cpu, to_write) || self.lines.within_core(line, cpu, to_write)
    }

    /// Makes the CPUs that have lost a line which they will need request it again.
    pub(super) fn ask_again(&mut self, line: usize, time: u64) {
        for at in 0..self.lines.lines[line].wanting.len() {
            let cpu = self.lines.lines[line].wanting[at];
            let index = cpu as usize;
            let place = self.cpus[index].early_of(line).expect("who wants a line remembers it");
            let Early { pc, to_write, comes, .. } = self.cpus[index].early[place];
            if comes.is_some() && !self.comes_by_itself(line, index, to_write) {
                self.cpus[index].early[place].comes = None;
                self.cpus[index].early[place].lost = true;
                self.ask(line, Asked { cpu, whose: cpu, pc, purpose: Purpose::Early }, time);
            }
        }
    }

    /// Returns whether an access whose turn has come still has to wait for the line that was requested for it.
    pub(super) fn still_comes(
        &mut self,
        line: usize,
        index: usize,
        access: &Access,
        whose: u32,
        time: u64,
    ) -> bool {
        let to_write = access.kind == Kind::Rmw;
        let reads = !to_write && access.kind != Kind::Store && access.action == Action::Nothing;
        let place = self.cpus[index].early_of(line).filter(|_| to_write || reads);
        let Some(place) = place else { return false };
        let early = self.cpus[index].early.swap_remove(place);
        if early.again {
            self.lines.lines[line].wanting.retain(|&cpu| cpu as usize != index);
        }
        let there = self.lines.suffices(line, index as u32, to_write);
        let fetched = early.lost || !matches!(early.comes, Some((0, _)));
        self.lines.lines[line].fresh |= to_write && there && fetched;
        if reads && early.lost {
            self.cpus[index].flush = self.settings.flush;
        }
        match early.comes {
            None if there || reads && self.forwards(index, access, whose) => {
                self.withdraw(line, index);
                false
            }
            None => {
                let queue = &mut self.lines.lines[line].queue;
                let at = asked_early(queue, index);
                // The CPU waits for it from now on.
                (queue[at].purpose, queue[at].at) = (Purpose::Access, time);
                self.wait(index, Waiting::Line);
                true
            }
            Some((arrival, spoiler)) if arrival > time && there => {
                if self.prepared.in_window(time) {
                    self.tally.stall(spoiler, access.field, arrival - time);
                }
                self.schedule.set(index, arrival);
                true
            }
            Some(_) => false,
        }
    }

    /// Withdraws the request of an access that is done without it.
    fn withdraw(&mut self, line: usize, index: usize) {
        let Line { queue, free_at, .. } = &mut self.lines.lines[line];
        queue.remove(asked_early(queue, index));
        let next = queue.front().map_or(NEVER, |next| next.ready.max(*free_at).max(self.now));
        self.schedule.set(self.cpus.len() + self.places[line] as usize, next);
    }

    /// Receives the line of an access before its turn.
    pub(super) fn came_early(&mut self, line: usize, request: Request, time: u64) {
        let index = request.cpu as usize;
        let access = self.decode(index, request.pc);
        let spoiler = self.lines.lines[line].spoiler;
        let arrival = self.bring(line, request, &access, false, time);
        let place = self.cpus[index].early_of(line);
        let place = place.expect("a request that no CPU needs any more is taken back");
        self.cpus[index].early[place].comes = Some((arrival, spoiler));
    }
}

/// Returns the place in a line's queue of a CPU's request for an access before its turn.
fn asked_early(queue: &VecDeque<Request>, index: usize) -> usize {
    let early = |of: &Request| of.cpu as usize == index && of.purpose == Purpose::Early;
    queue.iter().position(early).expect("what is asked for and not granted waits in the queue")
}
