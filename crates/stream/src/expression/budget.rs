//! A bound on the work of one evaluation, in time and in memory.
//!
//! The evaluator of CEL cannot be interrupted: nested loops run for hours, and sums of texts grow until an
//! allocation fails, which aborts the process. Therefore a tree is rewritten before it is evaluated: every
//! pass of a loop, and every value that can be large, at the place of its creation or search, is charged to a
//! budget of the evaluation. An evaluation that has used up its budget fails at its next charge. Functions
//! whose result can be much larger than their arguments, or whose cost is not proportional to them, are
//! replaced by functions that are charged first (`functions`).
//!
//! A unit is about one step of the evaluator, or 16 bytes.

use std::cell::Cell;

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators};
use cel::common::types::{CelBytes, CelInt, CelList, CelMap, CelOptional, CelString};
use cel::common::value::Val;
use cel::{ExecutionError, IdedExpr};

use super::needs::NAMESPACES;

/// Minimum budget of an evaluation: under a second, and 64 MiB.
const UNITS: u64 = 4 << 20;
/// Extra units per byte of the message, so that a pass over all its elements is always possible.
const UNITS_PER_BYTE: u64 = 4;
/// Maximum budget of an evaluation.
const UNITS_MAX: u64 = 32 << 20;
const BYTES_PER_UNIT: u64 = 16;
/// Bytes scanned, not parsed or copied, per unit.
const SCANNED_PER_UNIT: u64 = 64;
/// Units per element: each element of a list or a map is allocated separately.
const ELEMENT_UNITS: u64 = 4;

/// The reason of an evaluation that has used up its budget.
pub const EXHAUSTED: &str =
    "it takes too much time or memory for one message; use fewer loops within loops, or shorter texts";

/// Charges one pass of a loop.
pub const TICK: &str = "@tick";
/// Charges the size of a value, and returns it.
pub const SIZED: &str = "@sized";
/// Converts a time to UTC.
pub const UTC: &str = "@utc";
/// Functions that are replaced by one with an `@` before the name.
const REPLACED: [&str; 5] = ["indexOf", "join", "lastIndexOf", "matches", "replace"];
/// Functions whose result is as large as their argument.
const COPYING: [&str; 16] = [
    "bytes",
    "decode",
    "encode",
    "flatten",
    "format",
    "lowerAscii",
    "percentEncode",
    "range",
    "reverse",
    "slice",
    "sort",
    "split",
    "string",
    "substring",
    "trim",
    "upperAscii",
];

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(0) };
    static IS_EXHAUSTED: Cell<bool> = const { Cell::new(false) };
}

/// Begins an evaluation on this thread, for a message of this size and an expression with this many reads
/// outside of loops.
pub fn begin(message_bytes: usize, reads: u64) {
    let bytes = message_bytes as u64;
    let units = UNITS.saturating_add(bytes.saturating_mul(UNITS_PER_BYTE)).min(UNITS_MAX);
    LEFT.set(units.saturating_add(reads.saturating_mul(bytes / SCANNED_PER_UNIT)));
    IS_EXHAUSTED.set(false);
}

/// True if the evaluation on this thread has used up its budget.
pub fn is_exhausted() -> bool {
    IS_EXHAUSTED.get()
}

/// Charges units; false if the remaining budget is too small.
pub fn charge(units: u64) -> bool {
    match LEFT.get().checked_sub(units) {
        Some(left) => LEFT.set(left),
        None => {
            LEFT.set(0);
            IS_EXHAUSTED.set(true);
        }
    }
    !IS_EXHAUSTED.get()
}

/// Charges the bytes of a scanned text.
pub fn charge_scan(bytes: usize) -> bool {
    charge(bytes as u64 / SCANNED_PER_UNIT)
}

/// Charges a value of this many bytes: an element of a list or map, or a value alone.
pub fn charge_element(bytes: usize) -> bool {
    charge(ELEMENT_UNITS + bytes as u64 / BYTES_PER_UNIT)
}

/// Charges a function by the bytes of its result or of its search.
pub fn charge_bytes(function: &str, bytes: u64) -> Result<(), ExecutionError> {
    if charge(1 + bytes / BYTES_PER_UNIT) { Ok(()) } else { Err(exhausted(function)) }
}

/// The evaluator's error for a used-up budget.
pub fn exhausted(function: &str) -> ExecutionError {
    ExecutionError::function_error(function, EXHAUSTED)
}

