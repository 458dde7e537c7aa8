//! Prints advice as one JSON object.

use ledgerline_coherence::experiments::Interval;
use ledgerline_layout::model::{TypeId, Types};
use serde::Serialize;

use super::sketch::{Language, sketch};
use super::{Options, negated};
use crate::advice::Advice;
use crate::cost::{Cost, LineCost, PairCost, Place, Work};
use crate::profile::Row;

#[derive(Serialize)]
struct Object<'a> {
    schema: &'static str,
    name: &'a str,
    machine: &'a str,
    cpus: usize,
    points: usize,
    profile: &'a str,
    size: u64,
    align: u64,
    base: u64,
    base_assumed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    row: Option<Row>,
    size_max: u64,
    #[serde(skip_serializing_if = "<[Work]>::is_empty")]
    works: &'a [Work],
    today: Costs<'a>,
    proposed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    unsure_gain_ns: Option<Interval>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proposal: Option<Proposed<'a>>,
}

#[derive(Serialize)]
struct Costs<'a> {
    nanoseconds: Interval,
    waiting_ns: Interval,
    line_size: u64,
    lines: Vec<Line<'a>>,
    pairs: &'a [PairCost],
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    cost: LineCost,
    fields: Vec<Field<'a>>,
}

#[derive(Serialize)]
struct Field<'a> {
    name: &'a str,
    offset: u64,
    reads: f64,
    writes: f64,
    waiting_ns: Interval,
}

#[derive(Serialize)]
struct Proposed<'a> {
    size: u64,
    align: u64,
    gain_ns: Interval,
    gain_percent: Interval,
    throughput_percent: Interval,
    members: Vec<Member<'a>>,
    moves: Vec<Move<'a>>,
    cost: Costs<'a>,
    sketch: String,
}

#[derive(Serialize)]
struct Member<'a> {
    name: &'a str,
    offset: u64,
    size: u64,
    was: u64,
    line: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    begins: Option<u64>,
}

#[derive(Serialize)]
struct Move<'a> {
    fields: &'a [String],
    from_line: u64,
    to_line: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    begins: Option<u64>,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    gain_ns: Option<Interval>,
}

fn costs<'a>(advice: &'a Advice, cost: &'a Cost, place: &Place, width: u64) -> Costs<'a> {
    let field = |spot: usize| {
        let (reads, writes) = advice.uses.rates(spot);
        let of = &cost.fields[spot];
        let (name, offset) = (&*of.path, place.offsets[spot]);
        Field { name, offset, reads, writes, waiting_ns: of.waiting }
    };
    let lines = cost.by_lines(place, width).into_iter().map(|cost| {
        let here =
            (0..place.offsets.len()).filter(|&spot| place.offsets[spot] / width == cost.line);
        Line { fields: here.map(field).collect(), cost }
    });
    Costs {
        nanoseconds: cost.nanoseconds,
        waiting_ns: cost.waiting,
        line_size: width,
        lines: lines.collect(),
        pairs: &cost.pairs,
    }
}

/// Returns advice as one JSON object. Figures are nanoseconds an operation. Lines count from 0 and have `line_size`
/// bytes.
///
/// `proposed` is true if there is a `proposal`. `unsure_gain_ns` is the gain of the best order that was found if it is
/// too small or too uncertain.
#[must_use]
pub fn json(types: &Types, id: TypeId, advice: &Advice, options: &Options<'_>) -> String {
    let question = options.question;
    let proposal = advice.proposal.as_ref().map(|proposal| {
        let members = proposal.order.iter().map(|&index| {
            let piece = &advice.pieces.list[index];
            let offset = proposal.offsets[index];
            let begins = Some(proposal.begins[index]).filter(|&begins| begins > 1);
            let (name, size, was) = (piece.name(), piece.size, piece.offset);
            Member { name, offset, size, was, line: offset / options.line, begins }
        });
        let moves = proposal.moves.iter().map(|of| Move {
            fields: &of.fields,
            from_line: of.offsets.0 / options.line,
            to_line: of.offsets.1 / options.line,
            begins: of.begins,
            reason: &of.reason,
            gain_ns: of.gain,
        });
        Proposed {
            size: proposal.size,
            align: proposal.align,
            gain_ns: negated(&proposal.change.change),
            gain_percent: negated(&proposal.change.percent),
            throughput_percent: proposal.change.throughput,
            members: members.collect(),
            moves: moves.collect(),
            cost: costs(advice, &proposal.cost, &proposal.place, options.line),
            sketch: sketch(types, id, advice, Language::of(types, advice)),
        }
    });
    let object = Object {
        schema: "ledgerline/layout-advise.v1",
        name: &advice.name,
        machine: &question.machine.name,
        cpus: question.cpus,
        points: question.points,
        profile: options.profile,
        size: advice.pieces.size,
        align: advice.pieces.align,
        base: advice.place.base,
        base_assumed: advice.assumed,
        row: advice.place.row,
        size_max: advice.size_max,
        works: &advice.works,
        today: costs(advice, &advice.today, &advice.place, options.line),
        proposed: proposal.is_some(),
        unsure_gain_ns: advice.unsure.as_ref().map(|change| negated(&change.change)),
        proposal,
    };
    serde_json::to_string(&object).expect("keys are texts")
}
