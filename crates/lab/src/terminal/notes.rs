//! Numbered notes below a table. Notes that differ only in numbers are one, with the range of each number, so
//! that a reason has one number however many rows and repetitions it has.

/// The notes of a table, in order of appearance.
#[derive(Debug, Default)]
pub(super) struct Notes {
    notes: Vec<Note>,
}

/// A text and the ranges of its numbers.
#[derive(Debug)]
struct Note {
    /// The texts before, between and after the numbers.
    words: Vec<String>,
    /// The smallest and the largest of each number, as written.
    ranges: Vec<(String, String)>,
}

impl Notes {
    /// The number of a text's note, from 1.
    pub(super) fn number(&mut self, text: &str) -> usize {
        let (words, numbers) = split(text);
        let known = self.notes.iter_mut().enumerate().find(|(_, note)| note.words == words);
        match known {
            Some((place, note)) => {
                for (range, number) in note.ranges.iter_mut().zip(numbers) {
                    if value(&number) < value(&range.0) {
                        range.0 = number;
                    } else if value(&number) > value(&range.1) {
                        range.1 = number;
                    }
                }
                place + 1
            }
            None => {
                let ranges = numbers.into_iter().map(|number| (number.clone(), number)).collect();
                self.notes.push(Note { words, ranges });
                self.notes.len()
            }
        }
    }

    /// The texts of all notes.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> {
        self.notes.iter().map(|note| {
            let mut text = String::new();
            for (place, words) in note.words.iter().enumerate() {
                text += words;
                match note.ranges.get(place) {
                    Some((low, high)) if low == high => text += low,
                    Some((low, high)) => text += &format!("{low} to {high}"),
                    None => {}
                }
            }
            text
        })
    }
}

/// The texts around numbers, and the numbers. A digit within a word, as in `p99`, is part of the word.
fn split(text: &str) -> (Vec<String>, Vec<String>) {
    let (mut words, mut numbers) = (vec![String::new()], Vec::new());
    let mut rest = text;
    let mut before: Option<char> = None;
    while let Some(first) = rest.chars().next() {
        let length = number_length(rest);
        let is_word = before.is_some_and(|before| before.is_alphanumeric() || before == '_');
        if length == 0 || is_word {
            words.last_mut().expect("never empty").push(first);
            (before, rest) = (Some(first), &rest[first.len_utf8()..]);
            continue;
        }
        numbers.push(rest[..length].to_owned());
        words.push(String::new());
        (before, rest) = (rest[..length].chars().last(), &rest[length..]);
    }
    (words, numbers)
}

/// The length of the number that a text begins with, such as `1,101,442` or `12.3`; 0 if it begins with none.
fn number_length(text: &str) -> usize {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == ',' || c == '.')).unwrap_or(text.len());
    match text.starts_with(|c: char| c.is_ascii_digit()) {
        true => text[..end].trim_end_matches([',', '.']).len(),
        false => 0,
    }
}

fn value(number: &str) -> f64 {
    number.replace(',', "").parse().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_differ_in_numbers_are_one_note() {
        let mut notes = Notes::default();
        let numbers = [
            "latency end to end, p99 varies by 12.3 % over 3 repetitions; the limit is 10 %",
            "repetition 1: consumers fell behind: 367,199 of 1,101,442 records/s were consumed (33 %)",
            "latency end to end, p99 varies by 9.8 % over 3 repetitions; the limit is 10 %",
            "latency end to end, p99 varies by 53 % over 3 repetitions; the limit is 10 %",
            "latency end to end, p50 varies by 53 % over 3 repetitions; the limit is 10 %",
            "repetition 3: consumers fell behind: 354,973 of 1,059,149 records/s were consumed (34 %)",
        ]
        .map(|text| notes.number(text));
        assert_eq!(numbers, [1, 2, 1, 1, 3, 2]);
        let texts: Vec<String> = notes.texts().collect();
        assert_eq!(
            texts[0],
            "latency end to end, p99 varies by 9.8 to 53 % over 3 repetitions; the limit is 10 %"
        );
        assert_eq!(
            texts[1],
            "repetition 1 to 3: consumers fell behind: 354,973 to 367,199 of 1,059,149 to 1,101,442 records/s were consumed \
             (33 to 34 %)"
        );
        assert!(texts[2].contains("p50 varies by 53 %") && texts.len() == 3, "{texts:?}");
    }

    #[test]
    fn a_text_without_numbers_and_an_odd_one_stay_as_they_are() {
        for text in ["", "no number", "5", "a 1.2.3. b", "p99 of x_2, 3.", "流 7 流"] {
            let mut notes = Notes::default();
            notes.number(text);
            assert_eq!(notes.texts().collect::<Vec<_>>(), [text]);
        }
    }
}
