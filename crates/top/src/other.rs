//! Screens of something else than ledgers, which live on the terminal as those do.

pub use crate::draw::help::draw as help;
pub use crate::draw::pen::{Pen, width_of};
pub use crate::draw::{line_of_keys, rule};
pub use crate::keys::{Command, Help, command, stepped};
pub use crate::shown::{Answer, Shown};
pub use crate::theme::{Depth, Theme};
pub use crate::window::Window;
