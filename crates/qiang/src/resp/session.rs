//! One RESP connection: understands its commands, and writes the answers.
//!
//! Commands for the engine are collected for as long as more of them are in the buffer, and decided as
//! one batch. Before any other command is carried out, the batch is decided and answered, so that answers
//! come in the order of the commands.

use std::num::NonZeroU32;
use std::sync::Arc;

use qiang_core::{
    Cents, ClaimId, ClaimRequest, Command, Identity, Kind, PayRequest, PaymentId, PoolId, PoolView,
    ReleaseReason, Reply, RequestId, UserId,
};
use serde_json::json;

use super::access::Access;
use super::frame::Frame;
use super::reply::{Answers, Version};
use super::spec::{self, Spec, Verb, Who};
use crate::config::Resp;
use qiang_accounts::Accounts;
use qiang_accounts::packets::grab::Wish;
use qiang_app::Origin;
use qiang_app::problem::{Code, Problem};
use qiang_app::token;
use qiang_sales::claims::{self, ClaimView};
use qiang_sales::sale::SaleView;
use qiang_sales::{Sales, payments};

/// The most commands in one batch, so that one client does not keep the engine from others for long.
const MAX_BATCH: usize = 1_024;
/// After so many failed sign-ins the connection is closed.
const MAX_FAILED_SIGN_INS: u32 = 5;
/// The word for the sale that a shop has made the current one.
const CURRENT: &str = "current";
/// The version of Redis that we claim to be, for tools that decide by it what to send.
const MANNERS: &str = "7.0.0";
/// At most this many bytes of an unknown command are repeated in the error.
const MAX_QUOTED: usize = 64;
/// The longest name a client may give itself (`CLIENT SETNAME`).
const MAX_NAME_BYTES: usize = 256;

/// The words of one command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words<'a> {
    /// What was read.
    pub(super) input: &'a [u8],
    /// Where in it the words are.
    pub(super) frame: &'a Frame,
}

/// What we know of one connection.
pub(super) struct Session {
    sales: Sales,
    accounts: Accounts,
    settings: Arc<Resp>,
    origin: Origin,
    id: u64,
    name: String,
    access: Access,
    failed_sign_ins: u32,
    /// The client has sent `MULTI`, which was refused, and no `EXEC` or `DISCARD` yet.
    in_transaction: bool,
    /// Commands read and not decided.
    batch: Vec<Command>,
    /// The last sale that was named: the word, and the sale.
    last_sale: Option<(Box<[u8]>, PoolId)>,
    /// Answers not sent.
    pub(super) answers: Answers,
    /// Whether the connection is to be closed after these answers.
    pub(super) ended: bool,
}

/// What a command turned out to be.
enum Meant {
    /// Something to decide.
    Decide(Command),
    /// Something to look up or to answer here.
    Other(&'static Spec),
    /// Something that cannot be, whoever decides.
    Refused(Code),
}

/// Why a command was not carried out: a word for programs and a sentence for people.
struct Wrong(&'static str, String);

impl<'a> Words<'a> {
    fn get(self, place: usize) -> Option<&'a [u8]> {
        self.frame.word(self.input, place)
    }

    /// A word that may be left out. An empty one counts as left out.
    fn optional(self, place: usize) -> Option<&'a [u8]> {
        self.get(place).filter(|word| !word.is_empty())
    }

    fn is(self, place: usize, word: &str) -> bool {
        self.get(place).is_some_and(|said| said.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// All words from a place on, as text for an error message.
    fn texts(self, from: usize) -> impl Iterator<Item = String> + use<'a> {
        (from..self.frame.len())
            .filter_map(move |place| self.get(place))
            .map(|word| String::from_utf8_lossy(&word[..word.len().min(MAX_QUOTED)]).into_owned())
    }
}

impl Session {
    /// A new connection.
    pub(super) fn new(
        sales: Sales,
        accounts: Accounts,
        settings: Arc<Resp>,
        id: u64,
        origin: Origin,
    ) -> Self {
        Self {
            sales,
            accounts,
            settings,
            origin,
            id,
            name: String::new(),
            access: Access::Nobody,
            failed_sign_ins: 0,
            in_transaction: false,
            batch: Vec::new(),
            last_sale: None,
            answers: Answers::default(),
            ended: false,
        }
    }

