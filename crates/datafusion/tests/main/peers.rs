//! Situations for which users replaced DataFusion's pools. Each scenario runs on a built-in pool, which must do badly,
//! and on this one, which must not.

use crate::support::{MIB, builder, fill, fixed, pool, query, spill, spiller};
use datafusion_execution::memory_pool::{
    FairSpillPool, GreedyMemoryPool, MemoryPool, MemoryReservation, TrackConsumersPool,
};
use std::num::NonZeroUsize;
use std::sync::Arc;

const MAX: usize = 100 * MIB;

fn greedy() -> Arc<dyn MemoryPool> {
    Arc::new(GreedyMemoryPool::new(MAX))
}

fn fair() -> Arc<dyn MemoryPool> {
    Arc::new(FairSpillPool::new(MAX))
}

/// datafusion#17334, sedona-db#599, risingwave#24883: a sort takes all there is, then a join wants its share.
mod spillers_leave_a_share_for_those_that_cannot_spill {
    use super::*;

    /// Returns the units that the join gets after the sort took as much as it could.
    fn join_after_sort(pool: &Arc<dyn MemoryPool>) -> usize {
        let sort = spiller(pool, "ExternalSorter[0]");
        let sorted = fill(&sort, MIB, usize::MAX);
        assert!(sorted >= 75 * MIB, "the sort gets most of it: {sorted}");
        fill(&fixed(pool, "HashJoinInput[0]"), MIB, usize::MAX)
    }

    #[test]
    fn greedy_and_fair_leave_nothing() {
        assert_eq!(join_after_sort(&greedy()), 0);
        assert_eq!(join_after_sort(&fair()), 0);
    }

    #[test]
    fn ours_leaves_the_share_and_the_room_to_finish() {
        let pool = pool(MAX);
        let query = query(&pool, "q");
        let got = join_after_sort(&query.pool());
        assert!(got >= 12 * MIB, "{got}");
    }

    #[test]
    fn ours_leaves_as_much_as_it_was_told_to() {
        let pool = builder(MAX).keep_for_unspillable(0.2).room_to_finish(0.0).build();
        let query = query(&pool, "q");
        assert_eq!(join_after_sort(&query.pool()), 20 * MIB);
    }
}

/// sedona-db#918: the fair pool divides by the number of registered consumers.
mod one_active_sorter_among_32_gets_what_it_needs {
    use super::*;

    /// Returns the units that one sorter gets while 31 others are registered and hold nothing.
    fn active_among_idle(pool: &Arc<dyn MemoryPool>) -> usize {
        let sorters = (0..32).map(|at| spiller(pool, &format!("ExternalSorter[{at}]")));
        let sorters = sorters.collect::<Vec<_>>();
        fill(&sorters[7], MIB, 80 * MIB)
    }

    #[test]
    fn fair_gives_it_a_thirty_second() {
        assert_eq!(active_among_idle(&fair()), MAX / 32 / MIB * MIB);
    }

    #[test]
    fn ours_gives_it_all() {
        let pool = pool(MAX);
        let query = query(&pool, "q");
        assert_eq!(active_among_idle(&query.pool()), 80 * MIB);
    }
}

/// spiceai#9179: many queries at the same time, of which one is at work.
mod one_active_query_among_many_is_not_starved {
    use super::*;

    const QUERIES: usize = 20;
    const PARTITIONS: usize = 4;

    fn name(partition: usize) -> String {
        format!("ExternalSorter[{partition}]")
    }

    #[test]
    fn fair_leaves_most_of_the_pool_unused() {
        let pool = fair();
        let sorters = (0..QUERIES * PARTITIONS).map(|at| spiller(&pool, &name(at % PARTITIONS)));
        let sorters = sorters.collect::<Vec<_>>();
        let got: usize = sorters[..PARTITIONS].iter().map(|one| fill(one, MIB / 4, MAX)).sum();
        assert!(got <= MAX / 20, "{got} of {MAX}");
    }

