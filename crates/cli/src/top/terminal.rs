//! The terminal of a live screen: the alternate screen, and keys. Both end with the value, so that the
//! terminal is as before after errors and signals, too.

use std::io::{self, IsTerminal, Read, Write};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::sync::mpsc;

use super::screen::{Line, Look};
use crate::output::Style;

/// Size of a terminal that does not report it.
const SIZE: (usize, usize) = (80, 24);
/// Keys that wait to be handled.
const KEYS_MAX: usize = 16;

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// True while the alternate screen is shown.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);

/// A terminal that shows a live screen.
pub(super) struct Terminal {
    /// The settings of standard input to restore, if it is a terminal.
    before: Option<Termios>,
    style: Style,
}

impl Terminal {
    /// Takes the terminal of standard output. Keys come from standard input, if that is a terminal, too.
    pub(super) fn open() -> io::Result<(Terminal, mpsc::Receiver<u8>)> {
        let (sender, keys) = mpsc::channel(KEYS_MAX);
        let mut terminal = Terminal { before: None, style: Style::of_standard_output() };
        if io::stdin().is_terminal() {
            let before = tcgetattr(io::stdin())?;
            let mut modes = before.clone();
            // Keys arrive at once and are not shown. Ctrl-C still is a signal; a stop by Ctrl-Z would leave
            // the terminal in these modes.
            modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            modes.special_codes[SpecialCodeIndex::VSUSP] = 0;
            modes.special_codes[SpecialCodeIndex::VMIN] = 1;
            modes.special_codes[SpecialCodeIndex::VTIME] = 0;
            tcsetattr(io::stdin(), OptionalActions::Flush, &modes)?;
            terminal.before = Some(before);
            // The thread ends with the process: a read from a terminal cannot be interrupted.
            std::thread::Builder::new().name("keys".to_owned()).spawn(move || read_keys(&sender))?;
        }
        // The message of a panic must not end with the alternate screen.
        let message = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            leave();
            message(panic);
        }));
        let mut out = io::stdout().lock();
        IS_SHOWN.store(true, Ordering::SeqCst);
        out.write_all(ENTER.as_bytes())?;
        out.flush()?;
        Ok((terminal, keys))
    }

    /// Columns and lines.
    pub(super) fn size() -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => SIZE,
        }
    }

    /// Draws lines in place of the earlier ones; lines beyond the height are left out.
    pub(super) fn draw(&self, lines: &[Line]) -> io::Result<()> {
        if !IS_SHOWN.load(Ordering::SeqCst) {
            return Ok(());
        }
        let (_, height) = Terminal::size();
        let mut text = String::from("\x1b[H");
        for (number, line) in lines.iter().take(height).enumerate() {
            if number > 0 {
                text.push('\n');
            }
            text.push_str(&painted(line, self.style));
            text.push_str("\x1b[K");
        }
        text.push_str("\x1b[J");
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

/// A line in its colours.
pub(super) fn painted(line: &Line, style: Style) -> String {
    match line.look {
        Look::Plain => line.text.clone(),
        Look::Heading => style.heading(&line.text),
        Look::Good => style.good(&line.text),
        Look::Doubtful => style.doubtful(&line.text),
        Look::Bad => style.bad(&line.text),
    }
}

/// Leaves the alternate screen, unless it was left before.
fn leave() {
    if IS_SHOWN.swap(false, Ordering::SeqCst) {
        let mut out = io::stdout().lock();
        // The terminal may be gone.
        let _ = out.write_all(LEAVE.as_bytes()).and_then(|()| out.flush());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        leave();
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, before);
        }
    }
}

/// Reads keys until the terminal or their receiver is gone.
fn read_keys(keys: &mpsc::Sender<u8>) {
    let mut key = [0];
    while io::stdin().read(&mut key).is_ok_and(|read| read > 0) {
        if keys.blocking_send(key[0]).is_err() {
            return;
        }
    }
}
