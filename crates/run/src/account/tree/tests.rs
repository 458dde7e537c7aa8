use super::*;
use crate::account::model::Origin;
use crate::account::model::tests::{account, row};

/// Returns a process, with its parent and its start.
fn process(name: &str, pid: u32, parent: u64, started: u64) -> Row {
    let mut row = row(&format!("/{name}.{pid}"), 0, 1 << 20);
    (row.pid, row.owner, row.state) = (pid, pid, State::Exited);
    row.counted.origin = Origin { parent, started, executed: false };
    row
}

fn of(mut rows: Vec<Row>) -> Account {
    rows.insert(0, row("/", 0, 10 << 20));
    account(rows)
}

/// Returns `name(the lines below)`, as in the tree.
fn told(line: &Line) -> String {
    let mut text = match line.small.is_empty() {
        true => line.row.called.clone(),
        false => format!("{:?}", line.small),
    };
    if line.processes > 1 {
        text.push_str(&format!(" x{}", line.processes));
    }
    let before: String = line.before.iter().map(|name| format!("{name}>")).collect();
    let below: Vec<String> = line.below.iter().map(told).collect();
    match below.is_empty() {
        true => format!("{before}{text}"),
        false => format!("{before}{text}({})", below.join(" ")),
    }
}

fn whole_of(rows: Vec<Row>) -> String {
    told(&Tree::whole(&of(rows)).root.unwrap())
}

fn folded_of(rows: Vec<Row>, most: usize) -> (String, usize) {
    let tree = Tree::folded(&of(rows), most);
    (told(&tree.root.unwrap()), tree.hidden)
}

#[test]
fn a_process_stands_below_the_one_that_started_it_wherever_its_row_is() {
    let rows = vec![
        process("cc1", 30, 20, 3),
        process("make", 10, 1, 1),
        process("gcc", 20, 10, 2),
        process("other", 40, 999, 4),
    ];
    assert_eq!(whole_of(rows), "/(make(gcc(cc1)) other)");
}

#[test]
fn a_number_that_was_given_twice_names_the_last_that_is_older() {
    let rows = vec![
        process("first", 7, 1, 1),
        process("second", 7, 1, 50),
        process("early", 8, 7, 20),
        process("late", 9, 7, 60),
    ];
    assert_eq!(whole_of(rows), "/(first(early) second(late))");
    // A process that began before its parent is not its child, and no process is its own child.
    assert_eq!(whole_of(vec![process("a", 7, 8, 1), process("b", 8, 7, 1)]), "/(a(b))");
    assert_eq!(whole_of(vec![process("a", 7, 7, 1)]), "/(a)");
}

#[test]
fn a_process_of_another_namespace_is_no_parent_here() {
    let mut inner = process("inner", 10, 1, 1);
    inner.owner = Identity::new(10, 5).unwrap().owner();
    assert_eq!(whole_of(vec![inner, process("child", 11, 10, 2)]), "/(inner child)");
}

#[test]
fn what_a_process_executes_is_one_line_with_all_its_children() {
    let mut rows = vec![
        process("env", 7, 1, 30),
        process("bash", 7, 1, 10),
        process("sed", 8, 7, 20),
        process("python3", 7, 1, 40),
        process("worker", 9, 7, 50),
    ];
    rows[0].counted.origin.executed = true;
    rows[1].counted.origin.executed = true;
    rows[1].peak = 3 << 20;
    let tree = Tree::whole(&of(rows.clone())).root.unwrap();
    assert_eq!(told(&tree), "/(bash>env>python3(sed worker))");
    assert_eq!((tree.below[0].row.peak, tree.below[0].row.pid), (3 << 20, 7));
    // Without the mark it is another process that has the id.
    rows[1].counted.origin.executed = false;
    assert_eq!(whole_of(rows), "/(bash(sed) env>python3(worker))");
}

#[test]
fn what_is_alike_and_ended_is_one_line_on_each_level() {
    let mut rows = vec![process("make", 10, 1, 1)];
    for at in 0..30 {
        rows.push(process("gcc", 100 + at, 10, 2));
        rows.push(process("cc1", 200 + at, u64::from(100 + at), 3));
    }
    rows.push(process("gcc", 900, 10, 9));
    rows.last_mut().unwrap().state = State::Running;
    let (text, hidden) = folded_of(rows.clone(), 20);
    assert_eq!((text.as_str(), hidden), ("/(make(gcc x30(cc1 x30) gcc))", 0));
    let folded = Tree::folded(&of(rows), 20).root.unwrap();
    let gcc = &folded.below[0].below[0];
    assert_eq!((gcc.row.peak, gcc.row.charges), (1 << 20, 30 * ((1 << 20) / 1000)));
}

#[test]
fn what_the_run_has_folded_stands_below_the_one_parent_of_all() {
    let mut folded = process("cc", 0, 10, 0);
    folded.path = "/cc".to_owned();
    folded.counted.processes = 300;
    let rows = vec![process("make", 10, 1, 5), folded.clone(), process("cc", 70, 10, 6)];
    assert_eq!(folded_of(rows, 20).0, "/(make(cc x301))");
    folded.counted.origin.parent = 0;
    let rows = vec![process("make", 10, 1, 5), folded, process("cc", 70, 10, 6)];
    assert_eq!(folded_of(rows, 20).0, "/(cc x300 make(cc))");
}

#[test]
fn what_is_small_is_one_line_unless_it_has_something_to_say() {
    let mut rows = vec![process("server", 10, 1, 1)];
    for (at, name) in ["sed", "env", "env", "cut"].into_iter().enumerate() {
        let mut row = process(name, 20 + at as u32, 10, 2 + at as u64);
        row.peak = 1000;
        rows.push(row);
    }
    let (text, _) = folded_of(rows.clone(), 20);
    assert_eq!(text, r#"/(server([("env", 2), ("cut", 1), ("sed", 1)] x4))"#);
    rows[1].counted.refused = 1;
    assert_eq!(folded_of(rows, 20).0, r#"/(server(sed [("env", 2), ("cut", 1)] x3))"#);
}

#[test]
fn where_few_lines_fit_the_largest_are_there_with_the_way_to_them() {
    let mut rows = Vec::new();
    for at in 0..10 {
        let mut row = process(&format!("p{at}"), 10 + at, 1, 1);
        row.peak = u64::from(at + 1) << 20;
        rows.push(row);
    }
    let mut deep = process("deep", 90, 10, 2);
    deep.peak = 50 << 20;
    rows.push(deep);
    let (text, hidden) = folded_of(rows, 4);
    assert_eq!((text.as_str(), hidden), ("/(p0(deep) p9)", 8));
}

#[test]
fn a_deep_or_wide_run_is_no_trouble() {
    let deep =
        (0..10_000).map(|at| process(&format!("d{at}"), at + 2, u64::from(at + 1), u64::from(at)));
    let tree = Tree::folded(&of(deep.collect()), 20);
    assert_eq!(tree.root.unwrap().count() + tree.hidden, 10_001);
    let wide = (0..10_000).map(|at| process(&format!("w{at}"), at + 2, 1, 1));
    assert_eq!(Tree::folded(&of(wide.collect()), 20).root.unwrap().count(), 20);
}
