//! Reads a recording, with any content.

use crate::report::format::{self, ENDED, Reader, Values};
use crate::watch::Point;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest recording that is read, since it is read into memory.
const LONGEST: u64 = 512 << 20;
/// The most groups that are read; the recorder never writes more.
const MOST_GROUPS: usize = 1 << 18;
/// The most points that are kept: if there are more, neighbours are merged.
const MOST_POINTS: usize = 1 << 21;

/// The holdings of a ledger over time.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The subject of the recording, for example a command.
    pub title: String,
    /// The unit of the ledger: `bytes`.
    pub unit: String,
    /// The time of the first look, by the wall clock.
    pub at: SystemTime,
    /// The intended interval between looks.
    pub every: Duration,
    /// The first look; all times are by this clock.
    pub start: Duration,
    /// The last look.
    pub end: Duration,
    /// The end of the program. `None` if the recorder ended first, or is still running.
    pub how: Option<String>,
    /// Groups that were left out for space.
    pub left_out: u64,
    /// The number of bytes at the end that could not be read.
    pub torn: u64,
    /// The groups, in the order of their first appearance; the root is the first.
    pub groups: Vec<Group>,
}

/// The holdings of one group over time.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Its path; `/` is the root.
    pub path: String,
    /// Levels below the root.
    pub depth: u32,
    /// Its process; 0 without one.
    pub pid: u32,
    /// Its program's name, or its own.
    pub program: String,
    /// The time of its first appearance.
    pub born: Duration,
    /// The time at which it was seen to have ended; `None` if it lived to the end.
    pub ended: Option<Duration>,
    /// The last holding; for a group that ended, the one at its end.
    pub current: u64,
    /// The peak of its holding.
    pub peak: u64,
    /// The time at which the peak was seen, if this lies within the recording.
    pub peak_at: Option<Duration>,
    /// Charges, with those before the recording.
    pub charges: u64,
    /// Charges of it and those below it that were refused, with those before the recording.
    pub refused: u64,
    /// Units that caches gave back, with those before the recording.
    pub reclaimed: u64,
    /// Its limit.
    pub max: Option<u64>,
    /// Its holdings over time: the last value of a point holds until the next point. None overlap.
    pub points: Vec<Point>,
}

impl Recording {
    /// Reads the recording in a file.
    ///
    /// # Errors
    /// A sentence that names the file: it cannot be read, or is not a recording.
    pub fn open(path: &Path) -> Result<Recording, String> {
        let name = path.display();
        let told = |error: std::io::Error| format!("{name}: {error}");
        // Before it is opened: a pipe would wait for a writer.
        if !path.metadata().map_err(told)?.is_file() {
            return Err(format!("{name} is not a file"));
        }
        let mut bytes = Vec::new();
        let mut file = File::open(path).map_err(told)?.take(LONGEST + 1);
        file.read_to_end(&mut bytes).map_err(told)?;
        if bytes.len() as u64 > LONGEST {
            return Err(format!("{name} is larger than any recording"));
        }
        Recording::parse(&bytes).map_err(|why| format!("{name} {why}"))
    }

    /// Reads a recording from memory.
    ///
    /// # Errors
    /// Half a sentence, such as `is no recording`. A recording that breaks off is not an error: its whole frames are
    /// read, and [`Recording::torn`] has the size of the rest.
    pub fn parse(bytes: &[u8]) -> Result<Recording, String> {
        let none = || "is no recording of `ledgerline run --record`".to_owned();
        let rest = bytes.strip_prefix(&format::MAGIC).ok_or_else(none)?;
        let mut reader = Reader(rest);
        match reader.four() {
            Some(format::VERSION) => {}
            Some(version) => {
                return Err(format!("is a recording of version {version}; this reads 1"));
            }
            None => return Err(none()),
        }
        let empty = || "is a recording in which nothing stands yet".to_owned();
        reader.four().ok_or_else(empty)?;
        let (kind, mut payload) = reader.frame().ok_or_else(empty)?;
        let recording = (kind == format::BEGIN).then(|| begin(&mut payload)).flatten();
        let recording = recording.ok_or_else(none)?;
        let mut state = State { recording, values: Vec::new(), points: 0, samples: 0 };
        loop {
            let before = reader;
            let read =
                reader.frame().and_then(|(kind, mut payload)| state.frame(kind, &mut payload));
            if read.is_none() {
                state.recording.torn = before.0.len() as u64;
                break;
            }
        }
        if state.recording.groups.first().is_none_or(|group| group.depth != 0) {
            return Err(empty());
        }
        Ok(state.recording)
    }

    /// Returns the length of time.
    pub fn length(&self) -> Duration {
        self.end.saturating_sub(self.start)
    }

    /// Returns the root.
    pub fn root(&self) -> &Group {
        &self.groups[0]
    }
}

impl Group {
    /// Returns the last part of the path; `/` for the root.
    pub fn name(&self) -> &str {
        match self.path.rsplit('/').next() {
            Some(name) if !name.is_empty() => name,
            _ => "/",
        }
    }

    /// Returns how long it lived, as far as the recording shows.
    pub fn lived(&self, recording: &Recording) -> Duration {
        self.ended.unwrap_or(recording.end).saturating_sub(self.born)
    }
}

fn begin(payload: &mut Reader<'_>) -> Option<Recording> {
    let start = payload.time()?;
    Some(Recording {
        at: UNIX_EPOCH.checked_add(payload.time()?)?,
        every: payload.time()?,
        left_out: payload.number()?,
        unit: payload.text()?,
        title: payload.text()?,
        start,
        end: start,
        how: None,
        torn: 0,
        groups: Vec::new(),
    })
}

