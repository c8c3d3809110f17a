use super::*;

#[test]
fn built_in_workloads_are_whole() {
    for name in names() {
        let workload = load(name, None).unwrap_or_else(|error| panic!("{error}"));
        assert!(describe(&workload).contains(&workload.title));
    }
}
