//! The texts of `ledgerline run`: `-h`, `--help` and its page of the manual.

/// The beginning of `ledgerline run --help`.
pub const LONG_ABOUT: &str = "\
Run a program and print who held its memory.

The program and every process that it starts are charged to one ledger, without being recompiled: \
a library that is preloaded charges each allocation to a row for the process, the thread or the \
shared library that asked. When the program has ended, the account is printed as a tree on \
standard error; the program's standard output stays clean. The exit code is the program's own, \
or 128 plus the signal that killed it.

The page of the manual (`ledgerline man DIR`, then `man DIR/ledgerline-run.1`) says how to read the account, what \
counts, who is not accounted, and what each field of --json means.";

/// The beginning of the page of the manual.
pub const MANUAL: &str = "\
Run a program and print who held its memory.

The program and every process that it starts are charged to one ledger, without being recompiled: \
a library that is preloaded charges each allocation to a row for the process, the thread or the \
shared library that asked. When the program has ended, the account is printed as a tree on \
standard error; the program's standard output stays clean. The exit code is the program's own, \
or 128 plus the signal that killed it.

The first line answers: how the program ended, the peak, the limit, how often it refused, and which process held most. \
Below it the processes stand as a tree, each below the one that started it, with its threads (or libraries). A process is called \
what ps shows: its title, if it gave itself one, else its name, else its program; `pid`, `parent` and `program` say which one it \
is. What a process executes one after the other is one line (`was bash -> env`). Processes of one program that ended, below one \
parent, share a line (`cc x30`), with the largest of their peaks and resident sizes and the sums of the rest; what never held 1 % of the \
root's peak stands together in one. Some twenty lines are printed; --all prints each row, and the columns parent, program, mapped \
and charges.

`peak` is the most that a row held, `share` that peak as a share of the root's (peaks of neighbours need not coincide, so shares \
may add up to more than 100 %), `at end` what it held when its process, or the program, ended, and `refused` how many \
charges a limit refused. `resident` is the most that the kernel saw in the row's process, code and files \
included, so that what the account does not see is seen at once. It is known of processes that ended by \
themselves, not of those that a signal killed; below 8M it may be what the process had before it executed \
its program. In paths (JSON, `show`) a process is PROGRAM.PID; one in another PID namespace \
PROGRAM.nsN.PID, with its ID in there. Where more than a hundred processes have ended, those with the \
smaller peaks share a row for each PROGRAM. Titles are looked up four times a second: a process that lives shorter is called as its \
program.

With --max-heap the blocks of malloc have a limit of their own, whatever is mapped; --max holds for the sum \
of both. (Each block is then charged twice, which takes some twenty nanoseconds more.)

--count says what --max counts. `mapped`, the default: what is asked for, by malloc and mmap, from the request on, whether it is \
touched or not; nothing goes above the limit at any time, and the process that asks for too much is the one that is refused. \
`resident`: what the kernel holds for all processes together, shared pages once, stacks, code, shared memory and page tables included, swap not. A \
reservation of any size costs nothing until it is touched, and memory that was given back counts no more. This command looks \
10 to 200 times a second. A request that goes beyond what the last look left waits for the next one, a few milliseconds; it is \
granted if the memory is within the limit then, and refused if it is not. Memory that was granted earlier may be touched later, \
and no process is refused for that, so resident memory may go above the limit; the account says by how much. The column `charged` \
has what was asked for. Processes that are not accounted count, too, but nothing refuses them. Where the memory of a program is mostly reserved (Java, Go, node, Chromium, mimalloc), count what is resident; \
where a limit must hold at every instant, what is mapped.

--on-refusal runs a command by /bin/sh when the first request is refused, and at most once a minute then. It belongs to no row. \
LEDGERLINE_REFUSED_ROW is the row that was refused most since the last command, _NAME what ps calls its process, _PID its number; \
_SIZE and _LARGEST are the bytes of its first and its largest refused request, _IN_USE what was in use at the first one and _LIMIT the limit; \
_TIMES counts all refusals of the run. LEDGERLINE_RUN_PID is this command's number, for `ledgerline show --pid`. Its output goes to standard \
error. The end of the run waits five seconds for it.

