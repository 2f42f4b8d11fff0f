//! TLS to servers is as the URL says, and what does not fit is said.

use qiang_sql::{Database, Error, Statement, sql};
use qiang_testkit::servers::{Authority, Mariadb, Postgres, mariadb, or_skip, postgres};

/// A server with a certificate for `localhost`, and how it tells what a connection is encrypted
/// with.
struct Server {
    /// Up to the host.
    begin: &'static str,
    /// From the port on, without settings.
    end: String,
    cipher: &'static Statement,
}

impl Server {
    fn url(&self, host: &str, settings: &str) -> String {
        format!("{}{host}{}{settings}", self.begin, self.end)
    }

    async fn is_encrypted(&self, host: &str, settings: &str) -> bool {
        let database = Database::open(&self.url(host, settings)).await.expect("it opens");
        let rows = database.fetch_all(self.cipher, &[]).await.expect("it answers");
        database.close().await;
        rows.first().is_some_and(|row| row.int(0).expect("a number") == 1)
    }

    async fn refused(&self, host: &str, settings: &str) -> Error {
        Database::open(&self.url(host, settings)).await.expect_err("it does not fit")
    }
}

async fn is_as_the_url_says(server: &Server, ca: &str, stranger: &str) {
    for mode in ["require", "prefer"] {
        assert!(server.is_encrypted("127.0.0.1", &format!("?sslmode={mode}")).await, "{mode}");
    }
    assert!(!server.is_encrypted("127.0.0.1", "").await);
    assert!(!server.is_encrypted("localhost", "?sslmode=disable").await);
    for (host, mode) in [("127.0.0.1", "verify-ca"), ("localhost", "verify-full")] {
        let settings = format!("?sslmode={mode}&sslrootcert={ca}");
        assert!(server.is_encrypted(host, &settings).await, "{settings}");
    }
    for settings in [
        format!("?sslmode=verify-ca&sslrootcert={stranger}"),
        "?sslmode=verify-ca".to_owned(),
        // The certificate is for a name.
        format!("?sslmode=verify-full&sslrootcert={ca}"),
    ] {
        let error = server.refused("127.0.0.1", &settings).await;
        assert!(matches!(error, Error::Untrusted { .. }), "{settings}: {error:?}");
    }
}

#[tokio::test]
async fn postgres_with_a_certificate() {
    let (authority, stranger) = (Authority::new().expect("made"), Authority::new().expect("made"));
    let identity = authority.issue(&["localhost"]).expect("made");
    let options = postgres::Options { tls: Some(identity), ..Default::default() };
    let Some(postgres) = or_skip(Postgres::start(&options)) else { return };
    let server = Server {
        begin: "postgres://postgres@",
        end: format!(":{}/postgres", postgres.port()),
        cipher: sql!(
            "SELECT CASE WHEN ssl THEN CAST(1 AS BIGINT) ELSE 0 END FROM pg_stat_ssl \
             WHERE pid = pg_backend_pid()"
        ),
    };
    let shown = |authority: &Authority| authority.ca().display().to_string();
    is_as_the_url_says(&server, &shown(&authority), &shown(&stranger)).await;
    // Everybody else is turned away.
    postgres.allow_only_tls().expect("it takes new rules");
    let error = server.refused("127.0.0.1", "").await;
    assert!(matches!(error, Error::WantsTls { .. }), "{error:?}");
    assert!(server.is_encrypted("127.0.0.1", "?sslmode=require").await);
}

#[tokio::test]
async fn mariadb_with_a_certificate() {
    let (authority, stranger) = (Authority::new().expect("made"), Authority::new().expect("made"));
    let identity = authority.issue(&["localhost"]).expect("made");
    let options = mariadb::Options { tls: Some(identity.clone()), ..Default::default() };
    let Some(mariadb) = or_skip(Mariadb::start(&options)) else { return };
    let cipher = sql!(
        "SELECT CASE WHEN VARIABLE_VALUE = '' THEN 0 ELSE 1 END \
         FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME = 'SSL_CIPHER'"
    );
    let server =
        Server { begin: "mysql://root@", end: format!(":{}/qiang", mariadb.port()), cipher };
    let shown = |authority: &Authority| authority.ca().display().to_string();
    is_as_the_url_says(&server, &shown(&authority), &shown(&stranger)).await;
    let options = mariadb::Options {
        tls: Some(identity),
        settings: vec![("require-secure-transport".into(), "ON".into())],
        ..Default::default()
    };
    let Some(strict) = or_skip(Mariadb::start(&options)) else { return };
    let server =
        Server { begin: "mysql://root@", end: format!(":{}/qiang", strict.port()), cipher };
    // It tells that apart from a wrong password for nobody.
    let error = server.refused("127.0.0.1", "").await;
    assert!(matches!(error, Error::WrongPassword { .. } | Error::WantsTls { .. }), "{error:?}");
    assert!(error.to_string().contains("sslmode=verify-full"), "{error}");
    assert!(server.is_encrypted("127.0.0.1", "?ssl-mode=REQUIRED").await);
}

#[tokio::test]
async fn servers_without_a_certificate() {
    let Some(postgres) = or_skip(Postgres::start(&postgres::Options::default())) else { return };
    let Some(mariadb) = or_skip(Mariadb::start(&mariadb::Options::default())) else { return };
    for url in [postgres.url(), format!("{}/qiang", mariadb.url())] {
        let error = Database::open(&format!("{url}?sslmode=require")).await.expect_err("it cannot");
        assert!(matches!(error, Error::NoTls { .. }), "{error:?}");
        let open = Database::open(&format!("{url}?sslmode=prefer")).await;
        open.expect("then without").close().await;
    }
}
