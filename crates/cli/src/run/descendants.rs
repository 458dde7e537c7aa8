//! The processes below the supervisor, as `/proc` shows them. Orphans of the run come to the supervisor, so they are
//! below it, too.

use std::collections::HashMap;
use std::fs;

/// A process, from `/proc/PID/stat`.
pub(super) struct Process {
    pub(super) parent: u32,
    /// Its session.
    session: u32,
    /// Its start time. Another process with that id has another time.
    pub(super) start: u64,
    /// Whether it has ended, or is ending.
    pub(super) gone: bool,
    pub(super) name: String,
}

/// Returns all processes that `/proc` shows, but those of some sessions.
pub(super) fn processes(without: &[u32]) -> HashMap<u32, Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)?)))
        .filter(|(_, process)| !without.contains(&process.session))
        .collect()
}

/// Returns the fields of a line of `/proc/PID/stat`. The name, in parentheses, may hold anything.
fn stat(line: &[u8]) -> Option<Process> {
    let open = line.iter().position(|&byte| byte == b'(')?;
    let close = line.iter().rposition(|&byte| byte == b')').filter(|&at| at > open)?;
    let name = String::from_utf8_lossy(&line[open + 1..close]).into_owned();
    let rest = std::str::from_utf8(&line[close + 1..]).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // The first of these is the third of proc_pid_stat(5).
    let field = |number: usize| fields.get(number - 3).copied();
    let gone = matches!(field(3)?, "Z" | "X" | "x");
    let number = |number: usize| field(number)?.parse().ok();
    let (parent, session) = (number(4)?, number(6)?);
    Some(Process { parent, session, start: field(22)?.parse().ok()?, gone, name })
}

/// Returns the descendants of a process.
pub(super) fn below(processes: &HashMap<u32, Process>, of: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for (&pid, process) in processes {
        children.entry(process.parent).or_default().push(pid);
    }
    let (mut found, mut next) = (Vec::new(), vec![of]);
    while let Some(pid) = next.pop() {
        // A list that is read while processes come and go might have a cycle.
        let of_it = children.remove(&pid).unwrap_or_default();
        found.extend(&of_it);
        next.extend(of_it);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_process_is_read_whatever_its_name_is() {
        let rest = "S 7 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0";
        for name in ["sh", ") Z 1 (", "a b"] {
            let read = stat(format!("12 ({name}) {rest}").as_bytes()).unwrap();
            assert_eq!((read.parent, read.session, read.start, read.gone), (7, 1, 4711, false));
            assert_eq!(read.name, name);
        }
        assert!(stat(b"12 sh S 7").is_none() && stat(b"").is_none());
    }

    #[test]
    fn what_is_below_a_process_is_found_and_nothing_else() {
        let process =
            |parent| Process { parent, session: 0, start: 0, gone: false, name: String::new() };
        let all = [(1, 0), (2, 1), (3, 2), (4, 3), (5, 1), (6, 6)];
        let all = all.into_iter().map(|(pid, parent)| (pid, process(parent))).collect();
        let mut found = below(&all, 2);
        found.sort_unstable();
        assert_eq!(found, [3, 4]);
        assert_eq!(below(&all, 6), [6], "no circle");
    }
}
