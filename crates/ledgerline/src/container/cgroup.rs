//! Finds the folders of this process's memory cgroup: its hierarchy, the right mount, and the folders up to the top.
//!
//! ```text
//! /proc/self/cgroup      0::/box/job          this process's cgroup, as its cgroup namespace names it
//! /proc/self/mountinfo   ... /box /sys/fs/cgroup ... - cgroup2 ...      the part of the tree at each mount point
//! folders                /sys/fs/cgroup/job, /sys/fs/cgroup             from its own up to the topmost visible one
//! ```
//!
//! A mount may show only a part of the tree, such as a bind mount into a container, and the path of a process outside of
//! the root of the reader's namespace begins with `/..`. So the part that the mount leaves out is removed from the path. A
//! mount from before the namespace shows more than the namespace: its root is `/../..`, and the names in between are not
//! known. Then the process's own cgroup is the one there that lists the process.
//!
//! There may be several mounts. A mount that lists the process at the path is right, whatever other mounts there are. Next
//! comes one whose root is a part of the path, then one that is known to lie above. Last comes one whose root is no part of
//! the path: older container engines mount a container's own cgroup and leave the path that the host has. Of equal mounts,
//! the one that shows most levels is taken, since limits further up apply, too.
//!
//! The text comes from the kernel, but all of it is checked: nothing in it may lead to a folder outside of the mount.

use crate::os::path_of_bytes;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The two interfaces of the kernel's memory controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V2,
}

/// A mounted hierarchy, or a part of one.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    version: Version,
    /// The mounted cgroup.
    root: PathBuf,
    /// The mount point.
    point: PathBuf,
}

/// A hierarchy that limits memory, and this process's folders there, its own first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hierarchy {
    pub(super) version: Version,
    pub(super) folders: Vec<PathBuf>,
}

/// Returns the hierarchies of this process, as `/proc` below `system` shows them: version 2 first.
pub(super) fn hierarchies(system: &Path) -> Vec<Hierarchy> {
    let read = |path: &str| fs::read(system.join(path)).unwrap_or_default();
    let mounts = mounts(&read("proc/self/mountinfo"));
    let memberships = memberships(&read("proc/self/cgroup"));
    let found = memberships.into_iter().filter_map(|(version, path)| {
        let (.., folders) = mounts
            .iter()
            .filter(|mount| mount.version == version)
            .filter_map(|mount| folders(system, mount, &path))
            .map(|(fit, folders)| (fit.or_listed(&folders[0]), folders))
            .max_by_key(|(fit, folders)| (*fit, folders.len()))?;
        Some(Hierarchy { version, folders })
    });
    found.collect()
}

/// Returns this process's cgroups, from lines of the forms `0::PATH` and `N:…,memory,…:PATH`.
fn memberships(text: &[u8]) -> Vec<(Version, PathBuf)> {
    let line = |line: &[u8]| {
        let mut fields = line.splitn(3, |&byte| byte == b':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let version = match (number, controllers) {
            (b"0", b"") => Version::V2,
            _ if has_memory(controllers) => Version::V1,
            _ => return None,
        };
        path.starts_with(b"/").then(|| (version, path_of_bytes(path)))
    };
    let mut found: Vec<_> = text.split(|&byte| byte == b'\n').filter_map(line).collect();
    found.sort_by_key(|(version, _)| *version == Version::V1);
    found
}

/// Returns the mounts of cgroup2, and those of version 1 that have the memory controller.
fn mounts(text: &[u8]) -> Vec<Mount> {
    let line = |line: &[u8]| {
        let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
        // After six fields come optional ones, up to a dash.
        let dash = 6 + fields.get(6..)?.iter().position(|&field| field == b"-")?;
        let (kind, options) = (*fields.get(dash + 1)?, fields.get(dash + 3));
        let version = match kind {
            b"cgroup2" => Version::V2,
            b"cgroup" if options.is_some_and(|options| has_memory(options)) => Version::V1,
            _ => return None,
        };
        let [root, point] = [3, 4].map(|at| unescape(fields[at]));
        let absolute = root.starts_with(b"/") && point.starts_with(b"/");
        absolute.then(|| Mount {
            version,
            root: path_of_bytes(&root),
            point: path_of_bytes(&point),
        })
    };
    text.split(|&byte| byte == b'\n').filter_map(line).collect()
}

fn has_memory(list: &[u8]) -> bool {
    list.split(|&byte| byte == b',').any(|word| word == b"memory")
}