    #[test]
    fn ours_gives_the_active_query_what_is_there() {
        let pool = pool(MAX);
        let queries = (0..QUERIES).map(|at| query(&pool, &format!("q{at}"))).collect::<Vec<_>>();
        let sorters = queries
            .iter()
            .flat_map(|query| (0..PARTITIONS).map(|at| spiller(&query.pool(), &name(at))))
            .collect::<Vec<_>>();
        let active = &sorters[..PARTITIONS];
        for sorter in active {
            assert_eq!(fill(sorter, MIB / 4, 20 * MIB), 20 * MIB);
        }
        // When others wake, the largest request more and are asked to spill, and all end with similar parts.
        for _ in 0..200 {
            for sorter in &sorters {
                if sorter.try_grow(MIB / 4).is_err() {
                    spill(sorter);
                }
            }
        }
        for sorter in &sorters {
            let most = MAX / (QUERIES * PARTITIONS) * 3;
            assert!(sorter.size() <= most, "{} of {most}", sorter.size());
        }
    }
}

/// datafusion#25172: the allowance of a consumer is compared with one of its reservations.
mod all_reservations_of_a_consumer_share_one_allowance {
    use super::*;

    /// Makes a consumer with four reservations, and one with one.
    fn two(pool: &Arc<dyn MemoryPool>) -> ([MemoryReservation; 4], MemoryReservation) {
        let first = spiller(pool, "ExternalSorter[0]");
        let parts = [first.new_empty(), first.new_empty(), first.new_empty(), first];
        (parts, spiller(pool, "ExternalSorter[1]"))
    }

    #[test]
    fn fair_lets_it_take_several_shares_and_more_than_the_pool() {
        let (parts, second) = two(&fair());
        let first: usize = parts.iter().map(|part| fill(part, MIB, usize::MAX)).sum();
        assert_eq!(first, 2 * MAX, "four halves");
        assert_eq!(fill(&second, MIB, usize::MAX), MAX / 2, "beside what is twice the pool");
    }

    #[test]
    fn ours_counts_them_together() {
        let pool = pool(MAX);
        let query = query(&pool, "q");
        let (parts, second) = two(&query.pool());
        second.try_grow(20 * MIB).unwrap();
        for part in &parts {
            part.try_grow(15 * MIB).unwrap();
        }
        // The room is short now. Each of the four is smaller than the other consumer, and together they are the
        // largest.
        second.try_grow(2 * MIB).unwrap();
        assert!(parts[0].try_grow(MIB).is_err());
        second.try_grow(2 * MIB).unwrap();
        let total: usize = parts.iter().map(|part| fill(part, MIB, usize::MAX)).sum();
        assert!(total + second.size() <= MAX, "{total}");
    }
}

/// datafusion-comet#5961, #5466: a consumer's allowance is compared with the holdings of all of them, or its share is a
/// fixed part that it cannot exceed.
mod a_share_is_compared_with_what_the_consumer_itself_holds {
    use super::*;

    /// Returns the units of its third that a small consumer gets, after a large one took as much as it could.
    fn small_after_large(pool: &Arc<dyn MemoryPool>) -> usize {
        let large = spiller(pool, "ExternalSorter[0]");
        fill(&large, MIB, usize::MAX);
        let small = spiller(pool, "ExternalSorter[1]");
        fill(&small, MIB, MAX / 3)
    }

    /// Returns the units that one of three consumers gets while the others hold little.
    fn one_of_three(pool: &Arc<dyn MemoryPool>) -> usize {
        let three = [0, 1, 2].map(|at| spiller(pool, &format!("ExternalSorter[{at}]")));
        three[1].try_grow(MIB).unwrap();
        three[2].try_grow(MIB).unwrap();
        fill(&three[0], MIB, usize::MAX)
    }

    #[test]
    fn greedy_refuses_a_small_consumer_for_what_a_large_one_holds() {
        assert_eq!(small_after_large(&greedy()), 0);
    }

    #[test]
    fn fair_lets_a_task_use_a_third_of_its_budget() {
        assert_eq!(one_of_three(&fair()), 33 * MIB);
    }

