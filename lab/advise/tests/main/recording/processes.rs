//! The counts of a process are recorded, and kept apart from others', however the process begins and ends.

use super::support;
use super::support::{Test, record};
use ledgerline_advise::recording::VARIABLE;
use ledgerline_advise::recording::plan::{Plan, Request};
use ledgerline_advise::recording::program::Program;
use ledgerline_advise::recording::read::read;
use ledgerline_layout::pick::pick;

#[test]
fn a_forked_child_counts_for_itself() {
    let source = r#"
        #include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        struct counter { volatile long usage; long rest[8]; };
        struct counter global;
        int main(void) {
            struct counter *c = malloc(sizeof *c);
            for (int i = 0; i < 10; i++) c->usage = i;
            pid_t child = fork();
            if (child == 0) {
                for (int i = 0; i < 1000; i++) c->usage = i;
                free(c);
                struct counter *own = malloc(sizeof *own);
                own->usage = 1;
                global.usage = 2;
                _exit(0);
            }
            for (int i = 0; i < 100; i++) c->usage = i;
            int status;
            waitpid(child, &status, 0);
            return status;
        }"#;
    let Some(run) = record(&Test { source, types: &["counter"], ..Test::default() }) else {
        return;
    };
    assert_eq!(run.recordings.len(), 2);
    let stores: Vec<u64> = run
        .recordings
        .iter()
        .map(|recording| {
            let rows = recording.threads.iter().flat_map(|thread| &thread.tables[0].rows);
            rows.map(|row| row.counts[0][support::STORE]).sum()
        })
        .collect();
    let mut stores = stores;
    stores.sort_unstable();
    assert_eq!(stores, [110, 1002]);
    assert_eq!(run.objects("counter").0, 1 + 3);
}

#[test]
fn a_child_forked_among_threads_that_allocate_does_not_hang() {
    let source = r#"
        #include <pthread.h>
        #include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        struct counter { volatile long usage; long rest[8]; };
        static volatile int stop;
        static void *churn(void *none) {
            while (!stop) { struct counter *c = malloc(sizeof *c); c->usage = 1; free(c); }
            return none;
        }
        int main(void) {
            pthread_t t;
            pthread_create(&t, 0, churn, 0);
            for (int i = 0; i < 50; i++) {
                pid_t child = fork();
                if (child == 0) {
                    struct counter *c = malloc(sizeof *c);
                    c->usage = 1;
                    free(c);
                    _exit(0);
                }
                int status;
                if (waitpid(child, &status, 0) != child || status) return 1;
            }
            stop = 1;
            pthread_join(t, 0);
            return 0;
        }"#;
    let Some(run) = record(&Test { source, types: &["counter"], ..Test::default() }) else {
        return;
    };
    assert_eq!(run.recordings.len(), 51);
}

#[test]
fn a_process_that_is_killed_loses_nothing() {
    let source = r#"
        #include <signal.h>
        struct s { volatile long x; } object;
        int main(void) {
            for (int i = 0; i < 12345; i++) object.x = i;
            raise(SIGKILL);
        }"#;
    let test = Test { source, types: &["s"], killed_by: Some(9), ..Test::default() };
    let Some(run) = record(&test) else { return };
    assert_eq!(run.all("s", "x"), [0, 12345, 0]);
}

#[test]
fn a_program_that_executes_itself_has_two_recordings() {
    let source = r#"
        #include <unistd.h>
        struct s { volatile long x; } object;
        int main(int count, char **arguments) {
            for (int i = 0; i < count; i++) object.x = i;
            if (count == 1) execl("/proc/self/exe", arguments[0], "again", (char *)0);
            return 0;
        }"#;
    let Some(run) = record(&Test { source, types: &["s"], ..Test::default() }) else { return };
    assert_eq!(run.recordings.len(), 2);
    assert_eq!(run.all("s", "x"), [0, 3, 0]);
}

#[test]
fn a_limit_on_the_size_of_files_costs_counts_and_not_the_program() {
    let source = r#"
        #include <sys/resource.h>
        #include <pthread.h>
        struct s { volatile long x; } object;
        static void *work(void *none) { object.x = 1; return none; }
        int main(void) {
            struct rlimit limit = { 1 << 20, 1 << 20 };
            setrlimit(RLIMIT_FSIZE, &limit);
            for (int i = 0; i < 200; i++) {
                pthread_t t;
                pthread_create(&t, 0, work, 0);
                pthread_join(t, 0);
            }
            return 0;
        }"#;
    // So many types make a thread's block large: a few threads fill the reserved room.
    let many: String =
        (0..3000).map(|i| format!("struct t{i} {{ int x[{i} + 1]; }} *p{i};\n")).collect();
    let Some(run) = record(&Test { source: &format!("{many}{source}"), ..Test::default() }) else {
        return;
    };
    let recording = &run.recordings[0];
    assert!(recording.losses.no_room > 100, "{:?}", recording.losses);
    let counted = run.all("s", "x")[support::STORE];
    assert!(counted > 0 && counted <= recording.threads.len() as u64, "{counted}");
}

#[test]
fn debug_information_in_other_files_is_refused_since_globals_would_be_missed() {
    let source = "struct s { volatile long x; } object; int main(void) { object.x = 1; return 0; }";
    for flags in [&["-gsplit-dwarf"][..], &["-g0"]] {
        let Some(built) = support::build(source, "", flags) else { return };
        let program = Program::open(&built.path, None).unwrap();
        let types = ledgerline_layout::model::Types::new(8);
        let error = ledgerline_advise::recording::globals::find(&program, &types, &[]).unwrap_err();
        assert!(error.to_string().contains("without -gsplit-dwarf"), "{error}");
    }
}

