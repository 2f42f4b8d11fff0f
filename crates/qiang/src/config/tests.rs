//! Layers, origins, and what each mistake is told.

use std::fs;
use std::path::Path;
use std::time::Duration;

use qiang_app::config::{BusUrl, DatabaseUrl, EngineUrl, Origin};

use super::*;

fn with_file(text: &str) -> Result<Config, Error> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("shop.toml");
    fs::write(&path, text).expect("the folder is writable");
    Config::load(Sources::default().with_file(path))
}

/// The faults of a file, without the folder it happened to be in.
fn faults(text: &str) -> String {
    let error = with_file(text).expect_err("it is wrong").to_string();
    let lines: Vec<&str> =
        error.lines().map(|line| line.find("shop.toml").map_or(line, |at| &line[at..])).collect();
    lines.join("\n")
}

fn with_variables(variables: &[(&str, &str)]) -> Result<Config, Error> {
    let sources = variables
        .iter()
        .fold(Sources::default(), |sources, (name, value)| sources.with_variable(name, value));
    Config::load(sources)
}

/// The variable of a key.
fn variable(key: &str) -> String {
    format!("QIANG_{}", key.replace('.', "__").to_ascii_uppercase())
}

fn origin<'a>(config: &'a Config, key: &str) -> &'a Origin {
    let setting = config.settings.iter().find(|setting| setting.key == key);
    &setting.expect("a known key").origin
}

#[test]
fn without_a_word_everything_is_local() {
    let config = Config::load(Sources::default()).expect("defaults are valid");
    assert!(config.app.http.listen.ip().is_loopback());
    assert_eq!(config.app.data, Path::new("./qiang-data"));
    assert_eq!(config.app.engine.url, EngineUrl::Embedded { folder: "./qiang-data".into() });
    assert_eq!(
        config.app.database.url,
        DatabaseUrl::Sqlite { path: "./qiang-data/qiang.db".into() }
    );
    assert_eq!(config.app.bus.url, BusUrl::Log);
    assert!(config.domains.sales.sandbox && config.app.auth.jwt_secret.is_none());
    assert_eq!(config.domains.audit.every, Some(Duration::from_secs(300)));
    assert!(config.settings.iter().all(|setting| setting.origin == Origin::Default));
}

#[test]
fn the_later_layer_is_the_stronger_one() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("qiang.toml");
    fs::write(
        &path,
        "[http]\nlisten = \"127.0.0.1:1\"\nmax_connections = 7\nbody_limit_bytes = 2048",
    )
    .expect("writable");
    let config = Config::load(
        Sources::default()
            .with_file(&path)
            .with_variable("QIANG_HTTP__LISTEN", "127.0.0.1:2")
            .with_variable("QIANG_HTTP__MAX_CONNECTIONS", "8")
            .with_flag("--listen", "http.listen", Some("127.0.0.1:3".to_owned()))
            .with_flag("--data", "data", None),
    )
    .expect("valid");
    assert_eq!(config.app.http.listen.port(), 3);
    assert_eq!((config.app.http.max_connections, config.app.http.body_limit_bytes), (8, 2048));
    assert_eq!(*origin(&config, "http.listen"), Origin::Flag("--listen"));
    let variable = Origin::Variable("QIANG_HTTP__MAX_CONNECTIONS".to_owned());
    assert_eq!(*origin(&config, "http.max_connections"), variable);
    let in_file = Origin::File { path, line: 4, column: 1 };
    assert_eq!(*origin(&config, "http.body_limit_bytes"), in_file);
    assert_eq!(*origin(&config, "http.request_timeout_ms"), Origin::Default);
}

#[test]
fn nobody_pays_without_money_where_others_may_come() {
    let sandbox = |variables: &[(&str, &str)]| {
        with_variables(variables).map(|config| config.domains.sales.sandbox).ok()
    };
    let public = ("QIANG_HTTP__PUBLIC_ORIGIN", "https://shop.example");
    let blanks = "https://pay.example/?{order_id}{amount_cents}{return_url}{timestamp}{signature}";
    let checkout = ("QIANG_PAYMENTS__CHECKOUT_URL", blanks);
    let on = ("QIANG_PAYMENTS__SANDBOX", "true");
    assert_eq!(sandbox(&[]), Some(true));
    assert_eq!(sandbox(&[("QIANG_HTTP__LISTEN", "0.0.0.0:80")]), Some(false));
    assert_eq!(sandbox(&[public]), Some(false));
    assert_eq!(sandbox(&[public, on]), Some(true), "if somebody wants it");
    assert_eq!(sandbox(&[public, checkout]), Some(false));
    assert_eq!(sandbox(&[public, checkout, on]), None, "a contradiction");
}

