//! `/openapi.json` is true: it is valid, the server does what it says in every role, and a client
//! generated from it compiles and claims.

use std::path::{Path, PathBuf};
use std::process::Command;

use qiang_testkit::servers::{NODE, OPENAPI_TYPESCRIPT, Program, SCHEMATHESIS, or_skip};
use serde_json::json;
use tempfile::TempDir;

use crate::person::Person;
use crate::process::{Process, command, run};
use crate::shop::{changed, terms_of};

const CALLBACK_SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A real server, with the sale and the claim that the document has as its examples.
struct Described {
    folder: TempDir,
    process: Process,
    admin: String,
    buyer: String,
}

impl Described {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut serve = command(folder.path(), &[]);
        serve.env("QIANG_PAYMENTS__CALLBACK_SECRET", CALLBACK_SECRET);
        let process = Process::start(&mut serve).expect("it starts");
        let token = |user: &str, role: &str| {
            let made = run(folder.path(), &["tokens", "--user", user, "--role", role]);
            made.stdout.trim().to_owned()
        };
        let (admin, buyer) = (token("boss", "admin"), token("ann", "buyer"));
        let mut boss = Person::arrive(process.address, Some(admin.clone())).await;
        let terms = changed(&terms_of(100), &json!({ "id": "12", "limit_per_user": 10 }));
        boss.post("/sales", terms).await.ok(201);
        boss.put("/current-sale", json!({ "sale_id": "12" })).await.ok(200);
        let mut ann = Person::arrive(process.address, Some(buyer.clone())).await;
        assert_eq!(ann.granted("12").await, "12-1");
        Self { folder, process, admin, buyer }
    }

    fn url(&self) -> String {
        format!("http://{}", self.process.address)
    }

    /// The document as a file.
    async fn document(&self) -> PathBuf {
        let mut stranger = Person::arrive(self.process.address, None).await;
        let document = stranger.ask(axum::http::Method::GET, "/openapi.json", &[], "").await;
        let path = self.folder.path().join("openapi.json");
        std::fs::write(&path, document.ok(200).to_string()).expect("written");
        path
    }
}

/// Where a program is; `None` after saying that it is not.
fn found(program: Program) -> Option<PathBuf> {
    or_skip(program.find().map_err(Into::into))
}

/// Runs a program that must succeed, and gives what it printed.
fn printed(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}", output.status);
    stdout
}

/// What belongs to these tests and is no Rust.
fn beside(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/openapi").join(name)
}

/// A module of Python, with the packages of [`SCHEMATHESIS`], in a folder.
fn python(folder: &Path, main: &Path, module: &str) -> Command {
    let packages = main.ancestors().nth(3).expect("it is a file of a module of a package");
    let path = std::env::join_paths([packages, &beside("")]).expect("no colons");
    let mut python = Command::new("python3");
    python.current_dir(folder).env("PYTHONPATH", path).env("PYTHONDONTWRITEBYTECODE", "1");
    python.args(["-m", module]);
    python
}

#[tokio::test]
async fn the_document_is_valid() {
    let Some(main) = found(SCHEMATHESIS) else { return };
    let shop = Described::start().await;
    let document = shop.document().await;
    printed(python(shop.folder.path(), &main, "openapi_spec_validator").arg(document));
}

/// Calls the server as the document allows and forbids.
async fn try_everything(token: impl Fn(&Described) -> String) {
    let Some(main) = found(SCHEMATHESIS) else { return };
    let shop = Described::start().await;
    let mut schemathesis = python(shop.folder.path(), &main, "schemathesis.cli");
    schemathesis.env("SCHEMATHESIS_HOOKS", "refusals").env("CALLBACK_SECRET", CALLBACK_SECRET);
    schemathesis.arg("--config-file").arg(beside("schemathesis.toml"));
    schemathesis.args(["run", "--no-color", &format!("{}/openapi.json", shop.url())]);
    schemathesis.arg("--header").arg(format!("Authorization: Bearer {}", token(&shop)));
    let report = printed(&mut schemathesis);
    let tried = report.lines().find_map(|line| line.trim().split_once(" generated, "));
    let (tried, _) = tried.unwrap_or_else(|| panic!("{report}"));
    assert!(tried.parse::<u32>().is_ok_and(|count| count > 1_000), "{report}");
    let mut boss = Person::arrive(shop.process.address, Some(shop.admin.clone())).await;
    assert_eq!(boss.get("/admin/audit").await.ok(200)["ok"], true);
    assert!(shop.process.terminate().0.success());
}

#[tokio::test]
async fn the_server_does_what_the_document_says_to_an_admin() {
    try_everything(|shop| shop.admin.clone()).await;
}

#[tokio::test]
async fn the_server_does_what_the_document_says_to_a_buyer() {
    try_everything(|shop| shop.buyer.clone()).await;
}

#[tokio::test]
async fn a_client_generated_from_the_document_compiles_and_claims() {
    let (Some(node), Some(generator)) = (found(NODE), found(OPENAPI_TYPESCRIPT)) else { return };
    let shop = Described::start().await;
    let (document, folder) = (shop.document().await, shop.folder.path());
    let modules = generator.ancestors().nth(3).expect("it is in a package");
    std::os::unix::fs::symlink(modules, folder.join("node_modules")).expect("a link");
    std::fs::copy(beside("claim.mts"), folder.join("claim.mts")).expect("copied");
    let node = |script: &Path| {
        let mut command = Command::new(&node);
        command.current_dir(folder).arg(script);
        command
    };
    printed(node(&generator).arg(document).args(["--output", "api.mts"]));
    let mut compiler = node(&modules.join("typescript/bin/tsc"));
    printed(compiler.args(["--strict", "--module", "nodenext", "--target", "es2022", "claim.mts"]));
    let said = printed(node(Path::new("claim.mjs")).args([&*shop.url(), &shop.admin, &shop.buyer]));
    let (claim, refusal) = said.trim().split_once('\n').expect("two lines");
    assert_eq!(refusal, "already_claimed");
    let mut ann = Person::arrive(shop.process.address, Some(shop.buyer.clone())).await;
    assert_eq!(ann.get(&format!("/claims/{claim}")).await.ok(200)["claim_id"], claim);
}
