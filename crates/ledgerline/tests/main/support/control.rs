//! Memory control, simple and slow: a tree of groups with all their charges in a list, and every rule as a loop over it.
//! `tests/main/control.rs` compares the ledger with this.

use std::collections::HashMap;

pub const NO_LIMIT: u64 = 1 << 62;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Enforce,
    Measure,
    Off,
}

/// Held units.
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
    /// The priority and the units of its cache, if it has one.
    pub cache: Option<(i32, u64)>,
    /// Whether it was cancelled, if it is registered as a victim.
    pub victim: Option<bool>,
    pub events: Events,
    /// Its `max` events are not predictable: in measure mode they count idle units, too.
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

/// The outcome of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Counted,
    Uncounted,
    /// By the limit of that group.
    Refused(usize),
    /// The requesting group was the victim.
    Cancelled,
}

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub rows: Vec<Row>,
    /// By number; the holder may drop any of them.
    pub held: HashMap<u64, Held>,
    /// A charge ended above a high by no more than the possible idle units: whether caches are asked for that depends on the
    /// actual ones.
    pub vague: bool,
}

/// The most units that may lie idle after one charge in the ledger of the tests: two batches.
const IDLE_MAX: u64 = 128;

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

    /// Returns the path from a group up to the root.
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

    /// Returns the lowest group whose limit does not allow so much more. Every limit allows zero more.
    fn full(&self, levels: &[usize], units: u64) -> Option<usize> {
        let full = |&&group: &&usize| {
            let row = &self.rows[group];
            units > 0 && row.mode == Mode::Enforce && self.usage(group) + units > row.max
        };
        levels.iter().find(full).copied()
    }

    /// Returns whether every limit would allow so much if nothing else were in use.
    fn can_ever_fit(&self, levels: &[usize], units: u64) -> bool {
        levels
            .iter()
            .map(|&group| &self.rows[group])
            .all(|row| row.mode != Mode::Enforce || units <= row.max)
    }

    fn hold(&mut self, number: u64, group: usize, units: u64, counted: bool) {
        self.held.insert(number, Held { group, units, counted });
    }

    /// Makes a charge, with reclaim, and with victims if requested.
    pub fn charge(&mut self, number: u64, group: usize, units: u64, oom: bool) -> Outcome {
        if self.rows[group].mode == Mode::Off {
            self.hold(number, group, units, false);
            return Outcome::Uncounted;
        }
        let path = self.path(group);
        let mut full = match self.reclaim_and_fit(&path, units) {
            Ok(()) => return self.granted(number, &path, units),
            Err(full) => full,
        };
        // It waits a moment at the full group, as the first of its queue.
        while oom && self.can_ever_fit(&path, units) {
            if self.full(&path, units) != Some(full) {
                match self.reclaim_and_fit(&path, units) {
                    Ok(()) => return self.granted(number, &path, units),
                    Err(next) => full = next,
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
        // Refused once, however often it was tried.
        self.rows[group].refused += 1;
        self.rows[full].events.max += 1;
        Outcome::Refused(full)
    }

    /// Grants a charge. If the usage ends above a high, caches are asked for the excess.
    fn granted(&mut self, number: u64, path: &[usize], units: u64) -> Outcome {
        self.hold(number, path[0], units, true);
        for &group in path {
            let high = self.rows[group].high;
            if self.usage(group) > high {
                let cached =
                    |&it: &usize| self.is_below(it, group) && self.rows[it].cache.is_some();
                self.vague |=
                    self.usage(group) - high <= IDLE_MAX && self.live().iter().any(cached);
                self.reclaim(group, |model| model.usage(group).saturating_sub(high));
            }
        }
        Outcome::Counted
    }

    /// Sets a limit, if the unreclaimable usage allows it.
    pub fn set_max(&mut self, group: usize, max: u64) -> bool {
        let enforced = self.rows[group].mode == Mode::Enforce && max < self.rows[group].max;
        while enforced && self.usage(group) > max {
            if !self.reclaim(group, |model| model.usage(group).saturating_sub(max)) {
                return false;
            }
        }
        self.rows[group].max = max;
        true
    }

    /// Sets a limit whatever the usage. Returns the excess.
    pub fn set_max_now(&mut self, group: usize, max: u64) -> u64 {
        self.rows[group].max = max;
        let above = |model: &Model| model.usage(group).saturating_sub(max);
        if self.rows[group].mode == Mode::Enforce {
            self.reclaim(group, above);
        }
        above(self)
    }

    fn reclaim_and_fit(&mut self, path: &[usize], units: u64) -> Result<(), usize> {
        while let Some(full) = self.full(path, units) {
            let missing =
                |model: &Model| (model.usage(full) + units).saturating_sub(model.rows[full].max);
            if !self.can_ever_fit(path, units) || !self.reclaim(full, missing) {
                return Err(full);
            }
        }
        Ok(())
    }

    /// Asks the caches below a group until nothing is missing. Returns whether that helped. No two caches have the same priority,
    /// so there are no shares.
    fn reclaim(&mut self, full: usize, missing: impl Fn(&Model) -> u64) -> bool {
        let (mut empty, mut told, mut freed) = (Vec::new(), Vec::new(), 0);
        // The largest excess found so far above protection that changes.
        let mut first = 0;
        while missing(self) > 0 {
            let mut asked: Vec<(bool, i32, u64, usize)> = Vec::new();
            for group in self.live() {
                let Some((priority, _)) = self.rows[group].cache else { continue };
                if !self.is_below(group, full) || empty.contains(&group) {
                    continue;
                }
                let usage = self.usage(group);
                let (min, low) = self.protected(group, full);
                let above_low = usage.saturating_sub(low.max(min));
                let above_min = usage.saturating_sub(min);
                if above_low > 0 {
                    asked.push((false, priority, above_low, group));
                } else if above_min > 0 {
                    asked.push((true, priority, above_min, group));
                }
            }
            let Some(&(protected, _, excess, group)) = asked.iter().min() else { break };
            let mut need = missing(self).min(excess);
            let right_below = self.rows[group].parent == Some(full) || group == full;
            if !right_below && self.protected(group, full) != (0, 0) {
                // In small steps, since its protection changes with its usage.
                first = excess.max(first);
                need = need.min(if excess <= first / 64 { excess } else { (excess / 4).max(1) });
            }
            let row = &mut self.rows[group];
            let cached = &mut row.cache.as_mut().unwrap().1;
            let given = need.min(*cached);
            *cached -= given;
            row.reclaimed += given;
            if given == 0 {
                empty.push(group);
            } else if protected && !told.contains(&group) {
                row.events.low += 1;
                told.push(group);
            }
            freed += given;
        }
        freed > 0
    }

    /// Returns the units of a group that are protected by min and by low.
    fn protected(&self, group: usize, top: usize) -> (u64, u64) {
        let protection = |setting: fn(&Row) -> u64| self.protection(group, top, setting);
        (protection(|row| row.min), protection(|row| row.low))
    }

    /// Returns the effective protection of a group when `top` is reclaimed, by the published formula.
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

    /// Cancels the victim that holds the most above its protection. Returns whether there was one.
    fn cancel_one(&mut self, full: usize) -> bool {
        let victims: Vec<usize> = self
            .live()
            .into_iter()
            .filter(|&group| self.rows[group].victim.is_some() && self.is_below(group, full))
            .collect();
        let cancelled = |model: &Model, group: usize| model.rows[group].victim == Some(true);
        // Cancelled victims have all the time that the test takes.
        if victims.iter().any(|&group| cancelled(self, group) && self.usage(group) > 0) {
            return false;
        }
        let score = |group: usize| {
            let (min, low) = self.protected(group, full);
            self.usage(group).saturating_sub(low.max(min))
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

    /// Makes a charge that must not fail.
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

    /// Moves held units to another group.
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
        match self.full(&new, held.units) {
            None => {
                self.hold(number, to, held.units, true);
                Outcome::Counted
            }
            Some(full) => {
                self.rows[full].events.max += 1;
                Outcome::Refused(full)
            }
        }
    }
}
