//! What stands in front of a server, or watches it: nginx, Varnish, Prometheus. Each runs with the
//! configuration that a test gives it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::keeper::{LastSignal, Line, Process, patiently};
use super::ports::free_port;
use super::program::{NGINX, PROMETHEUS, VARNISH};

/// What nginx needs around the file of a site.
const NGINX_FRAME: &str = "daemon off; user root; worker_processes 1; pid nginx.pid;\n\
    error_log stderr notice;\nevents { worker_connections 1024; }\n\
    http { access_log off; client_body_temp_path body; proxy_temp_path proxy;\n\
    fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n";

/// One of them, at an address of this machine; gone once this is dropped.
pub struct Front {
    process: Process,
    /// Where it listens.
    pub port: u16,
}

impl Front {
    /// nginx with a site, whose file is made for a port and a folder.
    pub fn nginx(site: impl Fn(u16, &Path) -> String) -> Result<Self> {
        Self::start("nginx", &NGINX.find()?, |program, port, folder| {
            let config = folder.join("nginx.conf");
            fs::write(&config, format!("{NGINX_FRAME}{}\n}}\n", site(port, folder)))?;
            let line = Line::new(program).arg("-p").arg(folder).arg("-c").arg(config);
            Ok((line.arg("-e").arg("stderr"), "start worker process "))
        })
    }

    /// Varnish with a program of its own.
    pub fn varnish(vcl: &str) -> Result<Self> {
        Self::start("varnish", &VARNISH.find()?, |program, port, folder| {
            let file = folder.join("default.vcl");
            fs::write(&file, vcl)?;
            let line = Line::new(program).args(["-F", "-j", "none", "-s", "malloc,64m"]);
            let line = line.arg("-a").arg(format!("127.0.0.1:{port}")).arg("-f").arg(file);
            Ok((line.arg("-n").arg(folder.join("work")), "said Child starts"))
        })
    }

    /// Prometheus with a configuration, beside which lie other files.
    pub fn prometheus(config: &str, beside: &[(&str, &str)]) -> Result<Self> {
        Self::start("prometheus", &PROMETHEUS.find()?, |program, port, folder| {
            for (name, text) in beside.iter().chain(&[("prometheus.yaml", config)]) {
                fs::write(folder.join(name), text)?;
            }
            let option = |name: &str, path: &Path| super::option(name, path);
            let line = Line::new(program)
                .arg(option("--config.file=", &folder.join("prometheus.yaml")))
                .arg(option("--storage.tsdb.path=", &folder.join("data")))
                .arg(format!("--web.listen-address=127.0.0.1:{port}"));
            Ok((line, "Server is ready to receive web requests"))
        })
    }

    fn start(
        name: &'static str,
        program: &Path,
        prepare: impl Fn(&Path, u16, &Path) -> Result<(Line, &'static str)>,
    ) -> Result<Self> {
        patiently(|| {
            let (port, process) =
                (free_port()?, Process::new(name, &std::env::temp_dir(), LastSignal::Kill)?);
            let (line, ready) = prepare(program, port, process.folder())?;
            process.start(&line, ready)?;
            Ok(Self { process, port })
        })
    }

    /// The folder it works in.
    pub fn folder(&self) -> PathBuf {
        self.process.folder().to_owned()
    }

    /// Of Varnish: a counter, like `MAIN.backend_req`.
    pub fn varnish_counter(&self, name: &str) -> Result<u64> {
        let mut stat = Command::new("varnishstat");
        stat.args(["-1", "-f", name, "-n"]).arg(self.folder().join("work"));
        let output = stat.output().context("cannot run varnishstat")?;
        ensure!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout)?;
        let count = text.split_whitespace().nth(1).context("no counter")?;
        Ok(count.parse()?)
    }
}
