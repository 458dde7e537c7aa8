//! Writes a `perf.data`, by the description of the format in the kernel's tools/perf/Documentation.

/// The contents of a sample besides thread, address and CPU, by the kernel's numbers.
pub const IP: u64 = 1 << 0;
pub const TIME: u64 = 1 << 2;
pub const CALLCHAIN: u64 = 1 << 5;
pub const ID: u64 = 1 << 6;
pub const PERIOD: u64 = 1 << 8;
pub const STREAM_ID: u64 = 1 << 9;
pub const RAW: u64 = 1 << 10;
pub const WEIGHT: u64 = 1 << 14;
pub const DATA_SRC: u64 = 1 << 15;
pub const IDENTIFIER: u64 = 1 << 16;
pub const TID: u64 = 1 << 1;
pub const ADDR: u64 = 1 << 3;
pub const CPU: u64 = 1 << 7;

/// The form of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct How {
    pub big: bool,
    /// The form in which perf writes into a pipe.
    pub pipe: bool,
    /// The samples are in compressed records of this many bytes.
    pub packed: Option<usize>,
}

pub const PLAIN: How = How { big: false, pipe: false, packed: None };

/// An event: its name, and the contents of its samples.
#[derive(Clone, Debug)]
pub struct Event {
    pub name: String,
    pub holds: u64,
}

/// A sample of the event with this index.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub event: usize,
    pub thread: u32,
    pub cpu: u32,
    pub address: u64,
    pub period: u64,
    pub source: u64,
}

#[derive(Default)]
struct Out {
    bytes: Vec<u8>,
    big: bool,
}

impl Out {
    fn u16(&mut self, number: u16) {
        self.bytes.extend(if self.big { number.to_be_bytes() } else { number.to_le_bytes() });
    }

    fn u32(&mut self, number: u32) {
        self.bytes.extend(if self.big { number.to_be_bytes() } else { number.to_le_bytes() });
    }

    fn u64(&mut self, number: u64) {
        self.bytes.extend(if self.big { number.to_be_bytes() } else { number.to_le_bytes() });
    }

    fn record(&mut self, ty: u32, body: &[u8]) {
        self.u32(ty);
        self.u16(0);
        self.u16(u16::try_from(8 + body.len()).expect("a record is short"));
        self.bytes.extend(body);
    }

    fn part(&self) -> Out {
        Out { bytes: Vec::new(), big: self.big }
    }
}

/// Returns the number by which samples name an event.
fn id(event: usize) -> u64 {
    1000 + event as u64
}

fn describe(out: &mut Out, event: &Event) {
    let (ty, size) = (4, 136);
    out.u32(ty);
    out.u32(size);
    out.u64(0x1cd);
    for number in [1, event.holds, 4] {
        out.u64(number);
    }
    for _ in 0..12 {
        out.u64(0);
    }
}

fn names(out: &mut Out, events: &[Event]) {
    out.u32(events.len() as u32);
    out.u32(136);
    for (index, event) in events.iter().enumerate() {
        describe(out, event);
        out.u32(1);
        let length = (event.name.len() + 1).next_multiple_of(64);
        out.u32(length as u32);
        out.bytes.extend(event.name.bytes());
        out.bytes.extend(std::iter::repeat_n(0, length - event.name.len()));
        out.u64(id(index));
    }
}

fn sample(out: &mut Out, holds: u64, sample: &Sample) {
    let has = |what: u64| holds & what != 0;
    let mut put = |what: u64, number: u64| {
        if has(what) {
            out.u64(number);
        }
    };
    put(IDENTIFIER, id(sample.event));
    put(IP, 0xffff_ffff_8117_0ed4);
    if has(TID) {
        out.u32(4711);
        out.u32(sample.thread);
    }
    let mut put = |what: u64, number: u64| {
        if has(what) {
            out.u64(number);
        }
    };
    put(TIME, 3_678_072_400_000);
    put(ADDR, sample.address);
    put(ID, id(sample.event));
    put(STREAM_ID, 7);
    if has(CPU) {
        out.u32(sample.cpu);
        out.u32(0);
    }
    if has(PERIOD) {
        out.u64(sample.period);
    }
    if has(CALLCHAIN) {
        [2, 0x4011_2233, 0x4011_4455].into_iter().for_each(|word| out.u64(word));
    }
    if has(RAW) {
        out.u32(4);
        out.u32(0x1234_5678);
    }
    if has(WEIGHT) {
        out.u64(207);
    }
    if has(DATA_SRC) {
        out.u64(sample.source);
    }
}

