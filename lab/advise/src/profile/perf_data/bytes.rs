//! Numbers in the byte order of a file.

/// The byte order of the machine that wrote a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

/// Reads numbers one after the other. A truncated number is `None`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes<'a> {
    /// The bytes that have not been read.
    pub left: &'a [u8],
    order: Order,
}

impl<'a> Bytes<'a> {
    pub fn new(left: &'a [u8], order: Order) -> Bytes<'a> {
        Bytes { left, order }
    }

    pub fn take(&mut self, size: u64) -> Option<&'a [u8]> {
        let (taken, left) = self.left.split_at_checked(usize::try_from(size).ok()?)?;
        self.left = left;
        Some(taken)
    }

    /// Skips `count` items of `size` bytes.
    pub fn skip(&mut self, count: u64, size: u64) -> Option<()> {
        self.take(count.checked_mul(size)?).map(|_| ())
    }

    /// Returns the next bytes, the least significant first.
    fn little<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut bytes: [u8; N] = self.take(N as u64)?.try_into().ok()?;
        if self.order == Order::Big {
            bytes.reverse();
        }
        Some(bytes)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.little().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.little().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.little().map(u64::from_le_bytes)
    }
}
