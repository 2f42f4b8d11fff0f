//! Sign-in of the pages: a cookie that a browser shows by itself.
//!
//! The cookie is a token signed with a key of its own, good for minutes, so a claim needs no look at
//! the records. It names a session, which is a row: while the row is good the cookie is renewed, and
//! whoever reads or changes what belongs to the shop is looked up every time.
//!
//! A browser sends cookies whoever asks it to. So a change by cookie counts only when the browser says
//! that a page of this shop asked for it.

use std::net::IpAddr;

use axum::http::header::ORIGIN;
use axum::http::{HeaderMap, HeaderValue};
use qiang_core::Timestamp;
use qiang_store::{Session, SignIn};

use crate::app::App;
use crate::entry::Origin;
use crate::problem::{Code, Problem};
use crate::secrets::Secret;
use crate::token::{self, Error, Principal, Role};

/// The name of the cookie.
pub const COOKIE: &str = "qiang_session";
/// Its name where pages come by `https`: no other host of the domain can set a cookie of this name.
pub const SECURE_COOKIE: &str = "__Host-qiang_session";
/// How long a cookie is good before it has to be renewed.
pub const COOKIE_TTL_MS: u64 = 15 * 60_000;
/// How long the link to the console is good that a server prints at its start.
pub const LINK_TTL_MS: u64 = 15 * 60_000;
const ID_BYTES: usize = 16;
/// What proxies add to the requests they pass on.
const PASSED_ON: [&str; 6] =
    ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"];

/// What a request wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// To look at something.
    Look,
    /// To change something.
    Change,
}

/// What a request shows to say who it is from.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shown<'a> {
    /// `Authorization`; where it is given, the cookie does not matter.
    pub authorization: Option<&'a [u8]>,
    /// The value of our cookie.
    pub cookie: Option<&'a str>,
    /// `Sec-Fetch-Site`.
    pub fetch_site: Option<&'a [u8]>,
    /// `Origin`.
    pub origin: Option<&'a [u8]>,
}

/// The keys of cookies and links. Neither is good as a token, nor one as the other.
#[derive(Debug, Clone)]
pub struct Keys {
    cookies: token::Key,
    links: token::Key,
}

/// A link that was printed and not used.
#[derive(Debug)]
pub struct Link {
    /// Who it signs in.
    pub who: Principal,
    /// Names the session it becomes, so that it becomes one only once.
    pub id: String,
}

impl Keys {
    /// Made of the key of tokens.
    #[must_use]
    pub fn new(jwt_key: &Secret) -> Self {
        let key = |purpose| token::Key::new(&jwt_key.derive(purpose));
        Self { cookies: key("qiang session cookie v1"), links: key("qiang console link v1") }
    }

    /// A cookie for a session, good for [`COOKIE_TTL_MS`] and no longer than the session.
    #[must_use]
    pub fn cookie(&self, session: &Session, now: Timestamp) -> String {
        let expires_at = session.expires_at.min(now.plus_millis(COOKIE_TTL_MS));
        let who = Principal { expires_at, ..principal(session) };
        self.cookies.mint_named(&who, &session.id, now)
    }

    /// Whose cookie this is, by its signature alone.
    pub fn authenticate(&self, cookie: &str, now: Timestamp) -> Result<Principal, Error> {
        self.cookies.verify(cookie, now)
    }

    /// The session that a cookie names, also if the cookie has to be renewed.
    pub fn session_of(&self, cookie: &str) -> Result<String, Error> {
        self.cookies.id_of(cookie)
    }

    /// What signs an admin in, once.
    #[must_use]
    pub fn link(&self, who: &Principal, id: &str, now: Timestamp) -> String {
        self.links.mint_named(who, id, now)
    }

    /// What a link is good for.
    pub fn open_link(&self, link: &str, now: Timestamp) -> Result<Link, Error> {
        let who = self.links.verify(link, now)?;
        Ok(Link { who, id: self.links.id_of(link)? })
    }
}

