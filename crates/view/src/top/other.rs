//! Screens for something else than ledgers, on the same terminal.

pub use crate::top::draw::help::draw as help;
pub use crate::top::draw::pen::{Pen, width_of};
pub use crate::top::draw::{line_of_keys, rule};
pub use crate::top::keys::{Command, Help, command, stepped};
pub use crate::top::shown::{Answer, Shown};
pub use crate::top::theme::{Depth, Theme};
pub use crate::top::window::Window;
