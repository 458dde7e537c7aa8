/* The counter of seed 000 before its fields were grouped by use, and the threads that charge it. Each of two
 * threads has a counter of its own below a shared one. One operation in 32 charges both. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define BATCH 32

struct page_counter {
	atomic_long usage;
	unsigned long min;
	unsigned long low;
	unsigned long high;
	unsigned long max;
	unsigned long emin;
	atomic_long min_usage;
	atomic_long children_min_usage;
	unsigned long elow;
	atomic_long low_usage;
	atomic_long children_low_usage;
	unsigned long watermark;
	unsigned long failcnt;
	struct page_counter *parent;
};

static struct page_counter root = { .max = 1000000, .high = 1000000 };

/* Below `high` only the usage changes: the watermark was reached before. */
__attribute__((noinline)) static int charge(struct page_counter *counter, long pages)
{
	for (; counter; counter = counter->parent) {
		long usage = atomic_fetch_add(&counter->usage, pages) + pages;

		if ((unsigned long)usage > counter->max) {
			counter->failcnt++;
			return 0;
		}
		if ((unsigned long)usage > counter->high)
			return 2;
		if ((unsigned long)usage > counter->watermark)
			counter->watermark = usage;
	}
	return 1;
}

__attribute__((noinline)) static void uncharge(struct page_counter *counter, long pages)
{
	for (; counter; counter = counter->parent)
		atomic_fetch_sub(&counter->usage, pages);
}

__attribute__((noinline)) static int operation(struct page_counter *counter, long number)
{
	if (number % BATCH != 0)
		return 1;
	if (!charge(counter, BATCH))
		return 0;
	uncharge(counter, BATCH);
	return 1;
}

static void *work(void *none)
{
	struct page_counter *own = calloc(1, sizeof *own);

	own->max = own->high = 1000000;
	own->watermark = 2 * BATCH;
	own->parent = &root;
	for (long number = 0; number < 64000; number++)
		if (!operation(own, number))
			abort();
	free(own);
	return none;
}

int main(void)
{
	pthread_t threads[2];

	root.watermark = 2 * BATCH;
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], 0, work, 0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], 0);
	return atomic_load(&root.usage) != 0;
}
