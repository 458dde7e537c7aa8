//! An order that no prefetcher can learn.

/// Shuffles by Fisher and Yates with a fixed seed: the same every time.
pub fn shuffle<T>(items: &mut [T]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for last in (1..items.len()).rev() {
        // Marsaglia's xorshift; its bias against a small modulus does not matter here.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        items.swap(last, (state % (last as u64 + 1)) as usize);
    }
}

/// Returns the numbers below `count`, shuffled.
pub fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_keeps_the_items_and_moves_them_the_same_way_each_time() {
        let mut items = shuffled(1000);
        assert_eq!(items, shuffled(1000));
        let followed = items.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        assert!(followed < 20, "{followed} neighbours stayed together");
        let moved = items.iter().enumerate().filter(|&(index, &at)| index != at).count();
        assert!(moved > 900, "{moved} moved");
        items.sort_unstable();
        assert!(items.into_iter().eq(0..1000));
    }
}