A program that is refused needs a little memory to say so. So a part of each limit is kept (--reserve): after \
its first refusal a process may have a quarter of that in requests of up to 16K, and anew when it was \
not refused for a second. All that is charged together stays within the limits. Nothing is kept with \
`--on-max kill`.

With --container the limit is that of the container, which the kernel would kill for: the smallest of \
memory.max and memory.high (cgroup v2) or memory.limit_in_bytes (v1) of this command's cgroup and those above it, \
and of the machine's memory, less a margin of a sixteenth (4M at least, 512M at most); also when it changes. The \
row (untracked) has what the kernel charges there and no row has: stacks, code, page tables, shared and untracked \
memory, what allocators keep, this command itself, other programs in the cgroup, and page cache up to a sixteenth of the limit. It is measured \
4 to 200 times a second and takes from the room, so that malloc fails before the kernel kills. --max goes with it: \
the smaller one holds, and what is untracked counts for both. Memory that is charged and not touched yet hides as \
much that is untracked.

With --record what each row held over time is kept in a file, for `ledgerline report`: a thread of this command looks \
--record-every, beside the program, and appends what changed. The file has at most --record-size: when it would get longer, what is older \
becomes coarser, and of very many rows those with the smallest peaks are left out. It can be read while the run goes on, and \
when this command was killed, up to the last look. (Not after a power cut.) A full disk is said once; the run goes on, and so does the \
recording when there is room again.

Below the table stands who was refused first, how much it asked for, when, and how much of the limit was in use; whether more was \
resident in a process than the limit allows to be charged; and the most that the kernel saw resident in any one process.

Every process under `run` may write to the ledger, by mistake too. A row that makes no sense any more is \
called damaged, none of its numbers is shown, and a line below the table says so; then the other rows may be \
wrong, too, since a number that was written over and still makes sense cannot be told from a true one. A \
program whose own row was written over goes on without being accounted.

What a program maps by itself (mmap, sbrk), as Python, V8 and the JVM do with their heaps, is charged \
like its blocks as long as it is private and writable, touched or not; `mapped` shows it. A \
reservation without access is free until it becomes writable. So are the tables of a ledger that a program embeds \
itself, which are reserved as a whole and hardly touched. Shared memory and files that are \
mapped to be read are not charged; the JSON document has them.

A line names the processes that were not accounted, and why: statically linked; set-user-ID, or with \
other rights that they would gain; of another architecture or C library (glibc and musl are served, musl on x86-64); built with a sanitizer, which \
runs as it does plain; executed with a cleared environment, as another user, under a seccomp filter, or in a root without \
/proc; with a malloc of their own that passes no request on (what that maps is \
charged); with an allocator that does not tell how large its blocks are; with libraries in a second namespace (dlmopen) or bound to \
themselves (RTLD_DEEPBIND), which call another malloc than everybody else; with too little address space for the library and the ledger (`ulimit -v`); with no row left (--rows); or with a run of their own, a `ledgerline run` \
within this one, whose account and limits hold for them alone. \
Under a limit the process says so itself at once, where it finds out. With --strict that is a failure, and programs keep the library where whoever executes them clears the environment.

A program that starts where another /proc is mounted (`unshare --mount-proc`), in another root, or in a user namespace \
of its own (`bwrap --unshare-all`), has two or three descriptors that it would not have plain, from 1000 on: they lead to the ledger.

The account does not see what a program maps by a system call of its own, its threads' stacks, what the kernel lets a \
mapping with MAP_GROWSDOWN grow by, nor what \
programs that are not accounted start in their turn without the environment that they got.

A process that puts itself under a seccomp filter stays charged and limited, but the library makes no \
system call for it any more, since the filter might kill it for that: threads that start then are \
charged to the row of the process, --on-max kill ends it by an illegal instruction without a word, and \
a refusal has no time. Programs that it executes then are not accounted. Filters that this command is \
itself under, as in most containers, change nothing.

A program can see that it runs under this command: in its environment (LD_PRELOAD, LEDGERLINE_…), in its \
mappings, and by its orphans, whose parent is this process and not process 1.