#[test]
fn every_key_can_be_set_in_the_file_and_in_the_environment() {
    let secret = "s".repeat(32);
    let other = "o".repeat(32);
    let password = "p".repeat(16);
    let blanks = "{order_id}{amount_cents}{return_url}{timestamp}{signature}";
    let checkout = format!("https://pay.example/?{blanks}");
    let values = [
        ("data", "/d"),
        ("roles", "worker,api"),
        ("http.listen", "0.0.0.0:80"),
        ("http.health_listen", "127.0.0.1:81"),
        ("http.public_origin", "https://Shop.example"),
        ("http.tls_cert", "/h.pem"),
        ("http.tls_key", "/hk.pem"),
        ("http.cors_origins", "https://shop.example,http://localhost:3000"),
        ("http.body_limit_bytes", "1024"),
        ("http.header_timeout_ms", "101"),
        ("http.body_timeout_ms", "102"),
        ("http.request_timeout_ms", "103"),
        ("http.write_timeout_ms", "104"),
        ("http.shutdown_grace_ms", "0"),
        ("http.max_connections", "1_000"),
        ("resp.listen", "127.0.0.1:6399"),
        ("resp.password", &password),
        ("resp.tls_cert", "/c.pem"),
        ("resp.tls_key", "/k.pem"),
        ("resp.max_connections", "7"),
        ("engine.url", "embedded:/e"),
        ("engine.queue", "1"),
        ("engine.snapshot_bytes", "65536"),
        ("database.url", "sqlite:///db/q.db"),
        ("bus.url", "log:"),
        ("delivery.keep_events_hours", "5"),
        ("delivery.source", "/shops/berlin"),
        ("delivery.retries", "6"),
        ("delivery.keep_dead_letters_days", "7"),
        ("force_consume_fail_count", "8"),
        ("auth.jwt_secret", &secret),
        ("auth.token_ttl_secs", "60"),
        ("auth.session_ttl_secs", "61"),
        ("auth.sandbox", "true"),
        ("pages.title", "Tea & Co"),
        ("pages.currency", "EUR"),
        ("payments.sandbox", "false"),
        ("payments.callback_secret", &other),
        ("payments.callback_window_secs", "1"),
        ("payments.checkout_url", &checkout),
        ("packets.time_zone", "-03:30"),
        ("packets.max_packet_cents", "2"),
        ("packets.max_share_cents", "3"),
        ("packets.max_day_cents", "4"),
        ("packets.max_day_packets", "5"),
        ("packets.max_attempts", "6"),
        ("audit.every_secs", "0"),
        ("traces.endpoint", ""),
        ("traces.per_million", "7"),
        ("audit.keep", "5"),
        ("actions.keep_days", "6"),
        ("log.filter", "warn,qiang=debug"),
    ];
    let variables: Vec<_> = values.iter().map(|(key, value)| (variable(key), *value)).collect();
    let variables: Vec<_> = variables.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let from_variables = with_variables(&variables).expect("all valid");
    let lines: Vec<String> = values
        .iter()
        .map(|(key, value)| match value.replace('_', "").parse::<u64>() {
            Ok(_) => format!("{key} = {value}"),
            Err(_) if ["true", "false"].contains(value) => format!("{key} = {value}"),
            Err(_) => format!("{key} = {value:?}"),
        })
        .collect();
    let from_file = with_file(&lines.join("\n")).expect("all valid");
    for config in [from_variables, from_file] {
        assert_eq!(config.settings.len(), values.len(), "a key is missing from this test");
        assert!(config.settings.iter().all(|setting| setting.origin != Origin::Default));
        assert_eq!(config.app.data, Path::new("/d"));
        assert_eq!(config.app.http.listen.to_string(), "0.0.0.0:80");
        assert_eq!(config.app.http.health_listen.map(|at| at.port()), Some(81));
        assert_eq!(config.app.http.public_origin.as_deref(), Some("https://shop.example"));
        let tls = Tls { section: "http", cert: "/h.pem".into(), key: "/hk.pem".into() };
        assert_eq!(config.app.http.tls, Some(tls));
        assert!(config.app.http.cors_origins.are_named());
        assert_eq!(config.app.http.body_limit_bytes, 1024);
        assert_eq!(config.app.http.header_timeout, Duration::from_millis(101));
        assert_eq!(config.app.http.body_timeout, Duration::from_millis(102));
        assert_eq!(config.app.http.request_timeout, Duration::from_millis(103));
        assert_eq!(config.app.http.write_timeout, Duration::from_millis(104));
        assert_eq!(config.app.http.shutdown_grace, Duration::ZERO);
        assert_eq!(config.app.http.max_connections, 1000);
        assert_eq!(config.resp.listen.map(|at| at.port()), Some(6399));
        assert_eq!(config.resp.password, Some(Secret::new(password.as_bytes())));
        let tls = Tls { section: "resp", cert: "/c.pem".into(), key: "/k.pem".into() };
        assert_eq!((&config.resp.tls, config.resp.max_connections), (&Some(tls), 7));
        assert_eq!(config.app.engine.url, EngineUrl::Embedded { folder: "/e".into() });
        assert_eq!((config.app.engine.queue, config.app.engine.snapshot_bytes), (1, 65536));
        assert_eq!(config.app.database.url, DatabaseUrl::Sqlite { path: "/db/q.db".into() });
        let delivery = &config.app.delivery;
        assert_eq!(delivery.keep_events, Some(Duration::from_secs(5 * 3_600)));
        assert_eq!(delivery.source, "/shops/berlin");
        assert_eq!((delivery.retries, delivery.fail_count), (6, 8));
        assert_eq!(delivery.keep_dead_letters, Duration::from_secs(7 * 86_400));
        assert_eq!(config.app.auth.jwt_secret, Some(Secret::new(secret.as_bytes())));
        assert_eq!(config.app.auth.token_ttl, Duration::from_secs(60));
        assert_eq!(config.app.auth.session_ttl, Duration::from_secs(61));
        assert!(config.app.auth.sandbox);
        assert_eq!(config.domains.pages.title, "Tea & Co");
        assert_eq!(config.domains.pages.currency.code(), "EUR");
        assert!(!config.domains.sales.sandbox);
        assert_eq!(config.domains.sales.callback_secret, Some(Secret::new(other.as_bytes())));
        assert_eq!(config.domains.sales.callback_window, Duration::from_secs(1));
        assert!(config.domains.sales.checkout_url.is_some());
        assert_eq!(config.domains.audit.every, None);
        assert_eq!(config.traces.per_million, 7);
        assert_eq!((config.domains.audit.keep, config.domains.actions.keep_days), (5, 6));
        assert_eq!(config.app.log.filter.to_string(), "qiang=debug,warn");
    }
}

