//! How a domain registers itself.
//!
//! A domain is a crate with its own calls, settings, counters, workers and jobs. It exports one
//! value that implements [`Domain`] and a type for its section of the configuration. The product
//! has one list of them and knows nothing else about their insides.

use std::pin::Pin;

use prometheus_client::registry::Registry;
use utoipa_axum::router::OpenApiRouter;

use crate::entry::Check;
use crate::jobs::Jobs;
use crate::problem::Code;
use crate::workers::Workers;

/// Calls, and the codes they can end in.
pub type Problems = &'static [(&'static str, &'static [Code])];

/// Bringing figures up to date.
pub type Measuring<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A part of the product. Whatever it does not bring along is left out.
pub trait Domain: Send + Sync {
    /// Its calls, each with its description.
    fn routes(&self) -> OpenApiRouter {
        OpenApiRouter::new()
    }

    /// What each of its calls, by its `operation_id`, can be turned down for, beside what any call
    /// can. Every call is named.
    fn problems(&self) -> Problems {
        &[]
    }

    /// What it counts. Names begin with `qiang_`, which the registry adds.
    fn register(&self, _registry: &mut Registry) {}

    /// Brings up to date what is measured only when somebody looks at the metrics.
    fn measure(&self) -> Measuring<'_> {
        Box::pin(std::future::ready(()))
    }

    /// Its work of the background. The first worker starts before the first request is read.
    fn start(&self, _workers: &mut Workers) {}

    /// Who does its kinds of jobs.
    fn add_jobs(&self, _jobs: &mut Jobs) {}

    /// What is looked at before the engine is asked.
    fn checks(&self) -> Vec<Box<dyn Check>> {
        Vec::new()
    }
}