/// The kernel's records about processes.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "not all users of this module have processes")]
pub enum Said {
    /// A process mapped a file: its number, the address, the offset in the file, the file.
    Mapped(u32, u64, u64, String),
    /// The same in the form of newer kernels.
    MappedTwo(u32, u64, u64, String),
    /// A process has a child: the child, the parent.
    Forked(u32, u32),
}

fn said(out: &mut Out, said: &Said) {
    let mut body = out.part();
    let ty = match said {
        Said::Mapped(process, address, offset, name)
        | Said::MappedTwo(process, address, offset, name) => {
            let two = matches!(said, Said::MappedTwo(..));
            [*process, *process].into_iter().for_each(|number| body.u32(number));
            [*address, 4096, *offset].into_iter().for_each(|number| body.u64(number));
            (0..if two { 4 } else { 0 }).for_each(|_| body.u64(7));
            body.bytes.extend(name.bytes());
            body.bytes.extend(std::iter::repeat_n(0, 8 - name.len() % 8));
            if two { 10 } else { 1 }
        }
        Said::Forked(child, parent) => {
            [*child, *parent, *child, *parent].into_iter().for_each(|number| body.u32(number));
            body.u64(3_678_072_400_000);
            7
        }
    };
    out.record(ty, &body.bytes);
}

/// Returns a file of these samples, among other records.
pub fn file(how: How, events: &[Event], samples: &[Sample]) -> Vec<u8> {
    file_of(how, events, samples, &[])
}

/// Like [`file`], with records about processes behind the samples, a permitted order.
pub fn file_of(how: How, events: &[Event], samples: &[Sample], processes: &[Said]) -> Vec<u8> {
    let mut out = Out { bytes: Vec::new(), big: how.big };
    let magic = u64::from_le_bytes(*b"PERFILE2");
    out.u64(magic);
    let mut records = out.part();
    let of_events = 104;
    if how.pipe {
        out.u64(16);
        for (index, event) in events.iter().enumerate() {
            let mut body = out.part();
            describe(&mut body, event);
            body.u64(id(index));
            out.record(64, &body.bytes);
        }
        let mut body = out.part();
        body.u64(12);
        names(&mut body, events);
        out.record(80, &body.bytes);
    }
    // The processor's trace follows its record and is not part of it.
    let mut trace = records.part();
    [24, 0, 0, 0, 0].into_iter().for_each(|word| trace.u64(word));
    records.record(71, &trace.bytes);
    records.bytes.extend([0xff; 24]);
    records.record(3, b"\x07\0\0\0\x07\0\0\0name\0\0\0\0");
    let mut all = records.part();
    for one in samples {
        let mut body = records.part();
        sample(&mut body, events[one.event].holds, one);
        all.record(9, &body.bytes);
    }
    processes.iter().for_each(|process| said(&mut all, process));
    match how.packed {
        None => records.bytes.extend(&all.bytes),
        Some(length) => {
            for payload in zstd(&all.bytes).chunks(length) {
                records.record(81, payload);
            }
        }
    }
    records.record(68, &[]);
    if how.pipe {
        out.bytes.extend(records.bytes);
        return out.bytes;
    }
    let event_size = 136 + 16;
    let ids = of_events + (event_size * events.len()) as u64;
    let data = ids + 8 * events.len() as u64;
    for number in [104, event_size as u64, of_events, (event_size * events.len()) as u64] {
        out.u64(number);
    }
    // The places of the records and of a section that is no longer written; the bits of the section of names and of
    // another.
    for number in [data, records.bytes.len() as u64, 0, 0, 1 << 12 | 1 << 3, 0, 0, 0] {
        out.u64(number);
    }
    for (index, event) in events.iter().enumerate() {
        describe(&mut out, event);
        out.u64(ids + 8 * index as u64);
        out.u64(8);
    }
    (0..events.len()).for_each(|index| out.u64(id(index)));
    out.bytes.extend(records.bytes);
    let mut section = out.part();
    names(&mut section, events);
    let behind = out.bytes.len() as u64 + 32;
    for number in [behind, 0, behind, section.bytes.len() as u64] {
        out.u64(number);
    }
    out.bytes.extend(section.bytes);
    out.bytes
}

/// Returns a zstd stream like perf's: stored blocks without a last one.
fn zstd(bytes: &[u8]) -> Vec<u8> {
    // The magic number, a frame without a size, a window of 128 KiB.
    let mut stream = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x38];
    for block in bytes.chunks(1000) {
        stream.extend(&((block.len() as u32) << 3).to_le_bytes()[..3]);
        stream.extend(block);
    }
    stream
}
