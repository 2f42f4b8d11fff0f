//! The little of MessagePack that scripts and engine talk in: integers, texts or bytes, lists.
//!
//! Reading never trusts a length it has not checked.

/// Writes values one behind the other.
#[derive(Debug, Default)]
pub(super) struct Packer {
    bytes: Vec<u8>,
}

impl Packer {
    pub(super) fn list(&mut self, len: usize) -> &mut Self {
        match (u8::try_from(len), u16::try_from(len)) {
            (Ok(short @ 0..16), _) => self.bytes.push(0x90 | short),
            (_, Ok(medium)) => self.tagged(0xdc, &medium.to_be_bytes()),
            _ => {
                let long = u32::try_from(len).expect("lists are bounded");
                self.tagged(0xdd, &long.to_be_bytes());
            }
        }
        self
    }

    pub(super) fn int(&mut self, value: i64) -> &mut Self {
        if let Ok(small @ 0..=0x7f) = u8::try_from(value) {
            self.bytes.push(small);
        } else {
            self.tagged(0xd3, &value.to_be_bytes());
        }
        self
    }

    pub(super) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        match (u8::try_from(value.len()), u16::try_from(value.len())) {
            (Ok(short @ 0..32), _) => self.bytes.push(0xa0 | short),
            (_, Ok(medium)) => self.tagged(0xda, &medium.to_be_bytes()),
            _ => {
                let long = u32::try_from(value.len()).expect("texts are bounded");
                self.tagged(0xdb, &long.to_be_bytes());
            }
        }
        self.bytes.extend_from_slice(value);
        self
    }

    pub(super) fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }

    /// How many bytes were written.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    fn tagged(&mut self, tag: u8, value: &[u8]) {
        self.bytes.push(tag);
        self.bytes.extend_from_slice(value);
    }
}

/// Bytes that are not what a script of ours sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected {wanted}")]
pub struct Unpackable {
    wanted: &'static str,
}

impl Unpackable {
    pub(super) const fn new(wanted: &'static str) -> Self {
        Self { wanted }
    }
}

pub(super) type Result<T> = std::result::Result<T, Unpackable>;

/// Reads values one behind the other.
#[derive(Debug, Clone)]
pub(super) struct Unpacker<'a> {
    bytes: &'a [u8],
}

impl<'a> Unpacker<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether a list comes next.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.bytes.first(), Some(0x80 | 0x90..=0x9f | 0xdc | 0xdd))
    }

    pub(super) fn list(&mut self) -> Result<usize> {
        let wanted = "a list";
        let len = match self.byte(wanted)? {
            tag @ 0x90..=0x9f => usize::from(tag & 0x0f),
            0xdc => self.length(2, wanted)?,
            0xdd => self.length(4, wanted)?,
            // An empty table has no sign of being a list.
            0x80 => 0,
            _ => return Err(Unpackable::new(wanted)),
        };
        if len > self.bytes.len() { Err(Unpackable::new(wanted)) } else { Ok(len) }
    }

    pub(super) fn int(&mut self) -> Result<i64> {
        let wanted = "a whole number";
        let tag = self.byte(wanted)?;
        let value = match tag {
            0x00..=0x7f => i64::from(tag),
            0xe0..=0xff => i64::from(tag.cast_signed()),
            0xcc => i64::from(self.byte(wanted)?),
            0xcd => i64::from(u16::from_be_bytes(self.fixed(wanted)?)),
            0xce => i64::from(u32::from_be_bytes(self.fixed(wanted)?)),
            0xcf => i64::try_from(u64::from_be_bytes(self.fixed(wanted)?))
                .map_err(|_| Unpackable::new(wanted))?,
            0xd0 => i64::from(self.byte(wanted)?.cast_signed()),
            0xd1 => i64::from(i16::from_be_bytes(self.fixed(wanted)?)),
            0xd2 => i64::from(i32::from_be_bytes(self.fixed(wanted)?)),
            0xd3 => i64::from_be_bytes(self.fixed(wanted)?),
            _ => return Err(Unpackable::new(wanted)),
        };
        Ok(value)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8]> {
        let wanted = "a text";
        let len = match self.byte(wanted)? {
            tag @ 0xa0..=0xbf => usize::from(tag & 0x1f),
            0xc4 | 0xd9 => self.length(1, wanted)?,
            0xc5 | 0xda => self.length(2, wanted)?,
            0xc6 | 0xdb => self.length(4, wanted)?,
            _ => return Err(Unpackable::new(wanted)),
        };
        self.take(len, wanted)
    }

    pub(super) fn text(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Unpackable::new("text in UTF-8"))
    }

    /// A number that fits.
    pub(super) fn number<T: TryFrom<i64>>(&mut self) -> Result<T> {
        T::try_from(self.int()?).map_err(|_| Unpackable::new("a number in its range"))
    }

    fn length(&mut self, bytes: usize, wanted: &'static str) -> Result<usize> {
        let taken = self.take(bytes, wanted)?;
        Ok(taken.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)))
    }

    fn byte(&mut self, wanted: &'static str) -> Result<u8> {
        Ok(self.fixed::<1>(wanted)?[0])
    }

    fn fixed<const N: usize>(&mut self, wanted: &'static str) -> Result<[u8; N]> {
        let (first, rest) = self.bytes.split_first_chunk().ok_or(Unpackable::new(wanted))?;
        self.bytes = rest;
        Ok(*first)
    }

    fn take(&mut self, len: usize, wanted: &'static str) -> Result<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or(Unpackable::new(wanted))?;
        self.bytes = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        let numbers = [0, 1, 127, 128, -1, -33, 65_536, i64::MAX, i64::MIN];
        let long = "x".repeat(70_000);
        let texts = ["", "a", "用户", &long];
        let mut packer = Packer::default();
        packer.list(numbers.len() + texts.len());
        for number in numbers {
            packer.int(number);
        }
        for text in texts {
            packer.text(text);
        }
        let bytes = packer.finish();
        let mut unpacker = Unpacker::new(&bytes);
        assert_eq!(unpacker.list(), Ok(numbers.len() + texts.len()));
        numbers.iter().for_each(|number| assert_eq!(unpacker.int(), Ok(*number)));
        texts.iter().for_each(|text| assert_eq!(unpacker.text(), Ok(*text)));
        assert!(unpacker.is_empty());
    }

    #[test]
    fn bytes_that_end_early_are_noticed() {
        let bytes = Packer::default().list(2).text("abc").int(1_000).finish();
        for end in 0..bytes.len() {
            let mut unpacker = Unpacker::new(&bytes[..end]);
            let read = unpacker.list().and_then(|_| unpacker.text()).and_then(|_| unpacker.int());
            assert!(read.is_err(), "{end}");
        }
    }

    #[test]
    fn a_length_is_not_believed() {
        assert!(Unpacker::new(&[0xdd, 0xff, 0xff, 0xff, 0xff]).list().is_err());
        assert!(Unpacker::new(&[0xdb, 0xff, 0xff, 0xff, 0xff]).bytes().is_err());
    }
}
