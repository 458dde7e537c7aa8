//! Places: where something is counted. They form a fixed tree.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The most places of a tree.
pub const PLACES_MAX: usize = 4096;
/// The most levels of a tree.
pub const DEPTH_MAX: usize = 16;
/// The longest name of a place or an item, in bytes.
pub const NAME_MAX: usize = 63;

/// The kind of a place. Printers group by it, and files store its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceKind {
    /// The whole machine.
    Machine,
    /// A NUMA node.
    Node,
    /// A zone of a node.
    Zone,
    /// A kind that the program defines.
    Other,
}

/// A place of one tree of [`Places`]; a small number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlaceId {
    pub(super) tree: u32,
    pub(super) index: u32,
}

impl PlaceId {
    /// Returns the place's number in its tree: 0 for the root, then in the order in which they were
    /// added.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// One place at the time of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceSnapshot {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: PlaceKind,
    /// The place that it lies in, by its position in [`CountersSnapshot::places`](super::CountersSnapshot::places); `None`
    /// for the root.
    pub parent: Option<usize>,
    /// How far a CPU's difference may be from zero; 0 where there is no threshold.
    pub threshold: u32,
    /// The value of each item here and at all places below: totals and differences, clamped at zero.
    pub values: Vec<u64>,
}

impl PlaceSnapshot {
    /// Returns a place without values.
    pub(super) fn unread(name: String, kind: PlaceKind, parent: Option<usize>) -> PlaceSnapshot {
        PlaceSnapshot { name, kind, parent, threshold: 0, values: Vec::new() }
    }
}

/// A fixed tree of places. A clone is cheap.
///
/// ```
/// use ledgerline::stat::{PlaceKind, Places};
///
/// let mut tree = Places::builder("machine");
/// let node = tree.node("0")?;
/// let normal = tree.zone(node, "Normal")?;
/// let places = tree.build()?;
/// assert_eq!(places.name(normal), "Normal");
/// assert_eq!(places.parent(normal), Some(node));
/// assert_eq!(places.find("0/Normal"), Some(normal));
/// # Ok::<(), ledgerline::stat::PlaceError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Places {
    tree: Arc<Tree>,
}

#[derive(Debug)]
struct Tree {
    number: u32,
    places: Vec<Place>,
}

#[derive(Clone, Debug)]
struct Place {
    name: String,
    kind: PlaceKind,
    parent: Option<u32>,
    /// The place and all below it.
    subtree: Vec<u32>,
}

/// Builds a tree of [`Places`].
#[derive(Debug)]
pub struct PlacesBuilder {
    tree: Tree,
}

/// A tree that cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaceError {
    /// The parent is a place of another tree.
    Foreign,
    /// The parent has a place of that name already.
    Duplicate {
        /// That name.
        name: String,
    },
    /// Names have 1 to [`NAME_MAX`] bytes, without white space, control characters or `/`.
    Name {
        /// That name.
        name: String,
    },
    /// The tree would have more than [`PLACES_MAX`] places, or [`DEPTH_MAX`] levels.
    TooLarge,
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlaceError::Foreign => write!(f, "the parent is a place of another tree"),
            PlaceError::Duplicate { name } => {
                write!(f, "the parent has a place called {name:?} already")
            }
            PlaceError::Name { name } => write!(
                f,
                "{name:?} cannot be a name: a name has 1 to {NAME_MAX} bytes without white space or /"
            ),
            PlaceError::TooLarge => {
                write!(f, "a tree has at most {PLACES_MAX} places and {DEPTH_MAX} levels")
            }
        }
    }
}

impl std::error::Error for PlaceError {}

/// Returns whether a text may be printed as a name in a line of words.
pub(super) fn is_name(name: &str) -> bool {
    let forbidden = |c: char| c.is_whitespace() || !crate::table::name::allows(c);
    (1..=NAME_MAX).contains(&name.len()) && !name.contains(forbidden)
}

