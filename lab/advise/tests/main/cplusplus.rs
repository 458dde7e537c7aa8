//! The sketch of a C++ class is valid C++: it has the bases and template arguments, and lacks the members that the
//! compiler makes.

use std::path::Path;

use crate::compile;
use ledgerline_advise::advice::{Advice, Wishes, advise};
use ledgerline_advise::cost::Question;
use ledgerline_advise::print::{self, Language};
use ledgerline_advise::profile::{Access, Instances, Kind, Phase, Role, TypeProfile};
use ledgerline_coherence::machine::Machine;
use ledgerline_layout::leaf::find;
use ledgerline_layout::model::{TypeId, Types};
use ledgerline_layout::pick::pick;

const BEFORE: &str = r#"
    #include <atomic>
    namespace shop {
    struct root { virtual ~root(); long common; };
    struct part { long a, b; };
    template <typename T, int N> struct counter;
"#;

/// Members that are written alternate with members that are read.
const MEMBERS: &str =
    "std::atomic<long> hits; long limit; std::atomic<long> more; T rest[N]; long other;";

fn compiled(name: &str, text: &str) -> Option<Types> {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.cc"));
    std::fs::write(&source, text).unwrap();
    compile::types(&source, &["-std=c++17"])
}

fn picked(types: &Types, name: &str) -> TypeId {
    pick(types, &[name.to_owned()]).unwrap()[0].1
}

/// All CPUs add to `hits` and read `limit` and `other`.
fn advice(types: &Types, name: &str) -> Advice {
    let access = |field: &str, kind| Access { field: field.to_owned(), kind, times: 1.0 };
    let phase = Phase {
        name: "all".to_owned(),
        times: 1.0,
        accesses: vec![
            access("hits", Kind::Atomic),
            access("limit", Kind::Load),
            access("other", Kind::Load),
        ],
    };
    let role = Role {
        name: "all".to_owned(),
        share: 1.0,
        work_ns: 500.0,
        basis: Default::default(),
        phases: vec![phase],
    };
    let profile =
        TypeProfile { name: name.to_owned(), instances: Instances::Shared, roles: vec![role] };
    let machine = Machine::built_in("haswell-ep-2699v3").unwrap();
    let question = Question { machine: &machine, cpus: 36, points: 1 };
    let wishes = Wishes::default();
    advise(types, picked(types, name), &profile, &question, &wishes).unwrap()
}

#[test]
fn a_sketch_of_a_class_compiles_to_the_proposed_offsets() {
    let members = |t: &str, n: &str| MEMBERS.replace('T', t).replace('N', n);
    let cases = [
        (
            "shop::counter<long int, 3>",
            format!(
                "template <typename T, int N> struct counter : root, part {{ {MEMBERS} }};
                 counter<long, 3> object; root::~root() {{}}"
            ),
            "struct counter<long int, 3> : public shop::root, public shop::part {",
        ),
        (
            "shop::plain",
            format!(
                "class plain : public part {{ public: virtual ~plain(); {} }}; plain object; plain::~plain() {{}}",
                members("char", "5")
            ),
            "class plain : public shop::part {",
        ),
        (
            "shop::outer::inner",
            format!(
                "struct outer {{ struct inner {{ {} }}; inner of; }}; outer object;",
                members("int", "3")
            ),
            "struct inner {",
        ),
    ];
    for (name, source, head) in cases {
        let Some(types) = compiled("class", &format!("{BEFORE}{source} }}\n")) else { return };
        // clang writes `counter<long, 3>` for gcc's `counter<long int, 3>`.
        let by_clang = pick(&types, &[name.to_owned()]).is_err();
        let spelled = |text: &str| match by_clang {
            true => text.replace("long int", "long"),
            false => text.to_owned(),
        };
        let (name, head) = (&*spelled(name), &*spelled(head));
        let advice = advice(&types, name);
        let proposal =
            advice.proposal.as_ref().expect("what is read goes away from what is written");
        let sketch = print::sketch(&types, picked(&types, name), &advice, Language::C);
        assert!(sketch.starts_with("/* A sketch"), "{sketch}");
        assert!(sketch.contains(head) && !sketch.contains("vtbl"), "{sketch}");
        // The test adds the parts that a sketch lacks: a use, and the body of a function.
        let bare = name.rsplit("::").next().unwrap();
        let body =
            if sketch.contains('~') { format!("{bare}::~{bare}() {{}}") } else { String::new() };
        let new = format!("{BEFORE}{sketch} root::~root() {{}} {bare} object; {body} }}\n");
        let new = compiled("class-sketch", &new).expect("it was there a moment ago");
        let short = format!("shop::{bare}");
        for (index, piece) in advice.pieces.list.iter().enumerate() {
            for field in piece.fields.iter().filter(|field| !field.name.contains(['_', ':', ' '])) {
                let leaf = find(&new, picked(&new, &short), &field.name).expect(&field.name);
                let wanted = 8 * proposal.offsets[index] + field.start;
                assert_eq!(leaf.start, wanted, "{} of\n{sketch}", field.name);
            }
        }
        assert_eq!(new.size(picked(&new, &short)), Some(proposal.size), "{sketch}");
    }
}
