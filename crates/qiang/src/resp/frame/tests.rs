//! Commands read from bytes: whole, cut anywhere, and nothing a client would say.

use proptest::prelude::*;

use super::*;

/// How many bytes a command took, and its words.
type Whole = (usize, Vec<Vec<u8>>);

fn read(input: &[u8]) -> Result<Option<Whole>, BadFrame> {
    let mut frame = Frame::default();
    let read = frame.read(input)?;
    let words = (0..frame.len()).map(|place| frame.word(input, place).unwrap().to_vec());
    Ok(read.map(|end| (end, words.collect())))
}

fn words(input: &[u8]) -> Vec<String> {
    let (end, words) = read(input).unwrap().expect("a whole command");
    assert_eq!(end, input.len());
    words.into_iter().map(|word| String::from_utf8(word).unwrap()).collect()
}

fn array(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

#[test]
fn arrays_and_lines_are_commands() {
    assert_eq!(words(b"*2\r\n$4\r\nPING\r\n$0\r\n\r\n"), ["PING", ""]);
    assert_eq!(words(b"PING\r\n"), ["PING"]);
    assert_eq!(words(b"  CLAIM 7 \"a b\" 'c'\n"), ["CLAIM", "7", "a b", "c"]);
    assert!(words(b"*0\r\n").is_empty());
    assert!(words(b"*-1\r\n").is_empty());
    assert!(words(b"\r\n").is_empty());
}

#[test]
fn what_no_client_says_is_told_apart() {
    for (input, wrong) in [
        (&b"*x\r\n"[..], BadFrame::Words),
        (b"*\r\n", BadFrame::Words),
        (b"*257\r\n", BadFrame::Words),
        (b"*99999999999\r\n", BadFrame::Words),
        (b"*1\n$4\r\nPING\r\n", BadFrame::Words),
        (b"*1\r\nPING\r\n", BadFrame::NoBulk),
        (b"*1\r\n:4\r\n", BadFrame::NoBulk),
        (b"*1\r\n$-1\r\n", BadFrame::Length),
        (b"*1\r\n$65537\r\n", BadFrame::Length),
        (b"*1\r\n$4x\r\n", BadFrame::Length),
        (b"*1\r\n$4\r\nPINGED", BadFrame::NoEnd),
        (b"GET / HTTP/1.1\r\n", BadFrame::Http),
        (b"\x16\x03\x01", BadFrame::Tls),
        (b"SAY \"a b\r\n", BadFrame::Quotes),
        (b"SAY \"a\"b\r\n", BadFrame::Quotes),
    ] {
        assert_eq!(read(input), Err(wrong), "{}", input.escape_ascii());
    }
    assert_eq!(read(&[b'a'; MAX_LINE_BYTES]), Err(BadFrame::Line));
    assert_eq!(read(&[b'a'; MAX_LINE_BYTES - 1]), Ok(None));
    let large = array(&vec![vec![b'x'; MAX_BYTES / 2]; 3]);
    assert_eq!(read(&large), Err(BadFrame::Bytes));
    assert_eq!(read(&large[..large.len() - 1]), Err(BadFrame::Bytes));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_command_is_read_however_it_is_cut(
        words in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..12),
        behind in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let bytes = array(&words);
        for cut in 0..bytes.len() {
            prop_assert_eq!(read(&bytes[..cut]), Ok(None));
        }
        let mut more = bytes.clone();
        more.extend(behind);
        prop_assert_eq!(read(&more), Ok(Some((bytes.len(), words))));
    }

    #[test]
    fn nonsense_never_panics_and_never_reaches_beyond(input in nonsense()) {
        if let Ok(Some((end, words))) = read(&input) {
            prop_assert!(end <= input.len() && end > 0);
            prop_assert!(words.len() <= MAX_WORDS);
            // What was read once is read again from just those bytes.
            prop_assert_eq!(read(&input[..end]), Ok(Some((end, words))));
        }
    }

    #[test]
    fn what_is_wrong_stays_wrong_however_much_comes_behind(input in nonsense(), more in nonsense()) {
        let before = read(&input);
        let mut both = input;
        both.extend(more);
        match before {
            Ok(None) => {}
            known => prop_assert_eq!(read(&both), known),
        }
    }
}

/// Bytes, pieces of the protocol, and commands with a byte changed.
fn nonsense() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"*".to_vec()),
        Just(b"$".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\"".to_vec()),
        (0..300_i64).prop_map(|n| format!("*{n}\r\n").into_bytes()),
        (-3..70_000_i64).prop_map(|n| format!("${n}\r\n").into_bytes()),
        prop::collection::vec(any::<u8>(), 0..8),
    ];
    let pieces = prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat());
    let command = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 1..5);
    let changed =
        (command, any::<prop::sample::Index>(), any::<u8>()).prop_map(|(words, at, byte)| {
            let mut bytes = array(&words);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes
        });
    prop_oneof![pieces, changed]
}
