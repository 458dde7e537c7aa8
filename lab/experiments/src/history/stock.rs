//! A CPU's prepaid pages of one group, between Linux 2.6.33 and 6.13 (`memcg_stock_pcp`).

/// Up to a batch of pages that are charged already.
#[derive(Debug)]
pub struct Stock {
    pages: i64,
    batch: i64,
}

impl Stock {
    /// Makes an empty stock that is filled by `batch` pages at a time.
    pub fn new(batch: i64) -> Stock {
        Stock { pages: 0, batch }
    }

    /// Takes pages. If there are too few, asks `walk` to charge a batch, or more if more are wanted.
    #[inline(always)]
    pub fn take(&mut self, pages: i64, walk: impl FnOnce(i64)) {
        if self.pages >= pages {
            self.pages -= pages;
        } else {
            let charge = self.batch.max(pages);
            walk(charge);
            // The previous pages stay: with the surplus they are at most a batch.
            self.pages += charge - pages;
        }
    }

    /// Returns the remaining pages.
    pub fn drain(self, walk: impl FnOnce(i64)) {
        walk(self.pages);
    }

    /// Puts pages back. If there are more than a batch then, asks `walk` to uncharge all of them.
    #[inline(always)]
    pub fn put(&mut self, pages: i64, walk: impl FnOnce(i64)) {
        self.pages += pages;
        if self.pages > self.batch {
            walk(self.pages);
            self.pages = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::cases::few(file!(), 256))]

        #[test]
        fn what_was_charged_is_in_use_or_in_stock(
            steps in proptest::collection::vec((any::<bool>(), 1..100i64), 1..300),
            batch in 1..65i64,
        ) {
            let mut stock = Stock::new(batch);
            let (mut charged, mut used) = (0, 0);
            for (take, pages) in steps {
                if take {
                    stock.take(pages, |walked| charged += walked);
                    used += pages;
                } else if pages <= used {
                    stock.put(pages, |walked| charged -= walked);
                    used -= pages;
                }
                prop_assert_eq!(charged, used + stock.pages);
                prop_assert!((0..=batch).contains(&stock.pages), "{:?}", stock);
            }
        }
    }

    #[test]
    fn a_walk_comes_once_in_a_batch() {
        let mut stock = Stock::new(32);
        let mut walks = 0;
        for _ in 0..3200 {
            stock.take(1, |_| walks += 1);
        }
        assert_eq!(walks, 100);
    }
}
