//! Over jemalloc: a binary of its own, since a program has one global allocator.

use ledgerline::Alloc;

#[global_allocator]
static ALLOC: Alloc<tikv_jemallocator::Jemalloc> = Alloc::new(tikv_jemallocator::Jemalloc);

#[test]
fn blocks_are_charged_and_credited_from_all_threads() {
    allocators::blocks_are_charged_and_credited_from_all_threads();
}

#[test]
fn small_blocks_start_a_window_apart() {
    allocators::small_blocks_start_a_window_apart();
}

#[test]
fn a_limit_holds() {
    allocators::a_limit_holds();
}

#[test]
fn a_limit_is_reached_to_the_byte_beside_threads_that_allocate() {
    allocators::a_limit_is_reached_to_the_byte_beside_threads_that_allocate();
}

#[test]
fn a_group_that_is_full_can_be_asked_from_inside() {
    allocators::a_group_that_is_full_can_be_asked_from_inside();
}
