//! Reads the recordings in a folder, one for each process.

use crate::recording::plan::Plan;
use ledgerline_layout::Error;
use ledgerline_record::format::{
    self, KINDS, OUTSIDE, REST, Shape, header, table, thread as block,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The recording of one process.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// Its id.
    pub process: u64,
    /// Its threads that touched an object or completed an operation.
    pub threads: Vec<Thread>,
    /// Objects by type and by the threads that used them. Each thread has a bit, by [`Thread::number`]; all threads
    /// from the 64th on share the last bit.
    pub objects: Vec<Used>,
    /// Objects of a type that share a pair of lines and were used by different threads.
    pub neighbours: Vec<Neighbours>,
    /// The places that allocated blocks which count as objects.
    pub sites: Vec<Site>,
    /// Blocks that were used and may be arrays of a type, by the type's number in the plan, if arrays were not asked
    /// for.
    pub unasked: BTreeMap<usize, u64>,
    /// Data that was not recorded.
    pub losses: Losses,
    /// The cost of recording, in nanoseconds.
    pub cost: Cost,
}

/// Objects with the same users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// The number of the type in the plan.
    pub ty: usize,
    /// The threads that used them within operations, or at all if none were named.
    pub users: u64,
    /// The number of objects.
    pub objects: u64,
}

/// Pairs of objects with the same relative position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbours {
    /// The number of the type in the plan.
    pub ty: usize,
    /// Bytes from the start of the first to the start of the second.
    pub stride: u64,
    /// The offset of the first in a pair of lines.
    pub begins: u64,
    /// The threads that used only one of the two, like [`Used::users`].
    pub differ: u64,
    /// The number of pairs.
    pub pairs: u64,
}

/// Blocks that one place in the code allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The address within the file; `None` if code of another file allocated them.
    pub address: Option<u64>,
    /// The number of the type in the plan.
    pub ty: usize,
    /// Whether they are larger than the type: rounded up to the alignment of the request.
    pub rounded: bool,
    /// The number of blocks.
    pub blocks: u64,
}

/// Counts of data that was not recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Losses {
    /// Objects, threads, sites and counts for which there was no room.
    pub no_room: u64,
    /// Objects that were replaced by another at the same place.
    pub overlapping: u64,
    /// Blocks of a size that several wanted types have.
    pub ambiguous: u64,
    /// The first such size.
    #[serde(skip)]
    pub ambiguous_size: u64,
    /// The alignment of that request.
    #[serde(skip)]
    pub ambiguous_align: u64,
    /// Blocks that were used and may be arrays, if arrays were not asked for.
    pub unasked: u64,
    /// Annotations that name no wanted type.
    pub unknown_names: u64,
    /// Accesses by signal handlers that interrupted the counting.
    pub dropped: u64,
    /// Operations that had not ended when the process ended.
    pub unfinished: u64,
}

/// The cost of recording, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// A call of a probe.
    pub probe: f64,
    /// The additional cost of a call that counts.
    pub count: f64,
    /// The additional cost of an operation.
    pub operation: f64,
}

/// The counts of a thread.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    /// Its number; the first of its process is 0.
    pub number: usize,
    /// Its name at its first access.
    pub name: String,
    /// Operations that it completed; if none were named, accesses that were counted.
    pub operations: u64,
    /// Measurements since its first access.
    pub measured: Measured,
    /// Its accesses, by type.
    pub tables: Vec<Table>,
}

/// The consumption of a thread between two measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// CPU time.
    pub nanoseconds: u64,
    /// Operations.
    pub operations: u64,
    /// Calls of probes.
    pub probes: u64,
    /// Calls of probes that counted.
    pub counted: u64,
}

/// A thread's accesses to a type.
#[derive(Clone, Debug)]
pub struct Table {
    /// The number of the type in the plan.
    pub ty: usize,
    /// Rows by the set of fields that were touched.
    pub rows: Vec<Row>,
}

/// Operations that touched the same fields.
#[derive(Clone, Debug)]
pub struct Row {
    /// The property that they share.
    pub kind: RowKind,
    /// The number of operations; 0 for accesses outside of any.
    pub operations: u64,
    /// Loads, stores and atomic operations of each cell.
    pub counts: Vec<[u64; KINDS]>,
}

/// The property that the operations of a row share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// Not an operation: accesses outside of operations, or all if none were named.
    Outside,
    /// The cells that they touched, in the order of the first operation.
    Together(Vec<u16>),
    /// None: there were too many combinations.
    Rest,
}