#[test]
fn the_data_folder_carries_what_is_not_named_otherwise() {
    let sources = || Sources::default().with_flag("--data", "data", Some("/srv/q".to_owned()));
    let config = Config::load(sources()).expect("valid");
    assert_eq!(config.app.engine.url, EngineUrl::Embedded { folder: "/srv/q".into() });
    assert_eq!(config.app.database.url, DatabaseUrl::Sqlite { path: "/srv/q/qiang.db".into() });
    let config = Config::load(sources().with_variable("QIANG_ENGINE__URL", "embedded:"));
    let url = config.expect("valid").app.engine.url;
    assert_eq!(url, EngineUrl::Embedded { folder: "/srv/q".into() });
}

#[test]
fn the_sandbox_is_on_by_itself_only_on_loopback() {
    let sandbox =
        |text: &str| with_file(text).map(|c| (c.domains.sales.sandbox, c.cautions().len()));
    let public = "http.listen = \"0.0.0.0:80\"\n";
    assert_eq!(sandbox("http.listen = \"[::1]:80\"").expect("valid"), (true, 0));
    assert_eq!(sandbox("payments.sandbox = false").expect("valid"), (false, 0));
    assert_eq!(sandbox(public).expect("valid"), (false, 0));
    let forced = format!("{public}payments.sandbox = true");
    assert_eq!(sandbox(&forced).expect("allowed, and said aloud"), (true, 1));
}