    /// Frees the buffers, once everything is decided and sent.
    pub(super) fn rest(&mut self) {
        self.batch = Vec::new();
        self.answers.bytes = Vec::new();
    }

    /// Whether somebody signed in.
    pub(super) fn is_somebody(&self) -> bool {
        self.access.is_somebody()
    }

    /// Takes a command. One for the engine is only collected; [`Session::decide`] has it decided.
    pub(super) async fn hear(&mut self, words: Words<'_>) {
        match self.understand(words) {
            Ok(Meant::Decide(command)) => {
                self.batch.push(command);
                if self.batch.len() >= MAX_BATCH {
                    self.decide().await;
                }
            }
            Ok(Meant::Other(spec)) => {
                self.decide().await;
                // Boxed, because this future is large and rare, and would make every connection larger.
                if let Err(Wrong(word, sentence)) = Box::pin(self.other(spec, words)).await {
                    self.answers.error(word, &sentence);
                }
            }
            Ok(Meant::Refused(code)) => {
                self.decide().await;
                self.answers.refused(code);
            }
            Err(Wrong(word, sentence)) => {
                self.decide().await;
                self.answers.error(word, &sentence);
            }
        }
    }

    /// Says why nothing more can be read, and ends the connection.
    pub(super) async fn end_with(&mut self, sentence: &str) {
        self.decide().await;
        self.answers.error("ERR", sentence);
        self.ended = true;
    }

    /// Says why a client that took too long is closed.
    pub(super) fn late(&mut self) {
        if self.is_somebody() {
            self.answers.error("ERR", "the rest of this command did not arrive in time");
        } else {
            self.answers.error("NOAUTH", "nobody signed in here in time");
        }
    }

    /// Lets the engine decide everything gathered, and answers it.
    pub(super) async fn decide(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let commands = std::mem::take(&mut self.batch);
        self.batch.reserve(commands.len());
        let (app, answers) = (&self.sales.app, &mut self.answers);
        let answer = |is_claim, reply: Result<Reply, Problem>| match reply {
            Ok(Reply::Claim(outcome)) if is_claim => answers.wish(&outcome),
            Ok(Reply::Claim(outcome)) => answers.claim(&outcome),
            Ok(Reply::Settlement(outcome)) => answers.settlement(&outcome),
            Ok(other) => unreachable!("asked about a claim, answered {other:?}"),
            Err(problem) => match Wrong::from(&problem) {
                // A check refused it before the engine was asked. The client sees a refusal like any other.
                Wrong("ERR", _) => answers.refused(problem.code()),
                Wrong(word, sentence) => answers.error(word, &sentence),
            },
        };
        // Boxed, because this future is large, and most connections only wait for their client.
        Box::pin(app.decide_many(commands, &self.origin, answer)).await;
    }

    fn understand(&mut self, words: Words<'_>) -> Result<Meant, Wrong> {
        let name = words.get(0).unwrap_or_default();
        let Some(spec) = spec::find(name) else {
            self.signed_in(Who::Known)?;
            if let Some(wrong) = self.transaction(words) {
                return Err(wrong);
            }
            return Err(Wrong::syntax(format!(
                "unknown command '{}', with args beginning with: {}",
                words.texts(0).next().unwrap_or_default(),
                words.texts(1).take(3).map(|word| format!("'{word}' ")).collect::<String>()
            )));
        };
        self.signed_in(spec.who)?;
        if self.in_transaction && spec.who != Who::Anybody {
            return Err(Wrong::no_transactions("ERR"));
        }
        if !(spec.least..=spec.most).contains(&words.frame.len()) {
            let name = spec.name.to_ascii_lowercase();
            return Err(Wrong::syntax(format!(
                "wrong number of arguments for '{name}' command; say {}",
                spec.usage
            )));
        }
        match spec.verb {
            Verb::Claim => self.claim(words),
            Verb::Order => self.of_claim(words, |claim, by| Command::Order { claim, by }),
            Verb::Release => self.of_claim(words, |claim, by| {
                let reason = ReleaseReason::GaveUp;
                Command::Release { claim, by, reason }
            }),
            _ => Ok(Meant::Other(spec)),
        }
    }

