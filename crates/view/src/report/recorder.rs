//! Writes a recording, look by look, in bounded space.
//!
//! ```text
//! each look       what is new is appended, in one call: births, then what changed
//! when too long   a second file gets what the history still knows, coarser with age, and is renamed over the first
//! a full disk     the file is cut to what was whole, and the next look but some tries again: nothing is lost but time
//! ```

use crate::report::format::{
    self, BEGIN, END, ENDED, GROUP, NO_MAX, POINTS, SAMPLE, Values, Writer,
};
use crate::watch::{Chronicle, History, Look, Row, State};
use ledgerline::GroupId;
use std::collections::HashMap;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tempfile::NamedTempFile;

/// The least bytes that a recording can be held to.
pub const LEAST_SIZE: u64 = 256 << 10;
/// Points of each group that a file which was compacted has at most.
const POINTS_EACH: u64 = 1000;
/// Bytes of the file for each group that is followed at a time, of whom there are some in any case.
const BYTES_EACH: u64 = 40_000;
const LEAST_GROUPS: u64 = 16;
/// Half of a file holds points when it is made anew; this is what one takes, or less.
const BYTES_OF_POINT: u64 = 20;
/// How long no writing is tried after it failed.
const PAUSE: Duration = Duration::from_secs(1);

/// What a recording is told of itself.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is recorded: a command, say.
    pub title: String,
    /// How often there will be a look.
    pub every: Duration,
    /// Bytes that the file has at most, [`LEAST_SIZE`] at least. (For a moment, when it is replaced, there is a second
    /// one of half that.)
    pub size: u64,
}

/// Writes a recording of one ledger.
///
/// Each look costs about a microsecond a group and one call of the kernel. The memory it takes is that of a
/// [`History`] of one group for each 40 000 bytes of the file's size, with 1000 points each: 20 MB for 16 MB, if there are
/// as many groups and they lived long enough.
///
/// ```
/// use ledgerline::Ledger;
/// use ledgerline_view::report::{Recorder, Recording, Settings};
/// use ledgerline_view::watch::Source;
/// use std::time::Duration;
///
/// let file = tempfile::NamedTempFile::new()?;
/// let ledger = Ledger::builder().capacity(16).create_in(file.as_file())?;
/// let source = Source::open(file.path())?;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("job.rec");
/// let every = Duration::from_millis(100);
/// let settings = Settings { title: "job".into(), every, size: 1 << 20 };
/// let mut recorder = Recorder::create(&path, settings)?;
/// recorder.push(&source.look())?;
/// let held = ledger.root().create("query")?.try_charge(1 << 20)?;
/// recorder.push(&source.look())?;
///
/// let recording = Recording::open(&path)?;
/// assert_eq!(recording.groups[1].path, "/query");
/// assert_eq!(recording.groups[1].current, 1 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    settings: Settings,
    file: File,
    /// Bytes of the file that are whole frames.
    length: u64,
    history: History,
    written: HashMap<GroupId, Written>,
    /// How many groups the file knows.
    indexes: u64,
    /// The first look.
    began: Option<(Duration, SystemTime, &'static str)>,
    /// The look that was written last.
    clock: Duration,
    /// Groups of which the file no longer says anything.
    left_out: u64,
    /// Until when no writing is tried.
    paused: Option<Duration>,
}

/// What the file says of a group.
#[derive(Clone, Debug)]
struct Written {
    index: u64,
    values: Values,
    ended: bool,
    program: String,
}

impl Recorder {
    /// Makes the file, in place of one of that name, and writes what says that it is a recording.
    ///
    /// # Errors
    /// `path` is something else than a file, or its folder takes no new file.
    pub fn create(path: &Path, settings: Settings) -> io::Result<Recorder> {
        // (It goes where a symbolic link leads, not over it.)
        let path = match path.metadata() {
            Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(found) if !found.is_file() => {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
            }
            Ok(_) => path.canonicalize()?,
            Err(_) => path.to_owned(),
        };
        let size = settings.size.max(LEAST_SIZE);
        let groups = (size / BYTES_EACH).max(LEAST_GROUPS);
        let points = (size / 2 / groups / BYTES_OF_POINT).min(POINTS_EACH);
        let history = History::new(settings.every, points as usize, groups as usize);
        let header = format::header();
        let file = replace(&path, &header)?;
        Ok(Recorder {
            path,
            settings: Settings { size, ..settings },
            file,
            length: header.len() as u64,
            history,
            written: HashMap::new(),
            indexes: 0,
            began: None,
            clock: Duration::ZERO,
            left_out: 0,
            paused: None,
        })
    }

