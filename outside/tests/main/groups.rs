//! Groups from the view of a program: found, listed, counted, ended, owned, printed, and units without a guard.

use ledgerline::{Charge, CreateError, DestroyError, Group, Ledger, Mistakes, OwnedGroup, Reason};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::error::Error;
use std::sync::Arc;

type Tried = Result<(), Box<dyn Error>>;

/// Pseudo-random numbers, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % most
    }
}

/// Returns how many levels a path lies below another; `None` if it does not.
fn levels(path: &str, top: &str) -> Option<u32> {
    let below = path.strip_prefix(top.trim_end_matches('/'))?.strip_prefix('/')?;
    (!below.is_empty()).then(|| below.matches('/').count() as u32 + 1)
}

/// Compares the ledger's tree with a list of paths.
fn compare(ledger: &Ledger, groups: &BTreeMap<String, Group<'_>>) {
    for (path, group) in groups {
        assert_eq!((group.path(), ledger.find(path)), (path.clone(), Some(*group)));
        let parent =
            path.rsplit_once('/').map(|(above, _)| if above.is_empty() { "/" } else { above });
        let parent = parent.filter(|_| path != "/").map(|above| groups[above]);
        assert_eq!(group.parent(), parent, "above {path}");
        assert_eq!(Some(group.depth()), levels(path, "/").or(Some(0)));

        let below: HashSet<(u32, Group<'_>)> = groups
            .iter()
            .filter_map(|(other, group)| levels(other, path).map(|levels| (levels, *group)))
            .collect();
        let listed: Vec<(u32, Group<'_>)> = group.descendants().collect();
        assert_eq!(listed.len(), below.len(), "below {path}");
        assert_eq!(listed.iter().copied().collect::<HashSet<_>>(), below, "below {path}");
        // Depth first: each right after its parent, or after the subtree of an elder sibling.
        let mut way: Vec<Group<'_>> = vec![*group];
        for (levels, group) in listed {
            way.truncate(levels as usize);
            assert_eq!(group.parent(), way.last().copied(), "before its parent");
            way.push(group);
        }
        let right_below = below.iter().filter(|(levels, _)| *levels == 1).map(|&(_, group)| group);
        assert_eq!(group.children().collect::<HashSet<_>>(), right_below.collect());
        for child in group.children() {
            assert_eq!(group.child(&child.name()), Some(child));
        }
    }
}

#[test]
fn a_tree_reads_as_the_paths_it_was_made_of_while_groups_come_and_go() -> Tried {
    let ledger = Ledger::new()?;
    let mut groups = BTreeMap::from([("/".to_owned(), ledger.root())]);
    let mut numbers = Numbers(1);
    for step in 0..400 {
        let at = numbers.below(groups.len());
        let (path, group) =
            groups.iter().nth(at).map(|(path, group)| (path.clone(), *group)).ok_or("at")?;
        if numbers.below(3) > 0 {
            let name = format!("g{step}");
            groups.insert(format!("{}/{name}", path.trim_end_matches('/')), group.create(&name)?);
        } else if group != ledger.root() {
            let gone: Vec<String> =
                groups.keys().filter(|other| levels(other, &path).is_some()).cloned().collect();
            let settled = group.destroy_tree()?;
            assert_eq!(settled.len(), gone.len() + 1);
            assert_eq!(settled.last().map(|it| it.group), Some(group), "the top comes last");
            for path in gone.into_iter().chain([path]) {
                assert_eq!(ledger.find(&path), None);
                assert!(groups.remove(&path).is_some_and(|group| !group.exists()));
            }
        }
        if step % 20 == 0 {
            compare(&ledger, &groups);
        }
    }
    compare(&ledger, &groups);
    Ok(())
}

#[test]
fn a_path_begins_at_the_root_and_names_groups_that_exist() -> Tried {
    let ledger = Ledger::new()?;
    let tenant = ledger.root().create("acme")?;
    let first = tenant.create("q42")?;
    assert_eq!(ledger.find("//acme///q42/"), Some(first), "empty parts are skipped");
    assert_eq!(ledger.find("/"), Some(ledger.root()));
    for nowhere in ["", "acme", "acme/q42", "/acme/q", "/acme/q42/x", "/ACME", "/acme/../acme"] {
        assert_eq!(ledger.find(nowhere), None, "{nowhere:?}");
    }
    // A name belongs to one group as long as that lives.
    assert_eq!(tenant.create("q42"), Err(CreateError::Exists));
    assert_eq!(tenant.get_or_create("q42"), Ok(first));
    first.destroy()?;
    let second = tenant.create("q42")?;
    assert_eq!(ledger.find("/acme/q42"), Some(second));
    Ok(())
}

#[test]
fn a_list_of_children_may_be_ended_while_it_is_read() -> Tried {
    let ledger = Ledger::new()?;
    let tenant = ledger.root().create("acme")?;
    for number in 0..100 {
        tenant.create(&number.to_string())?;
    }
    let mut ended = 0;
    for child in tenant.children() {
        child.destroy()?;
        ended += 1;
    }
    assert_eq!((ended, tenant.children().count()), (100, 0));
    Ok(())
}

#[test]
fn a_group_that_others_need_is_not_destroyed_and_says_why() -> Tried {
    let ledger = Ledger::new()?;
    let tenant = ledger.root().create("acme")?;
    let [a, _b] = [tenant.create("a")?, tenant.create("b")?];
    assert_eq!(tenant.destroy(), Err(DestroyError::HasChildren { children: 2 }));
    assert!(tenant.exists() && a.exists(), "nothing was changed");
    assert_eq!(ledger.root().destroy(), Err(DestroyError::Root));
    assert_eq!(ledger.root().destroy_tree(), Err(DestroyError::Root));
    a.destroy()?;
    assert_eq!(a.destroy(), Err(DestroyError::Gone));
    assert_eq!(a.create("below"), Err(CreateError::Gone));
    assert_eq!(a.try_charge(1).unwrap_err().reason, Reason::Gone);
    Ok(())
}

/// Alternates between two ledgers, with more groups than one fence serves, among them one that was destroyed, one
/// that has children, and a root.
#[test]
fn groups_that_end_together_are_each_told_of_in_their_order() -> Tried {
    let ledgers = [Ledger::new()?, Ledger::new()?];
    let mut groups = Vec::new();
    for number in 0..100 {
        let group = ledgers[number / 7 % 2].root().create(&number.to_string())?;
        group.try_charge_units(number as u64)?;
        groups.push(group);
    }
    groups[40].destroy()?;
    let child = groups[41].create("child")?;
    groups[42] = ledgers[0].root();
    for (number, found) in Group::destroy_each(&groups).into_iter().enumerate() {
        match number {
            40 => assert_eq!(found, Err(DestroyError::Gone)),
            41 => assert_eq!(found, Err(DestroyError::HasChildren { children: 1 })),
            42 => assert_eq!(found, Err(DestroyError::Root)),
            _ => {
                let found = found?;
                assert_eq!((found.group, found.leftover), (groups[number], number as u64));
                assert!(!found.group.exists());
            }
        }
    }
    assert!(child.exists() && groups[41].exists(), "what was refused goes on");
    assert!(Group::destroy_each(&[]).is_empty());
    Ok(())
}

#[test]
fn what_a_destroyed_tree_still_holds_is_reported_and_counted_above_until_it_is_returned() -> Tried {
    let ledger = Ledger::new()?;
    let tenant = ledger.root().create("acme")?;
    let query = tenant.create("q42")?;
    let sort = query.create("sort")?;
    let [first, second] = [query.try_charge(100)?, sort.try_charge(20)?];
    let settled = query.destroy_tree()?;
    let left: HashMap<_, _> = settled.iter().map(|it| (it.group.id(), it.leftover)).collect();
    assert_eq!(left, HashMap::from([(sort.id(), 20), (query.id(), 120)]));
    assert_eq!((tenant.precise(), ledger.leaks().len()), (120, 2));
    std::thread::scope(|scope| scope.spawn(|| drop(first)).join().expect("it drops"));
    assert_eq!(tenant.precise(), 20);
    drop(second);
    assert_eq!((tenant.precise(), ledger.leaks().len()), (0, 0));
    assert_eq!(ledger.mistakes(), Mistakes::default());
    Ok(())
}

#[test]
fn a_guard_ends_its_group_with_all_below_also_when_a_step_fails() -> Tried {
    fn run(tenant: Group<'_>) -> Result<(), Box<dyn Error>> {
        let query = tenant.create("q42")?.destroy_on_drop();
        let _sort = query.create("sort")?.try_charge(10)?;
        let _more = query.try_charge(1 << 30)?;
        Err("the limit was to refuse that".into())
    }
    let ledger = Ledger::new()?;
    let tenant = ledger.root().create("acme")?;
    tenant.set_max("1M".parse()?)?;
    assert!(run(tenant).unwrap_err().to_string().starts_with("/acme is full"));
    assert_eq!((tenant.children().count(), tenant.precise()), (0, 0));
    let kept = tenant.create("kept")?.destroy_on_drop().keep();
    assert!(kept.exists());
    Ok(())
}

#[test]
fn an_owned_group_and_its_charges_keep_the_ledger_until_the_last_is_dropped() -> Tried {
    let ledger = Arc::new(Ledger::new()?);
    let alive = Arc::downgrade(&ledger);
    let tenant: OwnedGroup = ledger.owned_root().create("acme")?;
    tenant.group().set_max("1K".parse()?)?;
    assert_eq!(ledger.find("/acme"), Some(tenant.group()));
    let other = Ledger::new().map(Arc::new)?;
    assert!(tenant.group().to_owned_in(&other).is_none(), "it is of another ledger");
    drop(ledger);
    let worker = std::thread::spawn({
        let tenant = tenant.clone();
        move || {
            let charge = tenant.create("q1").map_err(|error| error.to_string())?.try_charge(1000);
            let charge = charge.map_err(|refused| refused.to_string())?;
            let refused = tenant.try_charge(1000).map(|_| ()).unwrap_err();
            Ok::<_, String>((charge, refused.to_string()))
        }
    });
    let (mut charge, refused) = worker.join().expect("the thread returns")?;
    assert_eq!(refused, "/acme is full: 1000 requested, 1000 of max 1.0K in use");
    assert_eq!((charge.group().group().path(), charge.units()), ("/acme/q1".to_owned(), 1000));
    let part = charge.split(400).ok_or("it holds 1000")?;
    assert_eq!(tenant.group().precise(), 1000);
    drop(charge);
    assert_eq!(tenant.group().precise(), 400);
    drop(tenant);
    assert_eq!(alive.upgrade().map(|ledger| ledger.root().precise()), Some(400));
    drop(part);
    assert!(alive.upgrade().is_none(), "nobody needs it any more");
    Ok(())
}

#[test]
fn units_leave_their_guard_travel_as_a_number_and_come_back_into_one() -> Tried {
    let ledger = Ledger::new()?;
    let query = ledger.root().create("q")?;
    // The header of a block, as an allocator or C keeps it: the group's number and the units.
    let header = {
        let charge = query.try_charge(4096)?;
        let id = charge.group().id();
        (id.index(), id.generation(), charge.into_units())
    };
    assert_eq!(query.precise(), 4096);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (index, generation, units) = header;
            let group = ledger.group(ledgerline::GroupId::from_parts(index, generation));
            let mut charge = Charge::from_units(group, units);
            let part = charge.split(96).expect("it holds 4096").into_units();
            drop(charge);
            assert_eq!(query.precise(), 96);
            query.uncharge_units(part);
        });
    });
    assert_eq!((query.precise(), ledger.mistakes()), (0, Mistakes::default()));
    let never =
        std::panic::catch_unwind(|| Charge::from_units(ledger.root(), (1 << 62) + 1).units());
    assert!(never.is_err(), "so many cannot have been charged");
    Ok(())
}

