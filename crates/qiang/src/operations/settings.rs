//! `GET /api/v1/admin/settings`: what this process works by, and who said so. Secrets are never in it.

use std::sync::Arc;

use axum::extract::{FromRef, State};
use qiang_app::App;
use qiang_app::config::{Setting, Shown};
use qiang_app::extract::Viewer;
use serde::Serialize;
use utoipa::ToSchema;

/// The settings of a process, as they came out at its start.
#[derive(Debug, Clone)]
pub struct Settings {
    app: Arc<App>,
    all: Arc<[Setting]>,
}

impl Settings {
    pub(crate) fn new(app: Arc<App>, all: Vec<Setting>) -> Self {
        Self { app, all: all.into() }
    }
}

impl FromRef<Settings> for Arc<App> {
    fn from_ref(settings: &Settings) -> Self {
        Arc::clone(&settings.app)
    }
}

/// What a process works by.
#[derive(Debug, Serialize, ToSchema)]
pub struct SettingList {
    /// By section.
    pub settings: Vec<SettingView>,
}

/// One setting.
#[derive(Debug, Serialize, ToSchema)]
pub struct SettingView {
    /// Its key, section and name.
    #[schema(example = "http.listen")]
    pub key: &'static str,
    /// Its value as text; null for a secret.
    #[schema(example = "127.0.0.1:8080")]
    pub value: Option<String>,
    /// Who said so: the default, a file with its line, a variable or a flag.
    #[schema(example = "default")]
    pub source: String,
}

/// Show the settings
///
/// Those of the process that answers, each with who said so. Secrets are not shown.
#[utoipa::path(get, path = "/api/v1/admin/settings", operation_id = "list_settings", tag = "operations", security(("token" = ["viewer"])),
    responses((status = 200, description = "The settings", body = SettingList)))]
pub async fn list(State(settings): State<Settings>, _: Viewer) -> axum::Json<SettingList> {
    let view = |setting: &Setting| SettingView {
        key: setting.key,
        value: match &setting.value {
            Shown::Plain(serde_json::Value::String(text)) => Some(text.clone()),
            Shown::Plain(value) => Some(value.to_string()),
            Shown::Hidden | Shown::Generated => None,
        },
        source: setting.origin.to_string(),
    };
    axum::Json(SettingList { settings: settings.all.iter().map(view).collect() })
}
