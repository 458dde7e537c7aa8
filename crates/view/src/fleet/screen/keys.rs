//! The keys as the screen and `--help` show them.

use crate::top::other::Help;

/// All keys, as the help and `--help` show them.
pub const HELP: [Help; 7] = [
    ("up down k j", "choose a budget; PgUp PgDn by pages, Home End (g G) the first and the last"),
    ("a", "only budgets that are over, lack units or are deleted, or all"),
    ("Enter", "show or hide the nodes and the refusals of the chosen budget"),
    ("p", "stop reading, and go on"),
    ("[ ]", "read more often, less often: each time costs the store"),
    ("?", "this help; Esc closes it, shows all budgets, closes the pane"),
    ("q Ctrl-C", "end; Ctrl-Z stops, Ctrl-L draws everything anew"),
];

/// The last line of the screen, the most needed first.
pub(super) const LINE: [Help; 6] = [
    ("q", "quit"),
    ("?", "help"),
    ("a", "amiss"),
    ("Enter", "nodes"),
    ("p", "pause"),
    ("[]", "interval"),
];