#[test]
fn handles_are_keys_that_tell_groups_apart_for_good() -> Tried {
    let [ledger, other] = [Ledger::new()?, Ledger::new()?];
    let old = ledger.root().create("q")?;
    let mut owners = HashMap::from([(old, "old")]);
    assert_eq!(owners.get(&ledger.group(old.id())), Some(&"old"), "another handle of that group");
    old.destroy()?;
    let new = ledger.root().create("q")?;
    assert_eq!(
        (new.id().index(), new == old),
        (old.id().index(), false),
        "it has the row, and is another"
    );
    owners.insert(new, "new");
    owners.insert(other.group(new.id()), "another ledger's");
    assert_eq!((owners.len(), owners[&old], owners[&new]), (3, "old", "new"));
    let ids: HashSet<_> = owners.keys().map(|group| group.id()).collect();
    assert_eq!(ids, HashSet::from([old.id(), new.id()]), "numbers are a ledger's own");
    Ok(())
}

#[test]
fn handles_charges_and_settlements_print_what_they_are() -> Tried {
    let ledger = Arc::new(Ledger::new()?);
    let query = ledger.root().create("acme")?.create("q42")?;
    let id = query.id();
    assert_eq!(id.to_string(), format!("{}#{}", id.index(), id.generation()));
    assert_eq!(format!("{query:?}"), format!("Group(/acme/q42 {id})"));
    let owned = query.to_owned_in(&ledger).ok_or("it is this ledger's")?;
    assert_eq!(format!("{owned:?}"), format!("{query:?}"));
    let charge = query.try_charge(3 << 10)?;
    assert_eq!(format!("{charge:?}"), format!("Charge(3072 of /acme/q42 {id})"));
    query.set_max("4K".parse()?)?;
    let refused = query.try_charge(2 << 10).unwrap_err();
    assert_eq!(refused.to_string(), "/acme/q42 is full: 2.0K requested, 3.0K of max 4.0K in use");
    let refused = query.try_charge_units(2 << 10).unwrap_err();
    let told = format!("group {id} is full: 2048 requested, 3072 of max 4096 in use");
    assert_eq!(refused.to_string(), told);
    let settled = query.destroy()?.to_string();
    assert!(
        settled.starts_with(&format!("group {id} ended with 3.0K still charged (1 charge")),
        "{settled}"
    );
    assert_eq!(format!("{query:?}"), format!("Group((destroyed) {id})"));
    drop(charge);
    Ok(())
}

