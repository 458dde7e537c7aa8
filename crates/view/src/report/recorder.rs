//! Writes a recording, look by look, in bounded space.
//!
//! ```text
//! each look       the changes are appended in one call: births, then values
//! when too long   a second file gets the history, coarser with age, and is renamed over the first
//! a full disk     the file is cut to the last whole frame, and a later look tries again: only resolution in time is lost
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

/// The smallest allowed size of a recording.
pub const LEAST_SIZE: u64 = 256 << 10;
/// The most points of each group in a compacted file.
const POINTS_EACH: u64 = 1000;
/// The bytes of the file per group that is followed at the same time. Some groups are followed in any case.
const BYTES_EACH: u64 = 40_000;
const LEAST_GROUPS: u64 = 16;
/// Half of a compacted file holds points; this is the most that a point takes.
const BYTES_OF_POINT: u64 = 20;
/// The pause after a failed write.
const PAUSE: Duration = Duration::from_secs(1);

/// The settings of a recording.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The subject of the recording, for example a command.
    pub title: String,
    /// The interval between looks.
    pub every: Duration,
    /// The largest size of the file, at least [`LEAST_SIZE`]. While it is replaced there is a second file of half that
    /// size.
    pub size: u64,
}

/// Writes a recording of one ledger.
///
/// Each look costs about a microsecond per group and one system call. The recorder takes the memory of a [`History`] of
/// one group for each 40 000 bytes of the file's size, with 1000 points each: 20 MB for 16 MB, if there are that many
/// groups and they lived long enough.
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
    /// The bytes of the file that are whole frames.
    length: u64,
    history: History,
    written: HashMap<GroupId, Written>,
    /// The number of groups in the file.
    indexes: u64,
    /// The first look.
    began: Option<(Duration, SystemTime, &'static str)>,
    /// The last written look.
    clock: Duration,
    /// The number of groups that the file no longer covers.
    left_out: u64,
    /// The end of the pause after a failed write.
    paused: Option<Duration>,
}

/// The state of a group in the file.
#[derive(Clone, Debug)]
struct Written {
    index: u64,
    values: Values,
    ended: bool,
    program: String,
}

impl Recorder {
    /// Makes the file, which replaces one of that name, and writes the header.
    ///
    /// # Errors
    /// `path` is not a regular file, or its folder accepts no new file.
    pub fn create(path: &Path, settings: Settings) -> io::Result<Recorder> {
        // The recording is written through a symbolic link, not over it.
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

    /// Returns the path of the recording.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the changes since the previous look.
    ///
    /// # Errors
    /// It could not be written, for example because the disk is full. Everything written before can still be read.
    /// Looks of the next second are not written; then the next one is tried again, with all changes since the last
    /// written look.
    pub fn push(&mut self, look: &Look) -> io::Result<()> {
        self.history.push(look);
        if self.paused.is_some_and(|until| look.clock < until && look.clock + PAUSE >= until) {
            return Ok(());
        }
        self.paused = None;
        self.try_to_push(look).inspect_err(|_| self.paused = Some(look.clock + PAUSE))
    }

    /// Writes how the recorded program ended. No look may follow.
    ///
    /// # Errors
    /// As for [`Recorder::push`].
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
        // Groups that are gone, or made room for larger ones.
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
        // The groups that the history forgot were marked as ended above.
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
            // A reader stops at a torn frame anyway; but the disk is full.
            let _ = self.file.set_len(self.length);
            return Err(error);
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Replaces the file by one with the data of the history, which covers all looks up to this one.
    fn compact(&mut self, look: &Look) -> io::Result<()> {
        let rows: HashMap<GroupId, &Row> = look.rows.iter().map(|row| (row.id, row)).collect();
        let mut groups: Vec<&Chronicle> = self.history.iter().collect();
        groups.sort_by_key(|group| (group.depth > 0, group.ended, std::cmp::Reverse(group.peak)));
        let mut writer = Writer(format::header());
        // The length of the number of omitted groups varies by a byte or two only.
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
        // An empty sample records the time.
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

/// Puts a file with these bytes in place atomically; it may replace another.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // Other users must not read the names of programs.
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
