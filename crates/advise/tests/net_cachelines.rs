//! The counts of Linux commit 14006f1d8fa2, which analysed the kernel's networking structures: lines that the fast
//! path touched, and lines that would do. `tcp_sock` 12 and 8, `net_device` 12 and 4, `netns_ipv4` 4 and 2.
//!
//! *Before*: lines of 64 bytes that a field of the table lies on, whichever path touches it, the structure
//! beginning a line. Offsets are those of Debian's Linux 6.1.176, the last long-term kernel before the change;
//! the commit looked at 6.5 in a configuration that it does not name.
//!
//! | | published | Debian 6.1.176 | the same with what 6.5 has elsewhere |
//! |---|---|---|---|
//! | `tcp_sock` | 12 | 11 | 12: its first member, `inet_connection_sock`, has 1 368 bytes in the commit, 1 400 in Debian |
//! | `net_device` | 12 | 12 | 12: a pointer and two counts more, and `_tx` begins a line as before |
//! | `netns_ipv4` | 4 | 4 | 3: a pointer more before the fields, and four words fewer |
//!
//! The last is near an edge: eight bytes later, and it is 4. What a configuration leaves out moves it as much.
//!
//! *After*: what transmission touches together, the fields of both paths among it, and what reception alone
//! touches together, each from a line on. Of `tc_to_txq`, 64 bytes, a packet reads one entry, of 4. That gives
//! 8, 4 and 2. (The commit calls its figure bytes divided by 64, which would be 7 for its 396 bytes of
//! `tcp_sock`.) To keep written fields apart from read ones as well takes 10, 4 and 2.

use std::collections::BTreeMap;

use ledgerline_advise::profile::{Kind, Known, Profile, TypeProfile, find, lines};
use ledgerline_layout::lines::Lines;
use ledgerline_layout::model::{
    Align, Bits, Kind as Keyword, Member, Record, Role, Type, TypeId, Types,
};
use ledgerline_layout::pick::pick;

/// A structure, and by how many bytes lies elsewhere what is behind one of its members.
type Move = (&'static str, &'static str, i64);

/// What 6.5 has elsewhere than Debian's 6.1.176, before the fields that the tables name.
const LINUX_6_5: [Move; 6] = [
    // As the commit states the size of inet_connection_sock.
    ("tcp_sock", "inet_conn", 1368 - 1400),
    // xdp_metadata_ops came in; gro_ipv4_max_size; and `_tx` begins a line.
    ("net_device", "netdev_ops", 8),
    ("net_device", "gro_max_size", 8),
    ("net_device", "index_hlist", 48),
    // udp_table came in; what limits ICMP messages, 16 bytes, is in Debian's from later kernels.
    ("netns_ipv4", "tcp_death_row", 8),
    ("netns_ipv4", "sysctl_icmp_ratemask", -16),
];

/// Types from the table of facts.
fn types(moves: &[Move]) -> Types {
    let mut types = Types::new(8);
    let mut records: Vec<(String, u64, Vec<Member>)> = Vec::new();
    let mut moved = 0;
    for line in include_str!("fixtures/linux-6.1.176-amd64.txt").lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["#", ..] => {}
            [name, size] => {
                records.push((name.to_owned(), size.parse().unwrap(), Vec::new()));
                moved = 0;
            }
            [name, start, bits] => {
                let (record, _, members) = records.last_mut().unwrap();
                let (start, bits): (u64, u64) = (start.parse().unwrap(), bits.parse().unwrap());
                let start = start.checked_add_signed(8 * moved).unwrap();
                let here =
                    moves.iter().filter(|(named, behind, _)| named == record && *behind == name);
                moved += here.map(|(_, _, bytes)| bytes).sum::<i64>();
                let bitfield = !start.is_multiple_of(8) || !bits.is_multiple_of(8);
                let name = types.intern(name);
                let ty = types.push(Type::Unknown { size: Some(bits.div_ceil(8)) });
                let bits = bitfield
                    .then(|| Bits { offset: (start % 8) as u8, size: u8::try_from(bits).unwrap() });
                let role = Role::Field;
                members.push(Member { name, ty, offset: start / 8, bits, role, align: None });
            }
            _ => panic!("{line}"),
        }
    }
    for (name, size, members) in records {
        let name = types.intern(&name);
        let align = Align::Inferred(8);
        let kind = Keyword::Struct;
        types.push(Type::Record(Record { name, kind, size, align, members, declared: None }));
    }
    types
}

