//! The message fields that an expression needs, found in its syntax tree at compile time.

use cel::IdedExpr;
use cel::common::ast::{EntryExpr, Expr, LiteralValue, operators};

use crate::language::closest;

/// The variables of a message.
pub const VARIABLES: [&str; 8] = ["payload", "text", "raw", "key", "headers", "time", "time_ms", "sequence"];
/// Namespaces of functions, which stand in front of their names.
pub const NAMESPACES: [&str; 4] = ["base64", "lists", "math", "optional"];
/// Names that can stand for a variable: types.
const TYPES: [&str; 12] =
    ["bool", "bytes", "double", "dyn", "google", "int", "list", "map", "null_type", "string", "type", "uint"];
/// The functions of the language, its extensions and this crate, plus operators and macro expansions. A name
/// stands for the functions of all namespaces. `distinct` is left out: it compares all pairs of elements.
const FUNCTIONS: [&str; 78] = [
    "abs",
    "bitAnd",
    "bitNot",
    "bitOr",
    "bitShiftLeft",
    "bitShiftRight",
    "bitXor",
    "bool",
    "bytes",
    "ceil",
    "charAt",
    "contains",
    "decode",
    "double",
    "duration",
    "dyn",
    "encode",
    "endsWith",
    "flatten",
    "floor",
    "format",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "greatest",
    "hasValue",
    "indexOf",
    "int",
    "isFinite",
    "isInf",
    "isNaN",
    "join",
    "lastIndexOf",
    "least",
    "lowerAscii",
    "matches",
    "max",
    "min",
    "none",
    "now",
    "of",
    "ofNonZeroValue",
    "optFlatMap",
    "optMap",
    "or",
    "orValue",
    "percentEncode",
    "range",
    "replace",
    "reverse",
    "round",
    "sha256",
    "sha512",
    "sign",
    "size",
    "slice",
    "sort",
    "sortBy",
    "split",
    "sqrt",
    "startsWith",
    "string",
    "substring",
    "sum",
    "timestamp",
    "trim",
    "trunc",
    "type",
    "uint",
    "upperAscii",
    "value",
];

/// Maximum number of regular expressions in one expression: each occupies memory for the life of the
/// expression.
const PATTERNS_MAX: usize = 64;

/// The parts of `payload` that an expression needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Needs {
    /// No part: the message can have any format.
    Nothing,
    Members(Vec<Box<str>>),
    /// The whole payload.
    Whole,
}

impl Needs {
    /// Collects the parts that the tree needs, and whether it reads the headers; fails at the first unknown
    /// name.
    pub fn of(tree: &IdedExpr) -> Result<(Needs, bool), String> {
        let mut search = Search { needs: Needs::Nothing, headers: false, bound: Vec::new(), patterns: 0 };
        search.visit(tree)?;
        Ok((search.needs, search.headers))
    }
}

struct Search<'a> {
    needs: Needs,
    headers: bool,
    /// Variables of enclosing macros, such as `x` in `list.exists(x, x > 1)`.
    bound: Vec<&'a str>,
    patterns: usize,
}

impl<'a> Search<'a> {
    fn visit(&mut self, expr: &'a IdedExpr) -> Result<(), String> {
        if let Some(member) = self.payload_member(expr) {
            self.member(member);
            return Ok(());
        }
        match &expr.expr {
            Expr::Unspecified | Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => self.visit(&select.operand),
            Expr::List(list) => list.elements.iter().try_for_each(|element| self.visit(element)),
            Expr::Map(map) => self.entries(map.entries.iter().map(|entry| &entry.expr)),
            Expr::Struct(built) => Err(format!("there is no type {}", built.type_name)),
            Expr::Call(call) => {
                if let Some(index) = self.index_of_payload(&call.func_name, &call.args) {
                    self.member(index);
                    return Ok(());
                }
                check_function(&call.func_name)?;
                self.patterns += usize::from(call.func_name == "matches");
                if self.patterns > PATTERNS_MAX {
                    return Err(format!("it has more than {PATTERNS_MAX} regular expressions (matches)"));
                }
                call.target.iter().try_for_each(|target| self.visit(target))?;
                call.args.iter().try_for_each(|argument| self.visit(argument))
            }
            Expr::Comprehension(comprehension) => {
                self.visit(&comprehension.iter_range)?;
                self.visit(&comprehension.accu_init)?;
                let before = self.bound.len();
                self.bound.push(&comprehension.iter_var);
                self.bound.extend(comprehension.iter_var2.as_deref());
                self.bound.push(&comprehension.accu_var);
                self.visit(&comprehension.loop_cond)?;
                self.visit(&comprehension.loop_step)?;
                self.visit(&comprehension.result)?;
                self.bound.truncate(before);
                Ok(())
            }
        }
    }

    fn entries(&mut self, entries: impl Iterator<Item = &'a EntryExpr>) -> Result<(), String> {
        for entry in entries {
            match entry {
                EntryExpr::MapEntry(entry) => {
                    self.visit(&entry.key)?;
                    self.visit(&entry.value)?;
                }
                EntryExpr::StructField(field) => self.visit(&field.value)?,
            }
        }
        Ok(())
    }

    /// The member, if the expression reads or tests `payload.member`.
    fn payload_member(&self, expr: &'a IdedExpr) -> Option<&'a str> {
        let Expr::Select(select) = &expr.expr else { return None };
        self.is_payload(&select.operand).then_some(select.field.as_str())
    }

    /// The member, if the expression is `payload["member"]`, `payload[?"member"]` or `payload.?member`.
    fn index_of_payload(&self, function: &str, arguments: &'a [IdedExpr]) -> Option<&'a str> {
        let indexes = [operators::INDEX, operators::OPT_INDEX, operators::OPT_SELECT];
        let ([operand, index], true) = (arguments, indexes.contains(&function)) else { return None };
        let Expr::Literal(LiteralValue::String(name)) = &index.expr else { return None };
        self.is_payload(operand).then(|| name.inner())
    }

    fn is_payload(&self, expr: &IdedExpr) -> bool {
        matches!(&expr.expr, Expr::Ident(name) if name == "payload") && !self.bound.contains(&"payload")
    }

    fn member(&mut self, name: &str) {
        match &mut self.needs {
            Needs::Nothing => self.needs = Needs::Members(vec![name.into()]),
            Needs::Members(names) if names.iter().any(|known| **known == *name) => {}
            Needs::Members(names) => names.push(name.into()),
            Needs::Whole => {}
        }
    }

    fn variable(&mut self, name: &str) -> Result<(), String> {
        if self.bound.contains(&name) || TYPES.contains(&name) || NAMESPACES.contains(&name) {
            return Ok(());
        }
        if name == "payload" {
            self.needs = Needs::Whole;
            return Ok(());
        }
        if VARIABLES.contains(&name) {
            self.headers |= name == "headers";
            return Ok(());
        }
        let meant = closest(name, VARIABLES).map_or(format!("payload.{name}"), str::to_owned);
        Err(format!("there is no variable {name}; did you mean {meant}?"))
    }
}

fn check_function(name: &str) -> Result<(), String> {
    // Macros expand to functions with an @, which no text can name.
    let is_word = name.starts_with(|c: char| c.is_ascii_alphabetic()) && !name.contains('@');
    if !is_word || FUNCTIONS.contains(&name) {
        return Ok(());
    }
    let macros = ["has", "all", "exists", "exists_one", "map", "filter"];
    let meant = closest(name, FUNCTIONS.into_iter().chain(macros));
    let meant = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
    Err(format!("there is no function {name}{meant}"))
}