#[test]
fn a_plan_that_is_damaged_is_refused_in_one_line_and_the_program_runs() {
    let source = "struct s { volatile long x; } object; int main(void) { object.x = 1; return 0; }";
    let Some(run) = record(&Test { source, types: &["s"], ..Test::default() }) else { return };
    let plan = std::fs::read(run.folder.0.join("plan")).unwrap();
    let folder = support::Folder::new();
    for length in (0..plan.len()).step_by(3) {
        std::fs::write(folder.0.join("plan"), &plan[..length]).unwrap();
        let path = run.folder.0.join("program");
        let output = support::command(&path).env(VARIABLE, &folder.0).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{length}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{length}: {errors}");
        assert!(errors.starts_with("ledgerline: recorder: the plan "), "{length}: {errors}");
    }
}

#[test]
fn a_recording_that_is_damaged_is_an_error_and_never_a_panic() {
    let source = r#"
        struct s { volatile long x, y; } object;
        __attribute__((noinline)) static void operation(void) { object.x = 1; }
        int main(void) { for (int i = 0; i < 9; i++) operation(); object.y = 1; return 0; }"#;
    let test = Test { source, types: &["s"], operations: &["operation"], ..Test::default() };
    let Some(run) = record(&test) else { return };
    let entry = std::fs::read_dir(&run.folder.0).unwrap().map(|entry| entry.unwrap().path());
    let path = entry.into_iter().find(|path| path.to_string_lossy().contains("process-")).unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    use std::os::unix::fs::FileExt;
    let length = file.metadata().unwrap().len();
    let word = |at: u64| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    };
    let thread = u64::from_ne_bytes(word(64 * 8));
    let places = (0..80).map(|at| at * 8).chain((0..120).map(|at| thread + at * 8));
    for place in places.filter(|place| place + 8 <= length) {
        let before = word(place);
        // A number of objects beyond the file makes the reader read all of it, so one such case is enough.
        let lies = [3, u64::MAX, 1 << 40, length - 8];
        for lie in &lies[..if place == 3 * 8 { 2 } else { 4 }] {
            file.write_all_at(&lie.to_ne_bytes(), place).unwrap();
            if let Ok(recordings) = read(&run.folder.0, &run.plan) {
                let recorded =
                    ledgerline_advise::recording::profile::profile(&run.plan, &recordings);
                let _ = ledgerline_advise::recording::report::text(
                    &run.plan,
                    &recordings,
                    &recorded,
                    &|_| None,
                );
            }
        }
        file.write_all_at(&before, place).unwrap();
    }
    assert_eq!(read(&run.folder.0, &run.plan).unwrap()[0].threads[0].operations, 9);
    file.set_len(length / 2).unwrap();
    let error = read(&run.folder.0, &run.plan).unwrap_err().to_string();
    assert!(error.contains("process-") && error.contains("damaged; record again"), "{error}");
}

#[test]
fn a_program_without_probes_is_told_how_to_get_them() {
    if !support::have("gcc") {
        return;
    }
    let folder = support::Folder::new();
    let (text, path) = (folder.0.join("plain.c"), folder.0.join("plain"));
    std::fs::write(&text, "int x; int main(void) { return x; }").unwrap();
    let build = |flags: &[&str]| {
        let status =
            std::process::Command::new("gcc").args(flags).arg(&text).arg("-o").arg(&path).status();
        status.is_ok_and(|status| status.success())
    };
    let error = |path| Program::open(path, None).err().expect("it is refused").to_string();
    assert!(build(&["-g"]));
    let told = error(&path);
    assert!(told.contains("was compiled without probes; "), "{told}");
    assert!(told.contains("--build"), "{told}");
    assert!(told.contains("gcc -g -fsanitize=thread -c"), "{told}");
    if build(&["-g", "-fsanitize=thread"]) {
        assert!(error(&path).contains("linked with the thread sanitizer"), "{}", error(&path));
    }
    assert!(error(&text).contains("is no ELF program"), "{}", error(&text));
    std::fs::write(&text, "#!/bin/sh\n").unwrap();
    assert!(error(&text).contains("it is a script: name what it runs with --of"));
}

#[test]
fn types_that_are_too_large_together_are_refused_and_none_is_left_out() {
    let one = |number| format!("struct of{number} {{ char bytes[1 << 20]; }} of{number};\n");
    let source: String = (0..65).map(one).chain(["int main(void) { return 0; }".into()]).collect();
    let Some(built) = support::build(&source, "gcc", &[]) else { return };
    let program = Program::open(&built.path, None).unwrap();
    let opened = ledgerline_layout::open(&built.path).unwrap();
    let names: Vec<String> = (0..65).map(|number| format!("of{number}")).collect();
    let plan = |names: &[String]| {
        let picked = pick(&opened.types, names).unwrap();
        Plan::new(&program, &opened.types, &picked, &Request::default())
    };
    assert!(plan(&names[..64]).is_ok());
    let error = plan(&names).unwrap_err().to_string();
    assert!(error.contains("more than 64 MiB together") && error.contains("--type"), "{error}");
}
