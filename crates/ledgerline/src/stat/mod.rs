//! Statistics: sums and counters that many CPUs write and few readers read.
//!
//! | to                                            | use                                          |
//! |-----------------------------------------------|----------------------------------------------|
//! | declare what is counted                       | [`items!`](crate::items), [`Item`]           |
//! | say where                                     | [`Places`]                                   |
//! | count                                         | [`Counters`]                                 |
//! | choose how far a CPU may lag behind           | [`threshold`], [`Width`]                     |
//! | print, or look on from another process        | [`CountersSnapshot`], [`CountersFile`]       |

mod builder;
mod counters;
mod file;
mod fold;
mod items;
mod layout;
mod places;
mod read;
mod refresh;
mod snapshot;
pub mod threshold;
mod total;
mod width;

pub use builder::CountersBuilder;
pub use counters::{At, Counters, On};
pub use file::CountersFile;
pub use fold::ThresholdError;
pub use items::{Item, UnknownItem};
pub use places::{
    DEPTH_MAX, NAME_MAX, PLACES_MAX, PlaceError, PlaceId, PlaceKind, Places, PlacesBuilder,
};
pub use read::{Clamps, Reading};
pub use refresh::RefreshHandle;
pub use snapshot::{CountersSnapshot, PlaceSnapshot};
pub use width::{Signed, Width, WidthKind};
