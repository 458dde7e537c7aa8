//! Statistics: sums and counters that many CPUs write and few readers read.
//!
//! | to                                            | use                                          |
//! |-----------------------------------------------|----------------------------------------------|
//! | declare what is counted                       | [`items!`](crate::items), [`Item`]           |
//! | say where                                     | [`Places`]                                   |
//! | count                                         | [`Counters`]                                 |
//! | choose how far a CPU may lag behind           | [`threshold`], [`Width`]                     |
//! | read all, here or in another process          | [`CountersSnapshot`], [`CountersFile`]       |
//! | add up over many CPUs, read in one load       | [`tree::Sum`]                                |
//! | count the resident pages of many owners       | [`rss::Table`]                               |
//! | count where allocations come from             | [`numa::Numa`]                               |
//! | print as the kernel does                      | [`mod@print`]                                |

mod builder;
mod counters;
mod file;
mod fold;
mod items;
mod layout;
pub mod numa;
mod places;
pub mod print;
mod read;
mod refresh;
pub mod rss;
mod snapshot;
pub mod threshold;
mod total;
pub mod tree;
mod width;

pub use builder::CountersBuilder;
pub use counters::{At, Counters, On};
pub use file::CountersFile;
pub use fold::ThresholdError;
pub use items::{Item, UnknownItem};
pub use places::{
    DEPTH_MAX, NAME_MAX, PLACES_MAX, PlaceError, PlaceId, PlaceKind, PlaceSnapshot, Places,
    PlacesBuilder,
};
pub use read::{Clamps, Reading};
pub use refresh::RefreshHandle;
pub use snapshot::CountersSnapshot;
pub use width::{Signed, Width, WidthKind};
