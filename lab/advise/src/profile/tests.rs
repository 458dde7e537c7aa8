use super::*;
use proptest::prelude::*;

fn read(text: &str) -> Result<Profile, String> {
    Profile::parse(text, "here", &Known::default()).map_err(|error| error.to_string())
}

const COUNTER: &str = r#"
machine = "haswell-ep-2699v3"
cpus = 72

[types.page_counter]
instances = "shared"
work_ns = 300

[types.page_counter.fields]
max = { load = 1 }

[[types.page_counter.phases]]
name = "walk"
times = 0.0156
fields = { usage = { atomic = 1 }, parent = { load = 1 } }

[types."alloc::vec::Vec<u8>"]
instances = 4

[[types."alloc::vec::Vec<u8>".roles]]
name = "reader"
share = 0.75
work_ns = 20
fields = { len = { load = 2, store = 0.5 }, "buf[3]" = { load = 1 } }

[[types."alloc::vec::Vec<u8>".roles]]
name = "writer"
share = 0.25
work_ns = 30.5
[[types."alloc::vec::Vec<u8>".roles.phases]]
name = "grow"
times = 3
fields.len.store = 1
"#;

#[test]
fn what_people_write_is_read_in_its_order() {
    let profile = read(COUNTER).unwrap();
    assert_eq!(
        (profile.machine.as_deref(), profile.cpus, profile.source.as_str()),
        (Some("haswell-ep-2699v3"), Some(72), "here")
    );
    let names: Vec<&str> = profile.types.iter().map(|of| of.name.as_str()).collect();
    assert_eq!(names, ["page_counter", "alloc::vec::Vec<u8>"]);
    let counter = profile.of("page_counter").unwrap();
    assert_eq!((counter.instances, counter.roles.len()), (Instances::Shared, 1));
    assert_eq!(counter.roles[0].work_ns, 300.0);
    let walk = &counter.roles[0].phases[1];
    let touched: Vec<&str> = walk.accesses.iter().map(|access| &*access.field).collect();
    assert_eq!(
        (walk.name.as_str(), walk.times, touched),
        ("walk", 0.0156, vec!["usage", "parent"])
    );
    assert_eq!(counter.times("max", Kind::Load), 1.0);
    assert_eq!(counter.times("usage", Kind::Atomic), 0.0156);
    let vector = &profile.types[1];
    assert_eq!(vector.instances, Instances::Dealt(4));
    assert_eq!(vector.times("len", Kind::Store), 0.75 * 0.5 + 0.25 * 3.0);
}