    fn signed_in(&mut self, who: Who) -> Result<(), Wrong> {
        if self.access.may_say(who) {
            return Ok(());
        }
        Err(if self.access.is_somebody() {
            Wrong("NOPERM", "a buyer's token does not have the role for this command".into())
        } else {
            Wrong("NOAUTH", format!("Authentication required. Say {}", spec::AUTH_USAGE))
        })
    }

    /// Refuses transactions. A client sends one in one piece and ignores all answers if the first is an
    /// error. So we refuse every command up to `EXEC`, or things would be done that the client knows
    /// nothing of.
    fn transaction(&mut self, words: Words<'_>) -> Option<Wrong> {
        if words.is(0, "MULTI") {
            self.in_transaction = true;
            return Some(Wrong::no_transactions("ERR"));
        }
        if words.is(0, "EXEC") || words.is(0, "DISCARD") {
            self.in_transaction = false;
            return Some(Wrong::no_transactions("EXECABORT"));
        }
        self.in_transaction.then(|| Wrong::no_transactions("ERR"))
    }

    /// Signs the client out if its token has expired.
    pub(super) fn look_at_clock(&mut self) {
        if self.access.is_somebody() && self.access.is_over(self.sales.app.now()) {
            self.access = Access::Nobody;
        }
    }

    fn claim(&mut self, words: Words<'_>) -> Result<Meant, Wrong> {
        let Some(pool) = self.sale(words) else {
            let is_current = words.is(1, CURRENT);
            let code = if is_current { Code::NoCurrentSale } else { Code::NoSuchSale };
            return Ok(Meant::Refused(code));
        };
        let user = id("user", words.get(2), UserId::new)?;
        if !self.access.may_act_for(&user) {
            return Err(Wrong::not_yours());
        }
        let quantity = match words.optional(3) {
            None => NonZeroU32::MIN,
            Some(word) => number(word).and_then(NonZeroU32::new).ok_or_else(|| {
                Wrong::syntax(format!("quantity must be a whole number from 1 to {}", u32::MAX))
            })?,
        };
        // An empty request id is refused: taken as none, a retry would be a second claim. It may be
        // empty only if an identity follows.
        let request = match words.get(4) {
            Some([]) if words.optional(5).is_some() => None,
            word => word.map(|word| id("request-id", Some(word), RequestId::new)),
        };
        let identity = match (&self.access, words.optional(5)) {
            // The identity of a buyer is in their token; what they say here does not count.
            (Access::Buyer(who), _) => who.identity.clone(),
            (_, None) => None,
            (_, word) => Some(id("identity", word, Identity::new)?),
        };
        let request = request.transpose()?;
        let kind = Kind::Sale;
        let wish = ClaimRequest { kind, pool, user, identity, request, quantity };
        Ok(Meant::Decide(Command::Claim(wish)))
    }

    fn of_claim(
        &self,
        words: Words<'_>,
        command: impl FnOnce(ClaimId, Option<UserId>) -> Command,
    ) -> Result<Meant, Wrong> {
        let by = match (&self.access, words.optional(2)) {
            (Access::Buyer(who), None) => Some(who.user.clone()),
            (_, None) => None,
            (access, word) => {
                let user = id("user", word, UserId::new)?;
                if !access.may_act_for(&user) {
                    return Err(Wrong::not_yours());
                }
                Some(user)
            }
        };
        Ok(match parsed(words.get(1)) {
            Some(claim) => Meant::Decide(command(claim, by)),
            None => Meant::Refused(Code::NoSuchClaim),
        })
    }

