//! The terminal of a live screen: the alternate screen, and keys. Both end with the value, so that the
//! terminal is as before after errors and signals, too, even if it takes no output, as after Ctrl-S.

use std::io::{self, IsTerminal, Read, Write};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::termios::{
    Action, LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflow, tcflush,
    tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::screen::{Line, Look};
use crate::output::Style;

/// Size of a terminal that does not report it.
const SIZE: (usize, usize) = (80, 24);
/// Keys that wait to be handled.
const KEYS_MAX: usize = 16;

/// Maximum bytes of keys that are read at once.
const KEY_BYTES_MAX: usize = 256;
/// The first byte of the bytes of a key without a character, such as F2.
const ESCAPE: u8 = 0x1b;
/// Time for the command to end after its output was unblocked.
const UNBLOCKED_WAIT: Duration = Duration::from_millis(500);

/// The alternate screen, without a cursor, whose lines end at its edge.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// True while the alternate screen is shown.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);

/// A terminal that shows a live screen.
pub(super) struct Terminal {
    /// The settings of standard input to restore, if it is a terminal.
    before: Option<Termios>,
    style: Style,
}

impl Terminal {
    /// Takes the terminal of standard output, which [`Terminal::enter`] changes. Keys come from standard
    /// input, if that is a terminal, too.
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
            // Without a wait for output, which may be stopped.
            tcsetattr(io::stdin(), OptionalActions::Now, &modes)?;
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
        Ok((terminal, keys))
    }

    /// Shows the alternate screen.
    pub(super) fn enter(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        IS_SHOWN.store(true, Ordering::SeqCst);
        out.write_all(ENTER.as_bytes())?;
        out.flush()
    }

    /// Ends a write that waits for a terminal which takes no output, and restores the terminal's modes.
    pub(super) fn unblock(&self) -> impl Future<Output = ()> + Send + 'static {
        let before = self.before.clone();
        async move {
            // Both fail for a terminal that is gone, where no write waits.
            let _ = tcflush(io::stdout(), QueueSelector::OFlush);
            let _ = tcflow(io::stdout(), Action::OOn);
            sleep(UNBLOCKED_WAIT).await;
            restore(before.as_ref());
        }
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

/// Restores the modes of standard input, and drops unread keys. Waits for no output.
fn restore(before: Option<&Termios>) {
    if let Some(before) = before {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        let _ = tcflush(io::stdin(), QueueSelector::IFlush);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        leave();
        restore(self.before.as_ref());
    }
}

/// Reads keys until the terminal or their receiver is gone.
fn read_keys(keys: &mpsc::Sender<u8>) {
    let mut bytes = [0; KEY_BYTES_MAX];
    while let Ok(read @ 1..) = io::stdin().read(&mut bytes) {
        for key in characters(&bytes[..read]) {
            if keys.blocking_send(key).is_err() {
                return;
            }
        }
    }
}

/// The characters in the bytes of keys that were read at once. Those of other keys begin with an escape and
/// may contain letters, such as `ESC O Q` for F2.
fn characters(bytes: &[u8]) -> Vec<u8> {
    let mut characters = Vec::new();
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        rest = match (*first, after) {
            (ESCAPE, [b'[', parameters @ ..]) => {
                let end = parameters.iter().position(|byte| matches!(byte, 0x40..=0x7e));
                &parameters[end.map_or(parameters.len(), |end| end + 1)..]
            }
            (ESCAPE, [b'O', _, later @ ..]) => later,
            // The key Alt with another one.
            (ESCAPE, [key, later @ ..]) if *key != ESCAPE => later,
            (ESCAPE, _) => after,
            (key, _) => {
                characters.push(key);
                after
            }
        };
    }
    characters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_in_the_bytes_of_other_keys_are_no_characters() {
        let typed = |bytes: &[u8]| String::from_utf8(characters(bytes)).expect("letters");
        assert_eq!(typed(b"smq"), "smq");
        // F2, Shift-F2, up, Alt-q, Escape twice, and a sequence without its end.
        assert_eq!(typed(b"s\x1bOQm\x1b[1;2Q\x1b[A\x1bqs\x1b\x1b\x1b[1;"), "sms");
        assert_eq!((typed(b"\x1b"), typed(b"\x1bO")), (String::new(), String::new()));
    }
}
