//! Reads the records of a file.

use std::io::{Read, sink};

use ledgerline_layout::Error;

use super::bytes::{Bytes, Order};
use super::head::Records;
use super::unpack::Unpack;
use crate::profile::cannot;

/// Numbers of records.
pub(super) mod ty {
    pub const MMAP: u32 = 1;
    pub const FORK: u32 = 7;
    pub const SAMPLE: u32 = 9;
    pub const MMAP2: u32 = 10;
    pub const EVENT: u32 = 64;
    pub const TRACING_DATA: u32 = 66;
    pub const TRACE: u32 = 71;
    pub const EVENT_UPDATE: u32 = 78;
    pub const FEATURE: u32 = 80;
    pub const COMPRESSED: u32 = 81;
    pub const COMPRESSED_2: u32 = 83;
}

/// The size of a record's header: its type, and the size of the record.
const HEADER: usize = 8;

/// A record.
pub(super) struct Record<'a> {
    pub ty: u32,
    pub body: Bytes<'a>,
}

/// Calls `each` for each record of a file, from its position on. A compressed record comes when it can be unpacked,
/// later than its place in the file.
pub(super) fn each(
    file: &mut impl Read,
    order: Order,
    records: Records,
    mut each: impl FnMut(Record<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut unpack = Unpack::default();
    let mut left = records.unwrap_or(u64::MAX);
    let mut buffer = Vec::new();
    let mut read = 0u64;
    while left > 0 {
        let here = |error: Error| error.within(format_args!("record at byte {read} of the data"));
        let mut header = [0; HEADER];
        let got = fill(file, &mut header)?;
        if got < HEADER && records.is_none() {
            break;
        }
        let (ty, size) = parse(&header, order);
        if got < HEADER || (size as u64) > left {
            return Err(here(Error::new("it is cut off")));
        }
        let size = size.checked_sub(HEADER).ok_or_else(|| here(of_size(size)))?;
        buffer.resize(size, 0);
        if fill(file, &mut buffer)? < size {
            // The writer was killed while it wrote the last record.
            if records.is_none() {
                break;
            }
            return Err(here(Error::new("it is cut off")));
        }
        let mut body = Bytes::new(&buffer, order);
        let behind = match ty {
            ty::TRACE => body.u64().unwrap_or(0),
            ty::TRACING_DATA => body.u32().map_or(0, |size| u64::from(size).next_multiple_of(8)),
            _ => 0,
        };
        let passed = std::io::copy(&mut file.by_ref().take(behind), &mut sink());
        let passed = passed.map_err(|error| here(cannot(&error)))?;
        if passed < behind && records.is_some() {
            return Err(here(Error::new("it is cut off")));
        }
        let whole = (HEADER + size) as u64 + passed;
        left = left.saturating_sub(whole);
        match ty {
            ty::COMPRESSED => unpack.payload(&buffer),
            ty::COMPRESSED_2 => {
                let size = body.u64();
                let payload = size.and_then(|size| body.take(size));
                let cut = || Error::new("a compressed record is cut off");
                payload.ok_or_else(cut).and_then(|payload| unpack.payload(payload))
            }
            _ => each(Record { ty, body: Bytes::new(&buffer, order) }),
        }
        .and_then(|()| unpacked(&mut unpack, order, &mut each))
        .map_err(here)?;
        read += whole;
    }
    unpack.end()?;
    unpacked(&mut unpack, order, &mut each)?;
    if unpack.unpacked.is_empty() { Ok(()) } else { Err(Error::new("its last record is cut off")) }
}

/// Calls `each` for each complete record among the unpacked bytes.
fn unpacked(
    unpack: &mut Unpack,
    order: Order,
    each: &mut impl FnMut(Record<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let bytes = &unpack.unpacked;
    let mut at = 0;
    while let Some(header) = bytes[at..].first_chunk() {
        let (ty, size) = parse(header, order);
        if size < HEADER {
            return Err(of_size(size));
        }
        let Some(body) = bytes.get(at + HEADER..at + size) else { break };
        each(Record { ty, body: Bytes::new(body, order) })?;
        at += size;
    }
    unpack.unpacked.drain(..at);
    Ok(())
}

/// Reads a header: the type of a record, and its size with the header.
fn parse(header: &[u8; HEADER], order: Order) -> (u32, usize) {
    let mut at = Bytes::new(header, order);
    let ty = at.u32().unwrap_or_default();
    let _ = at.u16();
    (ty, at.u16().unwrap_or_default().into())
}

fn of_size(size: usize) -> Error {
    Error::new(format!("it says that it has {size} bytes, and a record has {HEADER} at least"))
}

/// Fills the buffer as far as the file goes; returns the number of bytes.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> Result<usize, Error> {
    let mut got = 0;
    while got < buffer.len() {
        match file.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(cannot(&error)),
        }
    }
    Ok(got)
}