    /// The sale named by the first argument; `current` is the current one.
    fn sale(&mut self, words: Words<'_>) -> Option<PoolId> {
        // Most clients name the same sale again and again; the word is parsed once.
        let (word, known) = (words.get(1)?, &mut self.last_sale);
        if let Some((_, sale)) = known.as_ref().filter(|(text, _)| **text == *word) {
            return Some(*sale);
        }
        match parsed(Some(word)) {
            Some(sale) => Some(known.insert((word.into(), sale)).1),
            None => words.is(1, CURRENT).then(|| self.sales.current()).flatten(),
        }
    }

    async fn other(&mut self, spec: &Spec, words: Words<'_>) -> Result<(), Wrong> {
        match spec.verb {
            Verb::Claim | Verb::Order | Verb::Release => unreachable!("these are decided"),
            Verb::Pay => return self.pay(words).await,
            Verb::Grab => return self.grab(words).await,
            Verb::Pool => return self.pool(words).await,
            Verb::Show => return self.show(words).await,
            Verb::Hello => return self.hello(words),
            Verb::Auth => {
                let said = words.get(words.frame.len() - 1).unwrap_or_default();
                self.sign_in(said)?;
                self.answers.simple("OK");
            }
            Verb::Client => return self.client(words),
            Verb::Command => self.command(words),
            Verb::Config => self.config(words)?,
            Verb::Ping => match words.get(1) {
                Some(text) => self.answers.bulk(text),
                None => self.answers.simple("PONG"),
            },
            Verb::Echo => self.answers.bulk(words.get(1).unwrap_or_default()),
            Verb::Select if words.get(1) == Some(b"0") => self.answers.simple("OK"),
            Verb::Select => return Err(Wrong::syntax("DB index is out of range".into())),
            Verb::Info => {
                let info = self.info();
                self.answers.bulk(info);
            }
            Verb::Reset => {
                self.access = Access::Nobody;
                self.answers.version = Version::Two;
                self.in_transaction = false;
                self.name.clear();
                self.answers.simple("RESET");
            }
            Verb::Quit => {
                self.answers.simple("OK");
                self.ended = true;
            }
        }
        Ok(())
    }

    async fn pay(&mut self, words: Words<'_>) -> Result<(), Wrong> {
        let payment = id("payment-id", words.get(2), PaymentId::new)?;
        let amount = parsed::<i64>(words.get(3)).filter(|cents| *cents > 0);
        let amount = amount
            .ok_or_else(|| Wrong::syntax("amount-cents must be a whole number from 1".into()))?;
        let Some(order) = parsed(words.get(1)) else {
            self.answers.refused(Code::NoSuchOrder);
            return Ok(());
        };
        let pay = PayRequest { order, payment, amount: Cents::new(amount) };
        let outcome = payments::settle(&self.sales, &self.origin, pay).await;
        self.answers.settlement(&outcome.map_err(|problem| Wrong::from(&problem))?);
        Ok(())
    }

    async fn grab(&mut self, words: Words<'_>) -> Result<(), Wrong> {
        let text = |what, word: Option<&[u8]>| {
            id(what, word, |text| Ok::<_, std::convert::Infallible>(text.to_owned()))
        };
        let packet = text("packet", words.get(1))?;
        let user = id("user", words.get(2), UserId::new)?;
        if !self.access.may_act_for(&user) {
            return Err(Wrong::not_yours());
        }
        let password = words.optional(3).map(|word| text("password", Some(word))).transpose()?;
        let password = password.as_deref();
        let wish = Wish { packet: &packet, user, password, request: None };
        match self.accounts.grab(wish, &self.origin).await {
            Ok(granted) => self.answers.grab(&granted),
            Err(problem) => match Wrong::from(&problem) {
                Wrong("ERR", _) => self.answers.refused(problem.code()),
                wrong => return Err(wrong),
            },
        }
        Ok(())
    }

