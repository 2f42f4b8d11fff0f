//! `GET /api/v1/admin/nodes`: which processes share the engine, who follows which log, and how the
//! workers of this one do.

use std::collections::BTreeMap;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use qiang_app::extract::{Shared, Viewer};
use qiang_app::problem::Problem;

/// The processes of a shop.
#[derive(Debug, Serialize, ToSchema)]
pub struct NodesView {
    /// Those that were heard of in the last seconds, by number.
    pub nodes: Vec<NodeView>,
    /// The work of the background of the process that answers.
    pub workers: Vec<WorkerView>,
}

/// One process.
#[derive(Debug, Serialize, ToSchema)]
pub struct NodeView {
    /// Its number, which is part of the ids that it makes.
    #[schema(minimum = 0, maximum = 1023, example = 0)]
    pub number: u16,
    /// The name under which it holds leases.
    #[schema(min_length = 1, max_length = 64, example = "0f3a5b7c9d1e2f40")]
    pub name: String,
    /// Whether it is the one that answers.
    pub answers: bool,
    /// The logs that it follows, as `<consumer>/<log>`.
    #[schema(max_items = 65536, example = json!(["records/3"]))]
    pub logs: Vec<String>,
}

/// One piece of work that is done again and again.
#[derive(Debug, Serialize, ToSchema)]
pub struct WorkerView {
    /// The name of the worker.
    #[schema(min_length = 1, max_length = 64, example = "redis probe")]
    pub name: &'static str,
    /// Turns that failed or panicked since the start.
    #[schema(minimum = 0, example = 0)]
    pub failures: u64,
    /// Of these the ones that panicked.
    #[schema(minimum = 0, example = 0)]
    pub panics: u64,
    /// What was wrong with the last turn; null is nothing.
    #[schema(example = json!(null))]
    pub trouble: Option<String>,
}

/// List the nodes
///
/// The processes that share the engine, which logs each of them follows, and how the workers of the
/// one that answers do.
#[utoipa::path(get, path = "/api/v1/admin/nodes", operation_id = "list_nodes", tag = "operations", security(("token" = ["viewer"])),
    responses((status = 200, description = "The nodes", body = NodesView)))]
pub async fn list(State(app): Shared, _: Viewer) -> Result<axum::Json<NodesView>, Problem> {
    let own = app.node.owner();
    let mut nodes = BTreeMap::new();
    let mut add = |number, name: &str| {
        let (name, answers) = (name.to_owned(), name == own);
        nodes.insert(number, NodeView { number, name, answers, logs: Vec::new() });
    };
    add(app.node.number(), own);
    if app.engine.is_shared() {
        for (lease, name) in app.store.held_leases("node/").await? {
            if let Some(number) = lease.strip_prefix("node/").and_then(|text| text.parse().ok()) {
                add(number, &name);
            }
        }
        let mut logs: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (lease, name) in app.store.held_leases("log/").await? {
            let log = lease.strip_prefix("log/").unwrap_or(&lease).to_owned();
            logs.entry(name).or_default().push(log);
        }
        for node in nodes.values_mut() {
            node.logs = logs.remove(&node.name).unwrap_or_default();
        }
    }
    let workers = app.workers.all().into_iter().map(|(name, status)| WorkerView {
        name,
        failures: status.failures,
        panics: status.panics,
        trouble: status.trouble,
    });
    Ok(axum::Json(NodesView { nodes: nodes.into_values().collect(), workers: workers.collect() }))
}
