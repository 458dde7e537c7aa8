//! Does the same work for every design point, on as many cores as the machine has.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `work` with each item and its number, and returns the results in the items' order, or the first error in
/// that order.
///
/// Chance decides which thread does which item. It does not affect the results, since an item's work knows of no
/// other item.
pub(crate) fn each<T: Sync, U: Send, E: Send>(
    items: &[T],
    work: impl Fn(usize, &T) -> Result<U, E> + Sync,
) -> Result<Vec<U>, E> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(items.len());
    if threads <= 1 {
        return items.iter().enumerate().map(|(index, item)| work(index, item)).collect();
    }
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<Result<U, E>>>> = items.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    // Relaxed suffices: the number alone says which thread has the item.
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { break };
                    *done[index].lock().expect("nobody panics holding it") =
                        Some(work(index, item));
                }
            });
        }
    });
    done.into_iter()
        .map(|result| {
            let result = result.into_inner().expect("nobody panics holding it");
            result.expect("every item was somebody's")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::each;

    #[test]
    fn results_come_in_the_items_order_and_so_does_the_first_error() {
        let items: Vec<u64> = (0..100).collect();
        let double = |index: usize, item: &u64| {
            assert_eq!(index as u64, *item);
            // The early items take longest.
            std::thread::sleep(std::time::Duration::from_micros(100 - item));
            Ok::<u64, u64>(2 * item)
        };
        assert_eq!(each(&items, double).unwrap(), (0..100).map(|n| 2 * n).collect::<Vec<_>>());
        let odd = |_: usize, item: &u64| if item % 7 == 3 { Err(*item) } else { Ok(*item) };
        assert_eq!(each(&items, odd), Err(3));
        assert_eq!(each(&[] as &[u64], odd), Ok(vec![]));
    }
}
