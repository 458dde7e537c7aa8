//! References and pointers to members are spelled in the syntax of C++.

use crate::support::compile::compile;
use crate::support::folder;
use crate::support::truth::record;
use ledgerline_layout::dwarf;
use ledgerline_layout::model::Role;
use ledgerline_layout::spell::spell;

const SOURCE: &str = "
namespace space { struct Class { long a; int f(int); }; class Declared; }
struct Points {
    int &left; int &&right; const space::Class &constant; int *&pointer; int (&function)(char);
    long space::Class::*member; long space::Declared::*declared; void (*space::Class::*call)(int); int *plain;
    int (space::Class::*method)(int);
};
Points *points;
";

#[test]
fn references_and_pointers_to_members_are_told_from_pointers() {
    let folder = folder("references");
    std::fs::write(folder.join("source.cpp"), SOURCE).unwrap();
    for flags in [["-gdwarf-5", "-fno-debug-types-section"], ["-gdwarf-4", "-fdebug-types-section"]]
    {
        if compile("g++", &folder, &[&flags[..], &["-c", "source.cpp"]].concat()).is_none() {
            return;
        }
        let types = dwarf::open(&folder.join("source.o")).unwrap();
        let points = record(&types, "Points").unwrap();
        assert!(points.members.iter().all(|member| member.role == Role::Field));
        let said: Vec<(&str, String)> = (points.members.iter())
            .map(|member| (types.name(member.name), spell(&types, member.ty).to_string()))
            .collect();
        let wanted = [
            ("left", "int &"),
            ("right", "int &&"),
            ("constant", "const space::Class &"),
            ("pointer", "int *&"),
            ("function", "int (&)(char)"),
            ("member", "long int space::Class::*"),
            ("declared", "long int space::Declared::*"),
            ("call", "void (*space::Class::*)(int)"),
            ("plain", "int *"),
            ("method", "pointer to member function"),
        ];
        let wanted = wanted.map(|(name, ty)| (name, ty.to_owned()));
        assert_eq!(said, wanted, "{flags:?}");
        assert_eq!(points.size, 88);
    }
}
