//! Makes ELF files that have only sections.

/// Returns a 64-bit little-endian ELF file, for x86-64 or `machine`.
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