#[test]
fn what_is_wrong_is_one_line_with_its_place_and_what_to_do() {
    let good = "[types.t]\nwork_ns = 1\nfields = { a = { load = 1 } }\n";
    assert!(read(good).is_ok());
    let role =
        "[[types.t.roles]]\nname = 'r'\nwork_ns = 1\nfields = { a = { load = 1 } }\nshare = ";
    let cases = [
        ("", "line 1: it names no type; add [types.NAME]"),
        ("machin = 'x'\n", "line 1: unknown field `machin`, expected one of"),
        (
            "[types.t]\nwork_ns = 1\ntakes_ns = 2\nfields = { a = { load = 1 } }\n",
            "line 3: t has both",
        ),
        (
            "[types.t]\nrecording_ns = 2\nwork_ns = 1\nfields = { a = { load = 1 } }\n",
            "line 2: t has `recording_ns` and no",
        ),
        (
            "[types.t]\ntakes_ns = 2\nrecording_ns = 3\nfields = { a = { load = 1 } }\n",
            "line 3: `recording_ns` is 3, of 2",
        ),
        (
            "[types.t]\nalone_ns = 2\nwork_ns = 1\nfields = { a = { load = 1 } }\n",
            "line 2: t has both `work_ns` and `alone_ns`",
        ),
        (
            "[types.t]\nalone_ns = 2\ntakes_ns = 4\nrecording_ns = 1\nfields = { a = { load = 1 } }\n",
            "line 4: t has both `alone_ns` and `recording_ns`",
        ),
        ("[types.t]\nalone_ns = 0\nfields = { a = { load = 1 } }\n", "line 2: `alone_ns` is 0"),
        ("[types.t]\nwork_ns = [3, 1]\nfields = { a = { load = 1 } }\n", "line 2: `work_ns` is 1"),
        ("[types.t]\ntakes_ns = 0\nfields = { a = { load = 1 } }\n", "line 2: `takes_ns` is 0"),
        ("[types.t]\nwork = 1\n", "line 2: unknown field `work`"),
        ("[types.t]\nwork_ns = 1\n", "line 1: t touches no field; add `fields"),
        ("\n[types.t]\nfields = { a = { load = 1 } }\n", "line 2: t has no `work_ns`; write how"),
        ("[types.t]\nwork_ns = 1\nfields = {}\n", "line 3: `fields` names no field"),
        ("[types.t]\nwork_ns = 1\nfields = { a = {} }\n", "line 3: `a` is never touched; write"),
        ("[types.t]\nwork_ns = 1\nfields = { a = { load = -1 } }\n", "line 3: `load` is -1"),
        ("[types.t]\nwork_ns = 1\nfields = { a = { load = 0 } }\n", "line 3: `load` is 0"),
        ("[types.t]\nwork_ns = 1\nfields = { a = { load = nan } }\n", "line 3: `load` is NaN"),
        ("[types.t]\nwork_ns = 1\nfields = { a = { lod = 1 } }\n", "line 3: unknown field `lod`"),
        ("[types.t]\nwork_ns = 1\nfields = { a = 1 }\n", "line 3: invalid type: integer"),
        ("[types.t]\nwork_ns = inf\nfields = { a = { load = 1 } }\n", "line 2: `work_ns` is inf"),
        ("[types.t]\ninstances = 'two'\n", "line 2: `instances` is \"two\"; write \"shared\""),
        ("[types.t]\ninstances = 0\n", "line 2: `instances` is 0"),
        ("cpus = 0\n[types.t]\n", "line 1: `cpus` is 0; a machine has 1 to 8192"),
        (&format!("{role}0.5\n"), "line 1: the shares of the roles of t add up to 0.5; they"),
        (&format!("{role}-1\n"), "line 5: `share` of r is -1"),
        (&format!("[types.t.fields]\na.load = 1\n{role}1\n"), "line 1: t has both `roles` and"),
        ("[types.t]\n[types.t]\n", "line 2: duplicate key"),
        ("types = 3", "line 1: invalid type"),
        ("[types.t", "line 1: "),
    ];
    for (text, wanted) in cases {
        let error = read(text).expect_err(text);
        assert!(error.starts_with(wanted), "{text:?}: {error:?}, not {wanted:?}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn shares_that_nearly_add_up_are_made_to() {
    let role = |name: &str| {
        format!(
            "[[types.t.roles]]\nname = '{name}'\nshare = 0.33\nfields = {{ a = {{ load = 1 }} }}\n"
        )
    };
    let text = format!("[types.t]\nwork_ns = 1\n{}{}{}", role("x"), role("y"), role("z"));
    let profile = read(&text).unwrap();
    let sum: f64 = profile.types[0].roles.iter().map(|role| role.share).sum();
    assert!((sum - 1.0).abs() < 1e-12);
}

#[test]
fn objects_are_read_and_written_alike() {
    for text in ["t@0xffff888100a4c000", "a::b<c>@x.y+0x40", "t@free@@GLIBC_2.2"] {
        assert_eq!(text.parse::<Object>().unwrap().to_string(), text);
    }
    for text in ["t", "@0x1", "t@", "t@0xzz", "t@0x1ffffffffffffffff", "t@x+y", "t@12a", "t@0x+1"] {
        let error = text.parse::<Object>().expect_err(text);
        assert!(error.contains("TYPE@0xADDRESS"), "{error}");
    }
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z_]{1,8}", "[a-z]{1,3}\\[[0-9]\\]", any::<String>()]
}

fn rate() -> impl Strategy<Value = f64> {
    prop_oneof![Just(1.0), 1e-9..1e9f64, Just(1.0 / 3.0), Just(1e9)]
}

fn phase() -> impl Strategy<Value = Phase> {
    let rates = || proptest::option::of(rate());
    let field = (name(), rates(), rates(), rates());
    let fields = proptest::collection::vec(field, 1..5);
    (name(), rate(), fields).prop_map(|(name, times, fields)| {
        let mut accesses: Vec<Access> = Vec::new();
        for (field, load, store, atomic) in fields {
            if accesses.iter().any(|access| access.field == field) {
                continue;
            }
            // At least one rate.
            let load = load.or((store.is_none() && atomic.is_none()).then_some(1.0));
            let rates = [(Kind::Load, load), (Kind::Store, store), (Kind::Atomic, atomic)];
            for (kind, times) in rates {
                let access = |times| Access { field: field.clone(), kind, times };
                accesses.extend(times.map(access));
            }
        }
        Phase { name, times, accesses }
    })
}

pub(super) fn any_profile() -> impl Strategy<Value = Profile> {
    let basis = prop_oneof![
        Just(WorkBasis::Stated),
        (0.0..1e4f64, 0.0..1e4f64)
            .prop_map(|(low, more)| WorkBasis::Within { low, high: low + more }),
        (0.1..1e4f64, prop_oneof![0.0..0.9f64, Just(1.0)])
            .prop_map(|(ns, recorded)| WorkBasis::Takes { ns, recording_ns: ns * recorded }),
        (1.0..1e9f64, proptest::option::of(1.0..1e9f64))
            .prop_map(|(ns, takes_ns)| WorkBasis::Alone { ns, takes_ns }),
    ];
    let role =
        (name(), (0.0..1e9f64, basis), proptest::collection::vec(phase(), 1..4), any::<bool>());
    let instances = prop_oneof![
        Just(Instances::Shared),
        Just(Instances::PerCpu),
        (1..1000usize).prop_map(Instances::Dealt),
        (1..1000u64, proptest::option::of(0..128u64))
            .prop_map(|(stride, begins)| Instances::Row(Row { stride, begins }))
    ];
    let of = (name(), instances, proptest::collection::vec(role, 1..5));
    let types = proptest::collection::vec(of, 1..4);
    let machine = proptest::option::of(any::<String>());
    (machine, proptest::option::of(1..=8192usize), types).prop_map(|(machine, cpus, types)| {
        let mut profile =
            Profile { source: "here".to_owned(), machine, cpus, ..Profile::default() };
        for (name, instances, roles) in types {
            if profile.of(&name).is_some() {
                continue;
            }
            let share = 1.0 / roles.len() as f64;
            let roles = roles
                .into_iter()
                .map(|(name, (stated, basis), mut phases, always)| {
                    let work_ns = match basis {
                        WorkBasis::Stated => stated,
                        WorkBasis::Within { low, high } => f64::midpoint(low, high),
                        WorkBasis::Takes { ns, recording_ns } => ns - recording_ns,
                        WorkBasis::Alone { ns, .. } => ns,
                    };
                    if always {
                        phases[0].name = ALWAYS.to_owned();
                        phases[0].times = 1.0;
                    }
                    Role { name, share, work_ns, basis, phases }
                })
                .collect();
            profile.types.push(TypeProfile { name, instances, roles });
        }
        profile
    })
}

proptest! {
    #![proptest_config(crate::cases::few(file!(), 256))]

    #[test]
    fn what_is_written_is_read_back(profile in any_profile()) {
        let text = profile.to_toml();
        let again = read(&text).unwrap();
        // The first line of each field is one that names it.
        for (field, &line) in &again.lines {
            prop_assert!(text.lines().nth(line - 1).unwrap().contains(&write::key(field)), "{}", text);
        }
        prop_assert_eq!(Profile { lines: BTreeMap::new(), ..again }, profile, "{}", text);
    }

    #[test]
    fn no_text_makes_the_reader_fall(text in any::<String>(), cut in 0..COUNTER.len(), noise in "\\PC{0,3}") {
        let _ = read(&text);
        let (before, after) = COUNTER.split_at(cut);
        if let Err(error) = read(&format!("{before}{noise}{after}")) {
            prop_assert_eq!(error.lines().count(), 1);
        }
    }
}

#[test]
fn a_profile_of_nothing_is_refused() {
    // This line, found by fuzzing, is a title and names columns.
    let text =
        "Type Name fastpath_tx_access fastpath_rx_access x struct fast path usage breakdown\n";
    let error = Profile::parse(text, "table.rst", &Known::default()).unwrap_err().to_string();
    assert!(error.starts_with("it says nothing of any type"), "{error}");
}