#[test]
fn clients_of_redis_are_let_in_only_when_told_and_unsealed_only_with_a_word() {
    assert_eq!(Config::load(Sources::default()).expect("valid").resp.listen, None);
    let cautions = |text: &str| with_file(text).expect("valid").cautions();
    assert!(cautions("resp.listen = \"127.0.0.1:6399\"").is_empty());
    let public = "resp.listen = \"0.0.0.0:6399\"\n";
    let said = cautions(public);
    assert!(said.len() == 1 && said[0].contains("0.0.0.0:6399 without TLS"), "{said:?}");
    let sealed = format!("{public}resp.tls_cert = \"c.pem\"\nresp.tls_key = \"k.pem\"");
    assert!(cautions(&sealed).is_empty());
    assert_eq!(
        faults("[resp]\ntls_key = \"k.pem\""),
        "shop.toml:2:1: `resp.tls_key` is set, and `tls_cert` is not; set both for TLS, or neither"
    );
    assert_eq!(
        faults("[resp]\ntls_cert = \"c.pem\""),
        "shop.toml:2:1: `resp.tls_cert` is set, and `tls_key` is not; set both for TLS, or neither"
    );
    let short = faults("[resp]\npassword = \"open sesame\"");
    assert!(short.contains("at least 16 bytes") && !short.contains("sesame"), "{short}");
}

#[test]
fn a_mistake_is_told_with_its_place_and_the_remedy() {
    for (text, told) in [
        (
            "[http]\nlisen = \"127.0.0.1:80\"",
            "shop.toml:2:1: `http.lisen` is not known; did you mean `listen` in [http]?",
        ),
        (
            "# 注释\nlisten = \"127.0.0.1:80\"",
            "shop.toml:2:1: `listen` is not known; did you mean `listen` in [http]?",
        ),
        (
            "[htpp]\nlisten = \"127.0.0.1:80\"",
            "shop.toml:2:1: `htpp.listen` is not known; did you mean `listen` in [http]?",
        ),
        (
            "[htpp]\n",
            "shop.toml:1:2: `htpp` is not known; the sections are [http], [engine], [database], [bus], \
             [delivery], [auth], [log], [resp], [traces], [payments], [packets], [pages], [audit], [actions]",
        ),
        (
            "http = 5",
            "shop.toml:1:1: `http` is not known; it is a section: write [http] above its keys",
        ),
        (
            "[delivery]\nsource = \"my shop\"",
            "shop.toml:2:1: `delivery.source` is \"my shop\", which names no source of events; write a \
             path or an address of at most 200 characters, like /shops/berlin",
        ),
        ("[bus]\nwheels = 4", "shop.toml:2:1: `bus.wheels` is not known; known are `url` in [bus]"),
        (
            "[http]\n  body_limit_bytes = \"16k\"",
            "shop.toml:2:3: `http.body_limit_bytes` is a text; use a whole number from 1024 to \
             16777216",
        ),
        (
            "[http]\nmax_connections = 0",
            "shop.toml:2:1: `http.max_connections` is 0, out of bounds; use a whole number from 1 \
             to 1000000",
        ),
        (
            "[engine]\nqueue = -1",
            "shop.toml:2:1: `engine.queue` is -1; use a whole number from 1 to 4194304",
        ),
        (
            "[engine]\nqueue = 1.5",
            "shop.toml:2:1: `engine.queue` is a number with a fraction; use a whole number from 1 \
             to 4194304",
        ),
        (
            "[payments]\nsandbox = \"yes\"",
            "shop.toml:2:1: `payments.sandbox` is neither true nor false; write true or false",
        ),
        (
            "[http]\nlisten = 8080",
            "shop.toml:2:1: `http.listen` is a number, not a text; put it in quotes",
        ),
        (
            "[http]\nlisten = \"localhost:80\"",
            "shop.toml:2:1: `http.listen` is \"localhost:80\", which is not an address with a \
             port; write 127.0.0.1:80",
        ),
        (
            "[http]\nlisten = \":80\"",
            "shop.toml:2:1: `http.listen` is \":80\", which is not an address with a port; write \
             0.0.0.0:80 to listen on every address",
        ),
        (
            "[log]\nfilter = \"lots=of\"",
            "shop.toml:2:1: `log.filter` is \"lots=of\", which is not a log filter; write a level \
             (error, warn, info, debug, trace), or like info,qiang_engine=debug",
        ),
        (
            "[http]\nbody_timeout_ms = 20000",
            "shop.toml:2:1: `http.body_timeout_ms` is longer than `http.request_timeout_ms`, so it \
             could never be reached; make it the shorter of the two",
        ),
        (
            "[resp]\nlisten = \"127.0.0.1:8080\"",
            "shop.toml:2:1: `resp.listen` is the address of `http.listen`, and one address has one \
             door; give it another port, like 127.0.0.1:6380",
        ),
        (
            "[database]\nurl = \"sqlite:./qiang-data/journal.db\"",
            "shop.toml:2:1: `database.url` names something else that lives in the engine's folder; \
             name a file of its own, like sqlite:./qiang-data/qiang.db",
        ),
    ] {
        assert_eq!(faults(text), told);
    }
}