    /// Where the recording is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes what changed since the look before.
    ///
    /// # Errors
    /// It could not be written: the disk is full, say. What was written before can be read all the same. Looks of the
    /// next second are not written; then the next one is tried again, and says all that changed since the last that was.
    pub fn push(&mut self, look: &Look) -> io::Result<()> {
        self.history.push(look);
        if self.paused.is_some_and(|until| look.clock < until && look.clock + PAUSE >= until) {
            return Ok(());
        }
        self.paused = None;
        self.try_to_push(look).inspect_err(|_| self.paused = Some(look.clock + PAUSE))
    }

    /// Says how what was recorded ended. Nothing should come after that.
    ///
    /// # Errors
    /// As [`Recorder::push`] has them.
    pub fn end(&mut self, how: &str) -> io::Result<()> {
        let mut writer = Writer::default();
        writer.frame(END, |frame| {
            frame.time(self.clock);
            frame.text(how);
        });
        self.append(&writer.0)
    }

    fn try_to_push(&mut self, look: &Look) -> io::Result<()> {
        if self.length > self.settings.size.saturating_sub(LEAST_SIZE / 8) {
            self.compact(look)?;
        }
        let began = *self.began.get_or_insert((look.clock, look.at, look.unit));
        let mut writer = Writer::default();
        if self.length == format::HEADER as u64 {
            self.begin(began, &mut writer);
            self.clock = look.clock;
        }
        let mut changed: Vec<(GroupId, Written)> = Vec::new();
        let mut indexes = self.indexes;
        for row in &look.rows {
            let Some(group) = self.history.get(row.id) else { continue };
            if row.state == State::Damaged {
                continue;
            }
            let (values, ended) = (values(row), row.state != State::Live);
            match self.written.get(&row.id) {
                Some(written) if written.values == values && written.ended == ended => {}
                Some(written) => {
                    changed.push((row.id, Written { values, ended, ..written.clone() }))
                }
                None => {
                    let program = row.program.clone();
                    let new = Written { index: indexes, values, ended, program };
                    write_group(&mut writer, &new, group);
                    indexes += 1;
                    changed.push((row.id, new));
                }
            }
        }
        // Those that are gone, or made room for larger ones.
        for (id, written) in &self.written {
            let lives = self.history.get(*id).is_some_and(|group| !group.ended);
            if !written.ended && !lives && !changed.iter().any(|(changed, _)| changed == id) {
                changed.push((*id, Written { ended: true, ..written.clone() }));
            }
        }
        writer.frame(SAMPLE, |frame| {
            frame.time(look.clock.saturating_sub(self.clock));
            for (id, now) in &changed {
                let before = self.written.get(id).map_or(Values::default(), |before| before.values);
                frame.number(now.index);
                frame.changes(&before, &now.values, if now.ended { ENDED } else { 0 });
            }
        });
        self.append(&writer.0)?;
        self.clock = self.clock.max(look.clock);
        self.indexes = indexes;
        self.written.extend(changed);
        // (What the history forgot has been said to have ended.)
        if self.written.len() > self.history.len() {
            let before = self.written.len();
            self.written.retain(|id, _| self.history.get(*id).is_some());
            self.left_out += (before - self.written.len()) as u64;
        }
        Ok(())
    }

    fn begin(&self, began: (Duration, SystemTime, &str), writer: &mut Writer) {
        let (clock, at, unit) = began;
        writer.frame(BEGIN, |frame| {
            frame.time(clock);
            frame.time(at.duration_since(UNIX_EPOCH).unwrap_or_default());
            frame.time(self.settings.every);
            frame.number(self.left_out);
            frame.text(unit);
            frame.text(&self.settings.title);
        });
    }

