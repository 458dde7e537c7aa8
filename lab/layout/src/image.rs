//! Finds the kernel in a kernel image: a small program that unpacks a kernel, with the packed kernel behind it.

pub mod unpack;

use crate::error::Error;
use unpack::Packing;

/// The advice for an image that cannot be opened here.
const EXTRACT: &str =
    "unpack it with extract-vmlinux from the kernel's scripts and name the result";

/// Finds the kernel in a boot image, which is usually packed, and names the image's format; `None` if `data` is not a
/// boot image.
///
/// Two formats are known: bzImage, which x86 boots, and the EFI images that unpack themselves (`vmlinuz.efi`), which
/// arm64, riscv and loongarch boot.
///
/// # Errors
/// If the headers point beyond the file, or are too old to point to the kernel.
fn find(data: &[u8]) -> Result<Option<(&'static str, &[u8])>, Error> {
    if is_bz_image(data) {
        return Ok(Some(("bzImage", bz_image(data)?)));
    }
    if is_efi_image(data) {
        return Ok(Some(("EFI image", part(data, word(data, 8), word(data, 12))?)));
    }
    Ok(None)
}

/// Returns whether a file with these first bytes is a boot image.
pub(crate) fn is_image(head: &[u8]) -> bool {
    is_bz_image(head) || is_efi_image(head)
}

fn is_bz_image(data: &[u8]) -> bool {
    data.get(0x202..0x206) == Some(b"HdrS") && data.get(0x1fe..0x200) == Some(&[0x55, 0xaa])
}

fn is_efi_image(data: &[u8]) -> bool {
    data.starts_with(b"MZ") && data.get(4..8) == Some(b"zimg")
}

/// Follows the boot protocol of Linux on x86: the payload lies behind the sectors of the setup program.
fn bz_image(data: &[u8]) -> Result<&[u8], Error> {
    let protocol = half(data, 0x206).unwrap_or(0);
    if protocol < 0x208 {
        return Err(Error::new(format!(
            "is a kernel image of boot protocol {}.{:02}, which does not say where the kernel is",
            protocol >> 8,
            protocol & 0xff
        ))
        .advise("images since Linux 2.6.26 do"));
    }
    let sectors = match data[0x1f1] {
        0 => 4,
        sectors => u32::from(sectors),
    };
    let offset = word(data, 0x248).map(|offset| u64::from(offset) + u64::from((sectors + 1) * 512));
    part(data, offset, word(data, 0x24c))
}

/// Returns whether `data` is a kernel in its form in memory, without sections. EFI images contain such a kernel,
/// packed, and `Image` of arm64, riscv and loongarch is one.
pub fn is_flat(data: &[u8]) -> bool {
    let magics: [&[u8; 4]; 3] = [b"ARM\x64", b"RSC\x05", &0x8182_23cdu32.to_le_bytes()];
    data.get(0x38..0x3c).is_some_and(|magic| magics.iter().any(|known| magic == *known))
}

fn part<O: Into<u64>>(data: &[u8], offset: Option<O>, length: Option<u32>) -> Result<&[u8], Error> {
    let found = || {
        let offset = usize::try_from(offset?.into()).ok()?;
        data.get(offset..)?.get(..length? as usize)
    };
    found().ok_or_else(|| {
        let length = data.len();
        Error::new(format!("the kernel image is cut off: {length} bytes are less than it says"))
            .advise("copy it again")
    })
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

fn half(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(data.get(at..at + 2)?.try_into().ok()?))
}

/// Unpacks `data` by one step; `None` if it is neither a kernel image nor packed.
///
/// `limit` is the largest permitted size of the result.
///
/// # Errors
/// If `data` is damaged, is packed in an unknown way, or unpacks to more than `limit`.
pub fn open(data: &[u8], limit: usize) -> Result<Option<Vec<u8>>, Error> {
    let Some((name, payload)) = find(data)? else {
        return Packing::of(data).map(|packing| packing.unpack(data, limit)).transpose();
    };
    let inside = |error: Error| error.within(format!("the kernel in this {name}"));
    match Packing::of(payload) {
        Some(Packing::Other(with)) => {
            Err(inside(Error::new(format!("is packed with {with}, which is not read")))
                .advise(EXTRACT))
        }
        Some(packing) => packing.unpack(payload, limit).map(Some).map_err(inside),
        None if payload.starts_with(b"\x7fELF") => Ok(Some(payload.to_vec())),
        None => Err(inside(Error::new("is packed in a way that is not known")).advise(EXTRACT)),
    }
}
