use super::*;
use crate::lines::Lines;
use crate::model::{TypeId, Types};
use crate::sketch::words;

fn broken(layout: &str, rules: &str) -> Vec<String> {
    let mut types = Types::new(8);
    words(&mut types, "t", layout);
    let rules = File::parse(&format!("[[type]]\nname = 't'\n{rules}")).unwrap();
    check(&types, &rules, None).unwrap().iter().map(|broken| broken.rule.to_owned()).collect()
}

fn holds(layout: &str, rules: &str) {
    assert_eq!(broken(layout, rules), [""; 0], "{layout}: {rules}");
}

#[test]
fn each_rule_holds_where_it_should_and_breaks_where_it_should() {
    let (near, far) = ("a b", "a |b");
    let lists = [
        ("together = [['a', 'b']]", near, far, "together"),
        ("apart = [{ fields = ['a'], from = ['b'] }]", far, near, "apart"),
        ("apart = [{ among = ['a', 'b'], distance = 64 }]", far, near, "apart"),
        ("apart = [{ fields = ['a'], from = ['b'], distance = 128 }]", "a _120 b", far, "apart"),
        ("max_lines = 1", near, far, "max_lines"),
        ("size_max = 16", near, far, "size_max"),
        ("starts_line = ['b']", far, near, "starts_line"),
        ("alone = ['a']", far, near, "alone"),
        ("no_straddle = ['b']", "a b[7]", "a b[8]", "no_straddle"),
        ("no_straddle = ['*']", "a b[7]", "a b[8]", "no_straddle"),
        (
            "no_rmw_with_read_mostly = { rmw = ['a'], read_mostly = ['b'] }",
            far,
            near,
            "no_rmw_with_read_mostly",
        ),
    ];
    for (rule, good, bad, name) in lists {
        // A distance of 128 bytes can be checked only if the base is known.
        let rule = if rule.contains("128") { format!("base = 128\n{rule}") } else { rule.into() };
        holds(good, &rule);
        assert_eq!(broken(bad, &rule), [name], "{bad}: {rule}");
    }
}

#[test]
fn a_base_that_is_not_known_breaks_what_holds_only_on_a_line() {
    holds("a b", "together = [['a', 'b']]");
    assert_eq!(broken("a b", "base = 8\ntogether = [['a', 'b']]"), ["together"]);
    holds("a b", "base = 16\ntogether = [['a', 'b']]");
}

#[test]
fn rules_of_a_configuration_hold_in_that_one_alone() {
    let mut types = Types::new(8);
    words(&mut types, "t", "a b");
    let rules = "[[type]]\nname = 't'\nwhen = ['small']\nsize_max = 8";
    let rules = File::parse(rules).unwrap();
    assert_eq!(check(&types, &rules, None).unwrap(), []);
    assert_eq!(check(&types, &rules, Some("small")).unwrap().len(), 1);
    let error = check(&types, &rules, Some("smal")).unwrap_err().to_string();
    assert_eq!(error, "no rule has the configuration \"smal\"; did you mean `small`?");
}

#[test]
fn what_the_rules_name_and_the_file_has_not_is_said_with_near_names() {
    let mut types = Types::new(8);
    words(&mut types, "page_counter", "usage watermark");
    let said = |rules: &str| {
        let rules = File::parse(rules)?;
        let missing = check(&types, &rules, None)?.into_iter().find(|one| one.rule == MISSING);
        missing.map_or(Ok(()), |one| Err(crate::Error::new(one.message)))
    };
    let cases = [
        (
            "[[type]]\nname = 'page_countre'",
            "there is no type \"page_countre\"; did you mean `page_counter`?",
        ),
        (
            "[[type]]\nname = 'page_counter'\nalone = ['usag']",
            "page_counter has no field \"usag\"; did you mean `usage`?",
        ),
        (
            "[[type]]\nname = 'page_counter'\nno_straddle = ['*']\nalone = ['*']",
            "page_counter has no field \"*\"; `layout show FILE TYPE --expand` prints all of them",
        ),
        ("line = 32", "line = 32; give 64 or 128"),
        ("[[type]]\nsize_max = 1", "a [[type]] has no name; add name = \"...\""),
        (
            "[[type]]\nname = 't'\napart = [{ fields = ['a'] }]",
            "type \"t\": apart needs `fields` and `from`, or `among` alone",
        ),
        (
            "[[type]]\nname = 't'\nalone = ['usage']\noptional_fields = ['usag']",
            "type \"t\": no rule names the optional field \"usag\"; did you mean `usage`?",
        ),
        (
            "[[type]]\nname = 't'\noptional_fields = ['usage']",
            "type \"t\": no rule names the optional field \"usage\"; take it out",
        ),
    ];
    for (rules, message) in cases {
        assert_eq!(said(rules).unwrap_err().to_string(), message);
    }
    for rules in ["[[type]]\nnmae = 't'", "line = ", "[[type]]\nname = 3", "type = 1"] {
        let error = said(rules).unwrap_err().to_string();
        assert!(error.starts_with("line ") && error.lines().count() == 1, "{error}");
    }
}

