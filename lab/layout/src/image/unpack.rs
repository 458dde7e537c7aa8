//! Unpacks within bounds: no file causes more memory to be used than was permitted.

use std::io::{self, Read};

use crate::error::Error;

/// The largest dictionary of xz or window of zstd. The kernel's own are 128 MiB at most.
const LARGEST_WINDOW: usize = 160 << 20;
/// The largest unpacked block of the older lz4 format.
const LZ4_BLOCK: usize = 8 << 20;
/// The largest packed size of such a block: incompressible data grows by a 255th.
const LZ4_PACKED: usize = LZ4_BLOCK + LZ4_BLOCK / 255 + 16;

const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const LZ4_OLD: &[u8] = &[0x02, 0x21, 0x4c, 0x18];

/// The format in which data is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// By gzip.
    Gzip,
    /// By xz.
    Xz,
    /// By `lzma`, the older format of xz.
    Lzma,
    /// By zstd.
    Zstd,
    /// By lz4, as frames.
    Lz4,
    /// By `lz4 -l`, as blocks without an end mark. Kernels use this form.
    Lz4Old,
    /// By a program whose format is recognised but not supported.
    Other(&'static str),
}

impl Packing {
    /// Recognises the packing by the first bytes of `data`.
    pub fn of(data: &[u8]) -> Option<Packing> {
        let packings: [(&[u8], Packing); 8] = [
            (&[0x1f, 0x8b], Packing::Gzip),
            (b"\xfd7zXZ\0", Packing::Xz),
            (ZSTD, Packing::Zstd),
            (&[0x04, 0x22, 0x4d, 0x18], Packing::Lz4),
            (LZ4_OLD, Packing::Lz4Old),
            (&[0x5d, 0, 0], Packing::Lzma),
            (b"BZh", Packing::Other("bzip2")),
            (&[0x89, b'L', b'Z', b'O', 0], Packing::Other("lzop")),
        ];
        packings.into_iter().find(|(start, _)| data.starts_with(start)).map(|(_, packing)| packing)
    }

    /// Returns the name of the program that packs this way.
    pub fn name(self) -> &'static str {
        match self {
            Packing::Gzip => "gzip",
            Packing::Xz => "xz",
            Packing::Lzma => "lzma",
            Packing::Zstd => "zstd",
            Packing::Lz4 | Packing::Lz4Old => "lz4",
            Packing::Other(name) => name,
        }
    }

    /// Unpacks `data`, and ignores bytes behind the end of the packed data.
    ///
    /// This takes `limit` bytes of memory, twice that for a moment, and 160 MiB for the state of unpacking.
    ///
    /// # Errors
    /// If the data is damaged or truncated, or unpacks to more than `limit` bytes.
    pub fn unpack(self, data: &[u8], limit: usize) -> Result<Vec<u8>, Error> {
        let window = (LARGEST_WINDOW >> 10) as u32;
        let unpacked = match self {
            Packing::Gzip => bounded(flate2::bufread::GzDecoder::new(data), limit),
            Packing::Xz => bounded(lzma_rust2::XzReader::new_mem_limit(data, false, window), limit),
            Packing::Lzma => lzma_rust2::LzmaReader::new_mem_limit(data, window, None)
                .and_then(|reader| bounded(reader, limit)),
            Packing::Zstd => zstd(data, limit),
            Packing::Lz4 => bounded(lz4_flex::frame::FrameDecoder::new(data), limit),
            Packing::Lz4Old => lz4_old(data, limit),
            Packing::Other(name) => {
                return Err(Error::new(format!("is packed with {name}, which is not read"))
                    .advise(format!("unpack it with {name} and name the result")));
            }
        };
        let name = self.name();
        match unpacked {
            Ok(unpacked) if unpacked.len() <= limit => Ok(unpacked),
            Ok(_) => Err(Error::new(format!(
                "its {name} data unpacks to more than {limit} bytes, the limit"
            ))
            .advise(format!("if that is meant, unpack it with {name} and name the result"))),
            Err(error) => Err(Error::new(format!("its {name} data cannot be unpacked: {error}"))
                .advise(format!("`{name} -t` tells whether it is whole"))),
        }
    }
}

/// Reads all of the output, but at most one byte beyond the limit.
fn bounded(reader: impl Read, limit: usize) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    reader.take(limit as u64 + 1).read_to_end(&mut out)?;
    Ok(out)
}

/// Unpacks one frame after the other.
fn zstd(mut data: &[u8], limit: usize) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    while out.len() <= limit && data.starts_with(ZSTD) {
        let frame = ruzstd::decoding::StreamingDecoder::new_with_max_window_size(
            &mut data,
            LARGEST_WINDOW as u64,
        )
        .map_err(io::Error::other)?;
        frame.take((limit - out.len()) as u64 + 1).read_to_end(&mut out)?;
    }
    Ok(out)
}

/// Unpacks blocks, each behind its length, until the data ends. A kernel's blocks are followed by their unpacked
/// size, which looks like the length of one more block.
fn lz4_old(data: &[u8], limit: usize) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = &data[LZ4_OLD.len()..];
    while let Some((length, behind)) = rest.split_first_chunk()
        && out.len() <= limit
    {
        let length = u32::from_le_bytes(*length) as usize;
        if behind.is_empty() {
            break;
        }
        if length == 0 || length > LZ4_PACKED {
            return Err(io::Error::other(format!("a block is {length} bytes")));
        }
        let block = behind.get(..length).ok_or(io::ErrorKind::UnexpectedEof)?;
        let start = out.len();
        out.resize(start + LZ4_BLOCK, 0);
        let unpacked =
            lz4_flex::block::decompress_into(block, &mut out[start..]).map_err(io::Error::other)?;
        out.truncate(start + unpacked);
        rest = &behind[length..];
    }
    Ok(out)
}
