//! The repository keeps its own rules: `cargo xtask tidy`, as a test.

#[test]
fn the_repository_is_tidy() {
    let root = xtask::root().unwrap();
    let problems = xtask::tidy::check(&root).unwrap();
    let listed: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(listed.is_empty(), "{} complaints:\n{}", listed.len(), listed.join("\n"));
}