The library that is preloaded lies in this command. A run makes a file of it in a folder that nobody but root and its \
user can write to: root's in /var/lib/ledgerline, else in /run/ledgerline-lib; another user's in XDG_CACHE_HOME \
(~/.cache), else in XDG_RUNTIME_DIR or TMPDIR. A folder below one where others may write, as /tmp and /var/tmp, is not used, and none that is \
mounted noexec. Where no folder is left, nothing is started (exit code 125). The file goes with the run. While processes of the \
run outlive it, the file stays, and a later run of the same user removes it. A sandbox that hides the file has the \
loader complain, and what runs in there is not seen. LEDGERLINE_PRELOAD names a file to be preloaded instead.

With --json the account is an object. The object has `unit`, `command`, `exit_code`, `signal` (a name or null), `wall_seconds`, `mode`, \
`ledger_bytes`, `max_resident` (the most bytes that the kernel saw resident in one process), \
`heap_peak` (the most bytes of blocks in all processes together; null without --max-heap), \
`count` (mapped or resident), `resident_peak` (the most that was seen resident in all processes together; null without --count resident), \
`mistakes` (frees that matched no charge), `not_accounted` (a list of `program`, `reason` and \
`processes`; the program may be null), `damaged`, `container` and `groups`: one object for each row, \
the root `/` first, then depth-first, with `path`, `name` (what ps calls the process), `program`, `state`, `pid`, `parent` (the ID of the process that started it, or null), `executed` (whether it executed another program, which has a row of its own),  `current`, `peak`, `charges`, \
`uncharges`, `refused`, `refused_heap` (those of the refused that --max-heap refused), `max`, `max_heap`, `high`, \
`max_events`, `high_events` and `at_exit`. `state` is live, \
exited (the process ended before the program did), running (it still ran after that) or damaged (a \
program wrote over the row, whose other fields are null then; `damaged` of the whole says that this \
happened anywhere, and `mistakes` is null where that was written over). Sizes are \
numbers of bytes; `max`, `max_heap` and `high` are a number, or the string \"max\" where there is no limit, as \
in a cgroup's memory.max. `current` (at its end: `at_exit`) is `heap`, the blocks of malloc, and \
`mapped`, private memory that was mapped; `mapped_shared` and `mapped_file` are not part of it, nor is \
`mapped_forgotten`, what was mapped in more pieces than there is room to follow (some 74 000), and is not charged. \
`first_refused` is null, or the `size` of the first request that a row made itself and that was refused, \
with the `seconds` since the start (null under a seccomp filter) and `in_use`, what was in use then; `largest_refused` is the size of the largest. `folded` is true for a \
process that has more threads or libraries by name than rows (254): its own row counts the rest. \
`processes` is 0, or how many ended processes a program's row stands for; its `pid` is 0. `spared` is \
how many requests were granted after all, out of the reserve or after a look at resident memory; they are not among the `refused`. `resident` is the most bytes that \
the kernel saw resident in the process, or null where that is not known. `container` is null without \
--container; else it has `limit` (a number, or \"max\" where there is none) and `source`, whose limit that is; \
`kernel`, what the kernel charged against it at the end, or null; `untracked`, how much of \
that no row had; `pressure`, how often the kernel told that memory was short; and `watched`, where that is heard.";

/// The end of `-h`.
pub(super) const FEW_EXAMPLES: &str = "\
Examples:
  ledgerline run -- make -j8
  ledgerline run --max 512M -- python3 job.py";

/// The end of `--help`.
pub(super) const EXAMPLES: &str = "\
Examples:
  ledgerline run -- make -j8
  ledgerline run --by process -- ./build.sh
  ledgerline run --max 512M -- python3 job.py
  ledgerline run --strict --max 2G -- ./pipeline.sh
  ledgerline run --count resident --max 2G -- java -jar app.jar
  ledgerline run --max 2G --on-refusal 'logger \"$LEDGERLINE_REFUSED_ROW was refused\"' -- ./server
  ledgerline run --container -- ./server                 in a container, or under systemd-run -p MemoryMax=1G
  ledgerline run --max 512M --on-max kill --json account.json -- ./server --port 80
  ledgerline run --by process --record build.rec -- make -j8      then: ledgerline report build.rec -o build.html
  ledgerline run --json - -- sort big.txt -o sorted.txt | jq '.groups[0].peak'";

/// `--help` on `--json`.
pub(super) const JSON_HELP: &str = "\
Also write the account to FILE as JSON; `-` is standard output.

docs/schemas/account.v1.json and the page of the manual describe the fields.";
