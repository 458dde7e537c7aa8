//! For random structures, a compiler gives the sketch the proposed layout: alignment, holes, bitfields and flexible
//! arrays follow the language's rules.

use std::path::Path;

use crate::compile;
use ledgerline_advise::advice::{Wishes, advise};
use ledgerline_advise::cost::Question;
use ledgerline_advise::pieces::Freedom;
use ledgerline_advise::print::{self, Language};
use ledgerline_advise::profile::{Access, Instances, Kind, Phase, Role, TypeProfile};
use ledgerline_coherence::machine::Machine;
use ledgerline_layout::leaf::find;
use ledgerline_layout::model::Types;
use ledgerline_layout::pick::pick;
use proptest::prelude::*;

fn compiled(name: &str, text: &str) -> Option<Types> {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.c"));
    std::fs::write(&source, text).unwrap();
    compile::types(&source, &[])
}

/// Generates a member: its declaration, with `@` for the name.
fn member() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("long @".to_owned()),
        2 => Just("int @".to_owned()),
        1 => Just("char @".to_owned()),
        1 => Just("short @".to_owned()),
        2 => Just("void *@".to_owned()),
        1 => (1u32..80).prop_map(|count| format!("char @[{count}]")),
        1 => Just("struct part @".to_owned()),
        1 => Just("long double @".to_owned()),
        2 => (1u32..12).prop_map(|bits| format!("unsigned int @ : {bits}")),
        1 => (1u32..40).prop_map(|bits| format!("unsigned long @ : {bits}")),
        1 => Just("long @ __attribute__((aligned(64)))".to_owned()),
        1 => Just("struct { int a@; char b@; } @".to_owned()),
    ]
}

const PART: &str = "struct part { long a; char b; };\n";

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 40, ..crate::cases::few(file!(), 24) })]

    #[test]
    fn a_sketch_of_random_members_compiles_to_the_proposed_offsets(
        members in proptest::collection::vec(member(), 3..10),
        touches in proptest::collection::vec((any::<prop::sample::Index>(), 0..3u8, any::<bool>()), 2..6),
        flexible in any::<bool>(),
    ) {
        let mut text = format!("{PART}struct it {{\n");
        for (number, member) in members.iter().enumerate() {
            text.push_str(&format!("    {};\n", member.replace('@', &format!("m{number}"))));
        }
        text.push_str(if flexible { "    int tail[];\n};\n" } else { "};\n" });
        text.push_str("struct it *it(void) { return 0; }\n");
        let Some(types) = compiled("random", &text) else { return Ok(()) };
        let id = pick(&types, &["it".to_owned()]).unwrap()[0].1;
        let phase = |often: bool| Phase {
            name: format!("phase {often}"),
            times: if often { 1.0 } else { 0.3 },
            accesses: touches
                .iter()
                .filter(|touch| touch.2 == often)
                .map(|(which, kind, _)| Access {
                    field: format!("m{}", which.index(members.len())),
                    kind: [Kind::Load, Kind::Store, Kind::Atomic][usize::from(*kind)],
                    times: 1.0,
                })
                .collect(),
        };
        let role = Role {
            name: "all".to_owned(),
            share: 1.0,
            work_ns: 1500.0,
            basis: Default::default(),
            phases: vec![phase(true), phase(false)],
        };
        let profile =
            TypeProfile { name: "it".to_owned(), instances: Instances::Shared, roles: vec![role] };
        let machine = Machine::built_in("haswell-ep-2699v3").unwrap();
        let question = Question { machine: &machine, cpus: 36, points: 1 };
        let wishes =
            Wishes { freedom: Freedom { first: true, ..Freedom::default() }, ..Wishes::default() };
        let advice = advise(&types, id, &profile, &question, &wishes).unwrap();
        let Some(proposal) = &advice.proposal else { return Ok(()) };
        let sketch = print::sketch(&types, id, &advice, Language::C);
        // A type without a tag cannot be declared again.
        if sketch.contains("{...}") {
            return Ok(());
        }
        let all = format!("{PART}{sketch}struct it *it(void) {{ return 0; }}\n");
        let new = compiled("sketch", &all).expect("it was there a moment ago");
        let new_id = pick(&new, &["it".to_owned()]).unwrap()[0].1;
        for (index, piece) in advice.pieces.list.iter().enumerate() {
            for field in &piece.fields {
                let leaf = find(&new, new_id, &field.name).expect(&field.name);
                let wanted = 8 * proposal.offsets[index] + field.start;
                prop_assert_eq!(leaf.start, wanted, "{} of\n{}\n{}", field.name, text, sketch);
            }
        }
        prop_assert_eq!(new.size(new_id), Some(proposal.size), "{}\n{}", text, sketch);
    }
}
