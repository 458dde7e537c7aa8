//! A handle of a group that is gone is refused, not followed: every public method, with another group in the row.

use crate::common::in_both_modes;
use crate::support::public;
use crate::support::stage::{Gone, Protected, Stage, WAYS, on_stage};
use ledgerline::{
    CancelToken, Charge, ControlMode, CreateError, DestroyError, Estimate, Events, Group, Limit,
    MemoryStat, OwnedCharge, OwnedGroup, Prepaid, Protection, Reason, Refused, Unclaimed, Watch,
};
use std::collections::BTreeSet;
use std::future::Future;
use std::os::fd::AsFd;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

fn is_gone(refused: Refused) {
    assert_eq!((refused.reason, &*refused.group), (Reason::Gone, "(destroyed)"));
    let text = refused.to_string();
    assert!(text.starts_with("(destroyed) takes no more charges"), "{text}");
    assert!(!text.contains("bob") && !text.contains("tenant"), "{text}");
}

fn is_nothing(stat: MemoryStat) {
    let names: Vec<&str> = stat.lines.iter().map(|line| &*line.name).collect();
    let fixed = ["blocks_live", "blocks_total", "refused", "reclaimed", "throttled"];
    assert_eq!(names, [&fixed[..], &["throttled_usec", "rows"]].concat());
    assert!(stat.lines.iter().all(|line| (line.own, line.subtree) == (0, 0)), "{stat:?}");
}

const LITTLE: Limit = Limit::units(3);
const SOON: Duration = Duration::from_millis(20);

/// Methods on groups of ledgers that live for good.
const CURRENT: [&str; 10] = [
    "Group::enter",
    "Group::scope",
    "Group::catch",
    "Group::catch_within",
    "Group::catch_with",
    "Group::catch_future",
    "Group::catch_future_within",
    "Group::catch_future_with",
    "Group::catch_stream",
    "Group::catch_stream_within",
];

type Check = (&'static str, fn(&Stage<'_>));