    #[test]
    fn ours_lets_the_small_one_go_on_and_the_large_one_use_what_is_there() {
        let pool = pool(MAX);
        let [a, b] = ["a", "b"].map(|name| query(&pool, name));
        let large = one_of_three(&a.pool());
        assert!(large >= 75 * MIB, "{large}");
        let small = small_after_large(&b.pool());
        assert!(small >= 6 * MIB, "{small}");
    }

    #[test]
    fn ours_gives_the_small_one_its_share_once_the_large_one_came_for_more() {
        let pool = pool(MAX);
        let query = query(&pool, "q");
        let [large, small] =
            [0, 1].map(|at| spiller(&query.pool(), &format!("ExternalSorter[{at}]")));
        let before = fill(&large, MIB, usize::MAX);
        let early = fill(&small, MIB, MAX / 3);
        assert!((MIB..MAX / 3).contains(&early), "on the overdraft alone: {early}");
        assert!(large.try_grow(MIB).is_err(), "the largest is asked first");
        assert_eq!(spill(&large), before);
        assert_eq!(fill(&small, MIB, MAX / 3), MAX / 3 / MIB * MIB);
    }
}

/// All of these projects: the error lists consumers of all queries, without the query that is full.
mod an_error_names_the_chain_and_the_top_consumers_of_that_query {
    use super::*;

    #[test]
    fn the_tracking_pool_names_those_of_another_query() {
        let pool =
            TrackConsumersPool::new(GreedyMemoryPool::new(MAX), NonZeroUsize::new(2).unwrap());
        let pool: Arc<dyn MemoryPool> = Arc::new(pool);
        let others = [0, 1].map(|at| fixed(&pool, &format!("OtherQuery[{at}]")));
        others.iter().for_each(|one| one.try_grow(40 * MIB).unwrap());
        let mine = fixed(&pool, "HashJoinInput[0]");
        mine.try_grow(15 * MIB).unwrap();
        let text = mine.try_grow(10 * MIB).unwrap_err().to_string();
        assert!(text.contains("OtherQuery[0]") && text.contains("OtherQuery[1]"), "{text}");
        assert!(!text.contains("consumed 15.0 MB"), "its own query is not among the top: {text}");
    }

    #[test]
    fn ours_names_its_own() {
        let pool = pool(MAX);
        let [other, mine] = ["q1", "q42"].map(|name| query(&pool, name));
        let others = [0, 1].map(|at| fixed(&other.pool(), &format!("OtherQuery[{at}]")));
        others.iter().for_each(|one| one.try_grow(40 * MIB).unwrap());
        let join = fixed(&mine.pool(), "HashJoinInput[0]");
        join.try_grow(10 * MIB).unwrap();
        let sort = spiller(&mine.pool(), "ExternalSorter[3]");
        sort.try_grow(MIB).unwrap();
        let text = join.try_grow(20 * MIB).unwrap_err().to_string();
        assert_eq!(
            text,
            "Resources exhausted: /acme/q42/HashJoinInput[0] asked for 20.0 MB and was refused: \
             /acme is full, 91.0 MB of max 100.0 MB in use\n\
             Chain: /acme/q42/HashJoinInput[0] holds 10.0 MB; /acme/q42 holds 11.0 MB; \
             /acme holds 91.0 MB of max 100.0 MB\n\
             Top consumers of /acme/q42: HashJoinInput[0] 10.0 MB (cannot spill), \
             ExternalSorter[3] 1024.0 KB (can spill)"
        );
        drop(others);
    }

    #[test]
    fn ours_says_why_a_spiller_was_asked_to_spill() {
        let pool = pool(MAX);
        let query = query(&pool, "q");
        let [sort, small] =
            [0, 1].map(|at| spiller(&query.pool(), &format!("ExternalSorter[{at}]")));
        small.try_grow(MIB).unwrap();
        fill(&sort, MIB, usize::MAX);
        let text = sort.try_grow(10 * MIB).unwrap_err().to_string();
        let why = "/acme has 81.2 MB of 100.0 MB for consumers that can spill, and they hold";
        assert!(text.contains(why) && text.contains("it is the largest of 2"), "{text}");
    }
}
