//! The syntax of RE2/J, translated to the syntax of the `regex` crate.
//!
//! Both descend from RE2, and differ in details that topic patterns do use: RE2/J has `\Q...\E` and octal
//! escapes, and treats `{` and `[` as literals where they begin nothing; it has no intersection of classes,
//! no `{,n}` and no flag `x`, and rejects `a**`. The pattern is therefore parsed by the rules of RE2/J, with
//! its errors, and written out with every literal escaped.

use regex::escape;

/// Why a pattern is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyntaxError {
    CharacterRange,
    Escape,
    CaptureName,
    DuplicateCaptureName,
    PerlSyntax,
    NestedRepetition,
    RepeatCount,
    RepeatArgument,
    MissingBracket,
    MissingParenthesis,
    UnexpectedParenthesis,
    TrailingBackslash,
}

impl SyntaxError {
    /// The description, in the words of RE2/J.
    pub(super) fn description(self) -> &'static str {
        match self {
            SyntaxError::CharacterRange => "invalid character class range",
            SyntaxError::Escape => "invalid escape sequence",
            SyntaxError::CaptureName => "invalid named capture",
            SyntaxError::DuplicateCaptureName => "duplicate capture group name",
            SyntaxError::PerlSyntax => "invalid or unsupported Perl syntax",
            SyntaxError::NestedRepetition => "invalid nested repetition operator",
            SyntaxError::RepeatCount => "invalid repeat count",
            SyntaxError::RepeatArgument => "missing argument to repetition operator",
            SyntaxError::MissingBracket => "missing closing ]",
            SyntaxError::MissingParenthesis => "missing closing )",
            SyntaxError::UnexpectedParenthesis => "unexpected )",
            SyntaxError::TrailingBackslash => "trailing backslash at end of expression",
        }
    }
}

/// Maximum count of a repetition.
const REPEAT_MAX: u32 = 1000;
const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];
/// A class that matches no character.
const NOTHING: &str = r"[^\s\S]";

/// The pattern in the syntax of the `regex` crate.
pub(super) fn translate(pattern: &str) -> Result<String, SyntaxError> {
    let mut parser =
        Parser { rest: pattern, out: String::new(), depth: 0, operand: Operand::None, names: Vec::new() };
    while !parser.rest.is_empty() {
        parser.item()?;
    }
    if parser.depth > 0 { Err(SyntaxError::MissingParenthesis) } else { Ok(parser.out) }
}

/// The item before the current position.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operand {
    /// No item that can be repeated.
    None,
    Plain,
    /// A repetition, which cannot be repeated.
    Repetition,
}

struct Parser<'p> {
    rest: &'p str,
    out: String,
    depth: usize,
    operand: Operand,
    names: Vec<&'p str>,
}

