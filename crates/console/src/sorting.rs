//! The order of a list by one of its columns. The heads of a table are links that sort the list, so that the
//! order works without JavaScript and stays in the address.

use std::cmp::Ordering;

use axum::http::Uri;
use maud::{Markup, html};

use crate::problem::Problem;

/// The direction of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Ascending,
    Descending,
}

impl Direction {
    fn opposite(self) -> Direction {
        match self {
            Direction::Ascending => Direction::Descending,
            Direction::Descending => Direction::Ascending,
        }
    }

    /// The value of the parameter `order`, and of `aria-sort`.
    fn name(self) -> &'static str {
        match self {
            Direction::Ascending => "ascending",
            Direction::Descending => "descending",
        }
    }

    /// Compares two values in this direction. Unknown values come last in both directions.
    pub fn compare<T>(
        self,
        a: Option<T>,
        b: Option<T>,
        compare: impl FnOnce(&T, &T) -> Ordering,
    ) -> Ordering {
        match (a, b) {
            (Some(a), Some(b)) => match self {
                Direction::Ascending => compare(&a, &b),
                Direction::Descending => compare(&b, &a),
            },
            (a, b) => b.is_some().cmp(&a.is_some()),
        }
    }
}

/// A column of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortColumn {
    /// The value of the parameter `sort`.
    pub name: &'static str,
    /// The head of the column.
    pub title: &'static str,
    /// True for figures, which are aligned to the right.
    pub is_number: bool,
    /// The direction of the first click.
    first: Direction,
}

impl SortColumn {
    /// A column of texts: sorted from A to Z first.
    pub const fn text(name: &'static str, title: &'static str) -> SortColumn {
        SortColumn { name, title, is_number: false, first: Direction::Ascending }
    }

    /// A column of figures: the largest first.
    pub const fn number(name: &'static str, title: &'static str) -> SortColumn {
        SortColumn { name, title, is_number: true, first: Direction::Descending }
    }

    /// A column of states: the worst first.
    pub const fn state(name: &'static str, title: &'static str) -> SortColumn {
        SortColumn { name, title, is_number: false, first: Direction::Descending }
    }

    /// The class of the head. The column of the lag stays in sight in narrow windows.
    pub fn class(&self) -> Option<&'static str> {
        match self.name {
            "lag" => Some("number lag"),
            _ => self.is_number.then_some("number"),
        }
    }

    /// The same column with the other direction first.
    pub const fn ascending(self) -> SortColumn {
        SortColumn { first: Direction::Ascending, ..self }
    }
}

/// The order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sorting {
    /// The name of the column.
    pub column: &'static str,
    pub direction: Direction,
}

impl Sorting {
    /// The order by the parameters `sort` and `order`. Without them, the first column and the direction of
    /// its first click.
    pub fn of(columns: &[SortColumn], sort: &str, order: &str) -> Result<Sorting, Problem> {
        let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
        Problem::unless_known("sort", sort, &names)?;
        Problem::unless_known("order", order, &["ascending", "descending"])?;
        let column = columns.iter().find(|column| column.name == sort).unwrap_or(&columns[0]);
        let direction = match order {
            "ascending" => Direction::Ascending,
            "descending" => Direction::Descending,
            _ => column.first,
        };
        Ok(Sorting { column: column.name, direction })
    }

    /// The heads of a table.
    pub fn heads(self, uri: &Uri, columns: &[SortColumn]) -> Markup {
        html! { @for column in columns { (self.head(uri, column)) } }
    }

    /// The head of a column, with a link that sorts by the column, or turns the order.
    pub fn head(self, uri: &Uri, column: &SortColumn) -> Markup {
        let is_chosen = self.column == column.name;
        let next = if is_chosen { self.direction.opposite() } else { column.first };
        html! {
            th scope="col" class=[column.class()] aria-sort=[is_chosen.then(|| self.direction.name())] {
                a class="sort" href=(address(uri, column, next)) {
                    (column.title)
                    @if is_chosen {
                        " " span aria-hidden="true" { @match self.direction { Direction::Ascending => "▲", Direction::Descending => "▼" } }
                    }
                }
            }
        }
    }
}

