//! Atomics whose turn has not come: earlier stores are on their way, and the atomics request their lines meanwhile.

use super::{Asked, Engine};
use crate::code::Access;
use crate::simulate::cpu::{Early, Waiting};
use crate::simulate::lines::{Purpose, Request};

impl Engine<'_> {
    /// Requests the line of an atomic whose turn has not come.
    pub(super) fn ask_early(&mut self, line: usize, index: usize, whose: u32, time: u64) {
        let cpu = index as u32;
        if !self.settings.early_request
            || self.lines.suffices(line, cpu, true)
            || self.lines.within_core(line, cpu, true)
        {
            return;
        }
        self.cpus[index].early = Some(Early::Asked);
        let pc = self.cpus[index].pc;
        self.ask(line, Asked { cpu, whose, pc, purpose: Purpose::Early }, time);
    }

    /// Whether an atomic whose turn has come still has to wait for the line that it requested before.
    pub(super) fn still_comes(
        &mut self,
        line: usize,
        index: usize,
        access: &Access,
        early: Early,
        time: u64,
    ) -> bool {
        match early {
            Early::Asked => {
                let queue = &mut self.lines.lines[line].queue;
                let asked = queue.iter_mut().find(|request| {
                    request.cpu as usize == index && request.purpose == Purpose::Early
                });
                let request = asked.expect("what is asked for and not granted waits in the queue");
                // The CPU waits for it from now on.
                (request.purpose, request.at) = (Purpose::Access, time);
                self.wait(index, Waiting::Line);
                true
            }
            Early::Granted { arrival, spoiler } => {
                let comes = arrival > time && self.lines.suffices(line, index as u32, true);
                if comes {
                    if self.prepared.in_window(time) {
                        self.tally.stall(spoiler, access.field, arrival - time);
                    }
                    self.schedule.set(index, arrival);
                }
                comes
            }
        }
    }

    /// Takes in the line of an atomic whose turn has not come.
    pub(super) fn came_early(&mut self, line: usize, request: Request, time: u64) {
        let index = request.cpu as usize;
        let access = self.decode(index, request.pc);
        let spoiler = self.lines.lines[line].spoiler;
        let arrival = self.bring(line, request, &access, false, time);
        self.cpus[index].early = Some(Early::Granted { arrival, spoiler });
    }
}
