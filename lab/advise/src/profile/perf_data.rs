//! `perf.data`, as `perf record -d`, `perf mem record` and `perf c2c record` write it: into a file or a pipe, in either
//! byte order, also compressed (`-z`).
//!
//! The result is that of the output of `perf script` ([`script`](super::script)): each sample with an address is a
//! load, a store or an atomic by its source, or else by its event's name. A breakpoint that only stores trigger is a
//! store. The file is read from front to back in bounded memory, however long it is. Records are not sorted by time,
//! because a profile has only rates.
//!
//! ```text
//! file  magic size | descriptions of events, ids | records ... | sections: names of events
//! pipe  magic 16   | records: EVENT, FEATURE (names), EVENT_UPDATE (a name), ...
//! ```
//!
//! If objects are named by symbols of the program, the file is read twice: the first time for the mappings, which give
//! the address at which each process loaded the program.
//!
//! Traces of a processor (Arm's profiling extension, Intel PT) are left out: perf has to decode them.

mod bytes;
mod event;
mod head;
mod maps;
mod records;
mod sample;
mod unpack;

use std::io::{Read, Seek, SeekFrom};

use ledgerline_layout::Error;
use ledgerline_layout::symbols::Symbols;

use super::samples::{Place, Samples, Told, Who};
use super::{Known, Profile, cannot};
use bytes::{Bytes, Order};
use event::{Event, Events};
use maps::Maps;
use records::{Record, ty};

/// Length of the magic number.
pub(super) const MAGIC: usize = 8;

/// Returns whether this is the magic number of a `perf.data`.
pub(super) fn is(magic: &[u8]) -> bool {
    head::order(magic).is_some()
}

/// Reads a file that begins with `magic`; its position is behind that.
pub(super) fn read(
    magic: &[u8],
    mut file: impl Read + Seek,
    source: &str,
    known: &Known<'_>,
) -> Result<Profile, Error> {
    let order = head::order(magic).ok_or_else(|| Error::new("it is no perf.data"))?;
    let mut samples = Samples::of(known)?;
    let maps = match samples.symbols(known)? {
        Some(symbols) => Some(maps(&mut file, order, symbols)?),
        None => None,
    };
    let (events, told) = (Events::default(), Told::default());
    let mut seen = Seen { order, events, samples, maps, told, traces: 0 };
    let records = head::read(&mut file, order, &mut seen.events)?;
    records::each(&mut file, order, records, |record| seen.record(record))?;
    seen.profile(source)
}

/// Reads the mappings of the file, and restores its position.
fn maps(file: &mut (impl Read + Seek), order: Order, symbols: Symbols) -> Result<Maps, Error> {
    let start = file.stream_position().map_err(|error| cannot(&error))?;
    let mut maps = Maps::new(symbols);
    let records = head::read(file, order, &mut Events::default())?;
    records::each(file, order, records, |record| {
        maps.record(record);
        Ok(())
    })?;
    file.seek(SeekFrom::Start(start)).map_err(|error| cannot(&error))?;
    Ok(maps)
}

/// The state of the reader.
struct Seen<'t> {
    order: Order,
    events: Events,
    samples: Samples<'t>,
    /// The addresses of the program, if objects are named by its symbols.
    maps: Option<Maps>,
    told: Told,
    /// Bytes of traces.
    traces: u64,
}

impl Seen<'_> {
    fn record(&mut self, Record { ty, mut body }: Record<'_>) -> Result<(), Error> {
        match ty {
            ty::SAMPLE => self.sample(body)?,
            ty::EVENT => {
                self.event(body).ok_or_else(|| Error::new("an event makes no sense"))?;
            }
            ty::FEATURE if body.u64() == Some(head::NAMES) => {
                head::name(body, &mut self.events);
            }
            ty::EVENT_UPDATE => {
                self.update(body);
            }
            ty::TRACE => self.traces += body.u64().unwrap_or(0),
            _ => {}
        }
        Ok(())
    }

    /// Reads an event of a pipe: its description, which begins with its own size, and its numbers.
    fn event(&mut self, body: Bytes<'_>) -> Option<()> {
        let mut at = body;
        at.skip(1, 4)?;
        // The first version had 64 bytes and no size.
        let size = at.u32().map(|size| if size == 0 { 64 } else { size })?;
        let mut at = body;
        let described = at.take(size.into())?;
        self.events.add(Event::read(described, self.order)?, head::numbers(at.left, self.order))
    }

    /// Reads a name that comes later than its event.
    fn update(&mut self, mut body: Bytes<'_>) -> Option<()> {
        const NAME: u64 = 2;
        if body.u64()? == NAME {
            let index = self.events.index(body.u64()?)?;
            let name = body.left.split(|&byte| byte == 0).next()?;
            self.events.name(index, &String::from_utf8_lossy(name));
        }
        Some(())
    }

    fn sample(&mut self, body: Bytes<'_>) -> Result<(), Error> {
        if self.events.is_empty() {
            return Err(Error::new("a sample comes before any event"));
        }
        if self.events.mixed {
            return Err(Error::new("its samples do not say of which event they are")
                .advise("record one event, or by perf of this decade"));
        }
        let Some(event) = self.events.of_sample(body) else { return Ok(()) };
        let cut = || Error::new("a sample is shorter than its event says");
        let sample = sample::read(body, event).ok_or_else(cut)?;
        if event.derived {
            return Ok(());
        }
        let both = self.told.both(sample.address, sample.said.or(event.kind));
        let Some((address, kind)) = both else { return Ok(()) };
        let known = |number: Option<u32>| number.filter(|&n| n != u32::MAX).map(u64::from);
        let who = Who::of(known(sample.cpu), known(sample.thread));
        let slides =
            self.maps.as_ref().map_or(&[][..], |maps| maps.slides(sample.process, address));
        let mut in_file = slides.iter().map(|slide| Place::InFile(address.wrapping_sub(*slide)));
        let place = in_file.find(|&place| self.samples.meets(place));
        let place = place.unwrap_or(Place::Address(address));
        self.samples.add(place, kind, who, sample.period.max(1) as f64);
        Ok(())
    }

    fn profile(self, source: &str) -> Result<Profile, Error> {
        if self.told.taken > 0 {
            if self.maps.is_some_and(|maps| maps.is_empty()) && self.samples.are_all_symbols() {
                return Err(Error::new("no process in it had loaded the program whose symbols are named")
                    .advise("name the program that ran, by the file's name that it ran under, or an address: TYPE@0xADDRESS"));
            }
            return self.samples.profile(source);
        }
        if self.traces > 0 && self.told.without_address + self.told.without_kind == 0 {
            return Err(Error::new("its samples are in a trace that the processor wrote").advise(
                "perf decodes that: give the text of `perf script -F \
                 comm,tid,cpu,time,period,event,addr,data_src`",
            ));
        }
        let (what, _) = self.told.missing();
        Err(Error::new(what).advise(
            "record with `perf mem record`, `perf c2c record`, or `perf record -d` and an event of loads or stores",
        ))
    }
}