impl Places {
    /// Starts a tree whose root, of kind [`PlaceKind::Machine`], has this name.
    pub fn builder(root: &str) -> PlacesBuilder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Numbers are never reused: after 2^32 trees the next is refused by `build`.
        let number = NEXT
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| last.checked_add(1))
            .unwrap_or(u32::MAX);
        let root = Place {
            name: root.to_owned(),
            kind: PlaceKind::Machine,
            parent: None,
            subtree: Vec::new(),
        };
        PlacesBuilder { tree: Tree { number, places: vec![root] } }
    }

    /// Makes a tree of one place.
    ///
    /// # Errors
    /// When the name is not allowed.
    pub fn single(root: &str) -> Result<Places, PlaceError> {
        Places::builder(root).build()
    }

    /// Returns the root.
    pub fn root(&self) -> PlaceId {
        self.id(0)
    }

    /// Returns how many places there are, the root included.
    #[allow(clippy::len_without_is_empty, reason = "there is always a root")]
    pub fn len(&self) -> usize {
        self.tree.places.len()
    }

    /// Iterates over all places, each parent before the places below it.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = PlaceId> + '_ {
        (0..self.len() as u32).map(|index| self.id(index))
    }

    /// Returns a place's name.
    ///
    /// # Panics
    /// If the place belongs to another tree, like all calls that take a place.
    pub fn name(&self, place: PlaceId) -> &str {
        &self.place(place).name
    }

    /// Returns a place's kind.
    pub fn kind(&self, place: PlaceId) -> PlaceKind {
        self.place(place).kind
    }

    /// Returns the place that a place lies in; `None` for the root.
    pub fn parent(&self, place: PlaceId) -> Option<PlaceId> {
        self.place(place).parent.map(|parent| self.id(parent))
    }

    /// Iterates over the places right below a place, in the order in which they were added.
    pub fn children(&self, place: PlaceId) -> impl Iterator<Item = PlaceId> + '_ {
        self.check(place);
        self.iter().filter(move |&child| self.parent(child) == Some(place))
    }

    /// Returns the place at a path of names below the root, `node/zone`; the empty path is the root.
    pub fn find(&self, path: &str) -> Option<PlaceId> {
        let mut names = path.split('/').filter(|name| !name.is_empty());
        names.try_fold(self.root(), |at, name| {
            self.children(at).find(|&child| self.name(child) == name)
        })
    }

    /// Returns the path of a place below the root, as [`find`](Self::find) takes it.
    pub fn path(&self, place: PlaceId) -> String {
        self.check(place);
        let above = self.ancestors(place.index).map(|at| &*self.tree.places[at as usize].name);
        let mut names: Vec<&str> = above.collect();
        // The root's own name is not part of the path.
        names.pop();
        names.reverse();
        names.join("/")
    }

    /// Returns the number of the tree, which is unique in the process.
    pub(super) fn number(&self) -> u32 {
        self.tree.number
    }

    /// Returns the place and all below it.
    pub(super) fn subtree(&self, place: u32) -> &[u32] {
        &self.tree.places[place as usize].subtree
    }

    /// Returns the place and all places that it lies in, up to the root.
    pub(super) fn ancestors(&self, place: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(Some(place), |&at| self.tree.places[at as usize].parent)
    }

    fn id(&self, index: u32) -> PlaceId {
        PlaceId { tree: self.tree.number, index }
    }

    fn check(&self, place: PlaceId) {
        assert!(place.tree == self.tree.number, "a place of another tree");
    }

    fn place(&self, place: PlaceId) -> &Place {
        self.check(place);
        &self.tree.places[place.index()]
    }
}

impl PlacesBuilder {
    /// Returns the root.
    pub fn root(&self) -> PlaceId {
        PlaceId { tree: self.tree.number, index: 0 }
    }

    /// Adds a place below another.
    ///
    /// # Errors
    /// When the parent belongs to another tree or has a child of that name, when the name is not allowed,
    /// and when the tree grows too large.
    pub fn add(
        &mut self,
        parent: PlaceId,
        kind: PlaceKind,
        name: &str,
    ) -> Result<PlaceId, PlaceError> {
        let Tree { number, places } = &mut self.tree;
        if parent.tree != *number {
            return Err(PlaceError::Foreign);
        }
        if !is_name(name) {
            return Err(PlaceError::Name { name: name.to_owned() });
        }
        let below = Some(parent.index);
        if places.iter().any(|place| place.parent == below && place.name == name) {
            return Err(PlaceError::Duplicate { name: name.to_owned() });
        }
        let up = |&at: &u32| places[at as usize].parent;
        let depth = std::iter::successors(Some(parent.index), up).count() + 1;
        if places.len() >= PLACES_MAX || depth > DEPTH_MAX {
            return Err(PlaceError::TooLarge);
        }
        let index = places.len() as u32;
        places.push(Place { name: name.to_owned(), kind, parent: below, subtree: Vec::new() });
        Ok(PlaceId { tree: *number, index })
    }

