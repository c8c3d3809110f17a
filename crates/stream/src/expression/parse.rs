//! From text to tree. The parser, and whoever walks over its tree later, goes as deep as the expression is nested,
//! and a stack that overflows takes the process down: so a text is parsed on a stack that is large enough for any,
//! and a tree that is too deep for others is refused there.

use cel::IdedExpr;
use cel::common::ast::{EntryExpr, Expr};
use cel::parser::Parser;

use super::NoExpression;

/// The longest expression.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// The deepest tree: what an evaluation has room for on a stack of [`crate::STACK_BYTES`].
const DEPTH_MAX: usize = 64;
/// Room for a tree that is as deep as the longest text allows. Only what is used of it is ever in memory.
const STACK_BYTES: usize = 256 << 20;

/// Reads an expression. An error is what is wrong with it.
pub fn tree(text: &str) -> Result<IdedExpr, NoExpression> {
    if text.trim().is_empty() {
        return Err("it is empty".into());
    }
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("it has {} bytes, and {TEXT_BYTES_MAX} is the most", text.len()).into());
    }
    std::thread::scope(|scope| {
        let parsing = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, || parse(text));
        let parsing = parsing.map_err(|error| format!("no thread can be started to read it: {error}"))?;
        parsing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn parse(text: &str) -> Result<IdedExpr, NoExpression> {
    let tree = Parser::default().parse(text).map_err(|errors| match errors.errors.first() {
        Some(error) => {
            let (line, column) = error.pos;
            NoExpression { reason: reworded(&error.msg), at: place(text, line as usize, column as usize) }
        }
        None => "it cannot be read".into(),
    })?;
    // A tree that is refused is dropped here, which goes as deep.
    match depth(&tree) {
        0..=DEPTH_MAX => Ok(tree),
        depth => Err(format!("it is nested {depth} deep, and {DEPTH_MAX} is the most").into()),
    }
}

/// The byte at a column of a line, both counted from 1.
fn place(text: &str, line: usize, column: usize) -> Option<usize> {
    let start: usize = text.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
    let before: usize = text[start..].chars().take(column.checked_sub(1)?).map(char::len_utf8).sum();
    Some(start + before)
}

/// What the parser says, in words for people who do not know its grammar.
fn reworded(message: &str) -> String {
    let message = message.trim_start_matches("Syntax error: ");
    let quoted = |part: &str| part.split('\'').nth(1).map(|token| token.trim().to_owned());
    let unexpected = ["token recognition error at: ", "mismatched input ", "extraneous input "]
        .into_iter()
        .chain(["no viable alternative at input "])
        .find_map(|start| quoted(message.strip_prefix(start)?));
    match unexpected.as_deref() {
        Some("<EOF>") => "it ends too soon".to_owned(),
        Some("") => "a quote is not closed on its line, on which \\n stands for an end of line".to_owned(),
        Some(token) => {
            let meant = match token {
                "=" => "; == compares",
                "and" => "; && is the word for it",
                "or" => "; || is the word for it",
                "not" => "; ! is the word for it",
                _ => "",
            };
            format!("{token} is not expected here{meant}")
        }
        None => message.to_owned(),
    }
}

fn depth(tree: &IdedExpr) -> usize {
    let below = match &tree.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => 0,
        Expr::Select(select) => depth(&select.operand),
        Expr::List(list) => deepest(&list.elements),
        Expr::Map(map) => entries(map.entries.iter().map(|entry| &entry.expr)),
        Expr::Struct(built) => entries(built.entries.iter().map(|entry| &entry.expr)),
        Expr::Call(call) => deepest(call.target.iter().map(|target| &**target).chain(&call.args)),
        Expr::Comprehension(comprehension) => deepest([
            &comprehension.iter_range,
            &comprehension.accu_init,
            &comprehension.loop_cond,
            &comprehension.loop_step,
            &comprehension.result,
        ]),
    };
    below + 1
}

fn deepest<'a>(trees: impl IntoIterator<Item = &'a IdedExpr>) -> usize {
    trees.into_iter().map(depth).max().unwrap_or(0)
}

fn entries<'a>(entries: impl Iterator<Item = &'a EntryExpr>) -> usize {
    let depths = entries.map(|entry| match entry {
        EntryExpr::MapEntry(entry) => depth(&entry.key).max(depth(&entry.value)),
        EntryExpr::StructField(field) => depth(&field.value),
    });
    depths.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_nested_too_deep_is_refused_and_harms_no_stack() {
        for (part, end) in [
            ("(", ""),
            ("[", ""),
            ("!", "x"),
            ("-", "x"),
            ("{1:", ""),
            ("a?", ""),
            ("a.b(", ""),
            ("1+", "1"),
            ("a.", "b"),
            ("a[0].", "b"),
            ("a&&", "b"),
            ("a==", "b"),
            ("a?1:", "1"),
            ("a in ", "b"),
            ("[1].map(x,", ""),
            ("\"", ""),
            ("//", ""),
            ("[[1].map(x,x),", "]"),
        ] {
            for bytes in [300, 3_000, TEXT_BYTES_MAX - 10] {
                let text = part.repeat(bytes / part.len()) + end;
                // It may be right, as `!!!!true` is; what counts is to hear of it.
                if let Err(wrong) = tree(&text) {
                    assert!(!wrong.reason.is_empty() && wrong.at.is_none_or(|at| at <= text.len()), "{part}");
                }
            }
        }
        let chain = |count: usize| tree(&("1+".repeat(count) + "1"));
        assert!(chain(DEPTH_MAX - 1).is_ok());
        assert_eq!(chain(64).err(), Some("it is nested 65 deep, and 64 is the most".into()));
        for deep in [chain(DEPTH_MAX - 1), tree(&format!("{}1{}", "[".repeat(60), "]".repeat(60)))] {
            let deep = deep.expect("it is not too deep");
            let evaluate = move || cel::Value::resolve(&deep, &cel::Context::default()).is_ok();
            let thread = std::thread::Builder::new().stack_size(crate::STACK_BYTES).spawn(evaluate);
            assert!(thread.expect("a thread").join().expect("it has room"));
        }
    }
}