/// Decodes a field of mountinfo, which has blanks and backslashes as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let octal = |digit: &u8| (b'0'..=b'7').contains(digit);
        let digits = after.get(..3).filter(|digits| *first == b'\\' && digits.iter().all(octal));
        let number =
            |digits: &[u8]| digits.iter().fold(0, |sum, digit| sum << 3 | u32::from(digit - b'0'));
        let escaped = digits.and_then(|digits| u8::try_from(number(digits)).ok());
        out.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[3..] } else { after };
    }
    out
}

/// How well a mount's root and the path of a cgroup match. A larger value is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// They are unrelated.
    Guessed,
    /// The mount shows the cgroup or one above it, under names that are not known.
    Above,
    /// The root is a part of the path.
    Part,
    /// The kernel lists this process there.
    Listed,
}

impl Fit {
    fn or_listed(self, own: &Path) -> Fit {
        if lists_this_process(own) { Fit::Listed } else { self }
    }
}

/// Returns the folders of a cgroup in a mount, from its own to the mount's own, or `None` if it does not lie there.
fn folders(system: &Path, mount: &Mount, path: &Path) -> Option<(Fit, Vec<PathBuf>)> {
    let point = below(system, &mount.point);
    let ((above, root), (outside, inside)) = (ups(&mount.root), ups(path));
    if has_dots(root) || has_dots(inside) {
        return None;
    }
    let (fit, own) = match inside.strip_prefix(root) {
        Ok(inside) if above == outside => (Fit::Part, joined(&point, inside)),
        Ok(inside) if above > outside && root == Path::new("") => {
            let own = search(&point, above - outside, inside);
            (Fit::Above, own.unwrap_or_else(|| point.clone()))
        }
        // A path outside of the namespace and a mount outside of it do not match otherwise.
        _ if above + outside == 0 => (Fit::Guessed, point.clone()),
        _ => return None,
    };
    let levels = own.strip_prefix(&point).map_or(0, |inside| inside.components().count());
    let way = own.ancestors().take(levels + 1);
    // A cgroup that was removed in the meantime no longer has a folder, but those above it have.
    let folders: Vec<PathBuf> = way.filter(|folder| folder.is_dir()).map(Path::to_owned).collect();
    (!folders.is_empty()).then_some((fit, folders))
}

/// Returns how many levels a path leads up from the root of the namespace, and the rest of it.
fn ups(path: &Path) -> (usize, &Path) {
    let path = path.strip_prefix("/").unwrap_or(path);
    let many = path.components().take_while(|part| *part == Component::ParentDir).count();
    let mut rest = path.components();
    rest.by_ref().take(many).for_each(drop);
    (many, rest.as_path())
}

/// Joins a path to a folder. For an empty path the result is the folder itself, without a slash at its end.
fn joined(folder: &Path, inside: &Path) -> PathBuf {
    folder.components().chain(inside.components()).collect()
}

/// How many folders [`search`] examines.
const LOOKS: usize = 10_000;

/// Finds this process's cgroup at the path `inside` below an unknown folder, `levels` levels below `folder`.
fn search(folder: &Path, levels: usize, inside: &Path) -> Option<PathBuf> {
    let mut looks = LOOKS;
    let mut level = vec![folder.to_owned()];
    for _ in 0..levels {
        let mut next = Vec::new();
        for folder in level {
            let found = fs::read_dir(folder).into_iter().flatten().flatten();
            let folders = found.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            next.extend(folders.take(looks - next.len()).map(|entry| entry.path()));
        }
        looks -= next.len();
        level = next;
    }
    level.into_iter().map(|folder| joined(&folder, inside)).find(|own| lists_this_process(own))
}

/// Returns whether the kernel lists this process in the cgroup with that folder.
fn lists_this_process(folder: &Path) -> bool {
    let own = std::process::id().to_string();
    let listed = fs::read(folder.join("cgroup.procs")).unwrap_or_default();
    listed.split(|&byte| byte == b'\n').any(|pid| pid == own.as_bytes())
}

fn has_dots(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}

