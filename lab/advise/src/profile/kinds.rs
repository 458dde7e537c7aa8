//! Maps perf's words and numbers to kinds of accesses.

use super::Kind;

/// Events that perf derives from one sample of Arm's profiling extension. The sample is also listed as `memory`.
pub(super) const DERIVED: [&str; 8] = [
    "l1d-miss",
    "l1d-access",
    "llc-miss",
    "llc-access",
    "tlb-miss",
    "tlb-access",
    "branch-miss",
    "remote-access",
];

/// Returns the kind of access that an event counts, by its name; `None` if the name does not determine it.
pub(super) fn of_event(event: &str) -> Option<Kind> {
    let name = event.to_ascii_lowercase();
    // This event leads the group of `mem-loads` on some processors, and samples no access itself.
    if name.contains("mem-loads-aux") {
        None
    } else if name.contains("lock_loads") || name.contains("locked") {
        Some(Kind::Atomic)
    } else if name.contains("store") {
        Some(Kind::Store)
    } else if name.contains("load") {
        Some(Kind::Load)
    } else {
        None
    }
}

/// A sample's description of its own access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Said {
    /// An access of this kind.
    Access(Kind),
    /// Something else: a prefetch, an instruction.
    Other,
    /// Unknown: the sampled hardware does not report it.
    #[default]
    Nothing,
}

impl Said {
    /// Returns the kind of access. The event's own `kind` decides if the sample does not.
    pub(super) fn or(self, kind: Option<Kind>) -> Option<Kind> {
        match self {
            Said::Access(kind) => Some(kind),
            Said::Other => None,
            Said::Nothing => kind,
        }
    }
}

/// Reads perf's `union perf_mem_data_src`: bit 0 is unknown, bit 1 a load, bit 2 a store, bit 25 a lock.
pub(super) fn of_source(source: u64) -> Said {
    let (load, store, locked) = (source & 2 != 0, source & 4 != 0, source >> 25 & 1 != 0);
    match (load, store) {
        (false, false) if source & 0x1f <= 1 => Said::Nothing,
        (false, false) => Said::Other,
        _ if locked => Said::Access(Kind::Atomic),
        (_, true) => Said::Access(Kind::Store),
        _ => Said::Access(Kind::Load),
    }
}

/// Reads the same as perf prints it behind `|OP `: `LOAD|LVL L1 hit|SNP None|LCK No`.
pub(super) fn of_words(source: &str) -> Said {
    let op = source.split('|').next().unwrap_or_default();
    let (load, store) = (op.contains("LOAD"), op.contains("STORE"));
    match (load, store) {
        (false, false) if op.contains("N/A") => Said::Nothing,
        (false, false) => Said::Other,
        _ if source.contains("|LCK Yes") => Said::Access(Kind::Atomic),
        (_, true) => Said::Access(Kind::Store),
        _ => Said::Access(Kind::Load),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_in_numbers_says_what_its_words_say() {
        // Printed by `perf script` of version 6.1.
        let cases = [
            (0x6810_0142, "LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No", Kind::Load),
            (0x0002_8810_0144, "STORE|LVL L1 hit|SNP N/A|TLB N/A|LCK No", Kind::Store),
            (0x0002_8a10_0144, "STORE|LVL L1 hit|SNP N/A|TLB N/A|LCK Yes", Kind::Atomic),
            (0x6a10_0142, "LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK Yes", Kind::Atomic),
        ];
        for (number, words, kind) in cases {
            assert_eq!(of_source(number), Said::Access(kind), "{words}");
            assert_eq!(of_words(words), Said::Access(kind), "{words}");
        }
        assert_eq!(
            (of_source(0x1e_0508_0021), of_words("N/A|LVL N/A")),
            (Said::Nothing, Said::Nothing)
        );
        assert_eq!((of_source(0x6810_0148), of_words("PFETCH|LVL L1")), (Said::Other, Said::Other));
        assert_eq!(Said::Nothing.or(Some(Kind::Store)), Some(Kind::Store));
        assert_eq!(Said::Other.or(Some(Kind::Store)), None);
    }
}
