//! Memory control, slowly and obviously: a tree of groups with all that they hold in a list, and every rule
//! as a loop over it. What `tests/control.rs` holds the ledger against.

use std::collections::HashMap;

pub const NO_LIMIT: u64 = 1 << 62;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Enforce,
    Measure,
    Off,
}

/// Units that somebody holds.
#[derive(Clone, Debug)]
pub struct Held {
    pub group: usize,
    pub units: u64,
    pub counted: bool,
}

#[derive(Clone, Debug)]
pub struct Row {
    pub parent: Option<usize>,
    pub live: bool,
    pub max: u64,
    pub high: u64,
    pub low: u64,
    pub min: u64,
    pub mode: Mode,
    pub oom_group: bool,
    /// What its cache holds and gives back, if it has one, and how soon it is asked.
    pub cache: Option<(i32, u64)>,
    /// Registered as a victim; whether it was cancelled.
    pub victim: Option<bool>,
    pub events: Events,
    /// Its `max` events cannot be told: measured ones count what lies idle, too.
    pub vague: bool,
    pub refused: u64,
    pub reclaimed: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    pub low: u64,
    pub max: u64,
    pub oom: u64,
    pub oom_kill: u64,
    pub oom_group_kill: u64,
}

/// What became of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Counted,
    Uncounted,
    /// By the limit of that group.
    Refused(usize),
    /// The one who asked was the victim.
    Cancelled,
}

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub rows: Vec<Row>,
    /// By number; whoever holds them may let go of any.
    pub held: HashMap<u64, Held>,
}

impl Model {
    pub fn create(&mut self, parent: Option<usize>) -> usize {
        let mode = parent.map_or(Mode::Enforce, |parent| self.rows[parent].mode);
        self.rows.push(Row {
            parent,
            live: true,
            max: NO_LIMIT,
            high: NO_LIMIT,
            low: 0,
            min: 0,
            mode,
            oom_group: false,
            cache: None,
            victim: None,
            events: Events::default(),
            vague: mode != Mode::Enforce,
            refused: 0,
            reclaimed: 0,
        });
        self.rows.len() - 1
    }

    /// From a group up to the root.
    pub fn path(&self, group: usize) -> Vec<usize> {
        let mut path = vec![group];
        while let Some(parent) = self.rows[*path.last().unwrap()].parent {
            path.push(parent);
        }
        path
    }

    pub fn is_below(&self, group: usize, top: usize) -> bool {
        self.path(group).contains(&top)
    }

    pub fn usage(&self, top: usize) -> u64 {
        let held = self.held.values().filter(|held| held.counted);
        let held = held.filter(|held| self.is_below(held.group, top));
        let cached = (0..self.rows.len()).filter(|&group| self.is_below(group, top));
        let cached = cached.filter_map(|group| self.rows[group].cache);
        held.map(|held| held.units).sum::<u64>() + cached.map(|(_, units)| units).sum::<u64>()
    }

    pub fn live(&self) -> Vec<usize> {
        (0..self.rows.len()).filter(|&group| self.rows[group].live).collect()
    }

    pub fn set_mode(&mut self, top: usize, mode: Mode) {
        for group in 0..self.rows.len() {
            if self.rows[group].live && self.is_below(group, top) {
                self.rows[group].mode = mode;
                self.rows[group].vague |= mode != Mode::Enforce;
            }
        }
    }

    /// The topmost group whose limit does not allow so much more.
    fn full(&self, levels: &[usize], units: u64) -> Option<usize> {
        let full = |&&group: &&usize| {
            let row = &self.rows[group];
            row.mode == Mode::Enforce && self.usage(group) + units > row.max
        };
        levels.iter().rev().find(full).copied()
    }

    /// Whether the charge would fit, before anything is asked of anybody; counts the `max` event if not.
    fn fits(&mut self, levels: &[usize], units: u64) -> Result<(), usize> {
        match self.full(levels, units) {
            None => Ok(()),
            Some(full) => {
                self.rows[full].events.max += 1;
                Err(full)
            }
        }
    }

    fn hold(&mut self, number: u64, group: usize, units: u64, counted: bool) {
        self.held.insert(number, Held { group, units, counted });
    }

    /// A charge, with reclaim, and with victims if it asks for them.
    pub fn charge(&mut self, number: u64, group: usize, units: u64, oom: bool) -> Outcome {
        if self.rows[group].mode == Mode::Off {
            self.hold(number, group, units, false);
            return Outcome::Uncounted;
        }
        let path = self.path(group);
        let mut full = match self.reclaim_and_fit(&path, units) {
            Ok(()) => {
                self.hold(number, group, units, true);
                return Outcome::Counted;
            }
            Err(full) => full,
        };
        self.rows[group].refused += 1;
        // It waits a moment at the group that is full, as the first of its queue.
        while oom && units <= self.rows[full].max {
            if self.full(&path, units).is_none() {
                match self.reclaim_and_fit(&path, units) {
                    Ok(()) => {
                        self.hold(number, group, units, true);
                        return Outcome::Counted;
                    }
                    Err(next) => {
                        self.rows[group].refused += 1;
                        full = next;
                        continue;
                    }
                }
            }
            if self.is_cancelled(group) {
                return Outcome::Cancelled;
            }
            if !self.cancel_one(full) {
                break;
            }
            if self.is_cancelled(group) {
                return Outcome::Cancelled;
            }
        }
        Outcome::Refused(full)
    }

