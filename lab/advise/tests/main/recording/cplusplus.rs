//! C++: tables of virtual functions, new, exceptions, names with namespaces.

use super::support::{Test, record};

#[test]
fn classes_are_counted_down_to_their_table_pointers() {
    let source = r#"
        #include <atomic>
        #include <stdexcept>
        namespace shop {
        struct base { virtual ~base() {} virtual long get() { return 1; } long common = 0; };
        template <typename T> struct counter : base {
            std::atomic<T> hits{0};
            T limit{5};
            long get() override { return limit; }
            __attribute__((noinline)) void take(int i) {
                hits.fetch_add(1);
                if (i % 4 == 0) throw std::runtime_error("full");
            }
        };
        }
        int main() {
            shop::base *object = new shop::counter<long>;
            auto *counter = static_cast<shop::counter<long> *>(object);
            long thrown = 0, sum = 0;
            for (int i = 0; i < 1000; i++) {
                try { counter->take(i); } catch (const std::runtime_error &) { thrown++; }
                if (i < 10) sum += object->get();
            }
            delete object;
            return thrown == 250 && sum == 50 ? 0 : 1;
        }"#;
    let name = "shop::counter<long int>";
    let test = Test {
        source,
        compiler: "g++",
        flags: &["-O1", "-fno-devirtualize"],
        types: &["shop::counter<*>"],
        operations: &["shop::counter<long>::take"],
        ..Test::default()
    };
    let Some(run) = record(&test) else { return };
    assert_eq!(run.operations(), 1000);
    assert_eq!(run.inside(name, "hits"), [0, 0, 1000]);
    assert_eq!(run.inside(name, "limit"), [0, 0, 0]);
    assert_eq!(run.all(name, "limit"), [10, 1, 0]);
    let table = run.plan.types[0]
        .cells
        .paths
        .iter()
        .find(|path| path.contains("vptr") || path.contains("virtual table"));
    let [loads, stores, _] = run.all(name, table.expect("the table's pointer is a field"));
    assert!(loads >= 10 && stores >= 1, "{loads} {stores}");
    // Made by operator new, which calls malloc from another file.
    assert_eq!(run.recordings[0].sites[0].address, None);
}
