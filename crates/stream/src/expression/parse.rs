//! The parser. Parsing and evaluation recurse as deep as the expression is nested, and a stack overflow
//! aborts the process. Therefore a text is parsed on a stack that suffices for the longest text, and trees
//! too deep for other stacks are rejected.

use cel::common::ast::{EntryExpr, Expr};
use cel::{Env, IdedExpr};

use super::NoExpression;

/// Maximum length of an expression in bytes.
const TEXT_BYTES_MAX: usize = 16 << 10;
/// Maximum depth of a tree that can be evaluated on a stack of [`crate::STACK_BYTES`].
const DEPTH_MAX: usize = 64;
/// Suffices for the deepest tree of the longest text. Untouched pages take no memory.
const STACK_BYTES: usize = 256 << 20;

/// Parses an expression, or returns its error.
pub fn tree(text: &str, env: &Env) -> Result<IdedExpr, NoExpression> {
    if text.trim().is_empty() {
        return Err("it is empty".into());
    }
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("it has {} bytes; the limit is {TEXT_BYTES_MAX}", text.len()).into());
    }
    std::thread::scope(|scope| {
        let parsing =
            std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, || parse(text, env));
        let parsing = parsing.map_err(|error| format!("no thread could be started to parse it: {error}"))?;
        parsing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn parse(text: &str, env: &Env) -> Result<IdedExpr, NoExpression> {
    let tree = env.parser().enable_optional_syntax(true).parse(text).map_err(|errors| {
        match errors.errors.first() {
            Some(error) => {
                let (line, column) = error.pos;
                NoExpression {
                    reason: reworded(&error.msg),
                    at: byte_at(text, line as usize, column as usize),
                }
            }
            None => "it cannot be parsed".into(),
        }
    })?;
    // Dropping a tree recurses too, so a rejected tree is dropped on this stack.
    match depth(&tree) {
        0..=DEPTH_MAX => Ok(tree),
        depth => Err(format!("it is nested {depth} deep; the limit is {DEPTH_MAX}").into()),
    }
}

/// The byte at a column of a line, both counted from 1.
fn byte_at(text: &str, line: usize, column: usize) -> Option<usize> {
    let start: usize = text.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
    let before: usize = text[start..].chars().take(column.checked_sub(1)?).map(char::len_utf8).sum();
    Some(start + before)
}

/// The parser's message in plain words.
fn reworded(message: &str) -> String {
    let message = message.trim_start_matches("Syntax error: ");
    // The parser's own depth limit includes its state in the message.
    if message.contains("Recursion limit") {
        return format!("it is nested too deep; the limit is {DEPTH_MAX}");
    }
    let quoted = |part: &str| part.split('\'').nth(1).map(|token| token.trim().to_owned());
    let unexpected = ["token recognition error at: ", "mismatched input ", "extraneous input "]
        .into_iter()
        .chain(["no viable alternative at input "])
        .find_map(|start| quoted(message.strip_prefix(start)?));
    match unexpected.as_deref() {
        Some("<EOF>") => "it ends unexpectedly".to_owned(),
        Some("") => "a quote is not closed on its line; write \\n for a line break".to_owned(),
        Some(token) => {
            let meant = match token {
                "=" => "; == compares",
                "and" => "; use &&",
                "or" => "; use ||",
                "not" => "; use !",
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

    fn tree(text: &str) -> Result<IdedExpr, NoExpression> {
        super::tree(text, &Env::stdlib())
    }

    #[test]
    fn expressions_nested_too_deep_are_rejected_without_overflow() {
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
            ("a.?", "b"),
            ("a[?0].", "b"),
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
                // Some texts are valid, such as `!!!!true`. The test is that parsing returns.
                if let Err(wrong) = tree(&text) {
                    assert!(!wrong.reason.is_empty() && wrong.at.is_none_or(|at| at <= text.len()), "{part}");
                }
            }
        }
        for deep in ["(".repeat(200) + "1" + &")".repeat(200), "[".repeat(500)] {
            let reason = tree(&deep).map(|_| ()).expect_err("it is deep").reason;
            assert!(reason.starts_with("it is nested"), "{reason}");
        }
        let chain = |count: usize| tree(&("1+".repeat(count) + "1"));
        assert!(chain(DEPTH_MAX - 1).is_ok());
        assert_eq!(chain(64).err(), Some("it is nested 65 deep; the limit is 64".into()));
        for deep in [chain(DEPTH_MAX - 1), tree(&format!("{}1{}", "[".repeat(60), "]".repeat(60)))] {
            let deep = deep.expect("it is not too deep");
            let evaluate = move || cel::Value::resolve(&deep, &cel::Context::default()).is_ok();
            let thread = std::thread::Builder::new().stack_size(crate::STACK_BYTES).spawn(evaluate);
            assert!(thread.expect("a thread").join().expect("it has room"));
        }
    }
}