    async fn pool(&mut self, words: Words<'_>) -> Result<(), Wrong> {
        let pool = match self.sale(words) {
            Some(id) => self.sales.app.answer(self.sales.app.engine.pool(id)).await,
            None => Ok(None),
        };
        let is_sale = |pool: &PoolView| pool.terms.kind == Kind::Sale && !pool.cleared;
        match pool.map_err(|problem| Wrong::from(&problem))?.filter(is_sale) {
            None => self.answers.null(),
            Some(pool) => {
                let view = serde_json::to_value(SaleView::of(&pool, self.sales.app.now()));
                self.answers.json(&view.expect("a sale is JSON"));
            }
        }
        Ok(())
    }

    /// Shows a claim. A client that may not see it is told that there is none.
    async fn show(&mut self, words: Words<'_>) -> Result<(), Wrong> {
        let claim = match parsed(words.get(1)) {
            Some(id) => {
                claims::find(&self.sales.app, id).await.map_err(|problem| Wrong::from(&problem))?
            }
            None => None,
        };
        match claim.filter(|claim| self.access.may_act_for(&claim.user)) {
            None => self.answers.null(),
            Some(claim) => {
                let view = serde_json::to_value(ClaimView::from(&claim));
                self.answers.json(&view.expect("a claim is JSON"));
            }
        }
        Ok(())
    }

    fn sign_in(&mut self, said: &[u8]) -> Result<(), Wrong> {
        let (app, password) = (&self.sales.app, &self.settings.password);
        match Access::of(said, password.as_ref(), &app.tokens, app.now()) {
            Ok(access) => {
                self.access = access;
                self.failed_sign_ins = 0;
                Ok(())
            }
            Err(error) => {
                self.failed_sign_ins += 1;
                self.ended = self.failed_sign_ins >= MAX_FAILED_SIGN_INS;
                let hint = match error {
                    token::Error::Expired | token::Error::NotYetValid => error.to_string(),
                    _ => "neither the password of [resp] nor a token of `qiang tokens`".into(),
                };
                Err(Wrong("WRONGPASS", hint))
            }
        }
    }

    fn hello(&mut self, words: Words<'_>) -> Result<(), Wrong> {
        let version = match words.get(1) {
            None => self.answers.version,
            Some(b"2") => Version::Two,
            Some(b"3") => Version::Three,
            Some(_) => return Err(Wrong("NOPROTO", "unsupported protocol version".into())),
        };
        let (mut at, mut name) = (2, None);
        while at < words.frame.len() {
            if words.is(at, "AUTH") && at + 2 < words.frame.len() {
                self.sign_in(words.get(at + 2).unwrap_or_default())?;
                at += 3;
            } else if words.is(at, "SETNAME") && at + 1 < words.frame.len() {
                name = words.get(at + 1);
                at += 2;
            } else {
                return Err(Wrong::syntax("syntax error in HELLO".into()));
            }
        }
        if !self.access.is_somebody() {
            let sentence = "HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time";
            return Err(Wrong("NOAUTH", sentence.into()));
        }
        if let Some(name) = name {
            self.set_name(name)?;
        }
        self.answers.version = version;
        let proto = match version {
            Version::Two => 2,
            Version::Three => 3,
        };
        self.answers.map(7);
        for (name, value) in [
            ("server", json!("qiang")),
            ("version", json!(env!("CARGO_PKG_VERSION"))),
            ("proto", json!(proto)),
            ("id", json!(self.id)),
            ("mode", json!("standalone")),
            ("role", json!("master")),
            ("modules", json!([])),
        ] {
            self.answers.bulk(name);
            self.answers.json(&value);
        }
        Ok(())
    }