    fn reclaim_and_fit(&mut self, path: &[usize], units: u64) -> Result<(), usize> {
        loop {
            let full = match self.fits(path, units) {
                Ok(()) => return Ok(()),
                Err(full) => full,
            };
            if !self.reclaim(full, units) {
                return Err(full);
            }
        }
    }

    /// Asks the caches below a full group; whether that was of use.
    fn reclaim(&mut self, full: usize, requested: u64) -> bool {
        let mut asked: Vec<(bool, i32, u64, usize)> = Vec::new();
        for group in self.live() {
            let Some((priority, _)) = self.rows[group].cache else { continue };
            if !self.is_below(group, full) {
                continue;
            }
            let usage = self.usage(group);
            let min = self.protection(group, full, |row| row.min);
            let low = self.protection(group, full, |row| row.low);
            let above_low = usage.saturating_sub(low.max(min));
            let above_min = usage.saturating_sub(min);
            if above_low > 0 {
                asked.push((false, priority, above_low, group));
            } else if above_min > 0 {
                asked.push((true, priority, above_min, group));
            }
        }
        asked.sort_by_key(|&(protected, priority, excess, _)| {
            (protected, priority, std::cmp::Reverse(excess))
        });
        let missing =
            |model: &Model| (model.usage(full) + requested).saturating_sub(model.rows[full].max);
        let mut freed = 0;
        for (protected, _, excess, group) in asked {
            let need = missing(self).min(excess);
            if need == 0 {
                break;
            }
            let row = &mut self.rows[group];
            let cached = &mut row.cache.as_mut().unwrap().1;
            let given = need.min(*cached);
            *cached -= given;
            row.reclaimed += given;
            row.events.low += u64::from(protected && given > 0);
            freed += given;
        }
        freed > 0
    }

    /// Effective protection of a group when `top` is reclaimed, by the published formula.
    fn protection(&self, group: usize, top: usize, setting: impl Fn(&Row) -> u64 + Copy) -> u64 {
        if group == top {
            return 0;
        }
        let parent = self.rows[group].parent.expect("below top");
        if parent == top {
            return setting(&self.rows[group]);
        }
        let granted = u128::from(self.protection(parent, top, setting));
        let claim = |group: usize| u128::from(self.usage(group).min(setting(&self.rows[group])));
        let siblings = self.live().into_iter().filter(|&it| self.rows[it].parent == Some(parent));
        let claims: u128 = siblings.map(claim).sum();
        let own = claim(group);
        let protected = if claims > granted { own * granted / claims } else { own };
        u64::try_from(protected).unwrap()
    }

    fn is_cancelled(&self, group: usize) -> bool {
        self.path(group).iter().any(|&it| self.rows[it].victim == Some(true))
    }

    /// Cancels whoever holds the most above its protection; whether there was anybody.
    fn cancel_one(&mut self, full: usize) -> bool {
        let victims: Vec<usize> = self
            .live()
            .into_iter()
            .filter(|&group| self.rows[group].victim.is_some() && self.is_below(group, full))
            .collect();
        let cancelled = |model: &Model, group: usize| model.rows[group].victim == Some(true);
        // Those on their way out have all the time that the test takes.
        if victims.iter().any(|&group| cancelled(self, group) && self.usage(group) > 0) {
            return false;
        }
        let score = |group: usize| {
            let protection = |setting: fn(&Row) -> u64| self.protection(group, full, setting);
            let protected = protection(|row| row.low).max(protection(|row| row.min));
            self.usage(group).saturating_sub(protected)
        };
        let chosen = victims
            .iter()
            .filter(|&&group| !cancelled(self, group) && score(group) > 0)
            .max_by_key(|&&group| (score(group), group));
        let Some(&chosen) = chosen else { return false };
        self.rows[full].events.oom += 1;
        let path = self.path(chosen);
        let below = path.iter().position(|&group| group == full).unwrap();
        let together = path[..=below].iter().rev().find(|&&group| self.rows[group].oom_group);
        let dying: Vec<usize> = match together {
            None => vec![chosen],
            Some(&top) => {
                self.rows[top].events.oom_group_kill += 1;
                let all = victims.iter().copied();
                all.filter(|&group| !cancelled(self, group) && self.is_below(group, top)).collect()
            }
        };
        for &group in &dying {
            self.rows[group].events.oom_kill += 1;
            self.rows[group].victim = Some(true);
            self.held.retain(|_, held| held.group != group);
        }
        true
    }

    /// A charge that must not fail.
    pub fn force(&mut self, number: u64, group: usize, units: u64) -> Outcome {
        if self.rows[group].mode == Mode::Off {
            self.hold(number, group, units, false);
            return Outcome::Uncounted;
        }
        let path = self.path(group);
        self.hold(number, group, units, true);
        for group in path {
            let over = self.usage(group) > self.rows[group].max;
            self.rows[group].events.max += u64::from(over);
        }
        Outcome::Counted
    }

    /// Moves what somebody holds to another group.
    pub fn transfer(&mut self, number: u64, to: usize) -> Outcome {
        let held = self.held[&number].clone();
        if !held.counted || self.rows[to].mode == Mode::Off {
            let outcome = self.charge(number, to, held.units, false);
            if let Outcome::Refused(_) = outcome {
                self.held.insert(number, held);
            }
            return outcome;
        }
        let old = self.path(held.group);
        let new: Vec<usize> =
            self.path(to).into_iter().take_while(|group| !old.contains(group)).collect();
        match self.fits(&new, held.units) {
            Ok(()) => {
                self.hold(number, to, held.units, true);
                Outcome::Counted
            }
            Err(full) => Outcome::Refused(full),
        }
    }
}