    /// Appends whole frames, or nothing.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all_at(bytes, self.length) {
            // (A reader stops at a torn frame anyhow; but the disk is full.)
            let _ = self.file.set_len(self.length);
            return Err(error);
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Replaces the file by one with what the history knows, which is all up to this look.
    fn compact(&mut self, look: &Look) -> io::Result<()> {
        let rows: HashMap<GroupId, &Row> = look.rows.iter().map(|row| (row.id, row)).collect();
        let mut groups: Vec<&Chronicle> = self.history.iter().collect();
        groups.sort_by_key(|group| (group.depth > 0, group.ended, std::cmp::Reverse(group.peak)));
        let mut writer = Writer(format::header());
        // (Its number has the same length whatever is left out, but for a byte or two.)
        let room = (self.settings.size / 2) as usize;
        let mut body = Writer::default();
        let mut written = HashMap::new();
        let mut left_out = 0;
        for group in groups {
            let Some(known) = self.written.get(&group.id) else { continue };
            let mut new = Written { index: written.len() as u64, ..known.clone() };
            if let Some(row) = rows.get(&group.id).filter(|row| row.state != State::Damaged) {
                (new.values, new.ended) = (values(row), row.state != State::Live);
            }
            let before = body.0.len();
            write_group(&mut body, &new, group);
            write_points(&mut body, &new, group);
            if body.0.len() > room {
                body.0.truncate(before);
                left_out += 1;
            } else {
                written.insert(group.id, new);
            }
        }
        self.left_out += left_out;
        if let Some(began) = self.began {
            self.begin(began, &mut writer);
        }
        // An empty sample says when this was.
        let passed =
            self.began.map_or(Duration::ZERO, |(began, ..)| look.clock.saturating_sub(began));
        body.frame(SAMPLE, |frame| frame.time(passed));
        writer.0.append(&mut body.0);
        let replaced = replace(&self.path, &writer.0);
        self.file = replaced.inspect_err(|_| self.left_out -= left_out)?;
        self.length = writer.0.len() as u64;
        self.indexes = written.len() as u64;
        self.written = written;
        self.clock = self.clock.max(look.clock);
        Ok(())
    }
}

/// Puts a file with these bytes where another may be, at once.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // Names of programs are nobody else's to read.
    let file: NamedTempFile = tempfile::Builder::new()
        .prefix(".ledgerline-record")
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    file.as_file().write_all_at(bytes, 0)?;
    if let Ok(old) = path.metadata() {
        file.as_file().set_permissions(old.permissions())?;
    }
    Ok(file.persist(path)?)
}

fn values(row: &Row) -> Values {
    let (counts, max) = (row.counts, row.max.unwrap_or(NO_MAX));
    [row.current, row.peak, counts.charges, counts.refused, counts.reclaimed, max]
}

fn write_group(writer: &mut Writer, known: &Written, group: &Chronicle) {
    writer.frame(GROUP, |frame| {
        frame.number(known.index);
        frame.time(group.first);
        frame.number(group.depth.into());
        frame.number(group.pid.into());
        frame.text(&group.path);
        frame.text(&known.program);
    });
}

fn write_points(writer: &mut Writer, known: &Written, group: &Chronicle) {
    writer.frame(POINTS, |frame| {
        let points = group.series.points();
        frame.number(known.index);
        frame.number(u64::from(known.ended));
        frame.changes(&Values::default(), &known.values, 0);
        frame.number(points.len() as u64);
        let (mut start, mut last) = (Duration::ZERO, 0);
        for point in points {
            frame.time(point.start.saturating_sub(start));
            frame.time(point.length);
            frame.change(last, point.last);
            frame.change(point.last, point.most);
            frame.change(point.last, point.least);
            frame.number(point.refused);
            frame.number(point.reclaimed);
            (start, last) = (point.start, point.last);
        }
    });
}

#[cfg(test)]
mod tests;
