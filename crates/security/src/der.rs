//! A minimal DER reader for names and stores. Reads one element at a time, and checks its length against the
//! available bytes.

pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;
pub(crate) const OBJECT_ID: u8 = 0x06;
pub(crate) const OCTETS: u8 = 0x04;

/// A DER element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Element<'a> {
    pub tag: u8,
    pub content: &'a [u8],
    /// Tag, length and content.
    pub whole: &'a [u8],
}

/// The elements of a byte slice. Stops at the first malformed one; [`Elements::is_end`] distinguishes the two
/// ends.
#[derive(Clone, Debug)]
pub(crate) struct Elements<'a>(pub &'a [u8]);

impl<'a> Elements<'a> {
    pub fn is_end(&self) -> bool {
        self.0.is_empty()
    }

    /// The content of the next element, if its tag matches.
    pub fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|element| element.tag == tag).map(|element| element.content)
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        let bytes = self.0;
        let (&tag, rest) = bytes.split_first()?;
        let (&first, rest) = rest.split_first()?;
        // Tags above 30 take more than one byte, and do not occur in the formats read here.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
            }
            _ => return None,
        };
        let (content, after) = rest.split_at_checked(length)?;
        self.0 = after;
        Some(Element { tag, content, whole: &bytes[..bytes.len() - after.len()] })
    }
}

/// The content of the only element of `bytes`, if its tag matches.
pub(crate) fn only(bytes: &[u8], tag: u8) -> Option<&[u8]> {
    let mut elements = Elements(bytes);
    let content = elements.expect(tag)?;
    elements.is_end().then_some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_checked_against_the_bytes() {
        assert_eq!(only(&[0x30, 2, 1, 2], SEQUENCE), Some(&[1, 2][..]));
        assert_eq!(only(&[0x30, 0x81, 2, 1, 2], SEQUENCE), Some(&[1, 2][..]));
        for broken in [
            &[][..],
            &[0x30],
            &[0x30, 3, 1, 2],
            &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0],
            &[0x30, 0x80, 0, 0],
            &[0x30, 0x85, 0, 0, 0, 0, 1, 1],
            &[0x30, 1, 1, 2],
            &[0x3f, 0x81, 1, 1],
        ] {
            assert_eq!(only(broken, SEQUENCE), None, "{broken:?}");
        }
    }
}
