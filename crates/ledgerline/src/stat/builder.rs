//! Makes a table of counters.

use super::counters::{Counters, Shared, limits};
use super::items::Item;
use super::layout::{Layout, View};
use super::places::{Places, is_name};
use super::threshold;
use super::width::{Width, WidthKind};
use crate::os;
use crate::percpu::{self, possible_cpus, probe};
use crate::region::{Place, Region};
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

/// The settings of a new table of [`Counters`].
#[derive(Clone, Debug)]
pub struct CountersBuilder<I, W = i64> {
    places: Places,
    cpus: Option<u32>,
    threshold: Option<u32>,
    kind: PhantomData<(fn(I), W)>,
}

impl<I: Item, W: Width> CountersBuilder<I, W> {
    pub(super) fn new(places: &Places) -> Self {
        CountersBuilder { places: places.clone(), cpus: None, threshold: None, kind: PhantomData }
    }

    /// Simulates this many CPUs: a column each, which [`Counters::on`] updates by atomics. For tests, and
    /// for experiments with machines that are not available. An update that names no CPU uses a column
    /// chosen by thread.
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = Some(cpus);
        self
    }

    /// Sets the threshold of every place. The default is, for `i8`, the [formula](threshold::normal) for
    /// this machine's memory and the table's CPUs, and for `u16` 65533. With 0 no CPU keeps anything back.
    pub fn threshold(mut self, threshold: u32) -> Self {
        self.threshold = Some(threshold);
        self
    }

    /// Makes the table in memory of this process.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] when an item has a bad name, two have the same, or there are more
    /// than 1024; when there are no CPUs or more than 65536; or when the threshold is above what the width
    /// can hold. Another error when the memory cannot be mapped.
    pub fn anonymous(self) -> io::Result<Counters<I, W>> {
        let layout = self.layout()?;
        self.finish(Region::anonymous(layout.size)?, layout)
    }

    /// Makes the table in an empty file, so that other processes can read it (see
    /// [`CountersFile`](super::CountersFile)). Only this process updates it.
    ///
    /// # Errors
    /// As for [`anonymous`](Self::anonymous), and if the file is not empty or cannot be mapped for reading
    /// and writing.
    pub fn create_in(self, file: &File) -> io::Result<Counters<I, W>> {
        let layout = self.layout()?;
        self.finish(Region::create_in(file, layout.size, Place::ANYWHERE)?, layout)
    }

    fn layout(&self) -> io::Result<Layout> {
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        let names: Vec<&str> = I::ALL.iter().map(|item| item.name()).collect();
        for (at, name) in names.iter().enumerate() {
            if !is_name(name) || names[..at].contains(name) {
                return Err(invalid(format!(
                    "{name:?} cannot be an item's name, or two items have it"
                )));
            }
            if I::ALL[at].index() != at {
                return Err(invalid(format!("the item {name:?} is not where its index says")));
            }
        }
        let most = W::KIND.most();
        if let Some(threshold) = self.threshold.filter(|&threshold| threshold > most) {
            let width = W::KIND;
            return Err(invalid(format!("threshold {threshold}: at most {most} with {width}")));
        }
        let columns = self.cpus.unwrap_or_else(possible_cpus);
        let (items, places) = (names.len(), self.places.len());
        Layout::new(W::KIND, items, places, columns).ok_or_else(|| {
            invalid(format!("{items} items at {places} places for {columns} CPUs: not possible"))
        })
    }

    fn finish(self, region: Region, layout: Layout) -> io::Result<Counters<I, W>> {
        // The mode must be known before the first update, and no fork may come in the middle of a fold.
        percpu::detect();
        crate::gate::lock::guard_forks();
        // SAFETY: the region has the layout's size, and lives as long as the table (S1).
        let view = unsafe { View::new(region.at(0), layout) };
        let threshold = self.threshold.unwrap_or_else(|| match W::KIND {
            WidthKind::I8 => threshold::normal(layout.columns, os::memory_of_machine()),
            other => other.most(),
        });
        for place in 0..layout.places {
            let record = view.place(place);
            record.threshold.store(threshold, Ordering::Relaxed);
            let below = self.places.subtree(place as u32).len() as u64;
            record.below.store(below * u64::from(threshold), Ordering::Relaxed);
        }
        if W::BOUNDED {
            for column in 0..layout.columns {
                for place in 0..layout.places {
                    let block = view.block(column, place);
                    for item in 0..layout.items {
                        // SAFETY: a live difference (S1).
                        unsafe { W::take(block.wrapping_add(View::offset(W::KIND, item))) };
                    }
                    limits(block).store(W::open(threshold), Ordering::Relaxed);
                }
            }
        }
        let tree = &self.places;
        view.describe(I::ALL.iter().map(|item| item.name()), tree);
        Ok(Counters {
            first: view.block(0, 0),
            block: layout.block,
            stride: layout.stride,
            tree: tree.number(),
            area: if self.cpus.is_none() { probe::registration().compact_area() } else { 0 },
            simulated: self.cpus.is_some(),
            view,
            below: (0..layout.places as u32).map(|at| tree.subtree(at).into()).collect(),
            shared: Box::new(Shared { places: self.places, fold: Mutex::new(()) }),
            region,
            kind: PhantomData,
        })
    }
}

impl<I: Item, W: Width> Counters<I, W> {
    /// Makes a table in memory with all defaults.
    ///
    /// # Errors
    /// As for [`CountersBuilder::anonymous`].
    pub fn new(places: &Places) -> io::Result<Self> {
        Self::builder(places).anonymous()
    }

    /// Starts a builder for a table with other settings.
    pub fn builder(places: &Places) -> CountersBuilder<I, W> {
        CountersBuilder::new(places)
    }
}
