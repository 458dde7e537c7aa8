//! Makes images of kernels in the forms that firmware boots.

/// Returns an image in the form that x86 boots: a sector and `setup` more (0 means 4), then some code, then the
/// payload.
pub fn bz_image(setup: u8, payload: &[u8]) -> Vec<u8> {
    let sectors = if setup == 0 { 4 } else { usize::from(setup) };
    let mut image = vec![0u8; (sectors + 1) * 512 + 100];
    image[0x1f1] = setup;
    image[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x206..0x208].copy_from_slice(&0x20fu16.to_le_bytes());
    image[0x248..0x24c].copy_from_slice(&100u32.to_le_bytes());
    image[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    image.extend(payload);
    image.extend([0; 64]);
    image
}

/// Returns an image in the form that arm64 boots by EFI.
pub fn efi_image(payload: &[u8]) -> Vec<u8> {
    let mut image = b"MZ\0\0zimg".to_vec();
    image.extend(64u32.to_le_bytes());
    image.extend((payload.len() as u32).to_le_bytes());
    image.resize(64, 0);
    image.extend(payload);
    image
}