    fn set_name(&mut self, name: &[u8]) -> Result<(), Wrong> {
        let plain = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
        if !plain || name.len() > MAX_NAME_BYTES {
            let sentence = "Client names cannot contain spaces, newlines or special characters.";
            return Err(Wrong::syntax(sentence.into()));
        }
        self.name = String::from_utf8_lossy(name).into_owned();
        Ok(())
    }

    fn client(&mut self, words: Words<'_>) -> Result<(), Wrong> {
        let sub = words.get(1).unwrap_or_default().to_ascii_uppercase();
        match (sub.as_slice(), words.get(2)) {
            (b"ID", None) => self.answers.number(i64::try_from(self.id).unwrap_or(i64::MAX)),
            (b"GETNAME", None) if self.name.is_empty() => self.answers.null(),
            (b"GETNAME", None) => self.answers.bulk(&self.name),
            (b"SETNAME", Some(name)) => {
                self.set_name(name)?;
                self.answers.simple("OK");
            }
            // Clients send these by themselves. There is nothing to do, and an error would stop some.
            (b"SETINFO" | b"NO-EVICT" | b"NO-TOUCH", Some(_)) => self.answers.simple("OK"),
            (b"INFO" | b"LIST", None) => {
                let line = format!("id={} name={} db=0\n", self.id, self.name);
                self.answers.bulk(line);
            }
            _ => {
                let name = String::from_utf8_lossy(&sub[..sub.len().min(MAX_QUOTED)]).into_owned();
                let sentence = "unknown subcommand or wrong number of arguments for";
                return Err(Wrong::syntax(format!("{sentence} 'CLIENT {name}'")));
            }
        }
        Ok(())
    }

    /// `COMMAND`: clients use it to complete and to route commands. None of ours has keys.
    fn command(&mut self, words: Words<'_>) {
        let named = |from| -> Vec<Option<&'static Spec>> {
            (from..words.frame.len()).map(|place| words.get(place).and_then(spec::find)).collect()
        };
        let all = || spec::ALL.iter().map(Some).collect();
        let some = |from: usize| if words.frame.len() > from { named(from) } else { all() };
        if words.is(1, "COUNT") {
            return self.answers.number(i64::try_from(spec::ALL.len()).unwrap_or(i64::MAX));
        }
        if words.is(1, "LIST") {
            self.answers.array(spec::ALL.len());
            return spec::ALL.iter().for_each(|spec| self.answers.bulk(spec.name.to_lowercase()));
        }
        if words.is(1, "DOCS") {
            let specs: Vec<&Spec> = some(2).into_iter().flatten().collect();
            self.answers.map(specs.len());
            for spec in specs {
                self.answers.bulk(spec.name.to_lowercase());
                docs(spec, &mut self.answers);
            }
            return;
        }
        let specs = if words.is(1, "INFO") { some(2) } else { all() };
        self.answers.array(specs.len());
        for spec in specs {
            match spec {
                Some(spec) => about(spec, &mut self.answers),
                None => self.answers.null(),
            }
        }
    }

    /// `CONFIG GET`: `redis-benchmark` prints these settings.
    fn config(&mut self, words: Words<'_>) -> Result<(), Wrong> {
        if !words.is(1, "GET") {
            return Err(Wrong::syntax(
                "settings are in qiang.toml; only CONFIG GET is known".into(),
            ));
        }
        let known = [("save", ""), ("appendonly", "yes"), ("appendfsync", "always")];
        let asked =
            |(name, _): &&(&str, &str)| (2..words.frame.len()).any(|place| words.is(place, name));
        // Only the embedded engine is known to sync every claim before the answer.
        let durable = !self.sales.app.engine.is_shared();
        let told: Vec<_> = known.iter().filter(|_| durable).filter(asked).collect();
        self.answers.map(told.len());
        for (name, value) in told {
            self.answers.bulk(name);
            self.answers.bulk(value);
        }
        Ok(())
    }

