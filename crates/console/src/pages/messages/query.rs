//! The parameters of the page of messages: a search, the columns of the table, and the order of its rows.
//! Together they restore the view, so that every link of the page has them.

use std::cmp::Ordering;

use thalweg_browse::Message;

use crate::cluster::messages::{MESSAGES_DEFAULT, MessageQuery};
use crate::cluster::search_result::SearchResult;
use crate::columns::{self, Column, MessageFields};
use crate::page::encode;
use crate::pages::topic::path;
use crate::problem::Problem;

/// What the page shows.
#[derive(Clone, Debug, Default)]
pub struct PageQuery {
    pub search: MessageQuery,
    pub columns: Vec<Column>,
    /// The order of the rows; that of the search if none.
    pub sort: Option<Sort>,
}

/// An order of rows, which does not change what the page has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sort {
    pub by: SortKey,
    pub is_descending: bool,
}

/// The column by which rows are ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SortKey {
    Time,
    Partition,
    Offset,
    Key,
    Value,
    Column(Column),
}

/// The columns that every page has.
const FIXED: [(&str, SortKey); 5] = [
    ("time", SortKey::Time),
    ("partition", SortKey::Partition),
    ("offset", SortKey::Offset),
    ("key", SortKey::Key),
    ("value", SortKey::Value),
];
/// Precedes the name of another column.
const COLUMN: &str = "column:";

impl Sort {
    /// Parses the name of a column, after a minus for the descending order.
    fn parse(text: &str, columns: &[Column]) -> Result<Sort, Problem> {
        let (is_descending, name) = text.strip_prefix('-').map_or((false, text), |name| (true, name));
        let by = match name.strip_prefix(COLUMN) {
            Some(name) => columns.iter().find(|column| column.name() == name).cloned().map(SortKey::Column),
            None => FIXED.into_iter().find(|(fixed, _)| *fixed == name).map(|(_, key)| key),
        };
        by.map(|by| Sort { by, is_descending }).ok_or_else(|| {
            Problem::wrong(format!(
                "sort: {text:?} is no column of the page: use time, partition, offset, key, value or column:NAME, \
                 after a minus for the descending order"
            ))
        })
    }

    fn parameter(&self) -> String {
        let minus = if self.is_descending { "-" } else { "" };
        match &self.by {
            SortKey::Column(column) => format!("{minus}{COLUMN}{}", column.name()),
            by => {
                let fixed = FIXED.iter().find(|(_, key)| key == by);
                format!("{minus}{}", fixed.map_or("", |(name, _)| name))
            }
        }
    }
}

impl PageQuery {
    /// Reads the parameters of an address. Unknown ones are refused.
    pub fn read(pairs: Vec<(String, String)>) -> Result<PageQuery, Problem> {
        let (mut names, mut sort, mut rest) = (Vec::new(), None, Vec::new());
        for (name, value) in pairs {
            match name.as_str() {
                "column" => names.push(value),
                "sort" if sort.is_none() => sort = Some(value),
                "sort" => return Err(Problem::wrong("sort: it is given twice: use it once")),
                // The outcome of a change, which the frame shows.
                "note" => {}
                _ => rest.push((name, value)),
            }
        }
        let mut search = MessageQuery::of_pairs(rest)?;
        if search.limit == 0 {
            search.limit = MESSAGES_DEFAULT;
        }
        let columns = Column::parse_all(&names)?;
        let sort = sort.filter(|sort| !sort.is_empty());
        let sort = sort.map(|sort| Sort::parse(&sort, &columns)).transpose()?;
        Ok(PageQuery { search, columns, sort })
    }

    /// The parameters of the columns, as names and values.
    pub fn pairs_of_columns(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.columns.iter().map(|column| ("column", column.name().to_owned()))
    }

    /// The parameters besides the search, as names and values.
    pub fn pairs_of_table(&self) -> Vec<(&'static str, String)> {
        let sort = self.sort.as_ref().map(|sort| ("sort", sort.parameter()));
        self.pairs_of_columns().chain(sort).collect()
    }

    /// The address of the page.
    pub fn address(&self, topic: &str) -> String {
        let pairs = self.search.pairs().chain(self.pairs_of_table());
        address(&format!("{}/messages", path(topic)), pairs)
    }

    /// The same page with another search.
    pub fn with_search(&self, search: MessageQuery) -> PageQuery {
        PageQuery { search, ..self.clone() }
    }

    /// The same messages as those found, also when newer ones arrive.
    pub fn pinned(&self, found: &SearchResult) -> PageQuery {
        let parameter = |positions: crate::cluster::positions::Positions| positions.parameter();
        let unpinned = MessageQuery { before: String::new(), after: String::new(), ..self.search.clone() };
        let search = match found.is_backward {
            true => parameter(found.upper()).map(|before| MessageQuery { before, ..unpinned }),
            false => parameter(found.lower()).map(|after| MessageQuery { after, ..unpinned }),
        };
        self.with_search(search.unwrap_or_else(|| self.search.clone()))
    }

    /// True if new messages appear on the page while it is open.
    pub fn is_live(&self) -> bool {
        let search = &self.search;
        let is_first = search.before.is_empty() && search.after.is_empty();
        search.is_newest_first() && is_first && self.sort.is_none()
    }

    /// Orders messages as the page shows them.
    pub fn sort(&self, messages: &mut Vec<Message>) {
        let Some(sort) = &self.sort else { return };
        let order = sort.order(messages);
        let mut taken: Vec<Option<Message>> = std::mem::take(messages).into_iter().map(Some).collect();
        messages.extend(order.into_iter().filter_map(|at| taken.get_mut(at)?.take()));
    }
}

