//! One process owns the folder, and a folder that cannot be used is named.

use qiang_engine::embedded::Engine;
use qiang_engine::{ManualClock, OpenError};

use super::fixture::{new_engine, open_at, options};

fn try_open(folder: &std::path::Path) -> OpenError {
    match Engine::open(options(folder), ManualClock::new(Default::default())) {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    }
}

#[test]
fn a_folder_in_use_names_who_has_it() {
    let (folder, engine, _) = new_engine();
    for _ in 0..2 {
        let error = try_open(folder.path());
        let OpenError::Locked { path, pid } = &error else { panic!("{error:?}") };
        assert_eq!((path.as_path(), *pid), (folder.path(), Some(std::process::id())));
        let text = error.to_string();
        assert!(text.contains(&std::process::id().to_string()), "{text}");
        assert!(text.contains("--data"), "{text} says what to do");
    }
    engine.shut_down();
    let (again, _) = open_at(folder.path(), 0);
    again.shut_down();
}

#[test]
fn a_file_in_the_place_of_the_folder() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("data");
    std::fs::write(&file, "a file").expect("it can be written");
    for path in [file.clone(), file.join("below")] {
        let error = try_open(&path);
        let OpenError::Folder { path: named, .. } = &error else { panic!("{error:?}") };
        assert_eq!(*named, path);
        assert!(error.to_string().contains("--data"), "{error}");
    }
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), "a file");
}

#[test]
fn a_folder_in_the_place_of_the_journal() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::create_dir(folder.path().join("journal.db")).expect("it can be made");
    let error = try_open(folder.path());
    assert!(error.to_string().contains("journal.db"), "{error}");
    std::fs::remove_dir(folder.path().join("journal.db")).expect("it is empty");
    let (engine, _) = open_at(folder.path(), 0);
    engine.shut_down();
}
