//! Finds groups that the kernel marks with members of no size: `__cacheline_group_begin__NAME` and `..._end__NAME`.

use std::collections::HashMap;

use super::Broken;
use crate::leaf::{Expand, Leaf, leaves};
use crate::lines::Lines;
use crate::model::{TypeId, Types};

const BEGIN: &str = "__cacheline_group_begin__";
const END: &str = "__cacheline_group_end__";

/// A marked group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The name that the markers give it.
    pub name: String,
    /// Its first byte, and the byte after its last.
    pub bytes: (u64, u64),
    /// Its fields.
    pub members: Vec<Leaf>,
}

/// Returns the groups of a record, in the record's order. A group whose end marker is missing is left out.
pub fn groups(types: &Types, id: TypeId) -> Vec<Group> {
    let all = leaves(types, id, Expand::Anonymous);
    let step = |leaf: &'_ Leaf, mark| {
        let step = leaf.path.rsplit('.').next().unwrap_or_default();
        step.strip_prefix(mark).map(str::to_owned)
    };
    let mut ends: HashMap<String, Vec<usize>> = HashMap::new();
    for (index, leaf) in all.iter().enumerate() {
        if let Some(name) = step(leaf, END) {
            ends.entry(name).or_default().push(index);
        }
    }
    let mut groups = Vec::new();
    for (index, leaf) in all.iter().enumerate() {
        let Some(name) = step(leaf, BEGIN) else { continue };
        let Some(ends) = ends.get(&name) else { continue };
        let Some(&end) = ends.get(ends.partition_point(|&end| end < index)) else { continue };
        let members = all[index + 1..end].iter().filter(|leaf| leaf.bits > 0).cloned().collect();
        groups.push(Group { name, bytes: (leaf.offset(), all[end].offset()), members });
    }
    groups
}

/// Returns the groups that touch more lines than they would if they began a line.
///
/// The kernel's own assertions compare offsets within a group and do not see this.
pub fn crossing(types: &Types, name: &str, id: TypeId, lines: Lines) -> Vec<Broken> {
    let broken = |group: Group| {
        let (begin, end) = group.bytes;
        let size = end.saturating_sub(begin);
        lines.straddles(begin, size).then(|| {
            let message = format!(
                "the group {} ({size} bytes at {begin}) lies on {} lines of {} where {} suffice",
                group.name,
                lines.count(begin, size),
                lines.size(),
                size.div_ceil(lines.size()),
            );
            Broken::of(types, (name, id), "group", vec![group.name], message)
        })
    };
    groups(types, id).into_iter().filter_map(broken).collect()
}
