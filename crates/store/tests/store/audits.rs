//! Audits read back as written, newest first, and only the last ones are kept.

use qiang_core::Timestamp;
use qiang_sql::{Dialect, on_every_database};
use qiang_store::{AuditHow, AuditRecord, AuditResult};

use crate::fixtures::{Db, user};

on_every_database!(an_audit_reads_back_as_written, only_the_last_audits_are_kept);

fn audit(id: u64, ms: i64) -> AuditRecord {
    AuditRecord {
        id,
        at: Timestamp::from_millis(ms),
        result: AuditResult::Agree,
        how: AuditHow::ByItself,
        user: None,
        took_ms: 7,
        looked_at: [1, 2, 3, 4, 5],
        difference_count: 0,
        pending_reviews: 0,
        differences: "[]".to_owned(),
        error: None,
    }
}

async fn an_audit_reads_back_as_written(on: Dialect) {
    let db = Db::new(on).await;
    let asked = AuditRecord {
        result: AuditResult::Differ,
        how: AuditHow::Asked,
        user: Some(user("安")),
        difference_count: u64::try_from(i64::MAX).expect("positive"),
        pending_reviews: 3,
        differences: r#"[{"what":"差"}]"#.to_owned(),
        ..audit(2, 5)
    };
    let failed = AuditRecord {
        result: AuditResult::Unfinished,
        how: AuditHow::Repair,
        error: Some("the log could not be replayed".to_owned()),
        ..audit(3, 5)
    };
    for one in [&audit(1, 4), &asked, &failed, &failed] {
        db.store.add_audit(one, 10).await.expect("noted");
    }
    let first = db.store.audits(None, 2).await.expect("readable");
    assert_eq!(first, [failed, asked.clone()]);
    let rest = db.store.audits(Some(asked.moment()), 2).await.expect("readable");
    assert_eq!(rest, [audit(1, 4)]);
}

async fn only_the_last_audits_are_kept(on: Dialect) {
    let db = Db::new(on).await;
    for id in 1..=7 {
        // All at one time: the id decides.
        db.store.add_audit(&audit(id, 4), 3).await.expect("noted");
    }
    let kept = db.store.audits(None, 10).await.expect("readable");
    assert_eq!(kept.iter().map(|one| one.id).collect::<Vec<_>>(), [7, 6, 5]);
}
