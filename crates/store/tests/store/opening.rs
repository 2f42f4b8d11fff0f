//! When the database cannot be opened, the message says which, why, and what to do.

use std::error::Error as _;

use qiang_store::{Error, Store};

#[tokio::test]
async fn an_unknown_url_names_the_known_ones() {
    for url in ["oracle://host/db", "records.db", "", "sqlite:", "sqlite::memory:"] {
        let refused = Store::open(url).await.expect_err("refused");
        assert!(
            matches!(refused, Error::Open(qiang_sql::Error::UnknownUrl { .. })),
            "{url}: {refused:?}"
        );
        let text = refused.to_string();
        assert!(text.contains(url) && text.contains("sqlite:PATH"), "{text}");
    }
}

#[tokio::test]
async fn a_missing_folder_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("not-there").join("records.db");
    let refused = Store::open(&format!("sqlite:{}", path.display())).await.expect_err("refused");
    let text = refused.to_string();
    assert!(matches!(refused, Error::Open(qiang_sql::Error::NoFolder { .. })), "{refused:?}");
    assert!(text.contains(&path.display().to_string()), "{text}");
    assert!(text.contains("folder does not exist"), "{text}");
}

/// A file that is no database, a folder where the file should be, and (even for root) a folder
/// nobody can write to.
#[tokio::test]
async fn what_cannot_be_a_database_says_what_it_must_be() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text_file = folder.path().join("notes.txt");
    std::fs::write(&text_file, "not a database, but long enough to look like one. ".repeat(100))
        .expect("written");
    let mut paths = vec![text_file, folder.path().to_owned()];
    if cfg!(target_os = "linux") {
        paths.push("/proc/qiang-records.db".into());
    }
    for path in paths {
        let url = format!("sqlite:{}", path.display());
        let refused = Store::open(&url).await.expect_err("refused");
        assert!(matches!(refused, Error::Open(qiang_sql::Error::Open { .. })), "{refused:?}");
        let text = refused.to_string();
        assert!(text.contains(&path.display().to_string()), "{text}");
        assert!(text.contains("a folder this user may write to"), "{text}");
        assert!(refused.source().is_some(), "the cause is kept");
    }
}

#[tokio::test]
async fn both_spellings_of_a_path_open_the_same_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("records, 100% 中文?.db");
    for url in [format!("sqlite:{}", path.display()), format!("sqlite://{}", path.display())] {
        let store = Store::open(&url).await.expect("opens");
        store.migrate().await.expect("migrates");
        store.ping().await.expect("answers");
        store.close().await;
    }
    let files = std::fs::read_dir(folder.path()).expect("readable").count();
    assert!(path.is_file() && files == 1, "one file, and no WAL left behind: {files}");
}