impl Sort {
    /// The indexes of messages in order. Equal ones keep their order; those without the column are last.
    fn order(&self, messages: &[Message]) -> Vec<usize> {
        let cells: Vec<_> = match &self.by {
            SortKey::Column(column) => {
                messages.iter().map(|message| MessageFields::of(message).cell(column)).collect()
            }
            _ => Vec::new(),
        };
        let bytes = |at: usize| {
            let content = if self.by == SortKey::Key { &messages[at].key } else { &messages[at].value };
            content.as_ref().map(|content| &content.bytes)
        };
        let directed = |order: Ordering| if self.is_descending { order.reverse() } else { order };
        let mut order: Vec<usize> = (0..messages.len()).collect();
        order.sort_by(|&a, &b| match self.by {
            SortKey::Time => directed(messages[a].timestamp.cmp(&messages[b].timestamp)),
            SortKey::Partition => directed(messages[a].partition.cmp(&messages[b].partition)),
            SortKey::Offset => directed(messages[a].offset.cmp(&messages[b].offset)),
            SortKey::Key | SortKey::Value => match (bytes(a), bytes(b)) {
                (Some(a), Some(b)) => directed(a.cmp(b)),
                (a, b) => b.is_some().cmp(&a.is_some()),
            },
            SortKey::Column(_) => match (&cells[a], &cells[b]) {
                (Some(a), Some(b)) => directed(columns::compare(Some(a), Some(b))),
                (a, b) => columns::compare(a.as_ref(), b.as_ref()),
            },
        });
        order
    }
}

/// An address with parameters.
pub fn address(path: &str, pairs: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let mut address = path.to_owned();
    for (at, (name, value)) in pairs.into_iter().enumerate() {
        address.push(if at == 0 { '?' } else { '&' });
        address.push_str(name);
        address.push('=');
        // Positions are long, and legible as they are.
        match name {
            "before" | "after" => address.push_str(&value),
            _ => address.push_str(&encode(&value)),
        }
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::testing::message;
    use thalweg_browse::Content;

    fn read(query: &[(&str, &str)]) -> Result<PageQuery, Problem> {
        let pairs = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        PageQuery::read(pairs.collect())
    }

    #[test]
    fn an_address_restores_the_view() {
        let query = [
            ("from", "time"),
            ("at", "2026-01-31 12:00"),
            ("after", "0:12,1-3:7"),
            ("limit", "7"),
            ("key", "a&b=c"),
            ("expression", "payload.amount > 5"),
            ("column", "customer.id"),
            ("column", "header:trace"),
            ("sort", "-column:customer.id"),
            ("note", "0123"),
            ("text", ""),
        ];
        let address = read(&query).expect("right").address("or.ders");
        assert_eq!(
            address,
            "/topics/or.ders/messages?from=time&at=2026-01-31%2012%3A00&after=0:12,1-3:7&limit=7&key=a%26b%3Dc&\
             expression=payload.amount%20%3E%205&column=customer.id&column=header%3Atrace&\
             sort=-column%3Acustomer.id"
        );
        assert_eq!(read(&[]).expect("right").address("t"), "/topics/t/messages?limit=50");
    }

    #[test]
    fn wrong_parameters_are_named() {
        for (query, words) in [
            (&[("colunm", "a")][..], "unknown field `colunm`, expected one of `from`"),
            (&[("key", "a"), ("key", "b")], "duplicate field `key`"),
            (&[("sort", "size")], "sort: \"size\" is no column of the page"),
            (&[("sort", "column:a"), ("column", "b")], "sort: \"column:a\" is no column"),
            (&[("sort", "key"), ("sort", "key")], "sort: it is given twice"),
            (&[("limit", "x")], "\"x\" is not a number"),
            (&[("column", "a..b")], "column: \"a..b\" has an empty name"),
        ] {
            let wrong = read(query).expect_err(words);
            assert!(wrong.message.contains(words), "{}", wrong.message);
        }
    }

    #[test]
    fn rows_are_ordered_by_a_column() {
        let with = |partition, offset, timestamp, value: Option<&str>| Message {
            value: value.map(|text| Content {
                bytes: text.as_bytes().to_vec().into(),
                whole_bytes: text.len(),
                schema: None,
            }),
            ..message(partition, offset, timestamp)
        };
        let messages = vec![
            with(1, 5, 30, Some("{\"n\": 10}")),
            with(0, 9, 20, None),
            with(0, 8, 40, Some("{\"n\": 9}")),
            with(1, 4, 10, Some("{\"n\": 9}")),
        ];
        let offsets = |sort: &str| {
            let mut messages = messages.clone();
            read(&[("column", "n"), ("sort", sort)]).expect("right").sort(&mut messages);
            messages.iter().map(|message| message.offset.0).collect::<Vec<_>>()
        };
        assert_eq!(offsets(""), [5, 9, 8, 4]);
        assert_eq!((offsets("time"), offsets("-time")), (vec![4, 9, 5, 8], vec![8, 5, 9, 4]));
        assert_eq!((offsets("partition"), offsets("-offset")), (vec![9, 8, 5, 4], vec![9, 8, 5, 4]));
        assert_eq!((offsets("value"), offsets("-value")), (vec![5, 8, 4, 9], vec![8, 4, 5, 9]));
        assert_eq!((offsets("column:n"), offsets("-column:n")), (vec![8, 4, 5, 9], vec![5, 8, 4, 9]));
    }
}
