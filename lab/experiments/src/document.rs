//! The five documents.

use super::reported::{RSS_CACHE, Reported};
use ledgerline_coherence::experiments::study;

/// A document and the experiment that it reports.
#[derive(Debug, PartialEq)]
pub(super) struct Document {
    /// The experiment's name.
    pub(super) name: &'static str,
    /// The comparison that it makes.
    pub(super) title: &'static str,
    /// The place of its publication.
    pub(super) source: &'static str,
    /// The meaning of a row, in words.
    pub(super) rows: &'static str,
    /// Its figures of whole programs. None of them is predicted.
    pub(super) reported: &'static [Reported],
}

/// The documents, the oldest first.
pub(super) const DOCUMENTS: [Document; 5] = [
    Document {
        name: "page-counter-lockless",
        title: "page counters without locks, beside spinlocked 64-bit counters",
        source: "Linux 3e32cb2e0a12, \"mm: memcontrol: lockless page counters\"; 4 sockets, 144 CPUs",
        rows: "a page fault in one of 288 groups",
        reported: &[],
    },
    Document {
        name: "numa-threshold",
        title: "what NUMA statistics cost, by the threshold of their per-CPU differences",
        source: "\"Separate NUMA statistics from zone statistics\", 2017; 2 sockets, 88 CPUs",
        rows: "an allocation and its freeing, by threshold",
        reported: &[],
    },
    Document {
        name: "memcg-layout",
        title: "struct mem_cgroup moved by 32 bytes, and the repairs tried",
        source: "report against Linux e27be240df53, 2018; 2 sockets, 72 CPUs",
        rows: "change by the layout of the struct",
        reported: &[],
    },
    Document {
        name: "page-counter-layout",
        title: "struct page_counter laid out by who writes, and two patches beside it",
        source: "\"memcg: optimize charge codepath\", 2022; 72 CPUs",
        rows: "network throughput of an instance, by the patches applied",
        reported: &[],
    },
    Document {
        name: "rss-cache",
        title: "resident pages counted by task, by CPU, and by us",
        source: "\"Replace per-task RSS cache with per-CPU RSS cache\", RFC, 2022",
        rows: "hit rates, accuracy and cost on real programs",
        reported: &RSS_CACHE,
    },
];

impl Document {
    pub(super) fn named(name: &str) -> Option<&'static Document> {
        DOCUMENTS.iter().find(|document| document.name == name)
    }

    /// Returns whether it has predictions. `rss-cache` has none, because the document has no trace of context switches.
    pub(super) fn is_simulated(&self) -> bool {
        study::NAMES.contains(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_simulated_experiment_has_its_document() {
        for name in study::NAMES {
            assert!(Document::named(name).is_some_and(Document::is_simulated), "{name}");
        }
        assert_eq!(DOCUMENTS.iter().filter(|document| !document.is_simulated()).count(), 1);
    }
}
