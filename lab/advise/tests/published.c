/* Published cases, as far as they are described; members that the descriptions leave out are bytes. */

struct css {
	void *cgroup;
	char above[120];
};

struct mem_cgroup {
	struct css css;
	struct vmstats_percpu *vmstats_percpu;
	char between[56];
	long vmstats;
	char below[248];
};

struct mm {
	long mmap_base;
	unsigned long task_size;
	void *pgd;
	int users;
	int count;
	long mmap_lock;
	int map_count;
	int locked;
	char below[200];
};

struct connection {
	long a;
	char one[56];
	long b;
	char two[56];
	long c;
	char three[56];
	long d;
	char four[56];
	long e;
	char five[56];
	long f;
	char six[56];
};

struct mem_cgroup group;
struct mm mm;
struct connection connection;