/// Rules in which three types or fields are misspelled and one rule is broken.
const MANY: &str = "
[[type]]
name = 'gone'
size_max = 1
[[type]]
name = 't'
together = [['a', 'x', 'b']]
apart = [{ fields = ['x'], from = ['y', 'c'] }]
alone = ['a']
no_straddle = ['*', 'y']
size_max = 16
";

#[test]
fn the_check_goes_on_after_what_is_missing_and_tells_all_at_once() {
    let mut types = Types::new(8);
    words(&mut types, "t", "a b |c");
    let broken = check(&types, &File::parse(MANY).unwrap(), None).unwrap();
    let said: Vec<(&str, &str, String)> =
        (broken.iter()).map(|one| (one.ty.as_str(), one.rule, one.fields.join(" "))).collect();
    let wanted = [
        ("gone", MISSING, ""),
        ("t", MISSING, "x"),
        ("t", MISSING, "y"),
        ("t", "alone", "a b"),
        ("t", "size_max", ""),
    ];
    let wanted = wanted.map(|(ty, rule, fields)| (ty, rule, fields.to_owned()));
    assert_eq!(said, wanted);
    assert_eq!(json(&broken)["broken"][1]["rule"], MISSING);
    let sarif = sarif(&broken, "t.o");
    let rules = &sarif["runs"][0]["tool"]["driver"]["rules"];
    let index = sarif["runs"][0]["results"][1]["ruleIndex"].as_u64().unwrap() as usize;
    assert_eq!(rules[index]["id"], MISSING);
}

#[test]
fn what_is_optional_may_be_missing_and_counts_where_it_is_there() {
    let optional = MANY
        .replace("name = 'gone'", "name = 'gone'\noptional = true")
        .replace("name = 't'", "name = 't'\noptional_fields = ['x', 'y']");
    let rules = File::parse(&optional).unwrap();
    let found = |fields: &str, rules: &File| {
        let mut types = Types::new(8);
        words(&mut types, "t", fields);
        let broken = check(&types, rules, None).unwrap();
        broken
            .iter()
            .map(|one| format!("{} {}", one.rule, one.fields.join(" ")))
            .collect::<Vec<_>>()
    };
    assert_eq!(found("a b |c", &rules), ["alone a b", "size_max "]);
    // Both are present: on one line where they should be apart, and on none where they should be together.
    let both = found("a b |c x y", &rules);
    assert_eq!(both, ["together a x b", "apart x y c", "alone a b", "size_max "]);
    // A missing field that is not optional is still reported, and so is a type.
    let rules = File::parse(&optional.replace("['x', 'y']", "['x']")).unwrap();
    assert_eq!(found("a b |c", &rules), ["missing y", "alone a b", "size_max "]);
    let mut types = Types::new(8);
    words(&mut types, "other", "a");
    assert_eq!(check(&types, &rules, None).unwrap()[0].ty, "t");
    // The same as assertions.
    words(&mut types, "t", "a b |c");
    let rules = File::parse(&optional).unwrap();
    let text = emit(&types, &rules, None, Language::C).unwrap();
    assert!(text.contains("offsetof(struct t, b)") && !text.contains(", x)"), "{text}");
    let error = emit(&types, &File::parse(MANY).unwrap(), None, Language::C).unwrap_err();
    assert!(error.to_string().contains("there is no type \"gone\""), "{error}");
}

