//! The list of domains. A new one is a field in [`Settings`], a line in [`Domains::open`] and, if it has
//! commands, a line in [`Commands`].
//!
//! Nothing else in the product knows the insides of a domain, but for the doors, which claim through
//! [`Sales`].

use std::process::ExitCode;
use std::sync::Arc;

use qiang_accounts::Accounts;
use qiang_app::cli::Command;
use qiang_app::config::{Layers, Setting};
use qiang_app::consumer::Progress;
use qiang_app::secrets::Secrets;
use qiang_app::{App, Domain};
use qiang_delivery::Delivery;
use qiang_pages::{Pages, Payments};
use qiang_recovery::audit::{self, Audit};
use qiang_sales::Sales;

use crate::config::Config;
use crate::operations::demo::Demo;
use crate::operations::{self, Operations};
use crate::server::Doors;

/// The section of each domain in the configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `[payments]`
    pub sales: qiang_sales::Settings,
    /// `[packets]`
    pub accounts: qiang_accounts::Settings,
    /// `[pages]`
    pub pages: qiang_pages::Settings,
    /// `[audit]`
    pub audit: audit::Settings,
    /// `[actions]`
    pub actions: operations::actions::Settings,
}

impl Settings {
    /// Takes all of them.
    pub fn take(layers: &mut Layers, config: &qiang_app::Config) -> Self {
        Self {
            sales: qiang_sales::Settings::take(layers, config),
            accounts: qiang_accounts::Settings::take(layers),
            pages: qiang_pages::Settings::take(layers),
            audit: audit::Settings::take(layers),
            actions: operations::actions::Settings::take(layers),
        }
    }
}

/// The commands that domains bring along; each is run by its [`Command`].
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Commands {
    Audit(qiang_recovery::cli::Args),
    Report(qiang_sales::cli::Args),
    Events(qiang_delivery::cli::EventsArgs),
    Dlq(qiang_delivery::cli::DlqArgs),
    Account(qiang_accounts::cli::AccountArgs),
    Packet(qiang_accounts::cli::PacketArgs),
    VerifyPacket(qiang_accounts::cli::VerifyArgs),
}

impl Commands {
    pub(crate) async fn run(&self, config: &Config) -> anyhow::Result<ExitCode> {
        match self {
            Self::Audit(command) => command.run(&config.app).await,
            Self::Report(command) => command.run(&config.app).await,
            Self::Events(command) => command.run(&config.app).await,
            Self::Dlq(command) => command.run(&config.app).await,
            Self::Account(command) => command.run(&config.app).await,
            Self::Packet(command) => command.run(&config.app).await,
            Self::VerifyPacket(command) => command.run(&config.app).await,
        }
    }
}

/// Every domain, opened.
pub struct Domains {
    /// The one that the doors claim through.
    pub sales: Sales,
    /// Money, and what is given away of it.
    pub accounts: Accounts,
    /// The storefront and the console.
    pub pages: Pages,
    /// What other programs are told.
    pub delivery: Delivery,
    /// The comparison of all books.
    pub audit: Audit,
    /// The crowd of a demo.
    pub demo: Demo,
    all: Vec<Box<dyn Domain>>,
}

impl Domains {
    /// Opens them all, behind these doors. `shown` is what the operator reads of the configuration, `feed`
    /// how far the feed of events is, if there is one.
    pub async fn open(
        app: &Arc<App>,
        settings: Settings,
        secrets: &Secrets,
        doors: &Doors,
        shown: Vec<Setting>,
        feed: Option<Progress>,
    ) -> Result<Self, qiang_store::Error> {
        let payments = match (&settings.sales.checkout_url, settings.sales.sandbox) {
            (Some(_), _) => Payments::Checkout,
            (None, true) => Payments::Sandbox,
            (None, false) => Payments::Elsewhere,
        };
        let sales = Sales::open(Arc::clone(app), settings.sales, secrets).await?;
        let accounts = Accounts::new(Arc::clone(app), settings.accounts);
        let pages = Pages::new(Arc::clone(app), settings.pages, payments);
        let delivery = Delivery::new(Arc::clone(app), feed);
        let audit = Audit::new(Arc::clone(app), settings.audit);
        let demo = Demo::new(Arc::clone(app));
        let shown = operations::settings::Settings::new(Arc::clone(app), shown);
        let all: Vec<Box<dyn Domain>> = vec![
            Box::new(sales.clone()),
            Box::new(accounts.clone()),
            Box::new(pages.clone()),
            Box::new(delivery.clone()),
            Box::new(audit.clone()),
            Box::new(Operations::new(
                Arc::clone(app),
                demo.clone(),
                shown,
                settings.actions,
                doors.certificates(),
            )),
        ];
        Ok(Self { sales, accounts, pages, delivery, audit, demo, all })
    }

    /// All of them, in the order of the list.
    pub fn all(&self) -> impl Iterator<Item = &dyn Domain> {
        self.all.iter().map(|domain| &**domain)
    }
}

impl std::fmt::Debug for Domains {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Domains({})", self.all.len())
    }
}