    /// Adds a NUMA node below the root.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    pub fn node(&mut self, name: &str) -> Result<PlaceId, PlaceError> {
        self.add(self.root(), PlaceKind::Node, name)
    }

    /// Adds a zone of a node.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    pub fn zone(&mut self, node: PlaceId, name: &str) -> Result<PlaceId, PlaceError> {
        self.add(node, PlaceKind::Zone, name)
    }

    /// Builds the tree.
    ///
    /// # Errors
    /// When the root's name is not allowed.
    pub fn build(mut self) -> Result<Places, PlaceError> {
        let Tree { number, places } = &mut self.tree;
        if *number == u32::MAX {
            return Err(PlaceError::TooLarge);
        }
        if !is_name(&places[0].name) {
            return Err(PlaceError::Name { name: places[0].name.clone() });
        }
        for index in (0..places.len()).rev() {
            // The places below come later in the list, so their subtrees are complete.
            let (above, below) = places.split_at_mut(index);
            let Place { parent, subtree, .. } = &mut below[0];
            subtree.push(index as u32);
            subtree.sort_unstable();
            if let Some(parent) = *parent {
                above[parent as usize].subtree.extend(&*subtree);
            }
        }
        Ok(Places { tree: Arc::new(self.tree) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_knows_its_name_parent_and_what_is_below() {
        let mut tree = Places::builder("machine");
        let nodes = ["0", "1"].map(|name| tree.node(name).unwrap());
        let zones: Vec<_> = nodes
            .iter()
            .flat_map(|&node| ["DMA", "Normal"].map(|name| (node, name)))
            .map(|(node, name)| tree.zone(node, name).unwrap())
            .collect();
        let rack = tree.add(tree.root(), PlaceKind::Other, "rack").unwrap();
        let places = tree.build().unwrap();
        assert_eq!(places.len(), 8);
        assert_eq!(places.subtree(0), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(places.subtree(2), [2, 5, 6]);
        assert_eq!(places.ancestors(6).collect::<Vec<_>>(), [6, 2, 0]);
        assert_eq!(places.children(nodes[1]).collect::<Vec<_>>(), zones[2..]);
        assert_eq!(places.kind(rack), PlaceKind::Other);
        for place in places.iter() {
            assert_eq!(places.find(&places.path(place)), Some(place));
        }
        assert_eq!(places.find("1/DMA32"), None);
    }

    #[test]
    fn what_makes_no_tree_is_refused() {
        let mut tree = Places::builder("machine");
        let other = Places::builder("machine").root();
        assert_eq!(tree.node("").unwrap_err(), PlaceError::Name { name: "".into() });
        for bad in ["a b", "a/b", "a\nb", &"n".repeat(64)] {
            assert_eq!(tree.node(bad).unwrap_err(), PlaceError::Name { name: bad.into() });
        }
        assert_eq!(tree.zone(other, "x").unwrap_err(), PlaceError::Foreign);
        tree.node("0").unwrap();
        assert_eq!(tree.node("0").unwrap_err(), PlaceError::Duplicate { name: "0".into() });
        let mut at = tree.root();
        for level in 1..DEPTH_MAX {
            at = tree.add(at, PlaceKind::Other, &format!("l{level}")).unwrap();
        }
        assert_eq!(tree.zone(at, "deep").unwrap_err(), PlaceError::TooLarge);
        assert!(Places::single("two words").is_err());
    }

    #[test]
    #[should_panic(expected = "a place of another tree")]
    fn a_place_of_another_tree_is_not_looked_up() {
        let other = Places::single("a").unwrap().root();
        Places::single("a").unwrap().name(other);
    }
}
