//! Compares memory control as a whole with a simple, slow model, on random trees, limits, protections, modes, caches and
//! victims: every outcome, every usage, every event.

use crate::common::in_both_modes;
use crate::support::control::{Held, Mode, Model, NO_LIMIT, Outcome};
use ledgerline::{
    CancelToken, Charge, ControlMode, Group, Ledger, Limit, Mistakes, Reason, Reclaimer,
    SetMaxError, Victim,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
enum Setting {
    Max,
    MaxNow,
    High,
    Low,
    Min,
}

#[derive(Clone, Debug)]
enum Step {
    Create(usize),
    Destroy(usize),
    Set(usize, Setting, u64),
    SetMode(usize, Mode),
    Together(usize, bool),
    /// Creates a cache with so many units, asked with that priority.
    Cache(usize, i32, u64),
    /// Registers the group as a victim.
    Volunteer(usize),
    Charge {
        group: usize,
        units: u64,
        oom: bool,
    },
    Force(usize, u64),
    Release(usize),
    Split(usize, u64),
    Transfer(usize, usize),
    Backoff(usize, u64),
}

fn steps() -> impl Strategy<Value = Step> {
    let any = any::<u16>().prop_map(usize::from);
    let settings =
        [Setting::Max, Setting::Max, Setting::MaxNow, Setting::High, Setting::Low, Setting::Min];
    let setting = prop::sample::select(settings.to_vec());
    let mode = prop::sample::select(vec![Mode::Enforce, Mode::Enforce, Mode::Measure, Mode::Off]);
    prop_oneof![
        4 => any.clone().prop_map(Step::Create),
        1 => any.clone().prop_map(Step::Destroy),
        8 => (any.clone(), setting, 0u64..3000).prop_map(|(g, s, n)| Step::Set(g, s, n)),
        1 => (any.clone(), mode).prop_map(|(g, m)| Step::SetMode(g, m)),
        1 => (any.clone(), prop::bool::ANY).prop_map(|(g, together)| Step::Together(g, together)),
        4 => (any.clone(), -2i32..3, 1u64..800).prop_map(|(g, p, n)| Step::Cache(g, p, n)),
        4 => any.clone().prop_map(Step::Volunteer),
        16 => (any.clone(), 1u64..1500, prop::bool::weighted(0.3))
            .prop_map(|(group, units, oom)| Step::Charge { group, units, oom }),
        1 => (any.clone(), 1u64..600).prop_map(|(g, n)| Step::Force(g, n)),
        6 => any.clone().prop_map(Step::Release),
        2 => (any.clone(), 0u64..500).prop_map(|(c, n)| Step::Split(c, n)),
        4 => (any.clone(), any.clone()).prop_map(|(c, g)| Step::Transfer(c, g)),
        2 => (any, 1u64..5000).prop_map(|(g, n)| Step::Backoff(g, n)),
    ]
}

/// The test's objects of a group, dropped in this order.
#[derive(Default)]
struct Belongings {
    cache: Option<(Reclaimer<'static>, Arc<AtomicU64>)>,
    victim: Option<Victim<'static>>,
    /// Charges by number; a victim that is cancelled drops them.
    charges: Arc<Mutex<HashMap<u64, Charge<'static>>>>,
}

struct Both {
    ledger: &'static Ledger,
    groups: Vec<Group<'static>>,
    belongings: Vec<Belongings>,
    model: Model,
    next: u64,
}

const BATCH: u64 = 64;

impl Both {
    fn new() -> Both {
        let builder = Ledger::builder()
            .capacity(128)
            .batch(BATCH)
            .reclaim_time(Duration::from_secs(1000))
            .throttle_time(Duration::from_secs(1 << 40))
            .victim_time(Duration::from_secs(1000));
        let ledger: &'static Ledger = Box::leak(Box::new(builder.anonymous().unwrap()));
        let mut model = Model::default();
        model.create(None);
        let belongings = vec![Belongings::default()];
        Both { ledger, groups: vec![ledger.root()], belongings, model, next: 0 }
    }

    fn pick(&self, pick: usize) -> usize {
        let live = self.model.live();
        live[pick % live.len()]
    }

    /// Picks a held charge.
    fn pick_held(&self, pick: usize) -> Option<u64> {
        let mut numbers: Vec<u64> = self.model.held.keys().copied().collect();
        numbers.sort_unstable();
        (!numbers.is_empty()).then(|| numbers[pick % numbers.len()])
    }

    fn take(&self, group: usize, number: u64) -> Charge<'static> {
        self.belongings[group].charges.lock().unwrap().remove(&number).expect("held")
    }

    fn put(&self, group: usize, number: u64, charge: Charge<'static>) {
        self.belongings[group].charges.lock().unwrap().insert(number, charge);
    }

    fn granted(
        &mut self,
        expected: Outcome,
        number: u64,
        group: usize,
        result: Result<Charge<'static>, ledgerline::Refused>,
    ) {
        match result {
            Ok(charge) => {
                let outcome = match charge.is_counted() {
                    true => Outcome::Counted,
                    false => Outcome::Uncounted,
                };
                // An empty cell has enough for a charge of zero, even without accounting.
                if charge.units() > 0 {
                    assert_eq!(outcome, expected);
                }
                self.put(group, number, charge);
            }
            Err(refused) if refused.reason == Reason::Cancelled => {
                assert_eq!(expected, Outcome::Cancelled);
            }
            Err(refused) => {
                assert_eq!(refused.reason, Reason::Limit);
                let named = |&group: &usize| self.groups[group].path() == refused.group;
                let culprit = self.model.live().into_iter().find(named).expect("a group");
                assert_eq!(Outcome::Refused(culprit), expected);
            }
        }
    }

    fn step(&mut self, step: Step) {
        // Idle units are not charged. Once they are returned, every number is exact.
        self.ledger.root().drain();
        let (number, ledger) = (self.next, self.ledger);
        let said = format!("{step:?}");
        self.next += 1;
        match step {
            Step::Create(parent) => {
                let parent = self.pick(parent);
                if self.model.path(parent).len() >= 8 {
                    return;
                }
                // A unique name, which identifies the group in a refusal.
                let name = format!("g{}", self.groups.len());
                self.groups.push(self.groups[parent].create(&name).unwrap());
                self.belongings.push(Belongings::default());
                self.model.create(Some(parent));
            }
            Step::Destroy(group) => {
                let group = self.pick(group);
                let row = &self.model.rows[group];
                let child = |it: &usize| self.model.rows[*it].parent == Some(group);
                let empty = !self.model.held.values().any(|held| held.group == group);
                if group == 0
                    || row.cache.is_some()
                    || !empty
                    || self.model.live().iter().any(child)
                {
                    return;
                }
                self.belongings[group].victim = None;
                self.model.rows[group].victim = None;
                let settled = self.groups[group].destroy().unwrap();
                assert_eq!(settled.leftover, 0);
                self.model.rows[group].live = false;
            }
            Step::Set(group, setting, units) => {
                let group = self.pick(group);
                let limit = Limit::units(units);
                let usage = self.model.usage(group);
                let (handle, row) = (self.groups[group], &mut self.model.rows[group]);
                match setting {
                    Setting::Max => {
                        let set = handle.set_max(limit);
                        let fits = self.model.set_max(group, units);
                        assert_eq!(set.is_ok(), fits, "{set:?}, {usage} in use");
                        if let Err(SetMaxError::Busy { usage, limit }) = set {
                            assert_eq!((usage, limit), (self.model.usage(group), units));
                        }
                    }
                    Setting::MaxNow => {
                        let above = handle.set_max_now(limit);
                        assert_eq!(above, Ok(self.model.set_max_now(group, units)));
                    }
                    Setting::High => {
                        handle.set_high(limit);
                        row.high = units;
                    }
                    Setting::Low => {
                        handle.set_low(limit);
                        row.low = units;
                    }
                    Setting::Min => {
                        handle.set_min(limit);
                        row.min = units;
                    }
                }
            }
            Step::SetMode(group, mode) => {
                let group = self.pick(group);
                self.groups[group].set_mode(match mode {
                    Mode::Enforce => ControlMode::Enforce,
                    Mode::Measure => ControlMode::Measure,
                    Mode::Off => ControlMode::Off,
                });
                self.model.set_mode(group, mode);
            }
            Step::Together(group, together) => {
                let group = self.pick(group);
                self.groups[group].set_oom_group(together);
                self.model.rows[group].oom_group = together;
            }
            Step::Cache(group, priority, units) => self.add_cache(group, priority, units),
            Step::Volunteer(group) => {
                let group = self.pick(group);
                // In the order of their numbers: of equal ones the last is chosen.
                let last =
                    (group + 1..self.groups.len()).any(|it| self.belongings[it].victim.is_some());
                if last || self.belongings[group].victim.is_some() {
                    return;
                }
                let token = CancelToken::new();
                let charges = self.belongings[group].charges.clone();
                token.on_cancel(move |_| {
                    let dropped = std::mem::take(&mut *charges.lock().unwrap());
                    drop(dropped);
                });
                self.belongings[group].victim = Some(self.groups[group].add_victim(&token));
                self.model.rows[group].victim = Some(false);
            }
            Step::Charge { group, units, oom } => {
                let group = self.pick(group);
                let kills =
                    |model: &Model| model.rows.iter().map(|row| row.events.oom).sum::<u64>();
                if self.is_vague(|model| model.charge(number, group, units, oom)) {
                    return;
                }
                let before = kills(&self.model);
                let expected = self.model.charge(number, group, units, oom);
                let others_go = kills(&self.model) > before;
                let handle = self.groups[group];
                let result = if oom {
                    // Long enough for a slow machine if the wait succeeds, and short if not.
                    let patience = match expected {
                        Outcome::Refused(_) if !others_go => 2,
                        Outcome::Refused(_) => 300,
                        _ => 60_000,
                    };
                    handle.request(units).wait(Duration::from_millis(patience)).oom().charge()
                } else {
                    handle.try_charge(units)
                };
                self.granted(expected, number, group, result);
            }
            Step::Force(group, units) => {
                let group = self.pick(group);
                let expected = self.model.force(number, group, units);
                self.granted(expected, number, group, self.groups[group].charge(units));
            }
            Step::Release(held) => {
                let Some(held) = self.pick_held(held) else { return };
                let Held { group, .. } = self.model.held.remove(&held).unwrap();
                drop(self.take(group, held));
            }
            Step::Split(held, units) => {
                let Some(held) = self.pick_held(held) else { return };
                let row = self.model.held.get_mut(&held).unwrap();
                let group = row.group;
                let mut charge =
                    self.belongings[group].charges.lock().unwrap().remove(&held).unwrap();
                let part = charge.split(units);
                assert_eq!(part.is_some(), units <= row.units);
                if let Some(part) = part {
                    row.units -= units;
                    let split = Held { units, ..row.clone() };
                    self.model.held.insert(number, split);
                    self.put(group, number, part);
                }
                self.put(group, held, charge);
            }
            Step::Transfer(held, to) => {
                let Some(held) = self.pick_held(held) else { return };
                let to = self.pick(to);
                if self.is_vague(|model| model.transfer(held, to)) {
                    return;
                }
                let from = self.model.held[&held].group;
                let charge = self.take(from, held);
                let expected = self.model.transfer(held, to);
                match charge.transfer(self.groups[to]) {
                    Ok(moved) => self.granted(expected, held, to, Ok(moved)),
                    Err((charge, refused)) => {
                        self.put(from, held, charge);
                        self.granted(expected, held, to, Err(refused));
                    }
                }
            }
            Step::Backoff(group, units) => {
                let group = self.pick(group);
                self.check_backoff(group, units);
            }
        }
        assert_eq!(ledger.mistakes(), Mistakes::default());
        self.check(&said);
    }

    /// Returns whether the result of a step depends on idle units. Such steps are left out.
    fn is_vague(&self, step: impl FnOnce(&mut Model) -> Outcome) -> bool {
        let mut ahead = self.model.clone();
        step(&mut ahead);
        ahead.vague
    }

    fn add_cache(&mut self, group: usize, priority: i32, units: u64) {
        let group = self.pick(group);
        // Two caches with the same priority are left out, since their order is undefined.
        let same = |it: usize| self.model.rows[it].cache.is_some_and(|(its, _)| its == priority);
        let fits = self.model.path(group).iter().all(|&it| {
            let row = &self.model.rows[it];
            row.mode == Mode::Enforce && self.model.usage(it) + units <= row.max
        });
        if !fits || self.model.rows[group].cache.is_some() || (0..self.groups.len()).any(same) {
            return;
        }
        let handle = self.groups[group];
        handle.try_charge_units(units).unwrap();
        let left = Arc::new(AtomicU64::new(units));
        let cached = left.clone();
        let reclaimer = handle.add_reclaimer(priority, move |need| {
            let given = need.min(left.load(SeqCst));
            left.fetch_sub(given, SeqCst);
            handle.uncharge_units(given);
            given
        });
        self.belongings[group].cache = Some((reclaimer, cached));
        self.model.rows[group].cache = Some((priority, units));
    }

    /// Checks that the penalty follows the curve of the group furthest above its high.
    fn check_backoff(&self, group: usize, units: u64) {
        if self.model.rows.iter().any(|row| row.cache.is_some()) {
            return; // Caches would free memory first.
        }
        let excess = |group: usize| {
            let (usage, high) = (self.model.usage(group), self.model.rows[group].high);
            if high == NO_LIMIT {
                0.0
            } else {
                usage.saturating_sub(high) as f64 / high.max(1) as f64
            }
        };
        let worst = self.model.path(group).into_iter().map(excess).fold(0.0, f64::max);
        // A penalty ends where nanoseconds do not fit into 64 bits.
        let most = u64::MAX as f64 / 1e9;
        let seconds = (64.0 * worst * worst * units as f64 / BATCH as f64).min(most);
        let penalty = self.groups[group].backoff(units).penalty().as_secs_f64();
        if seconds < 0.001 {
            assert!(penalty == 0.0 || penalty == 0.001, "{penalty}, {seconds}");
        } else {
            assert!((penalty - seconds).abs() <= seconds * 0.001 + 0.001, "{penalty}, {seconds}");
        }
    }

    fn check(&self, step: &str) {
        for group in self.model.live() {
            let (handle, row) = (self.groups[group], &self.model.rows[group]);
            let path = handle.path();
            assert_eq!(handle.precise(), self.model.usage(group), "{path} after {step}");
            if let Some((_, cached)) = &self.belongings[group].cache {
                assert_eq!(row.cache.unwrap().1, cached.load(SeqCst), "the cache of {path}");
            }
            let (events, expected) = (handle.local_events(), row.events);
            let counted = crate::support::control::Events {
                low: events.low,
                max: if row.vague { expected.max } else { events.max },
                oom: events.oom,
                oom_kill: events.oom_kill,
                oom_group_kill: events.oom_group_kill,
            };
            assert_eq!(counted, expected, "{path} after {step}");
            let stat = handle.stat();
            let own = |name: &str| stat.get(name).unwrap().own as u64;
            assert_eq!((own("refused"), own("reclaimed")), (row.refused, row.reclaimed), "{path}");
            // A subtree's events are those of all its groups, destroyed ones included.
            let below = (0..self.groups.len()).filter(|&it| self.model.is_below(it, group));
            let kills: u64 = below.map(|it| self.model.rows[it].events.oom_kill).sum();
            assert_eq!(handle.events().oom_kill, kills, "below {path}");
        }
    }
}

#[test]
fn every_outcome_usage_and_event_is_that_of_a_slow_obvious_model() {
    in_both_modes("every_outcome_usage_and_event_is_that_of_a_slow_obvious_model", || {
        let mut runner = TestRunner::new(crate::common::cases::few_or_many(
            file!(),
            if cfg!(debug_assertions) { 75 } else { 1500 },
            // A million steps.
            17_000,
        ));
        let steps = prop::collection::vec(steps(), 1..120);
        runner
            .run(&steps, |steps| {
                let mut both = Both::new();
                for step in steps {
                    both.step(step);
                }
                Ok(())
            })
            .unwrap();
    });
}