/// Returns an absolute path as a path below `system`.
pub(super) fn below(system: &Path, path: &Path) -> PathBuf {
    system.join(path.strip_prefix("/").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HYBRID: &str = "\
23 1 8:1 / / rw - ext4 /dev/root rw
30 23 0:26 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw
33 23 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
35 23 0:32 / /sys/fs/cgroup/memory rw master:1 shared:2 - cgroup cgroup rw,memory
";

    #[test]
    fn a_hybrid_machine_has_both_versions() {
        let found = mounts(HYBRID.as_bytes());
        let points: Vec<_> =
            found.iter().map(|it| (it.version, it.point.to_str().unwrap())).collect();
        assert_eq!(
            points,
            [(Version::V2, "/sys/fs/cgroup/unified"), (Version::V1, "/sys/fs/cgroup/memory")]
        );
        let text = b"9:name=systemd:/\n4:cpu,memory:/a:b\n0::/x y\n";
        assert_eq!(memberships(text), [(Version::V2, "/x y".into()), (Version::V1, "/a:b".into())]);
    }

    #[test]
    fn blanks_in_a_mount_point_are_as_the_kernel_escapes_them() {
        let line = br"1 2 0:3 /a\040b /mnt/two\011tabs\134end rw - cgroup2 none rw";
        let [mount] = &mounts(line)[..] else { panic!("one mount") };
        assert_eq!(mount.root, Path::new("/a b"));
        assert_eq!(mount.point, Path::new("/mnt/two\ttabs\\end"));
        // Other backslashes stay.
        assert_eq!(unescape(br"\9\04\777"), br"\9\04\777");
    }

    #[test]
    fn lines_that_make_no_sense_are_left_out() {
        for line in
            ["", "1 2 3", "- - - - - - -", "1 2 0:3 a b rw - cgroup2 x rw", "a b c d e f g h i"]
        {
            assert_eq!(mounts(line.as_bytes()), [], "{line}");
        }
        for line in ["", "0", "0:", "0::", "0::relative", "4:cpu:/", "memory"] {
            assert_eq!(memberships(line.as_bytes()), [], "{line}");
        }
    }

    fn tree(name: &str, folders: &[&str]) -> PathBuf {
        let top = std::env::temp_dir().join(format!("ledgerline-{}-{name}", std::process::id()));
        for folder in folders {
            fs::create_dir_all(top.join(folder)).unwrap();
        }
        top
    }

    #[test]
    fn what_a_mount_leaves_out_is_cut_off_and_nothing_leads_out_of_it() {
        let top = tree("mounts", &["cg/job/sub", "secret"]);
        let see = |root: &str, path: &str| {
            let mount = Mount { version: Version::V2, root: root.into(), point: "/cg".into() };
            let found = folders(&top, &mount, Path::new(path)).map(|it| it.1).unwrap_or_default();
            let cut =
                |path: &PathBuf| path.strip_prefix(&top).unwrap().to_str().unwrap().to_owned();
            found.iter().map(cut).collect::<Vec<_>>()
        };
        assert_eq!(see("/", "/job/sub"), ["cg/job/sub", "cg/job", "cg"]);
        assert_eq!(see("/", "/"), ["cg"]);
        assert_eq!(see("/box", "/box/job"), ["cg/job", "cg"]);
        assert_eq!(see("/box", "/box"), ["cg"]);
        // A sibling whose name has the same beginning is another cgroup.
        assert_eq!(see("/job", "/jobless"), ["cg"], "the mount is all that can be seen");
        // Namespaces: the reader's root, and one below it.
        assert_eq!(see("/..", "/../job"), ["cg/job", "cg"]);
        assert_eq!(see("/", "/../job"), [""; 0]);
        assert_eq!(see("/", "/job/../../secret"), [""; 0]);
        assert_eq!(see("/../job", "/"), [""; 0], "a sibling of the namespace's root");
        // A cgroup that was removed.
        assert_eq!(see("/", "/job/gone (deleted)"), ["cg/job", "cg"]);
        fs::remove_dir_all(&top).unwrap();
    }

    proptest! {
        #![proptest_config(crate::cases::few(file!(), 256))]

        #[test]
        fn no_text_makes_the_reader_panic_or_leave_its_folder(
            mounted in prop::collection::vec(any::<u8>(), 0..200),
            member in prop::collection::vec(any::<u8>(), 0..80),
            root in "(/[.a-z]{0,3}){0,4}", path in "(/[.a-z]{0,3}){0,4}",
        ) {
            let _ = (mounts(&mounted), memberships(&member), unescape(&mounted));
            let mount = Mount { version: Version::V2, root: root.into(), point: "/".into() };
            for folder in folders(Path::new("/"), &mount, Path::new(&path)).into_iter().flat_map(|it| it.1) {
                prop_assert!(!has_dots(&folder), "{folder:?}");
            }
        }
    }
}
