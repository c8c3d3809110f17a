//! The parser, written by hand: one character of look-ahead, with backtracking only for the name of a stream.

use super::{
    Complaint, Element, OptionText, ParsedDefinition, Span, SpannedText, StageText, StreamText, TapText,
    TopicText,
};

/// The longest accepted text.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Prefixes of named destinations and taps, which cannot be labels.
const DESTINATIONS: [&str; 3] = ["topic", "tap", "queue"];

/// The longest name of a hosted stream.
pub const NAME_BYTES_MAX: usize = 100;

/// True if this is a valid stream name, which taps and topic names can contain.
pub fn is_name(text: &str) -> bool {
    let word = Parser { text, at: 0 }.word();
    word.is_some_and(|word| word.span == (0..text.len())) && text.len() <= NAME_BYTES_MAX
}

/// Parses a text. Reports one mistake per stream, in the order of the text.
pub fn parse(text: &str) -> Result<ParsedDefinition, Vec<Complaint>> {
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("The text has {} bytes", text.len());
        return Err(vec![Complaint::new(0..0, message, format!("The limit is {TEXT_BYTES_MAX}."))]);
    }
    let mut parser = Parser { text, at: 0 };
    let mut definition = ParsedDefinition::default();
    let mut complaints = Vec::new();
    while parser.skip_to_stream() {
        match parser.stream() {
            Ok(stream) => definition.streams.push(stream),
            Err(complaint) => {
                complaints.push(complaint);
                parser.skip_stream();
            }
        }
    }
    if complaints.is_empty() && definition.streams.is_empty() {
        let right = "Write a stream such as `time | log`.";
        complaints.push(Complaint::new(text.len()..text.len(), "There is no stream in this text", right));
    }
    if complaints.is_empty() { Ok(definition) } else { Err(complaints) }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