/// Reads the recordings of a folder, in the order of their names.
///
/// # Errors
/// One line that names the file, if it cannot be read or is damaged.
pub fn read(folder: &Path, plan: &Plan) -> Result<Vec<Recording>, Error> {
    let cannot = |error: std::io::Error| Error::new(format!("cannot be read ({error})"));
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|error| cannot(error).in_file(folder))? {
        let path = entry.map_err(|error| cannot(error).in_file(folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(format::RECORDING) {
            paths.push(path);
        }
    }
    paths.sort();
    let read = |path: &Path| {
        let file = File::open(path).map_err(cannot)?;
        let length = file.metadata().map_err(cannot)?.len();
        Words { file, length }.recording(plan)
    };
    let recordings = paths.iter().map(|path| read(path).map_err(|error| error.in_file(path)));
    recordings.filter_map(Result::transpose).collect()
}

/// Adds to a saturating sum: a program may have overwritten its own recording.
pub(crate) fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

/// Most objects, among those that exist at the end, whose neighbours are looked for.
const MOST_PLACED: usize = 1 << 20;

/// The file of a recording, which is mostly holes.
struct Words {
    file: File,
    length: u64,
}

impl Words {
    /// Reads words from an offset in bytes.
    fn at(&self, offset: usize, words: usize) -> Result<Vec<u64>, Error> {
        let damaged = || Error::new("is damaged").advise("record again");
        let bytes = words.checked_mul(8).ok_or_else(damaged)?;
        let end = offset.checked_add(bytes).ok_or_else(damaged)? as u64;
        if end > self.length {
            return Err(damaged());
        }
        let mut buffer = vec![0; bytes];
        self.file
            .read_exact_at(&mut buffer, offset as u64)
            .map_err(|error| Error::new(format!("cannot be read ({error})")))?;
        Ok(buffer.as_chunks().0.iter().copied().map(u64::from_ne_bytes).collect())
    }

    /// Reads the rows of a table, or objects, whose last word marks them as used.
    fn rows(&self, table: usize, most: usize) -> Result<Vec<[u64; format::ROW]>, Error> {
        let mut rows = self.at(table, most * format::ROW)?.as_chunks().0.to_vec();
        rows.retain(|row| row[2] != 0);
        Ok(rows)
    }

    /// Reads the recording. `None` for a process that ended before it began to record.
    fn recording(&self, plan: &Plan) -> Result<Option<Recording>, Error> {
        if self.length < format::OBJECTS_AT as u64 {
            return Ok(None);
        }
        let head = self.at(0, header::FIRST_THREAD + format::MOST_THREADS)?;
        if head[header::MAGIC] != format::RECORDING_MAGIC {
            return Ok(None);
        }
        let nanoseconds = |word: usize| head[word] as f64 / 1000.0;
        let mut recording = Recording {
            process: head[header::PROCESS],
            losses: Losses {
                overlapping: head[header::OVERLAPPING],
                ambiguous: head[header::AMBIGUOUS],
                ambiguous_size: head[header::AMBIGUOUS_SIZE],
                ambiguous_align: head[header::AMBIGUOUS_ALIGN],
                unknown_names: head[header::UNKNOWN_NAMES],
                dropped: head[header::DROPPED],
                ..Losses::default()
            },
            cost: Cost {
                probe: nanoseconds(header::PROBE_PS),
                count: nanoseconds(header::COUNT_PS),
                operation: nanoseconds(header::OPERATION_PS),
            },
            ..Recording::default()
        };
        let lost = [header::OBJECTS_LOST, header::THREADS_LOST, header::SITES_LOST];
        for word in lost.into_iter().chain([header::FOLDS_LOST, header::TABLES_LOST]) {
            add(&mut recording.losses.no_room, head[word]);
        }
        let threads = (head[header::THREADS] as usize).min(format::MOST_THREADS);
        for &offset in &head[header::FIRST_THREAD..][..threads] {
            let thread = self.thread(offset as usize, plan, &mut recording.losses)?;
            recording.threads.push(thread);
        }
        self.objects(head[header::OBJECTS] as usize, plan, &mut recording)?;
        self.sites(plan, &mut recording)?;
        Ok(Some(recording))
    }

    fn thread(&self, offset: usize, plan: &Plan, losses: &mut Losses) -> Result<Thread, Error> {
        let words = self.at(offset, block::TABLES + plan.types.len())?;
        let name: Vec<u8> =
            words[block::NAME..][..2].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        let open = !plan.operations.is_empty() && words[block::DEPTH] != 0;
        add(&mut losses.dropped, words[block::DROPPED]);
        losses.unfinished += u64::from(open);
        let passed =
            |word: usize| words[block::LAST + word].saturating_sub(words[block::FIRST + word]);
        let mut thread = Thread {
            number: words[block::NUMBER] as usize,
            name: String::from_utf8_lossy(name).into_owned(),
            operations: words[block::OPERATIONS].saturating_sub(u64::from(open)),
            measured: Measured {
                nanoseconds: passed(0),
                operations: passed(1),
                probes: passed(2),
                counted: passed(3),
            },
            tables: Vec::new(),
        };
        for (ty, &offset) in words[block::TABLES..].iter().enumerate() {
            if offset != 0 {
                thread.tables.push(self.table(offset as usize, ty, plan)?);
            }
        }
        Ok(thread)
    }

    fn table(&self, offset: usize, ty: usize, plan: &Plan) -> Result<Table, Error> {
        let shape = Shape { cells: plan.types[ty].cells.paths.len() };
        let words = self.at(offset, shape.table())?;
        let mut rows = Vec::new();
        for index in 0..(words[table::USED] as usize).min(format::ROWS) {
            let row = self.at(words[table::FIRST_ROW + index] as usize, shape.row())?;
            let small = |at: usize| (row[shape.row_order() + at / 4] >> (at % 4 * 16)) as u16;
            let kind = match index {
                OUTSIDE => RowKind::Outside,
                REST => RowKind::Rest,
                _ => {
                    let cells = (0..(row[1] as usize).min(shape.cells)).map(small);
                    let known = cells.filter(|&cell| usize::from(cell) < shape.cells);
                    RowKind::Together(known.collect())
                }
            };
            let counts = row[shape.row_counts()..].chunks_exact(KINDS);
            rows.push(Row {
                kind,
                operations: row[0],
                counts: counts.map(|counts| [counts[0], counts[1], counts[2]]).collect(),
            });
        }
        Ok(Table { ty, rows })
    }

    /// Reads objects that existed at the end, and those that were freed before.
    fn objects(&self, count: usize, plan: &Plan, into: &mut Recording) -> Result<(), Error> {
        let mut tally = BTreeMap::new();
        let count = count.min(format::MOST_OBJECTS);
        let mut live = Vec::new();
        const AT_ONCE: usize = 1 << 14;
        for start in (1..count).step_by(AT_ONCE) {
            let many = AT_ONCE.min(count - start);
            let at = format::OBJECTS_AT + start * format::ROW * 8;
            for [start, mut ty, users] in self.rows(at, many)? {
                if ty == 0 {
                    continue;
                }
                if ty >= format::UNASKED {
                    ty = (ty % format::UNASKED) | format::UNASKED;
                } else if live.len() < MOST_PLACED {
                    live.push((start, ty, users));
                }
                *tally.entry((ty, users)).or_insert(0u64) += 1;
            }
        }
        for [ty, users, objects] in self.rows(format::FOLDS_AT, format::MOST_FOLDS)? {
            add(tally.entry((ty, users)).or_default(), objects);
        }
        self.neighbours(live, plan, into)?;
        for ((ty, users), objects) in tally {
            let known = (ty % format::UNASKED).wrapping_sub(1) as usize;
            if known >= plan.types.len() {
                continue;
            }
            if ty < format::UNASKED {
                into.objects.push(Used { ty: known, users, objects });
            } else {
                add(into.unasked.entry(known).or_default(), objects);
                add(&mut into.losses.unasked, objects);
            }
        }
        Ok(())
    }

    /// Finds pairs of neighbouring objects among those that existed at the end, and reads those that were freed before.
    fn neighbours(
        &self,
        mut live: Vec<(u64, u64, u64)>,
        plan: &Plan,
        into: &mut Recording,
    ) -> Result<(), Error> {
        live.sort_unstable();
        let mut tally: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for pair in live.windows(2) {
            let [(first, ty, ours), (second, other, theirs)] = [pair[0], pair[1]];
            let size = plan.types.get(ty as usize - 1).map_or(1, |of| of.size.max(1) as u64);
            let last = first.saturating_add(size - 1);
            let together = last / format::PAIR as u64 == second / format::PAIR as u64;
            if ty == other && ours != theirs && together {
                let key = format::neighbours(ty - 1, first as usize, second as usize);
                *tally.entry((key, ours ^ theirs)).or_default() += 1;
            }
        }
        for [key, differ, pairs] in self.rows(format::NEIGHBOURS_AT, format::MOST_NEIGHBOURS)? {
            add(tally.entry((key, differ)).or_default(), pairs);
        }
        for ((key, differ), pairs) in tally {
            let ty = usize::from(key as u16).wrapping_sub(1);
            let (stride, begins) = (key >> 32, u64::from((key >> 16) as u16));
            if ty < plan.types.len() && stride > 0 {
                into.neighbours.push(Neighbours { ty, stride, begins, differ, pairs });
            }
        }
        Ok(())
    }

    fn sites(&self, plan: &Plan, into: &mut Recording) -> Result<(), Error> {
        for [site, ty, blocks] in self.rows(format::SITES_AT, format::MOST_SITE_ROWS)? {
            let rounded = ty & format::ROUNDED != 0;
            let ty = (ty & !format::ROUNDED).wrapping_sub(1) as usize;
            if ty < plan.types.len() {
                let address = (site != format::FOREIGN).then_some(site);
                into.sites.push(Site { address, ty, rounded, blocks });
            }
        }
        into.sites.sort_by_key(|site| (site.ty, std::cmp::Reverse(site.blocks), site.address));
        Ok(())
    }
}
