//! Records that `perf record -z` compressed: one zstd stream in the payloads of many records.
//!
//! perf flushes the stream and does not end it, and a decoder keeps back data that later blocks may refer to. So the
//! stream is ended here by an empty last block.
//!
//! The decoder gets one block at a time, because each may unpack to 128 KiB: otherwise a few bytes could fill all
//! memory.

use ledgerline_layout::Error;
use ruzstd::decoding::FrameDecoder;

/// The largest ratio of a stream to its payloads. perf reaches ten to fifty.
const MOST_TIMES: u64 = 200;
/// A stream may always unpack to this many bytes.
const ALWAYS: u64 = 1 << 20;

/// The longest header of a frame.
const HEADER: usize = 18;
/// An empty block that ends a frame, and bytes in place of a checksum.
const END: [u8; 7] = [1, 0, 0, 0, 0, 0, 0];

/// Unpacks payloads one after the other.
#[derive(Default)]
pub(super) struct Unpack {
    decoder: FrameDecoder,
    begun: bool,
    /// Whether a checksum follows the last block of the frame.
    checksum: bool,
    /// The begin of an incomplete block.
    packed: Vec<u8>,
    /// Unpacked bytes that the caller has not used yet.
    pub unpacked: Vec<u8>,
    input: u64,
    output: u64,
}

impl Unpack {
    /// Takes a payload, and appends its unpacked bytes to `unpacked`.
    pub fn payload(&mut self, payload: &[u8]) -> Result<(), Error> {
        self.input += payload.len() as u64;
        self.packed.extend_from_slice(payload);
        self.blocks(HEADER)
    }

    /// Ends the stream.
    pub fn end(&mut self) -> Result<(), Error> {
        if self.input == 0 {
            return Ok(());
        }
        self.blocks(1)?;
        if self.begun && !self.decoder.is_finished() {
            if !self.packed.is_empty() {
                return Err(Error::new("its compressed records are cut off"));
            }
            self.packed.extend_from_slice(&END);
            self.blocks(usize::MAX)?;
        }
        Ok(())
    }

    /// Decodes the complete blocks. Begins a new frame only if `least` bytes are there.
    fn blocks(&mut self, least: usize) -> Result<(), Error> {
        let broken = |error: &dyn std::fmt::Display| {
            Error::new(format!("its compressed records are broken: {error}"))
        };
        let mut used = 0;
        loop {
            let left = &self.packed[used..];
            if !self.begun || self.decoder.is_finished() {
                if left.len() < least {
                    break;
                }
                let mut source = left;
                self.decoder.reset(&mut source).map_err(|error| broken(&error))?;
                self.begun = true;
                // The byte behind the magic number describes the frame.
                self.checksum = left[4] & 4 != 0;
                used += left.len() - source.len();
                continue;
            }
            let behind = if self.checksum { 4 } else { 0 };
            let Some(end) = block(left, behind).filter(|&end| end <= left.len()) else { break };
            let before = self.decoder.bytes_read_from_source();
            let mut target = [0; 1 << 14];
            let mut block = &left[..end];
            loop {
                let (_, written) = self
                    .decoder
                    .decode_from_to(block, &mut target)
                    .map_err(|error| broken(&error))?;
                block = &[];
                if written == 0 {
                    break;
                }
                self.unpacked.extend_from_slice(&target[..written]);
                self.output += written as u64;
            }
            let read = (self.decoder.bytes_read_from_source() - before) as usize;
            if read != end {
                return Err(broken(&"a block has no end"));
            }
            used += read;
            if self.output > ALWAYS + MOST_TIMES.saturating_mul(self.input) {
                return Err(Error::new("its compressed records are far longer than perf's"));
            }
        }
        self.packed.drain(..used);
        Ok(())
    }
}

/// Returns the size of the first block with its header, and with the `behind` bytes that follow the last block of a
/// frame; `None` if the header is truncated.
fn block(bytes: &[u8], behind: usize) -> Option<usize> {
    let header: [u8; 3] = bytes.get(..3)?.try_into().ok()?;
    let header = u32::from_le_bytes([header[0], header[1], header[2], 0]);
    const REPEATED: u32 = 1;
    let size = if header >> 1 & 3 == REPEATED { 1 } else { header >> 3 };
    let behind = if header & 1 == 1 { behind } else { 0 };
    Some(3 + size as usize + behind)
}