/// Checks of a handle, whatever the reason why its group is gone.
const OF_HANDLES: &[Check] = &[
    ("Group::id", |s| assert_ne!(s.stale.id(), s.bob.id())),
    ("Group::ledger", |s| assert!(std::ptr::eq(s.stale.ledger(), s.bob.ledger()))),
    ("Group::exists", |s| assert!(!s.stale.exists())),
    ("Group::path", |s| assert_eq!(s.stale.path(), "(destroyed)")),
    ("Group::name", |s| assert_eq!(s.stale.name(), "(destroyed)")),
    ("Group::parent", |s| assert_eq!(s.stale.parent(), None)),
    ("Group::max", |s| assert_eq!(s.stale.max(), Limit::MAX)),
    ("Group::high", |s| assert_eq!(s.stale.high(), Limit::MAX)),
    ("Group::low", |s| assert_eq!(s.stale.low(), Limit::ZERO)),
    ("Group::min", |s| assert_eq!(s.stale.min(), Limit::ZERO)),
    ("Group::set_max", |s| {
        for limit in [LITTLE, Limit::units(5 << 20)] {
            assert_eq!(s.stale.set_max(limit), Err(ledgerline::SetMaxError::Gone));
        }
    }),
    ("Group::set_max_now", |s| {
        for limit in [LITTLE, Limit::units(5 << 20)] {
            assert_eq!(s.stale.set_max_now(limit), Err(ledgerline::SetMaxError::Gone));
        }
    }),
    ("Group::set_high", |s| s.stale.set_high(LITTLE)),
    ("Group::set_low", |s| s.stale.set_low(LITTLE)),
    ("Group::set_min", |s| s.stale.set_min(LITTLE)),
    ("Group::precise", |s| assert_eq!(s.stale.precise(), 0)),
    ("Group::approximate", |s| {
        let told = s.stale.approximate();
        assert_eq!((told.value, told.bound), (0, 0));
    }),
    ("Group::over", |s| assert_eq!(s.stale.over(), 0)),
    ("Group::peak", |s| assert_eq!(s.stale.peak(), Estimate::default())),
    ("Group::peak_reader", |s| {
        let reader = s.stale.peak_reader();
        reader.reset();
        assert_eq!(reader.peak(), Estimate::default());
    }),
    ("Group::reset_peak", |s| {
        drop(s.bob.try_charge(300_000).unwrap());
        let peak = s.bob.peak();
        s.stale.reset_peak();
        assert_eq!(s.bob.peak(), peak);
        s.bobs.take();
    }),
    ("Group::max_events", |s| assert_eq!(s.stale.max_events(), 0)),
    ("Group::high_events", |s| assert_eq!(s.stale.high_events(), 0)),
    ("Group::events", |s| assert_eq!(s.stale.events(), Events::default())),
    ("Group::local_events", |s| assert_eq!(s.stale.local_events(), Events::default())),
    ("Group::stat", |s| is_nothing(s.stale.stat())),
    ("Group::add_stat", |s| {
        s.stale.add_stat(s.ledger.item("rows").unwrap(), 99);
        assert_eq!(s.ledger.mistakes().strays, 1);
    }),
    ("Group::add_reclaimed", |s| s.stale.add_reclaimed(99)),
    ("Group::mode", |s| assert_eq!(s.stale.mode(), ControlMode::default())),
    ("Group::set_mode", |s| s.stale.set_mode(ControlMode::Off)),
    ("Group::oom_group", |s| assert!(!s.stale.oom_group())),
    ("Group::set_oom_group", |s| {
        s.stale.set_oom_group(false);
        s.stale.set_oom_group(true);
        assert!(!s.stale.oom_group());
    }),
    ("Group::protection", |s| {
        let nothing = Protection::default();
        assert_eq!(s.stale.protection_from_root(), nothing);
        assert_ne!(s.kid.protection(s.bob, Unclaimed::Lost), nothing);
        assert_eq!(s.kid.protection(s.stale, Unclaimed::Lost), nothing);
        assert_eq!(s.stale.protection(s.stale, Unclaimed::Shared), nothing);
    }),
    ("Group::backoff", |s| {
        assert_eq!(s.bob.backoff(1 << 20).group(), Some(s.bob));
        let backoff = s.stale.backoff(1 << 20);
        assert_eq!((backoff.penalty(), backoff.group()), (Duration::ZERO, None));
    }),
    ("Group::drain", |s| {
        // Idle units lie at bob's, and stay there.
        drop(s.eve.try_charge(100_000).unwrap());
        drop(s.bob.try_charge(1).unwrap());
        let idle = s.bob.approximate();
        assert_eq!(s.stale.drain(), 0);
        assert_eq!(s.bob.approximate(), idle);
        s.bobs.take();
    }),
    ("Group::diagnose", |s| {
        let diagnosis = s.stale.diagnose();
        let paths: Vec<&str> = diagnosis.chain.iter().map(|level| &*level.path).collect();
        assert_eq!(paths, ["/"]);
    }),
    ("Group::diagnose_with", |s| assert_eq!(s.stale.diagnose_with(1).chain.len(), 1)),
    ("Group::create", |s| assert_eq!(s.stale.create("x").unwrap_err(), CreateError::Gone)),
    ("Group::get_or_create", |s| {
        assert_eq!(s.stale.get_or_create("x").unwrap_err(), CreateError::Gone);
    }),
    ("Group::destroy", |s| assert_eq!(s.stale.destroy().unwrap_err(), DestroyError::Gone)),
    ("Group::try_charge", |s| is_gone(s.stale.try_charge(1).unwrap_err())),
    ("Group::charge", |s| is_gone(s.stale.charge(1).unwrap_err())),
    ("Group::try_charge_units", |s| {
        let refusal = s.stale.try_charge_units(0).unwrap_err();
        let id = s.stale.id();
        assert_eq!((refusal.reason, refusal.group, refusal.charged), (Reason::Gone, id, id));
        assert_eq!(refusal.to_string(), format!("group {id} takes no more charges (0 requested)"));
    }),
    ("Ledger::explain", |s| {
        let refusal = s.stale.try_charge_units(0).unwrap_err();
        is_gone(s.ledger.explain(&refusal));
    }),
    ("Group::charge_units", |s| {
        assert_eq!(s.stale.charge_units(1).unwrap_err().reason, Reason::Gone);
    }),
    ("Group::request", |s| is_gone(s.stale.request(1).charge().unwrap_err())),
    ("Group::attempt", |s| is_gone(s.stale.attempt(1).unwrap_err())),
    ("Group::take_refusals", |s| {
        s.bob.ledger().note_refusals();
        let max = s.eve.max();
        s.eve.set_max_now(Limit::units(0)).unwrap();
        s.eve.try_charge(1 << 30).unwrap_err();
        s.eve.set_max(max).unwrap();
        assert_eq!(s.stale.take_refusals(), []);
        assert!(!s.eve.take_refusals().is_empty());
    }),
    ("Request::uncounted", |s| {
        is_gone(s.stale.request(1).uncounted().charge().unwrap_err());
    }),
    ("Request::charge", |s| is_gone(s.stale.request(0).charge().unwrap_err())),
    ("Request::wait", |s| is_gone(s.stale.request(1).wait(SOON).charge().unwrap_err())),
    ("Request::oom", |s| is_gone(s.stale.request(1).oom().charge().unwrap_err())),
    ("Request::throttled", |s| is_gone(s.stale.request(1).throttled().charge().unwrap_err())),
    ("Request::explained", |s| {
        let refused = s.stale.request(1).explained().charge().unwrap_err();
        let diagnosis = refused.diagnosis.as_ref().expect("asked for").to_string();
        assert!(!diagnosis.contains("requested in /tenant"), "{diagnosis}");
        is_gone(refused);
    }),
    ("Group::take_prepaid", |s| assert!(!s.stale.take_prepaid(1))),
    ("Group::put_prepaid", |s| assert!(!s.stale.put_prepaid(1))),
    ("Group::prepaid", |s| {
        let prepaid = s.stale.prepaid();
        assert!(prepaid.is_none_or(|prepaid| !prepaid.take(1)));
    }),
    ("Group::watch", |s| {
        assert_eq!(s.stale.watch().unwrap_err().kind(), std::io::ErrorKind::NotFound);
    }),
    ("Group::add_reclaimer", |s| {
        let ran = Arc::new(AtomicBool::new(false));
        let runs = ran.clone();
        let reclaimer = s.stale.add_reclaimer(0, move |_| {
            runs.store(true, Relaxed);
            0
        });
        s.eve.set_max(Limit::units(10)).unwrap();
        s.bob.set_mode(ControlMode::Enforce);
        for group in [s.eve, s.bob] {
            group.try_charge(2 << 20).unwrap_err();
        }
        assert!(!ran.load(Relaxed));
        assert_eq!(reclaimer.report().runs, 0);
        s.bobs.take();
    }),
    ("Group::reclaim", |s| {
        let ran = Arc::new(AtomicBool::new(false));
        let runs = ran.clone();
        let _reclaimer = s.bob.add_reclaimer(0, move |_| {
            runs.store(true, Relaxed);
            0
        });
        let held = s.bob.precise();
        assert_eq!((s.stale.reclaim(1), s.bob.precise()), (0, held));
        assert!(!ran.load(Relaxed));
    }),
    ("Reclaimer::report", |s| {
        let reclaimer = s.stale.add_reclaimer(0, |_| 0);
        assert_eq!(reclaimer.report(), Default::default());
    }),
    ("Group::add_victim", |s| nobody_is_chosen(s, |token| drop(s.stale.add_victim(token)))),
    ("Group::add_victim_scored", |s| {
        nobody_is_chosen(s, |token| drop(s.stale.add_victim_scored(token, |units| units + 1)));
    }),
    ("Ledger::group", |s| assert_eq!(s.ledger.group(s.stale.id()).path(), "(destroyed)")),
    ("Group::depth", |s| assert_eq!(s.stale.depth(), 0)),
    ("Group::child", |s| assert_eq!(s.stale.child("kid"), None)),
    ("Group::children", |s| assert_eq!(s.stale.children().count(), 0)),
    ("Group::descendants", |s| assert_eq!(s.stale.descendants().count(), 0)),
    ("Group::destroy_tree", |s| {
        assert_eq!(s.stale.destroy_tree().unwrap_err(), DestroyError::Gone);
    }),
    ("Group::destroy_each", |s| {
        let found = Group::destroy_each(&[s.stale, s.ledger.root()]);
        assert_eq!(found, [Err(DestroyError::Gone), Err(DestroyError::Root)]);
    }),
    ("Group::destroy_on_drop", |s| drop(s.stale.destroy_on_drop())),
    ("DestroyOnDrop::keep", |s| assert_eq!(s.stale.destroy_on_drop().keep(), s.stale)),
    ("DestroyOnDrop::destroy", |s| {
        assert_eq!(s.stale.destroy_on_drop().destroy().unwrap_err(), DestroyError::Gone);
    }),
    ("Group::to_owned_in", |s| assert_eq!(owned(s).group(), s.stale)),
    ("OwnedGroup::group", |s| assert_eq!(owned(s).group().path(), "(destroyed)")),
    ("OwnedGroup::ledger", |s| assert!(Arc::ptr_eq(owned(s).ledger(), s.ledger))),
    ("OwnedGroup::create", |s| assert_eq!(owned(s).create("x").unwrap_err(), CreateError::Gone)),
    ("OwnedGroup::try_charge", |s| is_gone(owned(s).try_charge(1).unwrap_err())),
    ("OwnedGroup::attempt", |s| is_gone(owned(s).attempt(1).unwrap_err())),
    ("OwnedGroup::charge", |s| is_gone(owned(s).charge(1).unwrap_err())),
    ("OwnedGroup::add_reclaimer", |s| {
        assert_eq!(owned(s).add_reclaimer(0, |_| 0).report(), Default::default());
    }),
    ("OwnedGroup::add_victim", |s| nobody_is_chosen(s, |token| drop(owned(s).add_victim(token)))),
    ("OwnedGroup::watch", |s| {
        assert_eq!(owned(s).watch().unwrap_err().kind(), std::io::ErrorKind::NotFound);
    }),
    ("OwnedGroup::destroy_on_drop", |s| drop(owned(s).destroy_on_drop())),
];

