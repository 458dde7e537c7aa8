//! Prints advice as text.

use std::fmt::Write;

use ledgerline_coherence::experiments::Interval;
use ledgerline_layout::lines::Lines;
use ledgerline_layout::model::{TypeId, Types};

use super::sketch::{Language, sketch};
use super::{Options, figure, negated, range};
use crate::advice::{Advice, Proposal};
use crate::cost::{self, Cost, MOST_WAITS, Place, Work};
use crate::pieces::Held;
use crate::profile::{EVERYONE, Row};
use crate::uses::few;

const FAINT: &str = "\x1b[2m";
const STRONG: &str = "\x1b[1m";
const WARN: &str = "\x1b[33m";
const GOOD: &str = "\x1b[32m";
const PLAIN: &str = "\x1b[0m";

/// Pairs of fields that are named.
const PAIRS: usize = 6;
/// About the width of a line of text, in characters.
const WIDTH: usize = 100;
/// Fields of a line that are named.
const NAMED: usize = 8;

/// Appends advice as text.
pub fn text(types: &Types, id: TypeId, advice: &Advice, options: &Options<'_>, out: &mut String) {
    let mut page = Page { advice, options, out };
    page.head();
    page.costs("Today", &advice.today, &advice.place, 2);
    page.pairs();
    match &advice.proposal {
        Some(proposal) => {
            let language = Language::of(types, advice);
            page.proposed(proposal, &sketch(types, id, advice, language), language);
        }
        None => page.kept(),
    }
}

/// Describes in a sentence the work that was found for a time.
fn found(work: &Work) -> String {
    let Work { role, takes_ns, alone_ns, work_ns, least_ns, waits } = work;
    let of = if role == EVERYONE { String::new() } else { format!(" of {role}") };
    let took = alone_ns.or(*takes_ns).unwrap_or_default();
    let mut told = format!("Of the {} ns{of} that were measured", figure(took));
    if alone_ns.is_some() {
        told.push_str(" alone");
    }
    let _ = write!(told, ", {} ns are work.", range(work_ns));
    if let (Some(takes), Some(waits)) = (takes_ns.filter(|_| alone_ns.is_some()), waits) {
        let (takes, more) = (figure(takes), figure(takes - took));
        let _ = write!(
            told,
            " Beside others it takes {takes} ns: the {more} ns more are {} times what is simulated, which is corrected \
             by that.",
            range(waits)
        );
        if waits.median >= MOST_WAITS {
            let _ = write!(
                told,
                " More is not corrected: something else makes it wait as well, a lock or what this profile leaves out."
            );
        }
    }
    if let Some(least) = least_ns
        && alone_ns.is_some()
    {
        let _ = write!(
            told,
            " Even without work the simulation takes {} ns alone on some of the machines: what follows is unsure, \
             and the times are of another machine maybe (--machine).",
            range(least)
        );
    } else if let Some(least) = least_ns {
        let _ = write!(
            told,
            " Even without work the simulation takes {} ns on some of the machines, whatever the program hides. There \
             some of the time is taken for work, and the simulated waiting counts for the rest. What follows is \
             unsure, and the times are of another machine maybe (--machine).",
            range(least)
        );
    }
    told
}

struct Page<'a> {
    advice: &'a Advice,
    options: &'a Options<'a>,
    out: &'a mut String,
}

