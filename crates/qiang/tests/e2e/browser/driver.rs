//! A Chromium that does what a test says, through chromedriver's own protocol.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::Method;
use qiang::client::{Client, Error, Response};
use qiang_testkit::servers::{AXE, CHROMEDRIVER, or_skip};
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long something on a page may take, on a machine that does other things, too.
const PATIENCE: Duration = Duration::from_secs(40);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What a browser says by itself of an answer that is a refusal; a page shows it.
const REFUSAL: &str = "Failed to load resource: the server responded with a status of 4";

/// What it says while there is no network, or no server.
const NO_NETWORK: [&str; 2] = ["net::ERR_INTERNET_DISCONNECTED", "net::ERR_CONNECTION_REFUSED"];
/// More things than a page has that can have the focus.
const MAX_TABS: u32 = 60;
/// Keys as the protocol names them.
pub(super) const TAB: &str = "\u{e004}";
pub(super) const ENTER: &str = "\u{e007}";
pub(super) const ESCAPE: &str = "\u{e00c}";

/// What the pages are looked at with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Device {
    pub(super) width: u32,
    pub(super) lang: &'static str,
    pub(super) look: Look,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Light,
    Dark,
}

pub(super) struct Browser {
    client: Client,
    session: String,
    axe: String,
    driver: Child,
    address: SocketAddr,
    _profile: TempDir,
}