#[test]
fn what_is_not_toml_is_told_with_line_and_column() {
    let told = faults("[http]\nlisten = 127.0.0.1:8080\n");
    assert!(told.starts_with("shop.toml:2:"), "{told}");
    assert!(told.contains("not valid TOML"), "{told}");
    let twice = faults("[http]\nmax_connections = 1\nmax_connections = 2\n");
    assert!(twice.starts_with("shop.toml:3:1: not valid TOML: duplicate key"), "{twice}");
    assert!(with_file("\u{feff}[http]\nmax_connections = 1\n").is_ok());
}

#[test]
fn all_mistakes_are_told_at_once() {
    let told = faults("[http]\nlisten = \"x\"\nlisen = 1\n[engine]\nqueue = 0\n");
    assert_eq!(told.lines().count(), 3, "{told}");
}

#[test]
fn a_variable_is_named_when_it_is_wrong() {
    for (name, value, told) in [
        (
            "QIANG_HTTP__LISEN",
            "x",
            "environment variable QIANG_HTTP__LISEN: `http.lisen` is not known; did you mean \
             QIANG_HTTP__LISTEN?",
        ),
        (
            "QIANG_HTTP_LISTEN",
            "127.0.0.1:1",
            "environment variable QIANG_HTTP_LISTEN: `http_listen` is not known; did you mean \
             QIANG_HTTP__LISTEN?",
        ),
        (
            "QIANG_ENGINE__QUEUE",
            "many",
            "environment variable QIANG_ENGINE__QUEUE: `engine.queue` is \"many\"; use a whole \
             number from 1 to 4194304",
        ),
    ] {
        let error = with_variables(&[(name, value)]).expect_err("wrong");
        assert_eq!(error.to_string(), told);
    }
}

#[test]
fn variables_of_others_are_let_be() {
    let others =
        [("QIANG_PORT", "tcp://10.0.0.1:80"), ("QIANG_SERVICE_HOST", "x"), ("PATH", "/bin")];
    assert!(with_variables(&others).is_ok());
}

#[test]
fn a_backend_this_build_lacks_is_told_from_one_that_never_was() {
    for (key, url, told) in [
        ("engine.url", "rediss://u:pw@h:1?ca=/nowhere/ca.pem", "cannot read /nowhere/ca.pem"),
        ("engine.url", "redis-sentinel://u:pw@h:1", "which master"),
        ("engine.url", "redis://u:pw@h:1?color=red", "no setting \"color\""),
        ("engine.url", "sql:mysql", "says more than `sql:`"),
        ("database.url", "mysql:", "use sqlite:./qiang-data/qiang.db, mysql://HOST/NAME"),
        ("database.url", "mysql://u:pw@h/d?sslmod=require", "what it can say about TLS"),
        ("database.url", "postgres://u:pw@h/d?sslmode=maybe", "verify-full"),
        ("database.url", "postgres://u:pw@h", "names no database"),
        ("database.url", "mongo://u:pw@h/d", "mongo:, which means nothing here"),
        ("bus.url", "redis://h", "asks for the Redis Streams bus (redis:)"),
        ("bus.url", "kafka://h", "asks for the Kafka bus (kafka:)"),
        ("bus.url", "amqp://u:pw@h", "asks for the RabbitMQ bus (amqp:)"),
        (
            "engine.url",
            "mongo://h",
            "mongo:, which means nothing here; use embedded:./qiang-data, redis://HOST",
        ),
        ("engine.url", "./data", "is not a URL; write it like embedded:./qiang-data"),
        ("database.url", "sqlite::memory:", "would lose every record"),
        ("database.url", "sqlite:", "names no file"),
        ("database.url", "sqlite:q.db?mode=ro", "has parameters"),
        ("database.url", "sqlite:dir/", "names a folder"),
        ("bus.url", "log:x", "says more than `log:`"),
    ] {
        let error = faults(&format!("{key} = {url:?}"));
        assert!(error.contains(told), "{error}");
        assert!(!error.contains("pw"), "a password was printed: {error}");
    }
}