/// Charges a value with all its elements.
pub fn charge_value(value: &dyn Val) -> bool {
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        return charge(1 + text.inner().len() as u64 / BYTES_PER_UNIT);
    }
    if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
        return charge(1 + bytes.inner().len() as u64 / BYTES_PER_UNIT);
    }
    if let Some(list) = value.downcast_ref::<CelList<'_>>() {
        return charge(ELEMENT_UNITS * list.inner().len() as u64)
            && list.inner().iter().all(|element| charge_value(element.as_ref()));
    }
    if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
        return charge(2 * ELEMENT_UNITS * map.inner().len() as u64)
            && map
                .inner()
                .iter()
                .all(|(key, value)| charge_value(key.inner()) && charge_value(value.as_ref()));
    }
    if let Some(optional) = value.downcast_ref::<CelOptional<'_>>() {
        return charge(1) && optional.option().is_none_or(charge_value);
    }
    charge(1)
}

/// Rewrites a tree so that its evaluation is charged, and returns its number of reads of the message outside
/// of loops.
pub fn charged(tree: &mut IdedExpr) -> u64 {
    let mut rewriting = TreeRewriter { reads: 0 };
    rewriting.visit(tree, false);
    rewriting.reads
}

struct TreeRewriter {
    reads: u64,
}

impl TreeRewriter {
    fn visit(&mut self, tree: &mut IdedExpr, is_in_loop: bool) {
        match &mut tree.expr {
            Expr::Unspecified | Expr::Literal(_) => {}
            Expr::Ident(_) => self.reads += u64::from(!is_in_loop),
            Expr::Select(select) => self.visit(&mut select.operand, is_in_loop),
            Expr::List(list) => list.elements.iter_mut().for_each(|element| self.part(element, is_in_loop)),
            Expr::Map(map) => {
                map.entries.iter_mut().for_each(|entry| self.entry(&mut entry.expr, is_in_loop));
            }
            Expr::Struct(built) => {
                built.entries.iter_mut().for_each(|entry| self.entry(&mut entry.expr, is_in_loop));
            }
            Expr::Call(_) => self.call(tree, is_in_loop),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension, is_in_loop),
        }
    }

    fn entry(&mut self, entry: &mut EntryExpr, is_in_loop: bool) {
        match entry {
            EntryExpr::MapEntry(entry) => {
                self.part(&mut entry.key, is_in_loop);
                self.part(&mut entry.value, is_in_loop);
            }
            EntryExpr::StructField(field) => self.part(&mut field.value, is_in_loop),
        }
    }

    /// Rewrites an operand that is copied or searched. The value of a loop variable is charged here, because
    /// reading it costs nothing.
    fn part(&mut self, tree: &mut IdedExpr, is_in_loop: bool) {
        let is_variable = match &tree.expr {
            Expr::Ident(name) => !NAMESPACES.contains(&name.as_str()),
            Expr::Select(_) | Expr::Call(_) => true,
            _ => false,
        };
        self.visit(tree, is_in_loop);
        if is_in_loop && is_variable {
            wrap(tree);
        }
    }

    fn call(&mut self, tree: &mut IdedExpr, is_in_loop: bool) {
        let Expr::Call(call) = &mut tree.expr else { return };
        let name = call.func_name.clone();
        let is_number = call.args.iter().any(is_short);
        let searches = match name.as_str() {
            operators::ADD
            | operators::EQUALS
            | operators::NOT_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS => !is_number,
            operators::IN => true,
            name => name.starts_with(|c: char| c.is_ascii_alphabetic()),
        };
        for part in call.target.iter_mut().map(|target| &mut **target).chain(&mut call.args) {
            if searches { self.part(part, is_in_loop) } else { self.visit(part, is_in_loop) }
        }
        if REPLACED.contains(&name.as_str()) {
            replace(call);
        }
        let grows = name == operators::ADD && !is_number;
        if grows || COPYING.contains(&name.as_str()) {
            wrap(tree);
        }
        // The evaluator keeps the offset of a text, and takes hours and days by it. CEL takes them by UTC.
        if name == "timestamp" {
            let inner = std::mem::take(tree);
            *tree = self::call(inner.id, UTC, vec![inner]);
        }
    }

    fn comprehension(&mut self, comprehension: &mut ComprehensionExpr, is_in_loop: bool) {
        self.visit(&mut comprehension.iter_range, is_in_loop);
        let nodes = nodes(&comprehension.loop_step);
        self.step(&comprehension.accu_var, &mut comprehension.loop_step, nodes);
        self.visit(&mut comprehension.result, true);
        // The evaluator appends in place if the loop's condition is a literal. The step is charged in that
        // case.
        let is_append = matches!(&comprehension.accu_init.expr, Expr::List(list) if list.elements.is_empty());
        if !is_append {
            tick(&mut comprehension.loop_cond, nodes);
        }
    }

    /// Rewrites the step of a loop without changing the shapes that the evaluator optimises.
    fn step(&mut self, accumulator: &str, step: &mut IdedExpr, nodes: i64) {
        let is_accumulator = |tree: &IdedExpr| matches!(&tree.expr, Expr::Ident(name) if name == accumulator);
        let Expr::Call(call) = &mut step.expr else { return self.visit(step, true) };
        match (call.func_name.as_str(), &mut call.args[..]) {
            (operators::CONDITIONAL, [guard, step, _]) => {
                self.visit(guard, true);
                tick(guard, nodes);
                self.step(accumulator, step, nodes);
            }
            (operators::ADD, [first, added]) if is_accumulator(first) => match &mut added.expr {
                Expr::List(list) => {
                    for item in &mut list.elements {
                        self.visit(item, true);
                        tick_and_wrap(item, nodes);
                    }
                }
                _ => self.visit(added, true),
            },
            (_, [first, tested]) if is_accumulator(first) => self.visit(tested, true),
            _ => self.visit(step, true),
        }
    }
}

