//! The format of `sasl.jaas.config`: a login module, a control flag, options, a semicolon. Quotes and
//! backslashes work as in Java's parser. A line has one module, as Kafka's clients require.

use std::collections::BTreeMap;
use std::fmt;

/// A login module with its options.
#[derive(Clone, PartialEq, Eq)]
pub struct LoginModule {
    /// The class, without its package.
    pub class: String,
    /// Options by name. Values may be secrets.
    pub options: BTreeMap<String, String>,
}

impl fmt::Debug for LoginModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginModule").field("class", &self.class).finish_non_exhaustive()
    }
}

impl LoginModule {
    /// True if the option has the value `true`, in any case.
    pub fn is_true(&self, option: &str) -> bool {
        self.options.get(option).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }
}

/// A syntax error. Contains none of the line's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JaasFault {
    /// The class is missing.
    #[error("it is empty")]
    Empty,
    /// The control flag is missing or unknown.
    #[error("the control flag after the class is not required, requisite, sufficient or optional")]
    Flag,
    /// An option has no value.
    #[error("an option is not name=value")]
    Option,
    /// A quoted text has no end.
    #[error("a quote is not closed")]
    Quote,
    /// The semicolon is missing.
    #[error("the semicolon at the end is missing")]
    Semicolon,
    /// Text follows the semicolon, such as a second module.
    #[error("something follows the semicolon, where one login module is all")]
    Behind,
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Equals,
    Semicolon,
}

/// Parses a line.
pub fn parse(line: &str) -> Result<LoginModule, JaasFault> {
    let mut tokens = tokens(line)?.into_iter();
    let Some(Token::Word(class)) = tokens.next() else { return Err(JaasFault::Empty) };
    let flags = ["required", "requisite", "sufficient", "optional"];
    match tokens.next() {
        Some(Token::Word(flag)) if flags.contains(&flag.to_ascii_lowercase().as_str()) => {}
        _ => return Err(JaasFault::Flag),
    }
    let mut options = BTreeMap::new();
    loop {
        match tokens.next() {
            Some(Token::Semicolon) => break,
            Some(Token::Word(name)) => match (tokens.next(), tokens.next()) {
                (Some(Token::Equals), Some(Token::Word(value))) => {
                    options.insert(name, value);
                }
                _ => return Err(JaasFault::Option),
            },
            Some(Token::Equals) => return Err(JaasFault::Option),
            None => return Err(JaasFault::Semicolon),
        }
    }
    if tokens.next().is_some() {
        return Err(JaasFault::Behind);
    }
    let class = class.rsplit('.').next().unwrap_or_default().to_owned();
    Ok(LoginModule { class, options })
}

fn tokens(line: &str) -> Result<Vec<Token>, JaasFault> {
    let mut tokens = Vec::new();
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '=' => tokens.push(Token::Equals),
            ';' => tokens.push(Token::Semicolon),
            '"' | '\'' => tokens.push(Token::Word(quoted(&mut chars, c)?)),
            c if c.is_whitespace() => {}
            c => {
                let mut word = String::from(c);
                while let Some(c) =
                    chars.next_if(|c| !c.is_whitespace() && !['=', ';', '"', '\''].contains(c))
                {
                    word.push(c);
                }
                tokens.push(Token::Word(word));
            }
        }
    }
    Ok(tokens)
}

/// The text up to the closing quote, unescaped.
fn quoted(chars: &mut impl Iterator<Item = char>, quote: char) -> Result<String, JaasFault> {
    let mut text = String::new();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next().ok_or(JaasFault::Quote)? {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                other => text.push(other),
            },
            c if c == quote => return Ok(text),
            c => text.push(c),
        }
    }
    Err(JaasFault::Quote)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_kafka_reads_it() {
        let module = parse(
            "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"a\\\"nn\" password='b;c = d'\n\
             tokenauth=true ;",
        );
        let module = module.expect("a login module");
        assert_eq!(module.class, "ScramLoginModule");
        assert_eq!(module.options["username"], "a\"nn");
        assert_eq!(module.options["password"], "b;c = d");
        assert_eq!(module.options["tokenauth"], "true");
    }

    #[test]
    fn errors_name_the_fault() {
        for (line, fault) in [
            ("", JaasFault::Empty),
            ("A;", JaasFault::Flag),
            ("A required", JaasFault::Semicolon),
            ("A required username;", JaasFault::Option),
            ("A required ='x';", JaasFault::Option),
            ("A required username=\"x;", JaasFault::Quote),
            ("A required; B required;", JaasFault::Behind),
        ] {
            assert_eq!(parse(line), Err(fault), "{line}");
        }
    }
}