/// The state of the reader.
struct State {
    recording: Recording,
    /// The current values of each group; `None` before its first sample.
    values: Vec<Option<Values>>,
    points: usize,
    samples: u64,
}

impl State {
    /// Reads a frame; `None` if no recorder writes such a frame.
    fn frame(&mut self, kind: u8, payload: &mut Reader<'_>) -> Option<()> {
        match kind {
            format::GROUP => self.group(payload),
            format::POINTS => self.points(payload),
            format::SAMPLE => self.sample(payload),
            format::END => {
                self.recording.end = self.recording.end.max(payload.time()?);
                self.recording.how = Some(payload.text()?);
                Some(())
            }
            // Of a later version.
            _ => Some(()),
        }
    }

    fn group(&mut self, payload: &mut Reader<'_>) -> Option<()> {
        let groups = &mut self.recording.groups;
        if payload.number()? != groups.len() as u64 || groups.len() == MOST_GROUPS {
            return None;
        }
        groups.push(Group {
            born: payload.time()?,
            depth: u32::try_from(payload.number()?).ok()?,
            pid: u32::try_from(payload.number()?).ok()?,
            path: payload.text()?,
            program: payload.text()?,
            ..Group::default()
        });
        self.values.push(None);
        Some(())
    }

    fn place(&self, payload: &mut Reader<'_>) -> Option<usize> {
        usize::try_from(payload.number()?).ok().filter(|&place| place < self.values.len())
    }

    fn points(&mut self, payload: &mut Reader<'_>) -> Option<()> {
        let place = self.place(payload)?;
        let ended = payload.number()? != 0;
        let mut values = Values::default();
        payload.changes(&mut values)?;
        let many = payload.number()?;
        let group = &mut self.recording.groups[place];
        group.take(&values);
        let (mut start, mut last) = (Duration::ZERO, 0);
        let mut most = 0;
        for _ in 0..many {
            start = start.checked_add(payload.time()?)?;
            let length = payload.time()?;
            last = payload.change(last)?;
            // The first point may begin on a coarse grid.
            let from = start.max(self.recording.start);
            let length = start.saturating_add(length).saturating_sub(from);
            let point = Point {
                start: from,
                length,
                last,
                most: payload.change(last)?.max(last),
                least: payload.change(last)?.min(last),
                refused: payload.number()?,
                reclaimed: payload.number()?,
            };
            if point.most > most {
                most = point.most;
                group.peak_at = Some(point.start);
            }
            group.push(point);
            self.points += 1;
        }
        // A peak from before the recording is not in its points.
        if most < group.peak {
            group.peak_at = None;
        }
        group.ended = ended.then(|| group.points.last().map_or(group.born, |point| point.end()));
        self.values[place] = Some(values);
        self.thin();
        Some(())
    }

    fn sample(&mut self, payload: &mut Reader<'_>) -> Option<()> {
        let before = self.recording.end;
        let passed = payload.time()?;
        let now = before.checked_add(passed)?;
        while !payload.0.is_empty() {
            let place = self.place(payload)?;
            let known = self.values[place];
            let mut values = known.unwrap_or_default();
            let bits = payload.changes(&mut values)?;
            let group = &mut self.recording.groups[place];
            // Counts at the beginning of the recording are from before it.
            let then = known.unwrap_or(if self.samples == 0 { values } else { Values::default() });
            let rose = values[format::PEAK] > then[format::PEAK];
            let ended = bits & ENDED != 0;
            let last = if ended { 0 } else { values[format::CURRENT] };
            let most = values[format::CURRENT].max(if rose { values[format::PEAK] } else { 0 });
            let since = |at: usize| values[at].saturating_sub(then[at]);
            if rose {
                group.peak_at = Some(now);
            }
            group.take(&values);
            self.values[place] = Some(values);
            // A row for several ended processes gets more of them.
            if known.is_some() && group.ended.is_some() {
                continue;
            }
            group.push(Point {
                start: before,
                length: passed,
                least: last,
                most,
                last,
                refused: since(format::REFUSED),
                reclaimed: since(format::RECLAIMED),
            });
            group.ended = ended.then_some(now);
            self.points += 1;
        }
        self.recording.end = now;
        self.samples += 1;
        self.thin();
        Some(())
    }

    /// Merges neighbours if there are too many points.
    fn thin(&mut self) {
        if self.points <= MOST_POINTS {
            return;
        }
        self.points = 0;
        for group in &mut self.recording.groups {
            group.points = group.points.chunks(2).filter_map(merged).collect();
            self.points += group.points.len();
        }
        // With one point each there is nothing to merge; groups are few beside points.
    }
}

/// Returns consecutive points as one point.
fn merged(points: &[Point]) -> Option<Point> {
    points.iter().copied().reduce(|one, other| Point {
        start: one.start,
        length: other.end().saturating_sub(one.start),
        least: one.least.min(other.least),
        most: one.most.max(other.most),
        last: other.last,
        refused: one.refused.saturating_add(other.refused),
        reclaimed: one.reclaimed.saturating_add(other.reclaimed),
    })
}

impl Group {
    fn take(&mut self, values: &Values) {
        self.current = values[format::CURRENT];
        self.peak = values[format::PEAK];
        self.charges = values[format::CHARGES];
        self.refused = values[format::REFUSED];
        self.reclaimed = values[format::RECLAIMED];
        self.max = Some(values[format::MAX]).filter(|&max| max != format::NO_MAX);
    }

    /// Appends a point, which begins where the previous one ended, or later.
    fn push(&mut self, mut point: Point) {
        if let Some(before) = self.points.last() {
            let end = point.end();
            point.start = point.start.max(before.end());
            point.length = end.saturating_sub(point.start);
        }
        self.points.push(point);
    }
}