fn profile() -> Profile {
    let text = include_str!("fixtures/net_cachelines-2023.rst");
    Profile::parse(text, "net_cachelines-2023.rst", &Known::default()).unwrap()
}

fn id(types: &Types, name: &str) -> TypeId {
    pick(types, &[name.to_owned()]).unwrap()[0].1
}

fn before(name: &str, moves: &[Move]) -> usize {
    let (types, profile) = (types(moves), profile());
    lines(&types, id(&types, name), profile.of(name).unwrap(), Lines::of(64)).len()
}

#[test]
fn as_many_lines_are_touched_as_the_commit_says() {
    let names = ["tcp_sock", "net_device", "netns_ipv4"];
    assert_eq!(names.map(|name| before(name, &[])), [11, 12, 4]);
    assert_eq!(names.map(|name| before(name, &LINUX_6_5)), [12, 12, 3]);
    // Eight bytes more before its fields, and the last has as many as published.
    let later = LINUX_6_5.map(|(name, behind, bytes)| {
        (name, behind, bytes + if behind == "tcp_death_row" { 8 } else { 0 })
    });
    assert_eq!(names.map(|name| before(name, &later)), [12, 12, 4]);
}

/// What is touched of a field, by its name: bytes.
type Sizes = Vec<u64>;

/// Lines for fields that lie together from a line on, the widest first and each aligned.
fn together(mut sizes: Sizes) -> u64 {
    let align = |size: u64| 1 << size.trailing_zeros().min(3);
    sizes.sort_by_key(|&size| std::cmp::Reverse(align(size)));
    let end = sizes.iter().fold(0u64, |end, &size| end.next_multiple_of(align(size)) + size);
    Lines::of(64).count(0, end)
}

/// Lines when fields are grouped by what the table says of them: whether transmission touches them, whether
/// anybody writes them.
fn after(name: &str, group: impl Fn(bool, bool) -> u8) -> u64 {
    let (types, profile) = (types(&[]), profile());
    let of = profile.of(name).unwrap();
    let mut groups: BTreeMap<u8, Sizes> = BTreeMap::new();
    for (field, transmitted, written) in fields(of) {
        let leaf = find(&types, id(&types, name), &field);
        let size = match &*field {
            "tc_to_txq" => 4,
            // Since 6.3.
            "gro_ipv4_max_size" | "gso_ipv4_max_size" => 4,
            _ => leaf.unwrap_or_else(|| panic!("{name} has no {field}")).size(),
        };
        groups.entry(group(transmitted, written)).or_default().push(size);
    }
    groups.into_values().map(together).sum()
}

/// The fields, whether transmission touches each, whether any path writes it.
fn fields(of: &TypeProfile) -> Vec<(String, bool, bool)> {
    let mut fields: BTreeMap<String, (bool, bool)> = BTreeMap::new();
    for role in &of.roles {
        for access in role.phases.iter().flat_map(|phase| &phase.accesses) {
            let (transmitted, written) = fields.entry(access.field.clone()).or_default();
            *transmitted |= role.name == "tx";
            *written |= access.kind == Kind::Store;
        }
    }
    fields
        .into_iter()
        .map(|(field, (transmitted, written))| (field, transmitted, written))
        .collect()
}

#[test]
fn grouped_by_path_as_many_lines_do_as_the_commit_says() {
    let by_path = |transmitted, _| u8::from(transmitted);
    assert_eq!(after("tcp_sock", by_path), 8);
    assert_eq!(after("net_device", by_path), 4);
    assert_eq!(after("netns_ipv4", by_path), 2);
}

#[test]
fn to_keep_what_is_written_apart_takes_more() {
    let by_both = |transmitted, written| u8::from(transmitted) + 2 * u8::from(written);
    assert_eq!(after("tcp_sock", by_both), 10);
    assert_eq!(after("net_device", by_both), 4);
    assert_eq!(after("netns_ipv4", by_both), 2);
    // Nothing but bytes: no order takes fewer.
    let all = |_, _| 0;
    let least = ["tcp_sock", "net_device", "netns_ipv4"].map(|name| after(name, all));
    assert_eq!(least, [7, 4, 1]);
}
