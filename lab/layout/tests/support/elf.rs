//! Makes ELF files that have only sections.

/// A 64-bit little-endian ELF file, for x86-64 or `machine`.
pub fn elf(machine: u16, sections: &[(&str, &[u8])]) -> Vec<u8> {
    let mut names = b"\0.shstrtab\0".to_vec();
    let mut data: Vec<u8> = Vec::new();
    let mut headers = vec![0u8; 64];
    let mut header = |name: u32, kind: u32, offset: usize, size: usize| {
        headers.extend(name.to_le_bytes());
        headers.extend(kind.to_le_bytes());
        headers.extend([0; 16]);
        headers.extend((offset as u64).to_le_bytes());
        headers.extend((size as u64).to_le_bytes());
        headers.extend([0; 8]);
        headers.extend(1u64.to_le_bytes());
        headers.extend([0; 8]);
    };
    for (name, bytes) in sections {
        header(names.len() as u32, 1, 64 + data.len(), bytes.len());
        names.extend(name.bytes().chain([0]));
        data.extend(*bytes);
    }
    header(1, 3, 64 + data.len(), names.len());
    data.extend(&names);
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend(1u16.to_le_bytes());
    file.extend(machine.to_le_bytes());
    file.extend(1u32.to_le_bytes());
    file.extend([0; 16]);
    file.extend((64 + data.len() as u64).to_le_bytes());
    file.extend([0; 4]);
    let counts = [64, 0, 0, 64, 2 + sections.len() as u16, 1 + sections.len() as u16];
    file.extend(counts.into_iter().flat_map(u16::to_le_bytes));
    file.extend(data);
    file.extend(headers);
    file
}

/// An image as x86 boots it: a sector and `setup` more (0 means 4), then some code, then the payload.
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

/// An image as arm64 boots it by EFI.
pub fn efi_image(payload: &[u8]) -> Vec<u8> {
    let mut image = b"MZ\0\0zimg".to_vec();
    image.extend(64u32.to_le_bytes());
    image.extend((payload.len() as u32).to_le_bytes());
    image.resize(64, 0);
    image.extend(payload);
    image
}