fn owned(s: &Stage<'_>) -> OwnedGroup {
    s.stale.to_owned_in(s.ledger).expect("it is this ledger's")
}

fn nobody_is_chosen(s: &Stage<'_>, register: impl FnOnce(&CancelToken)) {
    let token = CancelToken::new();
    register(&token);
    let root = s.ledger.root();
    root.drain();
    root.set_max(Limit::units(root.precise() + 10)).unwrap();
    let refused = s.eve.request(1_000).oom().wait(SOON).charge().unwrap_err();
    assert_eq!(refused.reason, Reason::Limit);
    assert!(!token.is_cancelled());
}

/// Checks of alice's remains, with bob in her row.
const OF_ALICE: &[Check] = &[
    ("Ledger::charge_reserve", |s| {
        s.ledger.root().set_max(Limit::units(1 << 40)).unwrap();
        assert!(!s.ledger.charge_reserve(s.stale, 1, u64::MAX, &|_| true));
    }),
    ("Ledger::fold_ended", |s| {
        assert_eq!(s.ledger.fold_ended(&[s.stale], s.bob), []);
        assert_eq!(s.ledger.fold_ended(&[s.bob, s.stale], s.stale), []);
    }),
    ("Ledger::diagnose", |s| {
        let diagnosis = s.ledger.diagnose(&s.refused);
        let paths: Vec<&str> = diagnosis.chain.iter().map(|level| &*level.path).collect();
        assert_eq!(paths, ["/"]);
    }),
    ("Settled::leak", |s| {
        assert_eq!(s.settled.leak(), None);
        let id = s.stale.id();
        let text = format!("{:?}", s.settled);
        assert!(text.starts_with(&format!("Settled {{ group: {id}, leftover: 0, ")), "{text}");
    }),
    ("Settled::outstanding", |s| assert_eq!(s.settled.outstanding(), [])),
    ("Charge::group", |s| assert_eq!(s.nothing().group(), s.stale)),
    ("Charge::units", |s| assert_eq!(s.nothing().units(), 0)),
    ("Charge::is_counted", |s| {
        let nothing = s.nothing();
        assert!(nothing.is_counted());
        assert_eq!(format!("{nothing:?}"), format!("Charge(0 of (destroyed) {})", s.stale.id()));
    }),
    ("Charge::split", |s| {
        let mut nothing = s.nothing();
        assert!(nothing.split(1).is_none());
        assert_eq!(nothing.split(0).unwrap().group(), s.stale);
    }),
    ("Charge::merge", |s| {
        let mut nothing = s.nothing();
        let back = nothing.merge(s.bobs.take().unwrap()).unwrap_err();
        assert_eq!((back.group(), back.units()), (s.bob, 100_000));
        s.bobs.replace(Some(back));
    }),
    ("Charge::transfer", |s| {
        let (back, refused) = s.bobs.take().unwrap().transfer(s.stale).unwrap_err();
        is_gone(refused);
        s.bobs.replace(Some(back));
        assert_eq!(s.nothing().transfer(s.eve).unwrap().group(), s.eve);
    }),
    ("Charge::backoff", |s| {
        let nothing = s.nothing();
        let backoff = nothing.backoff();
        assert_eq!((backoff.penalty(), backoff.group()), (Duration::ZERO, None));
    }),
    ("Charge::into_units", |s| assert_eq!(s.nothing().into_units(), 0)),
    ("Charge::from_units", |s| {
        drop(Charge::from_units(s.stale, 10));
        assert_eq!((s.ledger.mistakes().strays, s.ledger.mistakes().underflows), (1, 0));
    }),
    ("OwnedCharge::new", |s| drop(owned_nothing(s))),
    ("OwnedCharge::charge", |s| assert_eq!(owned_nothing(s).charge().group(), s.stale)),
    ("OwnedCharge::units", |s| assert_eq!(owned_nothing(s).units(), 0)),
    ("OwnedCharge::group", |s| assert_eq!(owned_nothing(s).group().group(), s.stale)),
    ("OwnedCharge::split", |s| assert!(owned_nothing(s).split(1).is_none())),
    ("Backoff::penalty", |s| assert!(s.stale.backoff(9 << 20).penalty().is_zero())),
    ("Backoff::group", |s| assert_eq!(s.stale.backoff(9 << 20).group(), None)),
    ("Backoff::sleep", |s| s.stale.backoff(9 << 20).sleep()),
    ("Charge::share", |s| drop(s.nothing().share())),
    ("SharedCharge::join", |s| {
        let bobs = s.bobs.take().unwrap().share();
        let stale = bobs.join(s.stale);
        let eves = bobs.join(s.eve);
        // Alice is gone, so she pays for no other group.
        drop(bobs);
        assert_eq!((s.bob.precise(), s.eve.precise()), (1_000, 100_000));
        drop((stale, eves));
        assert_eq!((s.bob.precise(), s.eve.precise()), (1_000, 0));
    }),
    ("SharedCharge::group", |s| assert_eq!(s.nothing().share().group(), s.stale)),
    ("SharedCharge::owner", |s| assert_eq!(s.nothing().share().owner(), s.stale)),
    ("SharedCharge::units", |s| assert_eq!(s.nothing().share().units(), 0)),
    ("SharedCharge::holders", |s| {
        let nothing = s.nothing().share();
        let bobs = nothing.join(s.bob);
        assert_eq!(nothing.holders(), 2);
        drop(nothing);
        assert_eq!((bobs.owner(), s.bob.precise()), (s.bob, 101_000));
        // A charge of zero still counts as a charge.
        drop((bobs, s.bobs.take()));
    }),
    ("Prepaid::take", |s| assert!(s.prepaid.is_none_or(|prepaid| !prepaid.take(1)))),
    ("Prepaid::put", |s| assert!(s.prepaid.is_none_or(|prepaid| !prepaid.put(1)))),
    ("Prepaid::into_raw", |s| {
        assert!(s.prepaid.is_none_or(|prepaid| prepaid.into_raw() == prepaid.into_raw()));
    }),
    ("Prepaid::from_raw", |s| {
        if let Some((group, area)) = s.prepaid.and_then(Prepaid::into_raw) {
            // SAFETY: the numbers belong to a handle of an open ledger.
            assert!(unsafe { !Prepaid::from_raw(group, area).take(1) });
        }
    }),
    // Alice's watch does not see bob's events.
    ("Watch::look", |s| {
        assert_eq!(s.watch.look(), None);
        let mut poll = libc::pollfd { fd: raw(&s.watch), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which lives through the call.
        assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 0) }, 0);
    }),
    ("Watch::wait", |s| assert_eq!(s.watch.wait(Some(SOON)).unwrap(), None)),
    ("Watch::changed", |s| {
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(pin!(s.watch.changed()).poll(&mut context), Poll::Pending);
    }),
    ("Group::uncharge_units", |s| {
        s.stale.uncharge_units(10);
        assert_eq!((s.ledger.mistakes().strays, s.ledger.mistakes().underflows), (1, 0));
    }),
    ("Group::transfer_units", |s| {
        for (from, to) in [(s.stale, s.eve), (s.bob, s.stale)] {
            let refusal = from.transfer_units(to, 10).unwrap_err();
            assert_eq!(refusal.reason, ledgerline::Reason::Gone);
        }
    }),
    ("Group::try_uncharge_units", |s| {
        assert!(!s.stale.try_uncharge_units(10));
        assert_eq!((s.ledger.mistakes().strays, s.ledger.mistakes().underflows), (1, 0));
    }),
];