/// True if a value is so short that comparing or adding it costs no more than a step.
fn is_short(tree: &IdedExpr) -> bool {
    match &tree.expr {
        Expr::Literal(LiteralValue::String(text)) => text.inner().is_empty(),
        Expr::Literal(LiteralValue::Bytes(bytes)) => bytes.inner().is_empty(),
        Expr::Literal(_) => true,
        _ => false,
    }
}

fn nodes(tree: &IdedExpr) -> i64 {
    let below: i64 = match &tree.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => 0,
        Expr::Select(select) => nodes(&select.operand),
        Expr::List(list) => list.elements.iter().map(nodes).sum(),
        Expr::Map(map) => map.entries.iter().map(|entry| entry_nodes(&entry.expr)).sum(),
        Expr::Struct(built) => built.entries.iter().map(|entry| entry_nodes(&entry.expr)).sum(),
        Expr::Call(call) => call.target.iter().map(|target| &**target).chain(&call.args).map(nodes).sum(),
        Expr::Comprehension(inner) => nodes(&inner.iter_range) + nodes(&inner.result),
    };
    below + 1
}

fn entry_nodes(entry: &EntryExpr) -> i64 {
    match entry {
        EntryExpr::MapEntry(entry) => nodes(&entry.key) + nodes(&entry.value),
        EntryExpr::StructField(field) => nodes(&field.value),
    }
}

fn call(id: u64, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    IdedExpr { id, expr: Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }) }
}

fn literal(id: u64, value: LiteralValue) -> IdedExpr {
    IdedExpr { id, expr: Expr::Literal(value) }
}

/// `x` becomes `@sized(x)`.
fn wrap(tree: &mut IdedExpr) {
    let inner = std::mem::take(tree);
    if matches!(&inner.expr, Expr::Call(call) if call.func_name == SIZED) {
        *tree = inner;
        return;
    }
    *tree = call(inner.id, SIZED, vec![inner]);
}

/// `x` becomes `@sized(x, units)`.
fn tick_and_wrap(tree: &mut IdedExpr, units: i64) {
    let inner = std::mem::take(tree);
    let id = inner.id;
    *tree = call(id, SIZED, vec![inner, literal(id, LiteralValue::Int(CelInt::from(units)))]);
}

/// `x` becomes `@tick(units) ? x : false`. With `&&`, the second operand could override an error of the
/// first.
fn tick(tree: &mut IdedExpr, units: i64) {
    let inner = std::mem::take(tree);
    let id = inner.id;
    let tick = call(id, TICK, vec![literal(id, LiteralValue::Int(CelInt::from(units)))]);
    let no = literal(id, LiteralValue::Boolean(cel::common::types::CelBool::from(false)));
    *tree = call(id, operators::CONDITIONAL, vec![tick, inner, no]);
}

/// `x.f(y)` becomes `@f(x, y)`, except for calls in an undefined form.
fn replace(call: &mut CallExpr) {
    if let Some(target) = call.target.take() {
        call.args.insert(0, *target);
    }
    call.func_name = format!("@{}", call.func_name);
}