/// An id that nobody can guess.
pub fn new_id() -> Result<String, Problem> {
    let mut bytes = [0; ID_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| {
        tracing::error!(%error, "the operating system gives no random bytes");
        Problem::new(Code::Internal)
    })?;
    Ok(hex::encode(bytes))
}

/// A session that begins now, with an id of its own or that of a link.
#[must_use]
pub fn begin(id: String, who: Principal, how: SignIn, now: Timestamp) -> Session {
    let Principal { user, role, identity, expires_at } = who;
    let role = role.as_str().to_owned();
    Session { id, user, role, identity, how, created_at: now, expires_at, ended_at: None }
}

/// Who a session is.
#[must_use]
pub fn principal(session: &Session) -> Principal {
    Principal {
        user: session.user.clone(),
        // A word that is none of ours is of a newer program, and may do the least.
        role: Role::from_word(&session.role).unwrap_or_default(),
        identity: session.identity.clone(),
        expires_at: session.expires_at,
    }
}

/// The value of our cookie among all `Cookie` headers of a request, by its secure name if it is there. Of
/// two with one name, which one counts depends on who reads, so neither does.
pub fn find<'a, H>(headers: impl Fn() -> H) -> Result<Option<&'a str>, Problem>
where
    H: Iterator<Item = &'a [u8]>,
{
    let secure = find_named(headers(), SECURE_COOKIE)?;
    if secure.is_some() { Ok(secure) } else { find_named(headers(), COOKIE) }
}

fn find_named<'a>(
    headers: impl Iterator<Item = &'a [u8]>,
    name: &'static str,
) -> Result<Option<&'a str>, Problem> {
    let pairs = headers.flat_map(|header| header.split(|byte| *byte == b';'));
    let mut values = pairs.filter_map(|pair| {
        pair.trim_ascii().strip_prefix(name.as_bytes()).and_then(|value| value.strip_prefix(b"="))
    });
    let Some(value) = values.next() else { return Ok(None) };
    match values.next() {
        None => Ok(Some(std::str::from_utf8(value).unwrap_or_default())),
        Some(_) => Err(Problem::new(Code::RepeatedHeader).text("header", name)),
    }
}

/// Whether somebody at this machine asks. Behind a proxy here every request comes from loopback, so one
/// that a proxy has passed on, or that a page of another host makes, is not taken for it.
#[must_use]
pub fn is_of_this_machine(origin: &Origin, headers: &HeaderMap) -> bool {
    let is_passed_on = PASSED_ON.iter().any(|name| headers.contains_key(*name));
    let is_here = |page: &HeaderValue| {
        let host = page.to_str().ok().and_then(|page| page.split_once("://"));
        host.is_some_and(|(_, host)| {
            let name = host.rsplit_once(':').map_or(host, |(name, _port)| name);
            let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
            name == "localhost" || address.is_ok_and(|address| address.is_loopback())
        })
    };
    origin.peer.is_loopback() && !is_passed_on && headers.get(ORIGIN).is_none_or(is_here)
}

impl App {
    /// Who asks, by token or by cookie. Looks at nothing but the request.
    pub fn caller(&self, shown: &Shown<'_>, intent: Intent) -> Result<Principal, Problem> {
        let now = self.now();
        match (shown.authorization, shown.cookie) {
            (None, Some(cookie)) => {
                let who = self.sessions.authenticate(cookie, now)?;
                if intent == Intent::Change {
                    self.check_page(shown)?;
                }
                Ok(who)
            }
            (authorization, _) => Ok(self.tokens.authenticate(authorization, now)?),
        }
    }

    /// Fails unless the browser says that a page of this shop asks.
    pub fn check_page(&self, shown: &Shown<'_>) -> Result<(), Problem> {
        let own = match (shown.fetch_site, shown.origin, &self.config.http.public_origin) {
            (Some(site), _, _) => site == b"same-origin",
            (None, Some(origin), Some(public)) => origin.eq_ignore_ascii_case(public.as_bytes()),
            (None, _, _) => false,
        };
        if own { Ok(()) } else { Err(Problem::new(Code::CrossSite)) }
    }