fn owned_nothing(s: &Stage<'_>) -> OwnedCharge {
    OwnedCharge::new(s.nothing(), s.ledger).expect("it is this ledger's")
}

fn raw(watch: &Watch<'_>) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(&watch.as_fd())
}

#[test]
fn no_method_tells_of_the_next_group_of_the_row_or_changes_it() {
    in_both_modes("no_method_tells_of_the_next_group_of_the_row_or_changes_it", || {
        for way in WAYS {
            for (name, check) in OF_HANDLES {
                println!("{name}, {way:?}");
                on_stage(way, check);
            }
        }
        for (name, check) in OF_ALICE {
            println!("{name}");
            on_stage(Gone::RowIsBobs, check);
        }
    });
}

/// A new method must be checked, too.
#[test]
fn every_public_method_that_a_stale_handle_reaches_is_in_the_tables() {
    const TYPES: [&str; 17] = [
        "Group",
        "Ledger",
        "Charge",
        "SharedCharge",
        "Prepaid",
        "Watch",
        "Changed",
        "Settled",
        "Request",
        "Requested",
        "Backoff",
        "Reclaimer",
        "Victim",
        "OwnedGroup",
        "OwnedCharge",
        "DestroyOnDrop",
        "Kept",
    ];
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let found = public::methods(&sources, &TYPES, |of, signature| {
        of != "Ledger" || public::takes(signature, &["Group", "GroupId", "Refused", "Refusal"])
    });
    assert!(found.contains("Group::path") && found.contains("Ledger::diagnose"), "{found:?}");
    assert!(!found.contains("Ledger::snapshot") && !found.contains("Group::read"), "{found:?}");
    let checked: BTreeSet<String> =
        OF_HANDLES.iter().chain(OF_ALICE).map(|(name, _)| (*name).to_owned()).collect();
    // A group that is gone may be current: `alloc/` and `current/future.rs` define the charges in that case.
    let checked: BTreeSet<String> = checked.into_iter().chain(CURRENT.map(str::to_owned)).collect();
    let unchecked: Vec<_> = found.difference(&checked).collect();
    assert!(unchecked.is_empty(), "what does a group that is gone say to {unchecked:?}?");
    let unknown: Vec<_> = checked.difference(&found).collect();
    assert!(unknown.is_empty(), "there is no {unknown:?} any more");
}

#[test]
fn charges_left_behind_are_told_of_as_they_were_and_not_by_the_handle() {
    on_stage(Gone::ChargesLeft, |s| {
        let leak = s.settled.leak().expect("a charge is held");
        assert_eq!((&*leak.path, &*leak.parent, leak.units), ("/alice", "/", 500));
        assert_eq!(s.stale.path(), "(destroyed)");
        assert_eq!(s.ledger.root().precise(), 500 + s.bob.precise());
        let id = s.stale.id();
        assert_eq!(format!("{:?}", s.stale), format!("Group((destroyed) {id})"));
        assert_eq!(
            format!("{:?}", s.left.as_ref().unwrap()),
            format!("Charge(500 of (destroyed) {id})")
        );
        let consumer = s.ledger.root().diagnose().holders.into_iter().find(|held| held.id == id);
        let consumer = consumer.expect("it holds something");
        assert_eq!((&*consumer.path, consumer.units, consumer.destroyed), ("/alice", 500, true));
    });
}