    fn info(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        format!(
            "# Server\r\nserver_name:qiang\r\nqiang_version:{version}\r\nredis_version:{MANNERS}\r\nredis_mode:standalone\r\n\
             process_id:{}\r\n\r\n# Replication\r\nrole:master\r\n\r\n# Persistence\r\nloading:0\r\n\
             \r\n# Engine\r\nup:{}\r\nwaiting:{}\r\n",
            std::process::id(),
            u8::from(self.sales.app.engine.trouble().is_none()),
            self.sales.app.engine.queue_depth(),
        )
    }
}

/// One entry of `COMMAND DOCS`, from which `redis-cli` makes its hints and its `help`. The flags must be
/// simple strings, or it refuses them.
fn docs(spec: &Spec, answers: &mut Answers) {
    answers.map(4);
    let texts =
        [("summary", spec.summary), ("since", env!("CARGO_PKG_VERSION")), ("group", "generic")];
    for (name, text) in texts {
        answers.bulk(name);
        answers.bulk(text);
    }
    answers.bulk("arguments");
    let arguments = spec.arguments();
    answers.array(arguments.len());
    for (name, optional) in arguments {
        answers.map(if optional { 3 } else { 2 });
        answers.bulk("name");
        answers.bulk(name);
        answers.bulk("type");
        answers.bulk("string");
        if optional {
            answers.bulk("flags");
            answers.array(1);
            answers.simple("optional");
        }
    }
}

/// One entry of `COMMAND`: name, arity, flags, keys (none), categories, and what is empty here.
fn about(spec: &Spec, answers: &mut Answers) {
    let least = i64::try_from(spec.least).unwrap_or(i64::MAX);
    let arity = if spec.least == spec.most { least } else { -least };
    let kind = match spec.verb {
        Verb::Claim | Verb::Order | Verb::Pay | Verb::Release | Verb::Grab => "write",
        _ => "readonly",
    };
    answers.array(10);
    answers.bulk(spec.name.to_lowercase());
    answers.number(arity);
    answers.array(2);
    answers.simple(kind);
    answers.simple("fast");
    (0..3).for_each(|_| answers.number(0));
    (0..4).for_each(|_| answers.array(0));
}

impl Wrong {
    fn syntax(sentence: String) -> Self {
        Self("ERR", sentence)
    }

    fn no_transactions(word: &'static str) -> Self {
        let sentence = "there are no transactions here, and nothing of this one was done: send a \
                        pipeline without MULTI, which is decided in its order (redis-py: \
                        pipeline(transaction=False); node-redis: execAsPipeline())";
        Self(word, sentence.into())
    }

    fn not_yours() -> Self {
        Self("NOPERM", "a buyer's token acts for its own user only".into())
    }
}

impl From<&Problem> for Wrong {
    fn from(problem: &Problem) -> Self {
        let word = match problem.code() {
            Code::Overloaded => "OVERLOADED",
            Code::OutcomeUnknown => "OUTCOME_UNKNOWN",
            Code::Unavailable => "UNAVAILABLE",
            _ => "ERR",
        };
        Self(word, problem.sentence().to_owned())
    }
}

fn parsed<T: std::str::FromStr>(word: Option<&[u8]>) -> Option<T> {
    std::str::from_utf8(word?).ok()?.parse().ok()
}

fn number(word: &[u8]) -> Option<u32> {
    let plain = word.iter().all(u8::is_ascii_digit);
    plain.then(|| parsed(Some(word))).flatten()
}

fn id<T, E: std::fmt::Display>(
    what: &str,
    word: Option<&[u8]>,
    read: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, Wrong> {
    let word = std::str::from_utf8(word.unwrap_or_default());
    let word = word.map_err(|_| Wrong::syntax(format!("{what} is not UTF-8")))?;
    read(word).map_err(|error| Wrong::syntax(format!("{what} cannot be used: {error}")))
}