    /// Fails if whoever shows a cookie was signed out since it was made. Whoever shows a token is not
    /// signed in at all.
    pub async fn still_signed_in(&self, shown: &Shown<'_>) -> Result<(), Problem> {
        let (None, Some(cookie)) = (shown.authorization, shown.cookie) else { return Ok(()) };
        let id = self.sessions.session_of(cookie)?;
        let session = self.store.session(&id).await?;
        match session {
            Some(session) if session.is_good(self.now()) => Ok(()),
            _ => Err(Problem::new(Code::TokenExpired)),
        }
    }
}

#[cfg(test)]
mod tests {
    use qiang_core::UserId;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn keys() -> Keys {
        Keys::new(&Secret::new(*b"a key of thirty-two bytes, no less"))
    }

    fn session(ttl_ms: u64) -> Session {
        let who = Principal {
            user: UserId::new("安").expect("a user id"),
            role: Role::Viewer,
            identity: None,
            expires_at: NOW.plus_millis(ttl_ms),
        };
        begin("s1".into(), who, SignIn::Token, NOW)
    }

    #[test]
    fn a_cookie_is_short_lived_and_still_names_its_session_afterwards() {
        let cookie = keys().cookie(&session(10 * COOKIE_TTL_MS), NOW);
        let who = keys().authenticate(&cookie, NOW).expect("good");
        assert_eq!((who.user.as_str(), who.role), ("安", Role::Viewer));
        assert_eq!(who.expires_at, NOW.plus_millis(COOKIE_TTL_MS));
        let later = NOW.plus_millis(COOKIE_TTL_MS);
        assert_eq!(keys().authenticate(&cookie, later), Err(Error::Expired));
        assert_eq!(keys().session_of(&cookie), Ok("s1".to_owned()));
    }

    #[test]
    fn a_cookie_ends_with_its_session() {
        let cookie = keys().cookie(&session(60_000), NOW);
        let who = keys().authenticate(&cookie, NOW).expect("good");
        assert_eq!(who.expires_at, NOW.plus_millis(60_000));
    }

    #[test]
    fn tokens_cookies_and_links_do_not_stand_for_each_other() {
        let (keys, secret) = (keys(), Secret::new(*b"a key of thirty-two bytes, no less"));
        let (tokens, session) = (token::Key::new(&secret), session(60_000));
        let token = tokens.mint(&principal(&session), NOW);
        let cookie = keys.cookie(&session, NOW);
        let link = keys.link(&principal(&session), "l1", NOW);
        assert_eq!(keys.open_link(&link, NOW).expect("good").id, "l1");
        assert!(tokens.verify(&cookie, NOW).is_err() && tokens.verify(&link, NOW).is_err());
        assert!(keys.authenticate(&token, NOW).is_err() && keys.authenticate(&link, NOW).is_err());
        assert!(keys.open_link(&token, NOW).is_err() && keys.open_link(&cookie, NOW).is_err());
    }

    #[test]
    fn our_cookie_is_found_among_others_and_only_once() {
        let find = |headers: &[&'static str]| {
            let found = super::find(|| headers.iter().map(|header| header.as_bytes()));
            found.map_err(|problem| problem.code())
        };
        assert_eq!(find(&[]), Ok(None));
        assert_eq!(find(&["a=1; qiang_session=x.y;b=2"]), Ok(Some("x.y")));
        assert_eq!(find(&["a=1", "qiang_session=x"]), Ok(Some("x")));
        assert_eq!(find(&["xqiang_session=x; qiang_session2=y"]), Ok(None));
        assert_eq!(find(&["qiang_session=x; qiang_session=y"]), Err(Code::RepeatedHeader));
        assert_eq!(find(&["qiang_session=x", "qiang_session=x"]), Err(Code::RepeatedHeader));
        let planted = "qiang_session=evil; qiang_session=x; __Host-qiang_session=mine";
        assert_eq!(find(&[planted]), Ok(Some("mine")));
    }
}