impl Browser {
    /// `None` where there is no browser.
    pub(super) async fn start(device: Device) -> Option<Self> {
        let program = or_skip(CHROMEDRIVER.find().map_err(Into::into))?;
        let axe = or_skip(AXE.find().map_err(Into::into))?;
        let axe = std::fs::read_to_string(axe).expect("readable");
        let mut driver = Command::new(program);
        let driver = driver.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver = driver.spawn().expect("it runs");
        let said = BufReader::new(driver.stdout.take().expect("piped"));
        let port = said.lines().map_while(Result::ok).find_map(|line| {
            line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok()
        });
        let address: SocketAddr = ([127, 0, 0, 1], port.expect("it says its port")).into();
        let mut client = Client::connect(address).await.expect("it listens");
        let profile = tempfile::tempdir().expect("a folder");
        let args = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
        ];
        let mut args: Vec<_> = args.map(str::to_owned).into();
        args.push(format!("--user-data-dir={}", profile.path().display()));
        args.push(format!("--lang={}", device.lang));
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "args": args },
        }}});
        let answer = client.send_json(Method::POST, "/session", &[], &wanted).await;
        let answer: Value = answer.expect("an answer").json().expect("JSON");
        let id = answer["value"]["sessionId"].as_str().unwrap_or_else(|| panic!("{answer}"));
        let session = format!("/session/{id}");
        let mut browser = Self { client, session, axe, driver, address, _profile: profile };
        browser.tell(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": device.width, "height": 800, "deviceScaleFactor": 1, "mobile": device.width < 500 }),
        ).await;
        if device.look == Look::Dark {
            let dark = json!([{ "name": "prefers-color-scheme", "value": "dark" }]);
            browser.tell("Emulation.setEmulatedMedia", json!({ "features": dark })).await;
        }
        Some(browser)
    }

    pub(super) async fn go(&mut self, url: &str) {
        self.ask(Method::POST, "/url", &json!({ "url": url })).await;
    }

    /// Runs a script in the page; gives what it returns.
    pub(super) async fn script(&mut self, script: &str) -> Value {
        self.ask(Method::POST, "/execute/sync", &json!({ "script": script, "args": [] })).await
    }

    /// Waits until an expression is true.
    pub(super) async fn wait(&mut self, what: &str) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        let script = format!("return !!({what})");
        let seen = tokio::time::timeout(PATIENCE, async {
            while self.script(&script).await != true {
                looks.tick().await;
            }
        });
        if seen.await.is_err() {
            let page = self.script("return document.body.innerText").await;
            panic!("{what} never came: {page}");
        }
    }

    pub(super) async fn click(&mut self, css: &str) {
        // To the middle, where no bar that stays at an edge lies over it.
        let middle =
            format!("document.querySelector({css:?})?.scrollIntoView({{ block: 'center' }})");
        self.script(&middle).await;
        let element = self.find(css).await;
        self.ask(Method::POST, &format!("/element/{element}/click"), &json!({})).await;
    }

    pub(super) async fn type_into(&mut self, css: &str, text: &str) {
        let element = self.find(css).await;
        let text = json!({ "text": text });
        self.ask(Method::POST, &format!("/element/{element}/value"), &text).await;
    }

    /// The device's clock is wrong by so much, on every page from now on.
    pub(super) async fn with_wrong_clock(&mut self, ms: i64) {
        let source = format!(
            "const Right = Date; Date = class extends Right {{ \
             constructor(...all) {{ if (all.length) super(...all); else super(Right.now() + {ms}); }} \
             static now() {{ return Right.now() + {ms}; }} }};"
        );
        let script = json!({ "source": source });
        self.tell("Page.addScriptToEvaluateOnNewDocument", script).await;
    }

    /// Presses keys, wherever the focus is.
    pub(super) async fn press(&mut self, keys: &str) {
        let press = |key: char| {
            [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]
        };
        let actions: Vec<_> = keys.chars().flat_map(press).collect();
        let keyboard = json!({ "actions": [{ "type": "key", "id": "k", "actions": actions }] });
        self.ask(Method::POST, "/actions", &keyboard).await;
    }

    /// Goes from one thing to the next by keyboard until this one has the focus.
    pub(super) async fn tab_to(&mut self, css: &str) {
        let script = format!("return document.activeElement?.matches({css:?}) ?? false");
        for _ in 0..MAX_TABS {
            if self.script(&script).await == true {
                return;
            }
            self.press(TAB).await;
        }
        panic!("{css} cannot be reached with the keyboard");
    }

    /// With or without a network.
    pub(super) async fn set_offline(&mut self, offline: bool) {
        self.tell("Network.enable", json!({})).await;
        let conditions = json!({
            "offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1,
        });
        self.tell("Network.emulateNetworkConditions", conditions).await;
    }

    /// Opens another tab and goes on there; gives the one before.
    pub(super) async fn new_tab(&mut self) -> String {
        let before = self.ask(Method::GET, "/window", &Value::Null).await;
        let tab = self.ask(Method::POST, "/window/new", &json!({ "type": "tab" })).await;
        let handle = tab["handle"].as_str().expect("a tab").to_owned();
        self.switch_to(&handle).await;
        before.as_str().expect("a tab").to_owned()
    }

    pub(super) async fn switch_to(&mut self, tab: &str) {
        self.ask(Method::POST, "/window", &json!({ "handle": tab })).await;
    }

    pub(super) async fn back(&mut self) {
        self.ask(Method::POST, "/back", &json!({})).await;
    }

    /// Runs a script on every page before any of its own.
    pub(super) async fn on_every_page(&mut self, source: &str) {
        let script = json!({ "source": source });
        self.tell("Page.addScriptToEvaluateOnNewDocument", script).await;
    }

    pub(super) async fn set_time_zone(&mut self, name: &str) {
        self.tell("Emulation.setTimezoneOverride", json!({ "timezoneId": name })).await;
    }

    /// So many pixels of CSS wide: half as many are a zoom of 200 %.
    pub(super) async fn set_width(&mut self, width: u32) {
        let size =
            json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.tell("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// The whole page as a picture.
    pub(super) async fn picture(&mut self) -> Vec<u8> {
        let how =
            json!({ "cmd": "Page.captureScreenshot", "params": { "captureBeyondViewport": true } });
        let taken = self.ask(Method::POST, "/goog/cdp/execute", &how).await;
        let data = taken["data"].as_str().expect("a picture");
        base64::Engine::decode(&base64::engine::general_purpose::STANDARD, data).expect("base64")
    }

    /// Fails if axe finds anything that keeps people from using the page.
    pub(super) async fn check(&mut self) {
        let axe = self.axe.clone();
        let script = format!(
            "{axe}; const done = arguments[arguments.length - 1]; axe.run().then((found) => \
             done(found.violations.map((one) => one.id + ': ' + one.nodes.map((node) => node.html).join(' '))))"
        );
        let body = json!({ "script": script, "args": [] });
        let found = self.ask(Method::POST, "/execute/async", &body).await;
        assert_eq!(found, json!([]));
        let foreign = "return performance.getEntriesByType('resource').map((one) => one.name)\
                       .filter((name) => !name.startsWith(location.origin))";
        assert_eq!(self.script(foreign).await, json!([]), "everything comes from the shop");
    }

    /// What stands on the browser's console, but for answers that are refusals.
    pub(super) async fn complaints(&mut self) -> Vec<String> {
        let log = self.ask(Method::POST, "/se/log", &json!({ "type": "browser" })).await;
        let lines = log.as_array().expect("a list").iter();
        let lines = lines.map(|line| line["message"].as_str().unwrap_or_default().to_owned());
        lines
            .filter(|line| {
                !line.contains(REFUSAL) && !NO_NETWORK.iter().any(|said| line.contains(said))
            })
            .collect()
    }

    async fn find(&mut self, css: &str) -> String {
        let how = json!({ "using": "css selector", "value": css });
        let found = self.ask(Method::POST, "/element", &how).await;
        let id = found.as_object().and_then(|found| found.values().next());
        id.and_then(Value::as_str).expect("an element").to_owned()
    }

    /// What only asks has no body.
    async fn send(&mut self, method: &Method, path: &str, body: &Value) -> Result<Response, Error> {
        match body {
            Value::Null => self.client.send(method.clone(), path, &[], Bytes::new()).await,
            body => self.client.send_json(method.clone(), path, &[], body).await,
        }
    }

    /// A command of the browser's own protocol.
    async fn tell(&mut self, command: &str, params: Value) {
        let body = json!({ "cmd": command, "params": params });
        self.ask(Method::POST, "/goog/cdp/execute", &body).await;
    }

    async fn ask(&mut self, method: Method, path: &str, body: &Value) -> Value {
        let path = format!("{}{path}", self.session);
        let answer = match self.send(&method, &path, body).await {
            // It closes connections now and then.
            Err(Error::NotSent(_)) => {
                self.client.reconnect().await.expect("it listens");
                self.send(&method, &path, body).await
            }
            answer => answer,
        };
        let mut answer: Value = answer.expect("an answer").json().expect("JSON");
        let value = answer["value"].take();
        assert!(value.get("error").is_none(), "{path}: {value}");
        value
    }
}

impl Drop for Browser {
    /// The browser ends with its session, also that of a test that failed; the driver would leave it.
    fn drop(&mut self) {
        let request = format!(
            "DELETE {} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            self.session
        );
        if let Ok(mut stream) = TcpStream::connect(self.address) {
            let _sent = stream.write_all(request.as_bytes());
            let _limited = stream.set_read_timeout(Some(PATIENCE));
            // It answers when the browser is gone, and keeps the connection.
            let _answered = stream.read(&mut [0; 512]);
        }
        self.driver.kill().ok();
        self.driver.wait().ok();
    }
}