#[test]
fn passwords_in_urls_are_never_shown() {
    for url in [
        "redis://u:s3cret@h:1?wait=1",
        "redis-sentinel://u:s3cret@h:1/m?wait=1&sentinel_password=s3cret",
    ] {
        let config = with_file(&format!("engine.url = {url:?}"));
        let shown = format!("{:?} {} {}", config, Report(&config), Report(&config).json());
        assert!(!shown.contains("s3cret") && shown.contains("wait=1"), "{shown}");
    }
}

#[test]
fn secrets_are_checked_and_never_shown() {
    let short = faults("[auth]\njwt_secret = \"hunter2\"");
    assert!(short.contains("at least 32 bytes") && !short.contains("hunter2"), "{short}");
    let secret = "correct horse battery staple, and more";
    let same = format!("auth.jwt_secret = {secret:?}\npayments.callback_secret = {secret:?}");
    let told = faults(&same);
    assert!(told.contains("could issue tokens") && !told.contains(secret), "{told}");
    let config = with_file(&format!("auth.jwt_secret = {secret:?}"));
    let shown = format!("{:?} {} {}", config, Report(&config), Report(&config).json());
    assert!(!shown.contains("horse"), "{shown}");
    assert!(shown.contains("# jwt_secret is set, and hidden"), "{shown}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let config = Config::load(Sources::default().with_file("/nowhere/shop.toml"));
    let error = config.as_ref().expect_err("missing");
    assert_eq!(error.to_string(), "cannot read the configuration file /nowhere/shop.toml");
    assert!(Report(&config).to_string().contains("No such file"));
}

/// What `config check` prints can be the next `qiang.toml`.
#[test]
fn the_report_reads_back_as_the_same_configuration() {
    let config = with_file("http.listen = \"0.0.0.0:80\"\ndata = \"a \\\"b\\\" c\"");
    let report = Report(&config).to_string();
    assert!(report.contains("# default"), "{report}");
    assert!(report.contains("shop.toml:1:6"), "{report}");
    let again = with_file(&report).expect("a report is a configuration");
    let values = |config: &Config| -> Vec<_> {
        config.settings.iter().map(|setting| (setting.key, setting.value.clone())).collect()
    };
    assert_eq!(values(&config.expect("valid")), values(&again));
    let json = Report(&with_file("")).json();
    assert_eq!(json["ok"], true);
    assert_eq!(json["settings"][3]["key"], "http.listen");
    assert_eq!(json["settings"][3]["origin"], "default");
    let json = Report(&with_file("[http]\nlisen = 1")).json();
    assert_eq!((&json["ok"], &json["faults"][0]["line"]), (&false.into(), &2.into()));
}

#[test]
fn what_is_no_origin_is_a_mistake() {
    for wrong in ["*", "shop.example", "https://", "https://a/b", "https://a b", "ftp://a"] {
        let error = with_variables(&[("QIANG_HTTP__CORS_ORIGINS", wrong)]).expect_err(wrong);
        assert!(error.to_string().contains("no origin"), "{wrong}: {error}");
    }
    let none = with_variables(&[("QIANG_HTTP__CORS_ORIGINS", "")]).expect("off");
    assert!(!none.app.http.cors_origins.are_named());
}
