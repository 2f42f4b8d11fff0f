//! Every command there is: its name, its words, who may say it.

/// What a command asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Take units for a user.
    Claim,
    /// Place the order for a held claim.
    Order,
    /// Tell that money arrived.
    Pay,
    /// Give a claim up.
    Release,
    /// Take a portion of a packet for a user.
    Grab,
    /// Look at a sale.
    Pool,
    /// Look at a claim.
    Show,
    /// Greet, choose a version, sign in.
    Hello,
    /// Sign in.
    Auth,
    /// Tell about the client.
    Client,
    /// Tell about the commands.
    Command,
    /// Tell about the settings a Redis would have.
    Config,
    /// Answer.
    Ping,
    /// Answer the same.
    Echo,
    /// Choose a database; there is one.
    Select,
    /// Tell about the server.
    Info,
    /// Begin anew.
    Reset,
    /// End.
    Quit,
}

/// Who may say a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// Everybody, before they signed in.
    Anybody,
    /// Everybody who signed in; a buyer for themselves.
    Known,
    /// The shop: with the password, or with an admin's token.
    Shop,
}

/// One command.
#[derive(Debug)]
pub struct Spec {
    pub name: &'static str,
    /// What it asks for.
    pub verb: Verb,
    /// Who may.
    pub who: Who,
    /// The fewest words, its name included.
    pub least: usize,
    /// The most words.
    pub most: usize,
    /// How it is said.
    pub usage: &'static str,
    /// What it does.
    pub summary: &'static str,
}

const fn spec(
    verb: Verb,
    who: Who,
    (least, most): (usize, usize),
    (name, usage): (&'static str, &'static str),
    summary: &'static str,
) -> Spec {
    Spec { name, verb, who, least, most, usage, summary }
}

impl Spec {
    /// What may stand behind its name, and whether that can be left out.
    pub fn arguments(&self) -> Vec<(&'static str, bool)> {
        let mut rest = self.usage[self.name.len()..].trim_start();
        let mut arguments = Vec::new();
        while !rest.is_empty() {
            let (argument, optional, behind) = match rest.strip_prefix('[') {
                Some(inner) => inner.split_once(']').map(|(text, behind)| (text, true, behind)),
                None => rest.split_once(' ').map(|(text, behind)| (text, false, behind)),
            }
            .unwrap_or((rest, false, ""));
            arguments.push((argument, optional));
            rest = behind.trim_start();
        }
        arguments
    }
}

/// How to sign in.
pub const AUTH_USAGE: &str =
    "AUTH password-or-token, with the password of [resp] or a token of `qiang tokens`";

const ANY: usize = usize::MAX;

/// All of them; the one a crowd says first.
pub static ALL: [Spec; 18] = [
    spec(
        Verb::Claim,
        Who::Known,
        (3, 6),
        ("CLAIM", "CLAIM sale user [quantity] [request-id] [identity]"),
        "Takes units of a sale for a user: [1, number, claim] granted, [2, number, claim] has it already, [0, code] refused",
    ),
    spec(
        Verb::Order,
        Who::Known,
        (2, 3),
        ("ORDER", "ORDER claim [user]"),
        "Places the order for a held claim: [1, number, order], [2, number, order] before, [0, code] refused",
    ),
    spec(
        Verb::Pay,
        Who::Shop,
        (4, 4),
        ("PAY", "PAY order payment-id amount-cents"),
        "Tells that money arrived: [1|2, paid|regranted|refund_due, order] or [0, code]",
    ),
    spec(
        Verb::Release,
        Who::Known,
        (2, 3),
        ("RELEASE", "RELEASE claim [user]"),
        "Gives a claim up, so that its units go to others: [1, number, claim], [2, …] before, [0, code] refused",
    ),
    spec(
        Verb::Grab,
        Who::Known,
        (3, 4),
        ("GRAB", "GRAB packet user [password]"),
        "Takes a portion of a red packet for a user: [1, number, cents] granted, [2, number, cents] has it already, [0, code] refused",
    ),
    spec(
        Verb::Pool,
        Who::Known,
        (2, 2),
        ("POOL", "POOL sale"),
        "A sale and where it stands, field by field; nil if there is none, or it was cleared away",
    ),
    spec(
        Verb::Show,
        Who::Known,
        (2, 2),
        ("SHOW", "SHOW claim"),
        "A claim and where it stands, field by field; nil if there is none, or it is somebody else's",
    ),
    spec(
        Verb::Hello,
        Who::Anybody,
        (1, 7),
        ("HELLO", "HELLO [2|3] [AUTH user password] [SETNAME name]"),
        "Greets, and chooses the version of the protocol",
    ),
    spec(
        Verb::Auth,
        Who::Anybody,
        (2, 3),
        ("AUTH", "AUTH [user] password-or-token"),
        "Signs in, with the password of [resp] or a token of `qiang tokens`",
    ),
    spec(
        Verb::Client,
        Who::Known,
        (2, ANY),
        ("CLIENT", "CLIENT ID|INFO|GETNAME|SETNAME|SETINFO|NO-EVICT|NO-TOUCH"),
        "About this connection",
    ),
    spec(
        Verb::Command,
        Who::Known,
        (1, ANY),
        ("COMMAND", "COMMAND [COUNT|LIST|INFO|DOCS]"),
        "About the commands",
    ),
    spec(
        Verb::Config,
        Who::Known,
        (3, ANY),
        ("CONFIG", "CONFIG GET name [name …]"),
        "For clients that ask a Redis how it persists",
    ),
    spec(Verb::Ping, Who::Known, (1, 2), ("PING", "PING [text]"), "Answers"),
    spec(Verb::Echo, Who::Known, (2, 2), ("ECHO", "ECHO text"), "Answers the same"),
    spec(Verb::Select, Who::Known, (2, 2), ("SELECT", "SELECT 0"), "There is one database"),
    spec(Verb::Info, Who::Known, (1, ANY), ("INFO", "INFO [section …]"), "About the server"),
    spec(Verb::Reset, Who::Anybody, (1, 1), ("RESET", "RESET"), "Signs out and begins anew"),
    spec(Verb::Quit, Who::Anybody, (1, ANY), ("QUIT", "QUIT"), "Ends the connection"),
];

/// The command of that name, in capitals or not.
pub fn find(name: &[u8]) -> Option<&'static Spec> {
    ALL.iter().find(|spec| name.eq_ignore_ascii_case(spec.name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_from_how_a_command_is_said() {
        let arguments = |name: &str| find(name.as_bytes()).map(Spec::arguments).unwrap();
        assert_eq!(
            arguments("claim"),
            [
                ("sale", false),
                ("user", false),
                ("quantity", true),
                ("request-id", true),
                ("identity", true)
            ]
        );
        assert_eq!(
            arguments("HELLO"),
            [("2|3", true), ("AUTH user password", true), ("SETNAME name", true)]
        );
        assert!(arguments("reset").is_empty());
        for spec in &ALL {
            assert!(spec.usage.starts_with(spec.name), "{}", spec.name);
        }
    }
}
