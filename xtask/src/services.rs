//! `cargo xtask services`: the servers that tests get, for a person.
//!
//! Prints lines for a shell, and keeps the servers up until Ctrl-C.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use tokio::signal::unix::{SignalKind, signal};

use crate::servers::{self, Running, Service};
use crate::stopwatch::Stopwatch;

/// Starts the services named, or all.
pub fn run(args: &[String]) -> Result<ExitCode> {
    let services = parse(args)?;
    let clock = Stopwatch::start();
    let running = servers::start(&services)?;
    if running.is_empty() {
        bail!("none could be started");
    }
    eprintln!("{} after {clock}", summary(&running));
    print!("{}", lines(&running));
    eprintln!("Ctrl-C stops them and removes their data");
    wait_for_the_end()?;
    eprintln!("stopping …");
    drop(running);
    Ok(ExitCode::SUCCESS)
}

/// Who runs, in one sentence without its end.
pub(crate) fn summary(running: &[Running]) -> String {
    let names: Vec<&str> = running.iter().map(|server| server.service.shared().name).collect();
    format!("running: {}", names.join(", "))
}

fn parse(args: &[String]) -> Result<Vec<Service>> {
    if args.is_empty() {
        return Ok(Service::ALL.to_vec());
    }
    let mut services = Vec::new();
    for arg in args {
        let Some(service) = Service::ALL.into_iter().find(|service| service.word() == arg) else {
            let words: Vec<&str> = Service::ALL.iter().map(|service| service.word()).collect();
            bail!("there is no service `{arg}`; there are: {}", words.join(", "));
        };
        if !services.contains(&service) {
            services.push(service);
        }
    }
    Ok(services)
}

/// For a shell: what tests read, and behind a `#` what qiang reads, to choose from.
fn lines(running: &[Running]) -> String {
    let tests = running
        .iter()
        .map(|server| format!("export {}='{}'\n", server.service.shared().variable, server.url()));
    let choices = running.iter().map(|server| {
        let url = server.url();
        let (variable, url) = match server.service {
            Service::Redis | Service::Cluster | Service::Valkey => ("QIANG_ENGINE__URL", url),
            Service::Mysql => ("QIANG_DATABASE__URL", format!("{url}/qiang")),
            Service::Postgres => ("QIANG_DATABASE__URL", url),
        };
        format!("# export {variable}='{url}'\n")
    });
    tests.chain(choices).collect()
}

fn wait_for_the_end() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let mut term = signal(SignalKind::terminate()).context("cannot listen to signals")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen to signals")?;
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::{Service, parse};

    fn services(line: &str) -> anyhow::Result<Vec<Service>> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn all_are_started_unless_some_are_named() {
        assert_eq!(services("").unwrap(), Service::ALL);
        let some = services("mysql redis mysql").unwrap();
        assert_eq!(some, [Service::Mysql, Service::Redis]);
        assert!(services("oracle").unwrap_err().to_string().contains("redis, cluster, valkey"));
    }
}
