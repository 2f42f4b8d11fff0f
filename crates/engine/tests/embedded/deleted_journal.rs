//! A journal whose files are deleted or replaced under a running engine: it stops by itself, and
//! nothing that was answered is lost.

use std::fs;
use std::path::{Path, PathBuf};

use qiang_core::Flow;
use qiang_engine::{Error, SqliteJournal};
use qiang_testkit::contract::wish;

use super::asking::Asking as _;
use super::fixture::{grant, new_engine, open_at, open_sale, pool, soon};

fn wal(folder: &Path) -> PathBuf {
    folder.join("journal.db-wal")
}

/// Claims, lets somebody meddle with the files, claims once more, and waits until the engine has
/// stopped. What it said is returned.
async fn meddled_with(
    folder: &Path,
    engine: qiang_engine::embedded::Engine,
    how: fn(&Path),
) -> String {
    open_sale(&engine, 10, Flow::Instant).await;
    grant(&engine, "ann").await;
    how(folder);
    // Nobody has noticed yet, or somebody has; what is granted must be kept in both cases.
    let bob = engine.claim(wish(pool(), "bob", Some("r"))).await;
    assert!(bob.is_ok() || bob == Err(Error::Unavailable), "{bob:?}");
    soon("the engine stops", engine.ended()).await;
    let late = engine.claim(wish(pool(), "cyd", None)).await;
    assert_eq!(late, Err(Error::Unavailable));
    let reason = engine.poisoned().expect("it says why").to_owned();
    engine.shut_down();
    assert!(reason.contains("journal.db was deleted or replaced while the server ran"), "{reason}");
    if bob.is_ok() {
        fs::write(folder.join("bob-was-granted"), "").expect("a note");
    }
    reason
}

/// What a start finds: ann's claim, and bob's if he was told that he has it.
async fn assert_kept(folder: &Path) {
    let (again, _) = open_at(folder, 0);
    let view = again.pool(pool()).await.expect("it runs").expect("it is open");
    let granted = 1 + u32::from(folder.join("bob-was-granted").exists());
    assert_eq!((view.claims, view.available), (granted, 10 - granted));
    grant(&again, "dan").await;
    again.shut_down();
}

#[tokio::test]
async fn a_deleted_journal_is_noticed_and_put_back() {
    let deletions: [fn(&Path); 3] = [
        |folder| fs::remove_file(SqliteJournal::path_in(folder)).expect("it was there"),
        |folder| fs::remove_file(wal(folder)).expect("it was there"),
        |folder| {
            for entry in fs::read_dir(folder).expect("a folder") {
                fs::remove_file(entry.expect("an entry").path()).expect("a file");
            }
        },
    ];
    for delete in deletions {
        let (folder, engine, _) = new_engine();
        let reason = meddled_with(folder.path(), engine, delete).await;
        assert!(reason.ends_with("nothing is lost: start again"), "{reason}");
        assert_kept(folder.path()).await;
    }
}

#[tokio::test]
async fn a_folder_that_was_deleted_is_made_again() {
    let (above, engine, _) = new_engine();
    engine.shut_down();
    let folder = above.path().join("data");
    let (engine, _) = open_at(&folder, 0);
    meddled_with(&folder, engine, |folder| fs::remove_dir_all(folder).expect("it was there")).await;
    assert_kept(&folder).await;
}

#[tokio::test]
async fn beside_a_journal_of_somebody_else_it_is_saved_under_another_name() {
    let (folder, engine, _) = new_engine();
    let reason = meddled_with(folder.path(), engine, |folder| {
        let backup = folder.join("backup.db");
        fs::write(&backup, "another file").expect("written");
        fs::rename(backup, SqliteJournal::path_in(folder)).expect("replaced");
    })
    .await;
    assert!(reason.contains("journal-rescued.db"), "{reason}");
    let journal = SqliteJournal::path_in(folder.path());
    assert_eq!(fs::read(&journal).expect("it is there"), b"another file", "it is not ours");
    assert!(!wal(folder.path()).exists(), "it would be taken for a part of the other file");
    fs::rename(folder.path().join("journal-rescued.db"), journal).expect("put in place");
    assert_kept(folder.path()).await;
}

#[tokio::test]
async fn what_cannot_be_saved_is_said_to_be_lost() {
    let (above, engine, _) = new_engine();
    engine.shut_down();
    let folder = above.path().join("data");
    let (engine, _) = open_at(&folder, 0);
    open_sale(&engine, 10, Flow::Instant).await;
    fs::remove_dir_all(&folder).expect("it was there");
    fs::write(&folder, "a file where the folder was").expect("written");
    soon("the engine stops", engine.ended()).await;
    let reason = engine.poisoned().expect("it says why");
    assert!(reason.contains("restore your newest backup"), "{reason}");
    assert!(!reason.contains("is lost"), "{reason}");
}
