//! The tables are the same on every database: their columns, what may be NULL, keys and indexes.

use std::collections::BTreeMap;

use qiang_sql::scratch::available;
use qiang_sql::{Database, Dialect, Row, Statement, sql};

use crate::fixtures::Db;

/// By table.
type Schema = BTreeMap<String, Table>;

#[derive(Debug, Default, PartialEq, Eq)]
struct Table {
    /// By name: whether it is a number, and whether it may be NULL.
    columns: BTreeMap<String, (Kind, bool)>,
    /// By name: its columns in order. The primary key is `PRIMARY`.
    indexes: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Number,
    Text,
    Bytes,
}

#[tokio::test]
async fn all_databases_have_the_same_tables() {
    let expected = schema(Dialect::Sqlite).await;
    assert_eq!(expected["claims"].columns["user_id"], (Kind::Text, false));
    assert_eq!(expected["claims"].columns["pay_by"], (Kind::Number, true));
    assert_eq!(expected["claims"].indexes["PRIMARY"], ["sale_id", "number"]);
    assert_eq!(expected["orders"].indexes.len(), 5);
    for dialect in [Dialect::MySql, Dialect::Postgres] {
        if available(dialect) {
            assert_eq!(schema(dialect).await, expected, "{dialect}");
        }
    }
}

async fn schema(on: Dialect) -> Schema {
    let db = Db::new(on).await;
    let mut schema = Schema::new();
    let is_ours = |row: &Row| !text(row, 0).starts_with('_');
    for row in rows(&db.behind, columns()).await.into_iter().filter(is_ours) {
        let (table, column) = (text(&row, 0), text(&row, 1));
        let kind = match text(&row, 2).to_lowercase().as_str() {
            "bigint" | "integer" => Kind::Number,
            "text" | "varchar" | "mediumtext" => Kind::Text,
            "blob" | "mediumblob" | "bytea" => Kind::Bytes,
            other => panic!("{table}.{column} is of the type {other}"),
        };
        let nullable = row.int(3).expect("a number") == 1;
        schema.entry(table).or_default().columns.insert(column, (kind, nullable));
    }
    for row in rows(&db.behind, indexes()).await.into_iter().filter(is_ours) {
        let table = schema.get_mut(&text(&row, 0)).expect("a table with columns");
        let index = match text(&row, 1) {
            name if name.starts_with("sqlite_autoindex") || name.ends_with("_pkey") => {
                "PRIMARY".to_owned()
            }
            name => name,
        };
        table.indexes.entry(index).or_default().push(text(&row, 2));
    }
    schema
}

/// Table, column, type, whether it may be NULL.
fn columns() -> &'static Statement {
    sql!(
        sqlite: "SELECT m.name, c.name, c.type, 1 - c.\"notnull\"
                 FROM sqlite_master AS m, pragma_table_info(m.name) AS c WHERE m.type = 'table'",
        mysql: "SELECT table_name, column_name, data_type,
                    CASE is_nullable WHEN 'YES' THEN 1 ELSE 0 END
                FROM information_schema.columns WHERE table_schema = DATABASE()",
        postgres: "SELECT table_name, column_name, data_type,
                       CASE is_nullable WHEN 'YES' THEN 1 ELSE 0 END
                   FROM information_schema.columns WHERE table_schema = 'public'",
    )
}

/// Table, index, column; the columns of an index in their order.
fn indexes() -> &'static Statement {
    sql!(
        sqlite: "SELECT m.name, 'PRIMARY', c.name
                 FROM sqlite_master AS m, pragma_table_info(m.name) AS c
                 WHERE m.type = 'table' AND c.pk > 0
                 UNION ALL
                 SELECT m.name, i.name, c.name
                 FROM sqlite_master AS m, pragma_index_list(m.name) AS i,
                    pragma_index_info(i.name) AS c
                 WHERE m.type = 'table' AND i.origin <> 'pk'",
        mysql: "SELECT table_name, index_name, column_name FROM information_schema.statistics
                WHERE table_schema = DATABASE() ORDER BY table_name, index_name, seq_in_index",
        postgres: "SELECT t.relname, i.relname, a.attname
                   FROM pg_index AS x
                   JOIN pg_class AS t ON t.oid = x.indrelid
                   JOIN pg_class AS i ON i.oid = x.indexrelid
                   JOIN pg_namespace AS n ON n.oid = t.relnamespace AND n.nspname = 'public'
                   CROSS JOIN LATERAL unnest(x.indkey) WITH ORDINALITY AS k (attnum, place)
                   JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attnum = k.attnum
                   ORDER BY t.relname, i.relname, k.place",
    )
}

async fn rows(database: &Database, select: &Statement) -> Vec<Row> {
    database.fetch_all(select, &[]).await.expect("readable")
}

fn text(row: &Row, column: usize) -> String {
    row.text(column).expect("a text").to_owned()
}
