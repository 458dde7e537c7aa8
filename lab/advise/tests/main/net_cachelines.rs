//! The counts of Linux commit 14006f1d8fa2, which analysed the kernel's networking structures: lines that the fast path
//! touched, and lines that would be enough. `tcp_sock` 12 and 8, `net_device` 12 and 4, `netns_ipv4` 4 and 2.
//!
//! *Before*: lines of 64 bytes with a field of the table, for either path, if the structure begins a line. Offsets are
//! those of Ubuntu's Linux 6.5.0-9. The commit looked at 6.5 in a configuration that it does not name.
//!
//! | | published | Ubuntu 6.5.0-9 | the same, configured otherwise |
//! |---|---|---|---|
//! | `tcp_sock` | 12 | 11 | 12: its first member, `inet_connection_sock`, has 1 368 bytes in the commit, 1 408 in Ubuntu |
//! | `net_device` | 12 | 12 | 12 |
//! | `netns_ipv4` | 4 | 3 | 4: with `CONFIG_DEBUG_MUTEXES` a mutex before the fields has 8 bytes more |
//!
//! The first and the last are at an edge. In Ubuntu, `rcvq_space`, the last field of the table of `tcp_sock`, and
//! `sysctl_tcp_rmem`, the last of `netns_ipv4`, end a line. Eight bytes later, each structure has the published number
//! of lines. The structures as they are in Ubuntu also have the published numbers, 12, 12 and 4, if the byte behind the
//! last field is counted with it, for example by counting the boundaries in a printed layout. It is not known which of
//! the two applies to the commit.
//!
//! *After*: the fields that transmission touches, including those of both paths, begin a line, and those that only
//! reception touches begin another. Of the 64 bytes of `tc_to_txq`, a packet reads one entry of 4. That gives 8, 4 and
//! 2. The commit defines its figure as bytes divided by 64, which would be 7 for its 396 bytes of `tcp_sock`.
//! Separating written from read fields as well takes 10, 4 and 2.

use std::collections::BTreeMap;

use ledgerline_advise::profile::{Kind, Known, Profile, TypeProfile, find, lines};
use ledgerline_layout::lines::Lines;
use ledgerline_layout::model::{
    Align, Bits, Kind as Keyword, Member, Record, Role, Type, TypeId, Types,
};
use ledgerline_layout::pick::pick;

/// A structure, one of its members, and the number of bytes by which the members behind it move.
type Move = (&'static str, &'static str, i64);

/// A smaller `inet_connection_sock`, of the size in the commit.
const INET_CONN: Move = ("tcp_sock", "inet_conn", 1368 - 1408);

/// `CONFIG_DEBUG_MUTEXES`: one more pointer in each `struct mutex`. `struct device` holds one too.
const DEBUG_MUTEXES: [Move; 2] = [("net_device", "dev", 8), ("netns_ipv4", "ra_mutex", 8)];

/// Makes the types from the table of facts.
fn types(moves: &[Move]) -> Types {
    let mut types = Types::new(8);
    let mut records: Vec<(String, u64, Vec<Member>)> = Vec::new();
    let mut moved = 0;
    for line in include_str!("../fixtures/linux-6.5.0-9-amd64.txt").lines() {
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
    let text = include_str!("../fixtures/net_cachelines-2023.rst");
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
    // Two of Ubuntu's structures have one line less.
    assert_eq!(names.map(|name| before(name, &[])), [11, 12, 3]);
    assert_eq!(names.map(|name| before(name, &[INET_CONN])), [12, 12, 3]);
    assert_eq!(names.map(|name| before(name, &DEBUG_MUTEXES)), [11, 12, 4]);
    // The published numbers.
    let [device, mutex] = DEBUG_MUTEXES;
    assert_eq!(names.map(|name| before(name, &[INET_CONN, device, mutex])), [12, 12, 4]);
}

#[test]
fn what_ends_a_line_takes_one_more_eight_bytes_later() {
    let types = types(&[]);
    for (name, behind, last) in
        [("tcp_sock", "inet_conn", "rcvq_space"), ("netns_ipv4", "ra_mutex", "sysctl_tcp_rmem")]
    {
        let last = find(&types, id(&types, name), last).unwrap();
        assert_eq!((last.start + last.bits) % 512, 0);
        assert_eq!(before(name, &[(name, behind, 8)]), before(name, &[]) + 1);
    }
}

/// Returns the lines before, with the line of the byte behind the last field.
fn through_what_follows(name: &str) -> usize {
    let (types, profile) = (types(&[]), profile());
    let fields = fields(profile.of(name).unwrap());
    let leaves = fields.iter().filter_map(|(field, ..)| find(&types, id(&types, name), field));
    let end = leaves.map(|leaf| leaf.start + leaf.bits).max().unwrap();
    before(name, &[]) + usize::from(end.is_multiple_of(512))
}

#[test]
fn counted_through_the_byte_behind_the_last_field_ubuntu_has_what_the_commit_says() {
    assert_eq!(["tcp_sock", "net_device", "netns_ipv4"].map(through_what_follows), [12, 12, 4]);
}

/// Touched bytes of fields.
type Sizes = Vec<u64>;

/// Returns the lines of fields that lie together from the start of a line on, the widest first and each aligned.
fn together(mut sizes: Sizes) -> u64 {
    let align = |size: u64| 1 << size.trailing_zeros().min(3);
    sizes.sort_by_key(|&size| std::cmp::Reverse(align(size)));
    let end = sizes.iter().fold(0u64, |end, &size| end.next_multiple_of(align(size)) + size);
    Lines::of(64).count(0, end)
}

/// Returns the lines if fields are grouped by the table: by whether transmission touches them, and whether any path
/// writes them.
fn after(name: &str, group: impl Fn(bool, bool) -> u8) -> u64 {
    let (types, profile) = (types(&[]), profile());
    let of = profile.of(name).unwrap();
    let mut groups: BTreeMap<u8, Sizes> = BTreeMap::new();
    for (field, transmitted, written) in fields(of) {
        let leaf = find(&types, id(&types, name), &field);
        let size = match &*field {
            "tc_to_txq" => 4,
            _ => leaf.unwrap_or_else(|| panic!("{name} has no {field}")).size(),
        };
        groups.entry(group(transmitted, written)).or_default().push(size);
    }
    groups.into_values().map(together).sum()
}

/// Returns the fields, whether transmission touches each, and whether any path writes it.
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
    // All fields in one group: no order takes fewer lines.
    let all = |_, _| 0;
    let least = ["tcp_sock", "net_device", "netns_ipv4"].map(|name| after(name, all));
    assert_eq!(least, [7, 4, 1]);
}
