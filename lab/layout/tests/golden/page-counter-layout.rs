const _: () = {
    use core::mem::offset_of;
    assert!((offset_of!(page_counter, min) + 7) / 64 == offset_of!(page_counter, min) / 64);
    assert!(offset_of!(page_counter, low) / 64 == offset_of!(page_counter, min) / 64);
    assert!((offset_of!(page_counter, low) + 7) / 64 == offset_of!(page_counter, min) / 64);
    assert!(offset_of!(page_counter, high) / 64 == offset_of!(page_counter, min) / 64);
    assert!((offset_of!(page_counter, high) + 7) / 64 == offset_of!(page_counter, min) / 64);
    assert!(offset_of!(page_counter, max) / 64 == offset_of!(page_counter, min) / 64);
    assert!((offset_of!(page_counter, max) + 7) / 64 == offset_of!(page_counter, min) / 64);
    assert!(offset_of!(page_counter, parent) / 64 == offset_of!(page_counter, min) / 64);
    assert!((offset_of!(page_counter, parent) + 7) / 64 == offset_of!(page_counter, min) / 64);
    assert!(((offset_of!(page_counter, usage) + 7) / 64 < offset_of!(page_counter, min) / 64 || (offset_of!(page_counter, min) + 7) / 64 < offset_of!(page_counter, usage) / 64));
    assert!(((offset_of!(page_counter, usage) + 7) / 64 < offset_of!(page_counter, low) / 64 || (offset_of!(page_counter, low) + 7) / 64 < offset_of!(page_counter, usage) / 64));
    assert!(((offset_of!(page_counter, usage) + 7) / 64 < offset_of!(page_counter, high) / 64 || (offset_of!(page_counter, high) + 7) / 64 < offset_of!(page_counter, usage) / 64));
    assert!(((offset_of!(page_counter, usage) + 7) / 64 < offset_of!(page_counter, max) / 64 || (offset_of!(page_counter, max) + 7) / 64 < offset_of!(page_counter, usage) / 64));
    assert!(((offset_of!(page_counter, usage) + 7) / 64 < offset_of!(page_counter, parent) / 64 || (offset_of!(page_counter, parent) + 7) / 64 < offset_of!(page_counter, usage) / 64));
    assert!(offset_of!(page_counter, usage) % 64 == 0);
    assert!(core::mem::size_of::<page_counter>() <= 192);
};
