//! What was counted: the recordings in a folder, one a process.

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

/// One process.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// Its id.
    pub process: u64,
    /// Its threads that touched an object or went through an operation.
    pub threads: Vec<Thread>,
    /// Objects by type and the threads that used them, a bit each by [`Thread::number`]; the last bit is that of
    /// all threads from the 64th on.
    pub objects: Vec<Used>,
    /// Objects of a type that lie on one pair of lines, and were used by different threads.
    pub neighbours: Vec<Neighbours>,
    /// Who allocated blocks that were taken for objects.
    pub sites: Vec<Site>,
    /// By the number of a type in the plan, blocks that were used and may be arrays of it, where arrays were not asked for.
    pub unasked: BTreeMap<usize, u64>,
    /// What was not recorded.
    pub losses: Losses,
    /// What recording cost, in nanoseconds.
    pub cost: Cost,
}

/// Objects with the same users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// The number of the type in the plan.
    pub ty: usize,
    /// Who used them within operations (or at all, where none were named).
    pub users: u64,
    /// How many.
    pub objects: u64,
}

/// Pairs of objects that lie alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbours {
    /// The number of the type in the plan.
    pub ty: usize,
    /// Bytes from the start of one to the start of the other.
    pub stride: u64,
    /// Where in a pair of lines the first begins.
    pub begins: u64,
    /// Who used one of them and not the other, as in [`Used::users`].
    pub differ: u64,
    /// How many pairs.
    pub pairs: u64,
}

/// Blocks that a place in the code asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The address within the file; `None` when code of another file asked.
    pub address: Option<u64>,
    /// The number of the type in the plan.
    pub ty: usize,
    /// Whether they are larger than the type: rounded up to the alignment that they were asked with.
    pub rounded: bool,
    /// How many.
    pub blocks: u64,
}

/// What was not recorded, each a number of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Losses {
    /// Objects, threads, sites and counts for which there was no room.
    pub no_room: u64,
    /// Objects in whose place another lay.
    pub overlapping: u64,
    /// Blocks of a size that several wanted types have.
    pub ambiguous: u64,
    /// The first such size.
    #[serde(skip)]
    pub ambiguous_size: u64,
    /// The alignment that the first was asked with.
    #[serde(skip)]
    pub ambiguous_align: u64,
    /// Blocks that were used and may be arrays, where arrays were not asked for.
    pub unasked: u64,
    /// Annotations that name no wanted type.
    pub unknown_names: u64,
    /// Accesses by signal handlers in the middle of counting.
    pub dropped: u64,
    /// Operations that had not ended when the process did.
    pub unfinished: u64,
}

/// Nanoseconds that recording adds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// A call of a probe.
    pub probe: f64,
    /// A call that counts, on top.
    pub count: f64,
    /// An operation, on top.
    pub operation: f64,
}

/// What a thread did.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    /// The first of its process is 0.
    pub number: usize,
    /// Its name when it was first seen.
    pub name: String,
    /// Operations that it ended; where none were named, accesses that were counted.
    pub operations: u64,
    /// From its first access on.
    pub measured: Measured,
    /// What it touched, by type.
    pub tables: Vec<Table>,
}

/// What a thread used between two measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// CPU time.
    pub nanoseconds: u64,
    /// Operations.
    pub operations: u64,
    /// Calls of probes.
    pub probes: u64,
    /// Of these, calls that counted.
    pub counted: u64,
}

/// What a thread touched of a type.
#[derive(Clone, Debug)]
pub struct Table {
    /// The number of the type in the plan.
    pub ty: usize,
    /// By what was touched together.
    pub rows: Vec<Row>,
}

/// Operations that touched the same fields.
#[derive(Clone, Debug)]
pub struct Row {
    /// What they have in common.
    pub kind: RowKind,
    /// How many; 0 for what happened outside of any.
    pub operations: u64,
    /// Loads, stores and atomic operations of each cell.
    pub counts: Vec<[u64; KINDS]>,
}

/// What the operations of a row have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// They are none: accesses outside of operations, or all where none were named.
    Outside,
    /// The cells they touched, in the order of the first.
    Together(Vec<u16>),
    /// Nothing: there were too many combinations.
    Rest,
}

/// Reads the recordings of a folder, in the order of their names.
///
/// # Errors
/// One line that names the file, when it cannot be read or is damaged.
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

/// Adds to a sum that ends at the largest number: a program may have written into its own recording.
pub(crate) fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

/// Of so many objects, at most, it is looked which lie side by side at the end.
const MOST_PLACED: usize = 1 << 20;

/// A recording's file, which is mostly holes.
struct Words {
    file: File,
    length: u64,
}

impl Words {
    /// Words from an offset in bytes.
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

    /// The rows of a table, or objects, whose last word says that they are used.
    fn rows(&self, table: usize, most: usize) -> Result<Vec<[u64; format::ROW]>, Error> {
        let mut rows = self.at(table, most * format::ROW)?.as_chunks().0.to_vec();
        rows.retain(|row| row[2] != 0);
        Ok(rows)
    }

    /// `None` for a process that ended before it had begun.
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

    /// Objects that are there at the end, and those that went before.
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

    /// Pairs of objects that lay side by side: of those that are there at the end, and of those that went before.
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