/// The token that ends an element.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Joint {
    /// `|`
    Pipe,
    /// `>`
    Arrow,
    /// The end of the stream.
    End,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    /// Skips spaces and comments, but not line ends.
    fn skip_blank(&mut self) {
        while let Some(next) = self.peek() {
            match next {
                '\n' | ';' => break,
                '#' => self.at += self.rest().find('\n').unwrap_or(self.rest().len()),
                _ if next.is_whitespace() => self.at += next.len_utf8(),
                _ => break,
            }
        }
    }

    /// Skips spaces, comments and line ends.
    fn skip_lines(&mut self) {
        loop {
            self.skip_blank();
            if self.peek() != Some('\n') {
                break;
            }
            self.at += 1;
        }
    }

    /// True if another stream follows.
    fn skip_to_stream(&mut self) -> bool {
        loop {
            self.skip_lines();
            if self.peek() != Some(';') {
                return self.peek().is_some();
            }
            self.at += 1;
        }
    }

    /// Skips the rest of an invalid stream, with its continuation lines.
    fn skip_stream(&mut self) {
        self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        while self.goes_on() {
            self.skip_lines();
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    /// True if the next non-empty line continues this stream.
    fn goes_on(&self) -> bool {
        let mut ahead = Parser { text: self.text, at: self.at };
        ahead.skip_lines();
        ahead.rest().starts_with(['|', '>']) || ahead.rest().starts_with("--")
    }

    fn word(&mut self) -> Option<SpannedText> {
        let rest = self.rest();
        let end =
            rest.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-')).unwrap_or(rest.len());
        let starts = rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        (end > 0 && starts).then(|| {
            let span = self.at..self.at + end;
            self.at = span.end;
            SpannedText { text: self.text[span.clone()].to_owned(), span }
        })
    }

    fn stream(&mut self) -> Result<StreamText, Complaint> {
        let name = self.stream_name();
        self.skip_lines();
        let start = self.at;
        let mut elements = Vec::new();
        loop {
            let element = self.element(elements.is_empty())?;
            let end = element.span().end;
            elements.push(element);
            let before = self.at;
            let joint = self.joint();
            if joint == Joint::End {
                self.check_end()?;
                return Ok(StreamText { name, elements, span: start..end });
            }
            self.check_arrow(joint, &elements, before)?;
            self.skip_lines();
        }
    }

    /// Parses `name =`.
    fn stream_name(&mut self) -> Option<SpannedText> {
        let start = self.at;
        let name = self.word();
        self.skip_blank();
        if name.is_some() && self.peek() == Some('=') {
            self.at += 1;
            return name;
        }
        self.at = start;
        None
    }

    fn joint(&mut self) -> Joint {
        self.skip_blank();
        if self.goes_on() {
            self.skip_lines();
        }
        let joint = match self.peek() {
            Some('|') => Joint::Pipe,
            Some('>') => Joint::Arrow,
            _ => return Joint::End,
        };
        self.at += 1;
        joint
    }

    /// Checks the end of a stream.
    fn check_end(&mut self) -> Result<(), Complaint> {
        match self.peek() {
            None | Some('\n' | ';') => Ok(()),
            Some(_) => {
                let start = self.at;
                let end = self.rest().find(char::is_whitespace).map_or(self.text.len(), |at| start + at);
                let wrong = &self.text[start..end];
                let right = match wrong.strip_prefix('-') {
                    Some(option) if option.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                        format!("Options have two dashes: write `-{wrong}`.")
                    }
                    _ => "Options are written `--name=value`, with quotes around a value that has spaces; \
                          stages are joined by `|`."
                        .to_owned(),
                };
                Err(Complaint::new(start..end, format!("{wrong} is not expected here"), right))
            }
        }
    }

    /// Checks that `>` has a named destination on one side.
    fn check_arrow(&self, joint: Joint, elements: &[Element], before: usize) -> Result<(), Complaint> {
        let from_destination =
            elements.len() == 1 && matches!(elements.last(), Some(Element::Topic(_) | Element::Tap(_)));
        let mut ahead = Parser { text: self.text, at: self.at };
        ahead.skip_lines();
        let to_destination = ahead.destination_word().is_some();
        if joint == Joint::Pipe || from_destination || to_destination {
            return Ok(());
        }
        let at = self.text[before..self.at].rfind('>').map_or(before, |at| before + at);
        let right = "Write `|` between stages; `>` connects a stream to `topic:NAME`.";
        let right = match elements.last() {
            Some(Element::Stage(StageText { options, .. })) if !options.is_empty() => {
                format!("Quote a value that contains `>`: `--name='a > b'`. {right}")
            }
            _ => right.to_owned(),
        };
        Err(Complaint::new(at..at + 1, "Neither side of `>` is a named destination", right))
    }

    /// Parses `topic`, `tap` or `queue`, if a colon without a space follows.
    fn destination_word(&self) -> Option<&'static str> {
        DESTINATIONS.into_iter().find(|word| {
            let after = self.rest().strip_prefix(word).and_then(|rest| rest.strip_prefix(':'));
            after.is_some_and(|after| !after.starts_with(char::is_whitespace))
        })
    }

    fn element(&mut self, is_first: bool) -> Result<Element, Complaint> {
        match self.destination_word() {
            Some("topic") => self.topic(),
            Some("tap") => self.tap(is_first),
            Some(word) => {
                let span = self.at..self.at + word.len() + 1;
                let right = "Every stream that reads `topic:NAME` sees every message; \
                             `kafka --group=...` takes a share of a topic.";
                Err(Complaint::new(span, "queue: is not supported yet", right))
            }
            None => self.stage().map(Element::Stage),
        }
    }

    fn topic(&mut self) -> Result<Element, Complaint> {
        let start = self.at;
        self.at += "topic:".len();
        let name = self.dotted_name("topic:NAME")?;
        self.refuse_options("topic:NAME")?;
        Ok(Element::Topic(TopicText { span: start..name.span.end, name }))
    }

    /// Parses a topic name: letters, digits, dots, underscores and dashes, as in Kafka.
    fn dotted_name(&mut self, form: &str) -> Result<SpannedText, Complaint> {
        let start = self.at;
        let rest = self.rest();
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '_' | '-'))
            .unwrap_or(rest.len());
        self.at += end;
        let text = self.text[start..self.at].to_owned();
        if text.is_empty() || text.len() > 249 || text == "." || text == ".." {
            let right = format!("Write {form}, with 1 to 249 letters, digits, dots, underscores, dashes.");
            return Err(Complaint::new(start..self.at, "This is not a valid name", right));
        }
        Ok(SpannedText { text, span: start..self.at })
    }

    fn tap(&mut self, is_first: bool) -> Result<Element, Complaint> {
        let start = self.at;
        let right = "Write `tap:stream:NAME > ...` or `tap:stream:NAME.LABEL > ...`.";
        if !self.rest().starts_with("tap:stream:") {
            self.at += "tap:".len();
            self.word();
            return Err(Complaint::new(start..self.at, "Only streams can be tapped", right));
        }
        self.at += "tap:stream:".len();
        let here = self.at;
        let wrong = |parser: &Parser<'_>| Complaint::new(here..parser.at, "This is not a valid name", right);
        let stream = self.word().ok_or_else(|| wrong(self))?;
        let mut label = None;
        if self.peek() == Some('.') {
            self.at += 1;
            label = Some(self.word().ok_or_else(|| wrong(self))?);
        }
        let span = start..self.at;
        if !is_first {
            return Err(Complaint::new(span, "A tap can only begin a stream", right));
        }
        self.refuse_options("tap:stream:NAME")?;
        Ok(Element::Tap(TapText { stream, label, span }))
    }

    fn refuse_options(&mut self, what: &str) -> Result<(), Complaint> {
        self.skip_blank();
        let start = self.at;
        if !self.rest().starts_with("--") {
            return Ok(());
        }
        self.at += self.rest().find(char::is_whitespace).unwrap_or(self.rest().len());
        Err(Complaint::new(start..self.at, format!("{what} has no options"), "Remove them."))
    }

    fn stage(&mut self) -> Result<StageText, Complaint> {
        let start = self.at;
        let mut module = self.module_word()?;
        let mut label = None;
        if self.peek() == Some(':') {
            self.at += 1;
            self.skip_lines();
            label = Some(module);
            module = self.module_word()?;
        }
        let mut span = start..self.at;
        let mut options = Vec::new();
        loop {
            self.skip_blank();
            let mut ahead = Parser { text: self.text, at: self.at };
            ahead.skip_lines();
            if !ahead.rest().starts_with("--") {
                break;
            }
            self.at = ahead.at;
            options.push(self.option()?);
            span.end = self.at;
        }
        Ok(StageText { label, module, options, span })
    }

    fn module_word(&mut self) -> Result<SpannedText, Complaint> {
        let start = self.at;
        self.word().ok_or_else(|| {
            let next = self.peek();
            let span = start..start + next.map_or(0, char::len_utf8);
            let message = match next {
                Some(next) if next != '\n' && next != ';' => {
                    format!("A stage is expected here, not {next:?}")
                }
                _ => "A stage is missing here".to_owned(),
            };
            let right = "Write `source | processor | sink`; `thalweg stream modules` lists the stages.";
            Complaint::new(span, message, right)
        })
    }

    fn option(&mut self) -> Result<OptionText, Complaint> {
        let start = self.at;
        self.at += 2;
        let Some(name) = self.word() else {
            let right = "Write `--name=value`.";
            return Err(Complaint::new(start..self.at, "The option has no name", right));
        };
        if self.peek() != Some('=') {
            let right = format!("Write `--{}=VALUE`.", name.text);
            return Err(Complaint::new(start..self.at, format!("--{} has no value", name.text), right));
        }
        self.at += 1;
        let value = self.value()?;
        Ok(OptionText { name, value })
    }

    fn value(&mut self) -> Result<SpannedText, Complaint> {
        let start = self.at;
        let text = match self.peek() {
            Some(quote @ ('\'' | '"')) => {
                self.at += 1;
                self.quoted(quote, start)?
            }
            _ => self.bare()?,
        };
        Ok(SpannedText { text, span: start..self.at })
    }

    /// Parses a quoted text. A doubled quote is a literal one; double quotes also allow escapes.
    fn quoted(&mut self, quote: char, start: usize) -> Result<String, Complaint> {
        let mut text = String::new();
        loop {
            let here = self.at;
            match self.take() {
                None => {
                    let right = format!("Add a closing {quote}.");
                    return Err(Complaint::new(start..start + 1, "This quote is never closed", right));
                }
                Some(next) if next == quote => {
                    if self.peek() != Some(quote) {
                        return self.check_after_quote(text, start);
                    }
                    self.at += 1;
                    text.push(quote);
                }
                Some('\\') if quote == '"' => text.push(self.escape(here)?),
                Some(next) => text.push(next),
            }
        }
    }

    fn check_after_quote(&self, text: String, start: usize) -> Result<String, Complaint> {
        match self.peek() {
            None | Some('|' | '>' | ';') => Ok(text),
            Some(next) if next.is_whitespace() => Ok(text),
            Some(_) => {
                let right = "Quote the whole value, and double the quotes inside it.";
                Err(Complaint::new(start..self.at, "The value continues after its closing quote", right))
            }
        }
    }

    fn escape(&mut self, start: usize) -> Result<char, Complaint> {
        let wrong = |parser: &Parser<'_>| {
            let right = r#"\n, \r, \t, \\, \", \0 or \u{HEX}; between single quotes a backslash is literal."#;
            Complaint::new(start..parser.at, "There is no such escape", right)
        };
        match self.take() {
            Some('n') => Ok('\n'),
            Some('r') => Ok('\r'),
            Some('t') => Ok('\t'),
            Some('0') => Ok('\0'),
            Some(same @ ('\\' | '"' | '\'')) => Ok(same),
            Some('u') => {
                let digits = self.rest().strip_prefix('{').and_then(|rest| rest.split_once('}'));
                let code =
                    digits.and_then(|(digits, _)| Some((digits, u32::from_str_radix(digits, 16).ok()?)));
                let found = code.and_then(|(digits, code)| Some((digits, char::from_u32(code)?)));
                let (digits, found) = found.ok_or_else(|| wrong(self))?;
                self.at += digits.len() + 2;
                Ok(found)
            }
            _ => Err(wrong(self)),
        }
    }

    /// Parses an unquoted value, up to a space, pipe or semicolon. Quotes inside the value protect these
    /// characters and are kept, so that `--expression=payload.name=='a b'` works.
    fn bare(&mut self) -> Result<String, Complaint> {
        let start = self.at;
        while let Some(next) = self.peek() {
            match next {
                '|' | ';' => break,
                '\'' | '"' => {
                    let quote_at = self.at;
                    self.at += 1;
                    let Some(length) = self.rest().find(next) else {
                        let right = format!("Add a closing {next}, or quote the whole value.");
                        let span: Span = quote_at..quote_at + 1;
                        return Err(Complaint::new(span, "This quote is never closed", right));
                    };
                    self.at += length + 1;
                }
                _ if next.is_whitespace() => break,
                _ => self.at += next.len_utf8(),
            }
        }
        Ok(self.text[start..self.at].to_owned())
    }
}