#[test]
fn a_lock_passes_today_and_fails_when_other_fields_share_a_line() {
    let today = "a b c[4] |d e |f g[20] h";
    let mut types = Types::new(8);
    let id = words(&mut types, "t", today);
    let rules = File::parse(&lock(&types, &[("t", id)], 64)).unwrap();
    assert_eq!(check(&types, &rules, None).unwrap(), []);
    for (changed, rule) in [
        ("a b c[4] e |d |f g[20] h", "together"),
        ("a b c[4] d e |f g[20] h", "apart"),
        ("a b c[4] |d e |f g[20] h |i", "max_lines"),
    ] {
        let mut types = Types::new(8);
        words(&mut types, "t", changed);
        let broken = check(&types, &rules, None).unwrap();
        assert!(broken.iter().any(|broken| broken.rule == rule), "{changed}: {broken:?}");
    }
}

/// Returns a record with the kernel's markers, of words before the group and in it.
fn marked(before: u64, within: u64) -> (Types, TypeId) {
    let mut types = Types::new(8);
    let fields = format!(
        "x[{before}] __cacheline_group_begin__rx[0] y[{within}] __cacheline_group_end__rx[0] z"
    );
    let id = words(&mut types, "t", &fields);
    (types, id)
}

#[test]
fn a_group_that_crosses_a_line_it_need_not_cross_is_told() {
    let lines = Lines::of(64);
    for (before, within, crosses) in [(8, 8, false), (6, 4, true), (6, 2, false), (1, 16, true)] {
        let (types, id) = marked(before, within);
        let found = crossing(&types, "t", id, lines);
        assert_eq!(!found.is_empty(), crosses, "{before} {within}: {found:?}");
    }
    let (types, id) = marked(6, 4);
    let message = "the group rx (32 bytes at 48) lies on 2 lines of 64 where 1 suffice";
    assert_eq!(crossing(&types, "t", id, lines)[0].message, message);
    let rules = File::parse("[[type]]\nname = 't'").unwrap();
    assert_eq!(check(&types, &rules, None).unwrap()[0].rule, "group");
    let out = emit(&types, &rules, None, Language::Kernel).unwrap();
    assert_eq!(
        out,
        "CACHELINE_ASSERT_GROUP_MEMBER(struct t, rx, y);\nCACHELINE_ASSERT_GROUP_SIZE(struct t, rx, 32);\n"
    );
}

#[test]
fn assertions_say_which_rules_they_leave_to_check() {
    let text =
        "[[type]]\nname = '*'\nbase = 8\nalone = ['a']\nno_straddle = ['*', 'b']\nsize_max = 64";
    let rules = File::parse(text).unwrap();
    let mut types = Types::new(8);
    words(&mut types, "t", "a b");
    let emitted = |types: &Types, language| emit(types, &rules, None, language).unwrap();
    let left = "// t, left to `ledgerline layout check`: ";
    let whole =
        "base = 8 (the assertions hold where it begins a line); alone = a; no_straddle = *\n";
    assert!(emitted(&types, Language::C).contains(&format!("\n{left}{whole}")));
    assert!(emitted(&types, Language::Rust).contains(&format!("\n    {left}{whole}")));
    assert_eq!(emitted(&types, Language::Kernel), format!("{left}all but the groups\n"));
    let mut types = Types::new(8);
    words(&mut types, "ns::t<int, 3>", "a b");
    let text = emitted(&types, Language::C);
    assert!(
        text.ends_with("check`: C has no name for the type\n") && !text.contains("assert("),
        "{text}"
    );
    assert!(emitted(&types, Language::Rust).contains("assert!"));
    // If no rule is left out, no comment says so.
    let rules = File::parse("[[type]]\nname = '*'\nsize_max = 64").unwrap();
    assert!(!emit(&types, &rules, None, Language::Rust).unwrap().contains("left to"));
}

#[test]
fn sarif_and_json_have_what_their_readers_need() {
    let mut types = Types::new(8);
    words(&mut types, "t", "a b");
    let rules = File::parse("[[type]]\nname = 't'\nalone = ['a']").unwrap();
    let broken = check(&types, &rules, None).unwrap();
    let sarif = sarif(&broken, "a b.so");
    let run = &sarif["runs"][0];
    assert_eq!(sarif["version"], "2.1.0");
    let result = &run["results"][0];
    let index = result["ruleIndex"].as_u64().unwrap() as usize;
    assert_eq!(run["tool"]["driver"]["rules"][index]["id"], result["ruleId"]);
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "a%20b.so");
    assert_eq!(text(&broken), "t: alone: a (8 bytes at 0) shares 64 bytes with b (8 bytes at 8)\n");
    let json = json(&broken);
    assert_eq!(json["holds"], false);
    assert_eq!(json["broken"][0]["fields"], serde_json::json!(["a", "b"]));
}
