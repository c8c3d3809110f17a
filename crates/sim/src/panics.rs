//! Detects panics of a simulation's thread: a runtime catches the panic of a task, which must not go
//! unnoticed.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Starts recording panics in all threads that call this function.
pub fn watch() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.with_borrow_mut(|panics| panics.push(panic.to_string()));
            before(panic);
        }));
    });
    PANICS.with_borrow_mut(Vec::clear);
}

/// True if a panic was recorded in this thread.
pub fn happened() -> bool {
    PANICS.with_borrow(|panics| !panics.is_empty())
}

/// Takes the panics of this thread.
pub fn take() -> Vec<String> {
    PANICS.take()
}
