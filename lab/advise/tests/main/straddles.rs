//! A member on more lines than it needs is marked wherever advice prints it.

use std::path::Path;

use crate::compile;
use ledgerline_advise::advice::{Wishes, advise};
use ledgerline_advise::cost::Question;
use ledgerline_advise::pieces::Freedom;
use ledgerline_advise::print::{self, Language};
use ledgerline_advise::profile::{Access, Instances, Kind, Phase, Role, TypeProfile};
use ledgerline_coherence::machine::Machine;
use ledgerline_layout::pick::pick;

#[test]
fn a_member_that_straddles_is_marked_in_the_table_and_in_the_sketch() {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("straddles.c");
    let text = "struct it { int hits, limit; char name[52]; long odd __attribute__((packed)); long rest[8]; } it;\n";
    std::fs::write(&source, text).unwrap();
    let Some(types) = compile::types(&source, &[]) else { return };
    let id = pick(&types, &["it".to_owned()]).unwrap()[0].1;
    let access = |field: &str, kind| Access { field: field.to_owned(), kind, times: 1.0 };
    let accesses =
        vec![access("hits", Kind::Atomic), access("limit", Kind::Load), access("odd", Kind::Load)];
    let phase = Phase { name: "all".to_owned(), times: 1.0, accesses };
    let role = Role {
        name: "all".to_owned(),
        share: 1.0,
        work_ns: 500.0,
        basis: Default::default(),
        phases: vec![phase],
    };
    let profile =
        TypeProfile { name: "it".to_owned(), instances: Instances::Shared, roles: vec![role] };
    let machine = Machine::built_in("haswell-ep-2699v3").unwrap();
    let question = Question { machine: &machine, cpus: 36, points: 1 };
    let freedom = Freedom { pinned: vec!["odd".to_owned()], ..Freedom::default() };
    let wishes = Wishes { freedom, ..Wishes::default() };
    let advice = advise(&types, id, &profile, &question, &wishes).unwrap();
    let options = print::Options { question: &question, profile: "p", line: 64, colour: false };
    let mut out = String::new();
    print::text(&types, id, &advice, &options, &mut out);
    assert!(out.contains("odd:r (straddles)"), "{out}");
    assert_eq!(
        out.matches("(straddles)").count(),
        out.matches("odd:r (straddles)").count(),
        "{out}"
    );
    assert!(advice.proposal.is_some(), "what is read goes away from what is written:\n{out}");
    let sketch = print::sketch(&types, id, &advice, Language::C);
    let odd = sketch.lines().find(|line| line.contains(" odd")).expect("it is declared");
    assert!(odd.contains("/* straddles, to line 1 */"), "{sketch}");
    for lies_well in ["hits", "limit", "name"] {
        let line = sketch.lines().find(|line| line.contains(lies_well)).expect("it is declared");
        assert!(!line.contains("straddles"), "{sketch}");
    }
}