/// Hidden fields that keep the order when the list is filtered.
pub fn kept(sort: &str, order: &str) -> Markup {
    html! {
        @for (name, value) in [("sort", sort), ("order", order)] {
            @if !value.is_empty() { input type="hidden" name=(name) value=(value); }
        }
    }
}

/// The address of the same list in another order, on its first page.
fn address(uri: &Uri, column: &SortColumn, direction: Direction) -> String {
    let replaced = ["sort=", "order=", "page=", "note="];
    let pairs = uri.query().unwrap_or_default().split('&');
    let others = pairs.filter(|pair| !pair.is_empty() && !replaced.iter().any(|name| pair.starts_with(name)));
    let mut address = format!("{}?", uri.path());
    for pair in others {
        address.push_str(pair);
        address.push('&');
    }
    address.push_str("sort=");
    address.push_str(column.name);
    if direction != column.first {
        address.push_str("&order=");
        address.push_str(direction.name());
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [SortColumn; 2] = [SortColumn::text("name", "Name"), SortColumn::number("size", "Data")];

    #[test]
    fn an_order_is_that_of_the_parameters() {
        let of = |sort, order| Sorting::of(&COLUMNS, sort, order).map_err(|problem| problem.message);
        let sorting = |column, direction| Ok(Sorting { column, direction });
        assert_eq!(of("", ""), sorting("name", Direction::Ascending));
        assert_eq!(of("size", ""), sorting("size", Direction::Descending));
        assert_eq!(of("size", "ascending"), sorting("size", Direction::Ascending));
        assert_eq!(of("", "descending"), sorting("name", Direction::Descending));
        assert_eq!(
            of("rate", ""),
            Err("sort: \"rate\" is unknown: use name, size, or leave it out".to_owned())
        );
        assert!(of("", "up").is_err_and(|message| message.starts_with("order: \"up\" is unknown")));
    }

    #[test]
    fn a_head_sorts_and_turns_the_order_and_keeps_the_filter() {
        let uri: Uri = "/topics?filter=a%26b&sort=size&page=3&note=x".parse().expect("an address");
        let sorting = Sorting::of(&COLUMNS, "size", "").expect("an order");
        let heads = sorting.heads(&uri, &COLUMNS).0;
        for part in [
            "<th scope=\"col\"><a class=\"sort\" href=\"/topics?filter=a%26b&amp;sort=name\">Name</a></th>",
            "class=\"number\" aria-sort=\"descending\">",
            "href=\"/topics?filter=a%26b&amp;sort=size&amp;order=ascending\">Data ",
        ] {
            assert!(heads.contains(part), "{part}: {heads}");
        }
        let turned = Sorting::of(&COLUMNS, "size", "ascending").expect("an order");
        let heads = turned.heads(&uri, &COLUMNS).0;
        assert!(heads.contains(
            "aria-sort=\"ascending\"><a class=\"sort\" href=\"/topics?filter=a%26b&amp;sort=size\">"
        ));
        assert_eq!(kept("size", "").0, "<input type=\"hidden\" name=\"sort\" value=\"size\">");
        assert_eq!(kept("", "").0, "");
    }

    #[test]
    fn unknown_values_come_last() {
        let mut sizes = [None, Some(2), Some(9), None, Some(5)];
        sizes.sort_by(|a, b| Direction::Descending.compare(*a, *b, Ord::cmp));
        assert_eq!(sizes, [Some(9), Some(5), Some(2), None, None]);
        sizes.sort_by(|a, b| Direction::Ascending.compare(*a, *b, Ord::cmp));
        assert_eq!(sizes, [Some(2), Some(5), Some(9), None, None]);
    }
}