#[test]
fn a_ledger_has_room_for_its_capacity_and_a_tree_for_32_levels_and_no_more() -> Tried {
    assert_eq!(Ledger::new()?.capacity(), 1 << 20);
    let ledger = Ledger::builder().capacity(4).anonymous()?;
    let root = ledger.root();
    // The root is one of the four.
    let [a, _b, _c] = [root.create("a")?, root.create("b")?, root.create("c")?];
    let full = root.create("d").unwrap_err();
    assert_eq!(full, CreateError::Full { capacity: 4 });
    assert!(full.to_string().contains("full with 4 groups"), "{full}");
    // A destroyed group keeps its place until its charges are returned.
    let late = a.try_charge(1)?;
    a.destroy()?;
    assert_eq!(root.create("d"), Err(CreateError::Full { capacity: 4 }));
    drop(late);
    root.create("d")?;
    // No tree has more than 32 levels, the root's included.
    let ledger = Ledger::builder().capacity(64).anonymous()?;
    let deepest = (1..32).try_fold(ledger.root(), |group, _| group.create("below"))?;
    assert_eq!((deepest.depth(), deepest.create("below")), (31, Err(CreateError::TooDeep)));
    for groups in [0, 1, (1 << 20) + 1] {
        let error = Ledger::builder().capacity(groups).anonymous().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(&groups.to_string()), "{error}");
    }
    Ok(())
}