impl<'p> Parser<'p> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn pop(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn take(&mut self, text: &str) -> bool {
        self.rest.strip_prefix(text).map(|rest| self.rest = rest).is_some()
    }

    fn operand(&mut self, text: &str) {
        self.out.push_str(text);
        self.operand = Operand::Plain;
    }

    fn item(&mut self) -> Result<(), SyntaxError> {
        if self.rest.starts_with("(?") {
            return self.perl_group();
        }
        if self.rest.starts_with('{') {
            return self.counted_repetition();
        }
        if self.rest.starts_with('\\') {
            return self.escape();
        }
        match self.pop().expect("the caller has seen more") {
            '(' => self.open("("),
            '|' => {
                self.out.push('|');
                self.operand = Operand::None;
            }
            ')' if self.depth == 0 => return Err(SyntaxError::UnexpectedParenthesis),
            ')' => {
                self.depth -= 1;
                self.operand(")");
            }
            '[' => {
                let class = self.class()?;
                self.operand(&class);
            }
            operator @ ('*' | '+' | '?') => return self.repeat(&operator.to_string()),
            special @ ('^' | '$' | '.') => self.operand(&special.to_string()),
            literal => self.operand(&escape(&literal.to_string())),
        }
        Ok(())
    }

    fn open(&mut self, text: &str) {
        self.out.push_str(text);
        self.depth += 1;
        self.operand = Operand::None;
    }

    fn repeat(&mut self, operator: &str) -> Result<(), SyntaxError> {
        let is_lazy = self.take("?");
        match self.operand {
            Operand::Repetition => return Err(SyntaxError::NestedRepetition),
            Operand::None => return Err(SyntaxError::RepeatArgument),
            Operand::Plain => {}
        }
        self.out.push_str(operator);
        self.out.push_str(if is_lazy { "?" } else { "" });
        self.operand = Operand::Repetition;
        Ok(())
    }

    /// `{n}`, `{n,}` or `{n,m}`; otherwise the brace is a literal.
    fn counted_repetition(&mut self) -> Result<(), SyntaxError> {
        let after = &self.rest[1..];
        let number = |text: &str| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty();
            // Digits with a leading zero are not a number.
            (is_number && (text.len() == 1 || !text.starts_with('0')))
                .then(|| text.parse().unwrap_or(u32::MAX))
        };
        let counts = after.find('}').and_then(|end| {
            let (min, max) = match after[..end].split_once(',') {
                Some((min, "")) => (number(min)?, None),
                Some((min, max)) => (number(min)?, Some(number(max)?)),
                None => (number(&after[..end])?, Some(number(&after[..end])?)),
            };
            Some((end, min, max))
        });
        let Some((end, min, max)) = counts else {
            self.rest = after;
            self.operand(r"\{");
            return Ok(());
        };
        if min > REPEAT_MAX || max.is_some_and(|max| max > REPEAT_MAX || max < min) {
            return Err(SyntaxError::RepeatCount);
        }
        self.rest = &after[end + 1..];
        match max {
            Some(max) => self.repeat(&format!("{{{min},{max}}}")),
            None => self.repeat(&format!("{{{min},}}")),
        }
    }

    /// A group with a name, or flags with or without a group.
    fn perl_group(&mut self) -> Result<(), SyntaxError> {
        if let Some(name) = self.rest.strip_prefix("(?P<").or_else(|| self.rest.strip_prefix("(?<")) {
            let end = name.find('>').ok_or(SyntaxError::CaptureName)?;
            let (name, rest) = (&name[..end], &name[end + 1..]);
            if name.is_empty() || !name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric()) {
                return Err(SyntaxError::CaptureName);
            }
            if self.names.contains(&name) {
                return Err(SyntaxError::DuplicateCaptureName);
            }
            self.names.push(name);
            self.rest = rest;
            self.open("(");
            return Ok(());
        }
        self.rest = &self.rest[2..];
        let (mut on, mut off): (Vec<char>, Option<Vec<char>>) = (Vec::new(), None);
        loop {
            match self.pop() {
                Some(flag @ ('i' | 'm' | 's' | 'U')) => {
                    on.retain(|other| *other != flag);
                    let flags = off.as_mut().unwrap_or(&mut on);
                    flags.retain(|other| *other != flag);
                    flags.push(flag);
                }
                Some('-') if off.is_none() => off = Some(Vec::new()),
                Some(end @ (':' | ')')) if off.as_ref().is_none_or(|off| !off.is_empty()) => {
                    let dash = if off.is_some() { "-" } else { "" };
                    let flags: String =
                        on.iter().collect::<String>() + dash + &off.iter().flatten().collect::<String>();
                    match end {
                        ':' => self.open(&format!("(?{flags}:")),
                        _ if flags.is_empty() => {}
                        _ => self.out.push_str(&format!("(?{flags})")),
                    }
                    return Ok(());
                }
                _ => return Err(SyntaxError::PerlSyntax),
            }
        }
    }

    fn escape(&mut self) -> Result<(), SyntaxError> {
        for assertion in [r"\A", r"\b", r"\B", r"\z"] {
            if self.take(assertion) {
                self.operand(assertion);
                return Ok(());
            }
        }
        if self.take(r"\Q") {
            let (quoted, rest) = self.rest.split_once(r"\E").unwrap_or((self.rest, ""));
            self.rest = rest;
            // Empty quotes are no item: a following repetition applies to the item before the quotes.
            if !quoted.is_empty() {
                self.operand(&escape(quoted));
            }
            return Ok(());
        }
        let text = match self.class_escape()? {
            Some(class) => class,
            None => character(self.escaped()?),
        };
        self.operand(&text);
        Ok(())
    }

    /// A class such as `\d` or `\pL`.
    fn class_escape(&mut self) -> Result<Option<String>, SyntaxError> {
        for class in [r"\d", r"\D", r"\s", r"\S", r"\w", r"\W"] {
            if self.take(class) {
                return Ok(Some(class.to_owned()));
            }
        }
        let mut is_negated = self.rest.starts_with(r"\P");
        if !self.take(r"\p") && !self.take(r"\P") {
            return Ok(None);
        }
        let first = self.pop().ok_or(SyntaxError::CharacterRange)?;
        let name = if first == '{' {
            let (name, rest) = self.rest.split_once('}').ok_or(SyntaxError::CharacterRange)?;
            self.rest = rest;
            name.to_owned()
        } else {
            first.to_string()
        };
        let name = match name.strip_prefix('^') {
            Some(name) => {
                is_negated = !is_negated;
                name
            }
            None => &name,
        };
        if name.is_empty() || !name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric()) {
            return Err(SyntaxError::CharacterRange);
        }
        let class = format!(r"\{}{{{name}}}", if is_negated { 'P' } else { 'p' });
        if regex::Regex::new(&class).is_err() { Err(SyntaxError::CharacterRange) } else { Ok(Some(class)) }
    }

    /// A character after a backslash. It may be a surrogate, which does not occur in text.
    fn escaped(&mut self) -> Result<u32, SyntaxError> {
        self.pop();
        let escaped = self.pop().ok_or(SyntaxError::TrailingBackslash)?;
        let is_octal = |next: Option<char>| next.is_some_and(|next| next.is_digit(8));
        match escaped {
            'x' => self.hexadecimal(),
            '0' => Ok(self.octal(0)),
            '1'..='7' if is_octal(self.peek()) => Ok(self.octal(escaped.to_digit(8).unwrap_or(0))),
            'a' => Ok(0x07),
            'f' => Ok(0x0c),
            'n' => Ok(0x0a),
            'r' => Ok(0x0d),
            't' => Ok(0x09),
            'v' => Ok(0x0b),
            other if !other.is_ascii_alphanumeric() => Ok(u32::from(other)),
            _ => Err(SyntaxError::Escape),
        }
    }

    /// Reads up to two more octal digits.
    fn octal(&mut self, mut value: u32) -> u32 {
        for _ in 0..2 {
            let Some(digit) = self.peek().and_then(|next| next.to_digit(8)) else { break };
            self.pop();
            value = value * 8 + digit;
        }
        value
    }

    fn hexadecimal(&mut self) -> Result<u32, SyntaxError> {
        let text = if self.take("{") {
            let (text, rest) = self.rest.split_once('}').ok_or(SyntaxError::Escape)?;
            self.rest = rest;
            text.trim_start_matches('0').get(..).filter(|trimmed| !trimmed.is_empty() || !text.is_empty())
        } else {
            let text = self.rest.get(..2).filter(|text| text.len() == 2);
            self.rest = self.rest.get(2..).unwrap_or_default();
            text
        };
        let text = text.ok_or(SyntaxError::Escape)?;
        if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) || text.len() > 6 {
            return Err(SyntaxError::Escape);
        }
        let value = u32::from_str_radix(text, 16).unwrap_or(0);
        if value > u32::from(char::MAX) { Err(SyntaxError::Escape) } else { Ok(value) }
    }

    /// Parses a class after its `[`.
    fn class(&mut self) -> Result<String, SyntaxError> {
        let is_negated = self.take("^");
        let mut members = String::new();
        let mut is_first = true;
        while is_first || !self.rest.starts_with(']') {
            is_first = false;
            if self.rest.starts_with("[:")
                && let Some(end) = self.rest.find(":]")
            {
                // In `[[:]`, both marks share the colon. RE2/J parses a class name here too, an unknown one.
                let name = self.rest.get(2..end).ok_or(SyntaxError::CharacterRange)?;
                if !POSIX.contains(&name.strip_prefix('^').unwrap_or(name)) {
                    return Err(SyntaxError::CharacterRange);
                }
                members.push_str(&format!("[:{name}:]"));
                self.rest = &self.rest[end + 2..];
            } else if let Some(class) = self.class_escape()? {
                members.push_str(&class);
            } else {
                self.class_range(&mut members)?;
            }
        }
        self.take("]");
        match (members.is_empty(), is_negated) {
            (false, false) => Ok(format!("[{members}]")),
            (false, true) => Ok(format!("[^{members}]")),
            (true, false) => Ok(NOTHING.to_owned()),
            (true, true) => Ok(r"[\s\S]".to_owned()),
        }
    }

    fn class_range(&mut self, members: &mut String) -> Result<(), SyntaxError> {
        let low = self.class_character()?;
        let is_range = self.rest.starts_with('-') && !self.rest.starts_with("-]");
        let high = if is_range {
            self.pop();
            self.class_character()?
        } else {
            low
        };
        if high < low {
            return Err(SyntaxError::CharacterRange);
        }
        // Surrogates are excluded, because text cannot contain them.
        let low = if (0xd800..0xe000).contains(&low) { 0xe000 } else { low };
        let high = if (0xd800..0xe000).contains(&high) { 0xd7ff } else { high };
        if low <= high {
            members.push_str(&format!(r"\x{{{low:X}}}-\x{{{high:X}}}"));
        }
        Ok(())
    }

    fn class_character(&mut self) -> Result<u32, SyntaxError> {
        match self.peek() {
            None => Err(SyntaxError::MissingBracket),
            Some('\\') => self.escaped(),
            Some(_) => Ok(self.pop().map_or(0, u32::from)),
        }
    }
}

fn character(value: u32) -> String {
    char::from_u32(value).map_or_else(|| NOTHING.to_owned(), |value| escape(&value.to_string()))
}