impl Page<'_> {
    fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    fn painted(&self, colour: &str, text: &str) -> String {
        if self.options.colour { format!("{colour}{text}{PLAIN}") } else { text.to_owned() }
    }

    fn head(&mut self) {
        let Advice { name, pieces, today, place, .. } = self.advice;
        let question = self.options.question;
        let title = self.painted(STRONG, name);
        self.line(&format!("{title}: {} bytes; profile {}", pieces.size, self.options.profile));
        let base = match (place.row, place.base) {
            (Some(Row { stride, begins: Some(begins) }), _) => {
                format!(
                    "an object a CPU, {stride} bytes apart, from {begins} bytes into a pair of lines on"
                )
            }
            (Some(Row { stride, begins: None }), base) => {
                format!("an object a CPU, {stride} bytes apart, from a multiple of {base} on")
            }
            (None, base) if base >= 128 && self.advice.assumed => {
                "objects begin a pair of lines (assumed; --base says otherwise)".to_owned()
            }
            (None, base) => format!("objects begin at multiples of {base}"),
        };
        let (cpus, machine) = (question.cpus, &question.machine.name);
        let ending = if cpus == 1 { "" } else { "s" };
        self.line(&format!("{cpus} CPU{ending} of {machine}; {base}"));
        self.roles(cpus);
        self.wrapped(
            &format!(
                "An operation takes {} ns, of which CPUs wait {} ns for lines that others hold: medians, \
                 with the range over {} machines that fit what is known.",
                range(&today.nanoseconds),
                range(&today.waiting),
                question.points
            ),
            0,
        );
        for work in &self.advice.works {
            self.wrapped(&found(work), 0);
        }
        self.out.push('\n');
    }

    /// Prints how many CPUs play each role. The numbers follow from the shares, not from the CPUs of the profile.
    fn roles(&mut self, cpus: usize) {
        let roles = &self.advice.uses.roles;
        if roles.len() < 2 {
            return;
        }
        let dealt = cost::deal(roles, cpus);
        let play = roles.iter().enumerate().map(|(role, of)| {
            let count = dealt.iter().filter(|&&other| other == role).count();
            let (them, play) = if role == 0 { (" of them", " play") } else { ("", "") };
            format!("{count}{them}{play} {:?}", of.name)
        });
        let play = few(&play.collect::<Vec<_>>(), NAMED, ", ");
        self.wrapped(&format!("{play}, by the roles' shares."), 0);
    }

    /// Returns the word for a row.
    fn what(&self) -> &'static str {
        if self.options.line == 128 { "pair" } else { "line" }
    }

    /// Prints a row for each line: its fields and its cost.
    fn costs(&mut self, title: &str, cost: &Cost, place: &Place, indent: usize) {
        let width = self.options.line;
        let what = self.what();
        let lines = cost.by_lines(place, width);
        let title = self.painted(STRONG, title);
        self.line(&format!("{title}, {what} by {what}, in ns an operation:"));
        let cells: Vec<[String; 4]> = lines
            .iter()
            .map(|line| {
                [
                    line.line.to_string(),
                    range(&line.waiting),
                    figure(line.fetching),
                    range(&line.transfers),
                ]
            })
            .collect();
        let heads = [what, "waiting", "fetching", "moved"].map(str::to_owned);
        let wide = |column: usize| {
            cells.iter().chain([&heads]).map(|row| row[column].len()).max().unwrap_or(0)
        };
        let widths: [usize; 4] = std::array::from_fn(wide);
        let row = |cells: &[String; 4]| {
            let [a, b, c, d] = widths;
            let [line, waiting, fetching, moved] = cells;
            format!("{:indent$}{line:>a$}  {waiting:>b$}  {fetching:>c$}  {moved:>d$}  ", "")
        };
        let head = format!("{}touched fields", row(&heads));
        let head = self.painted(FAINT, &head);
        self.line(&head);
        for (line, cells) in lines.iter().zip(&cells) {
            let fields = self.fields(place, line.line, width);
            let dear = line.waiting.median > 0.01 * cost.nanoseconds.median;
            let row = row(cells);
            let row = if dear { self.painted(WARN, &row) } else { row };
            self.line(&format!("{row}{fields}"));
        }
        self.out.push('\n');
    }

    /// Returns the touched fields of a line, the most touched first, with `r` and `w` an operation.
    fn fields(&self, place: &Place, line: u64, width: u64) -> String {
        let uses = &self.advice.uses;
        let mut spots: Vec<usize> =
            (0..uses.spots.len()).filter(|&spot| place.offsets[spot] / width == line).collect();
        spots.sort_by_key(|&spot| (place.offsets[spot], spot));
        let named = spots.iter().map(|&spot| {
            let (reads, writes) = uses.rates(spot);
            let how = match (reads > 0.0, writes > 0.0) {
                (true, true) => "rw",
                (_, true) => "w",
                _ => "r",
            };
            let of = &uses.spots[spot];
            let straddles = Lines::of(width).straddles(place.offsets[spot], of.size);
            format!("{}:{how}{}", of.path, if straddles { " (straddles)" } else { "" })
        });
        few(&named.collect::<Vec<_>>(), NAMED, " ")
    }

    fn pairs(&mut self) {
        let Advice { today, .. } = self.advice;
        let least = 1e-3 * today.nanoseconds.median;
        let dear: Vec<_> = today.pairs.iter().filter(|pair| pair.waiting.median >= least).collect();
        if dear.is_empty() {
            self.line("No field waits for another's writing for long.");
            self.out.push('\n');
            return;
        }
        self.line("Who makes whom wait, in ns an operation:");
        for pair in dear.iter().take(PAIRS) {
            let place = self.together(&pair.writer, &pair.victim);
            self.line(&format!(
                "  {} -> {}  {}  {place}",
                pair.writer,
                pair.victim,
                range(&pair.waiting)
            ));
        }
        if dear.len() > PAIRS {
            self.line(&format!("  and {} pairs more", dear.len() - PAIRS));
        }
        self.out.push('\n');
    }

    fn together(&self, writer: &str, victim: &str) -> &'static str {
        if self.advice.place.row.is_some() {
            return "of the object beside it";
        }
        let at = |path: &str| {
            let spot = self.advice.uses.spots.iter().find(|spot| spot.path == path);
            spot.map_or(0, |spot| spot.offset)
        };
        let (one, other) = (at(writer), at(victim));
        match (writer == victim, one / 64 == other / 64, one / 128 == other / 128) {
            (true, ..) => "itself",
            (_, true, _) => "one line",
            (_, _, true) => "a pair of lines",
            _ => "they meet where objects begin elsewhere",
        }
    }

    fn kept(&mut self) {
        let verdict = self.painted(GOOD, "Keep today's order");
        match &self.advice.unsure {
            None => self.line(&format!("{verdict}: nothing better was found.")),
            Some(change) if figure(change.change.median) == "0" => {
                self.line(&format!("{verdict}: no other order that was found gains anything."));
            }
            Some(change) if change.change.median >= 0.0 => self.line(&format!(
                "{verdict}: the best other order costs {} ns more an operation.",
                range(&change.change)
            )),
            Some(change) => self.line(&format!(
                "{verdict}: the best other order gains {} ns an operation, which is too little or too \
                 unsure.",
                range(&negated(&change.change))
            )),
        }
    }

    fn proposed(&mut self, proposal: &Proposal, sketch: &str, language: Language) {
        let Advice { pieces, size_max, .. } = self.advice;
        let gain = negated(&proposal.change.change);
        let title = self.painted(GOOD, "A better order");
        self.line(&format!(
            "{title} gains {} ns an operation; throughput {} %.",
            range(&gain),
            range(&proposal.change.throughput)
        ));
        let mut size =
            format!("{} bytes, {} today, at most {size_max} allowed", proposal.size, pieces.size);
        if proposal.align > pieces.align {
            let _ = write!(size, "; aligned to {}, which its allocation must heed", proposal.align);
            if self.advice.place.row.is_some() {
                size.push_str(": aligned_alloc, not malloc");
            }
        }
        self.line(&format!("{size}."));
        for (held, why) in [
            (Held::Asked, "as asked"),
            (Held::First, "a record that begins the record; --move-first lets it go"),
            (Held::Compiler, "the compiler puts it there"),
            (Held::Last, "an array without a length comes last"),
        ] {
            let names: Vec<&str> = (pieces.list.iter())
                .filter(|piece| piece.held == Some(held))
                .map(|piece| piece.name())
                .collect();
            if !names.is_empty() {
                self.wrapped(&format!("Stays: {} ({why}).", few(&names, NAMED, ", ")), 2);
            }
        }
        if !pieces.dropped.is_empty() {
            let names = few(&pieces.dropped, NAMED, ", ");
            self.wrapped(&format!("Left out, as they have no size: {names}."), 2);
        }
        if language == Language::Rust {
            self.line("Rust keeps an order of repr(C) types alone.");
        }
        self.out.push('\n');
        for line in sketch.lines() {
            let line =
                if line.contains("/* line ") { self.painted(FAINT, line) } else { line.to_owned() };
            self.line(&line);
        }
        self.out.push('\n');
        self.costs("Then", &proposal.cost, &proposal.place, 2);
        self.line("Moves, each with what taking it back alone would cost:");
        for (number, of) in proposal.moves.iter().enumerate() {
            let (width, what) = (self.options.line, self.what());
            let (from, to) = (of.offsets.0 / width, of.offsets.1 / width);
            let mut place = if from == to {
                format!("stay on {what} {to}")
            } else {
                format!("{what} {from} to {to}")
            };
            match of.begins {
                Some(128) => place.push_str(", begins a pair of lines"),
                Some(_) => place.push_str(", begins a line"),
                None => {}
            }
            let gain = of.gain.as_ref().map_or(String::new(), |gain: &Interval| {
                let small = gain.median.abs() < 2e-3 * self.advice.today.nanoseconds.median;
                let unsure = match (gain.holds(0.0), small) {
                    (false, _) => "",
                    (true, true) => ": too small to tell",
                    (true, false) => ": not at every point",
                };
                format!(" {} ns{unsure}.", range(gain))
            });
            let text = format!(
                "{:>3}. {} ({place}): {}.{gain}",
                number + 1,
                of.fields.join(", "),
                of.reason
            );
            self.wrapped(&text, 5);
        }
    }

    fn wrapped(&mut self, text: &str, indent: usize) {
        let mut line = String::new();
        for word in text.split_inclusive(' ') {
            if line.len() + word.trim_end().len() > WIDTH && !line.trim().is_empty() {
                self.line(&line);
                line = " ".repeat(indent);
            }
            line.push_str(word);
        }
        self.line(&line);
    }
}
