//! The users of a run: their names, and their tokens, all there before the load begins.

use std::path::Path;

use anyhow::Context as _;

use super::target::Signer;
use qiang_app::token::MAX_TOKEN_BYTES;

/// Names `u1` to `uN`, as `qiang tokens --count N` has them.
pub(super) fn names(users: u32) -> Vec<Box<str>> {
    (1..=users).map(|number| format!("u{number}").into()).collect()
}

/// A token for each of them.
pub(super) fn minted(signer: &Signer, users: u32) -> anyhow::Result<Vec<Box<str>>> {
    names(users).iter().map(|user| Ok(signer.buyer(user)?.into())).collect()
}

/// The first `users` of a file that `qiang tokens --count N --out FILE` wrote.
pub(super) fn read(path: &Path, users: u32) -> anyhow::Result<Vec<Box<str>>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the tokens in {}", path.display()))?;
    of_csv(&text, users).with_context(|| format!("cannot take the tokens in {}", path.display()))
}

fn of_csv(text: &str, users: u32) -> anyhow::Result<Vec<Box<str>>> {
    let wanted = usize::try_from(users)?;
    let mut lines = text.lines();
    anyhow::ensure!(
        lines.next().map(str::trim_end) == Some("user_id,token"),
        "its first line must be user_id,token"
    );
    let mut tokens = Vec::new();
    for (index, line) in lines.take(wanted).enumerate() {
        let token = line.trim_end().rsplit_once(',').map(|(_, token)| token);
        let fine = |token: &&str| {
            !token.is_empty()
                && token.len() <= MAX_TOKEN_BYTES
                && token.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let token = token.filter(fine);
        tokens.push(token.with_context(|| format!("line {} has no token", index + 2))?.into());
    }
    anyhow::ensure!(
        tokens.len() == wanted,
        "it has {} tokens, and {users} users are wanted: make more, or say --users {}",
        tokens.len(),
        tokens.len().max(1)
    );
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_as_they_are_written() {
        let csv = "user_id,token\nu1,a.b.c\nu2,d.e.f\n";
        let tokens = of_csv(csv, 2).expect("two");
        assert_eq!((&*tokens[0], &*tokens[1]), ("a.b.c", "d.e.f"));
        assert_eq!(of_csv(csv, 1).expect("one").len(), 1);
    }

    #[test]
    fn a_file_that_is_no_list_is_refused() {
        for (csv, word) in [
            ("", "first line"),
            ("u1,a\n", "first line"),
            ("user_id,token\nu1,a\n", "--users 1"),
            ("user_id,token\nu1\nu2,b\n", "line 2"),
            ("user_id,token\nu1,a\nu2,\n", "line 3"),
            ("user_id,token\nu1,a b\r\nu2,b\n", "line 2"),
        ] {
            let error = of_csv(csv, 2).expect_err("refused").to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
