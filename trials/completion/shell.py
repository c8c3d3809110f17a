"""An interactive shell on a terminal, with the completion of `thalweg` installed as its help says. Keys go in, the line comes out."""

import fcntl
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import termios
import time

from broker import thalweg_binary

# The file that has the script, and how the shell starts. A key, control-X, writes the line being typed to a file.
SHELLS = {
    "bash": (
        ".local/share/bash-completion/completions/thalweg",
        ".bashrc",
        ". /usr/share/bash-completion/bash_completion\nbind -x '\"\\C-x\": printf %s \"$READLINE_LINE\" >\"$LINE\"'\nPS1='ready> '\n",
    ),
    "zsh": (
        ".zfunc/_thalweg",
        ".zshrc",
        "fpath+=~/.zfunc\nautoload -Uz compinit\ncompinit -u\nline() { print -rn -- $BUFFER >$LINE }\nzle -N line\n"
        "bindkey '^X' line\nPS1='ready> '\n",
    ),
    "fish": (
        ".config/fish/completions/thalweg.fish",
        ".config/fish/config.fish",
        "bind \\cx 'commandline >$LINE'\nfunction fish_prompt; echo 'ready> '; end\nset -g fish_greeting\nset -g fish_autosuggestion_enabled 0\n",
    ),
}


class Shell:
    """A shell with a home of its own; `with` ends it."""

    def __init__(self, name, **variables):
        self.home = tempfile.TemporaryDirectory(prefix=f"{name}-")
        home = pathlib.Path(self.home.name)
        script, start, commands = SHELLS[name]
        done = subprocess.run([thalweg_binary(), "completion", name], check=True, stdout=subprocess.PIPE)
        for path, content in ((script, done.stdout), (start, commands.encode())):
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_bytes(content)
        self.line = home / "line"
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("THALWEG_", "XDG_"))}
        # The program is found under its name, whatever the file is called.
        (home / "bin").mkdir()
        (home / "bin" / "thalweg").symlink_to(pathlib.Path(thalweg_binary()).resolve())
        environment = {**inherited, "HOME": str(home), "LINE": str(self.line), "TERM": "xterm", **variables}
        environment |= {"PATH": f"{home / 'bin'}:{os.environ['PATH']}", "THALWEG_CONFIG": str(home / "config.toml")}
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(home)
            os.execvpe(name, [name, "-i"], environment)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        self.screen = ""
        self.wait_for("ready>")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)
        self.home.cleanup()

    def read(self, seconds):
        """Reads what the shell prints within that time."""
        end = time.monotonic() + seconds
        while select.select([self.terminal], [], [], max(0.0, end - time.monotonic()))[0]:
            self.screen += os.read(self.terminal, 4096).decode(errors="replace")

    def wait_for(self, *words, seconds=20):
        end = time.monotonic() + seconds
        # Colours and movements may be in the middle of a word.
        while not all(word in re.sub(r"\x1b(\[[\d;?]*[a-zA-Z]|\(B)", "", self.screen) for word in words):
            assert time.monotonic() < end, f"{words} are not on the screen: {self.screen!r}"
            self.read(0.1)

    def press(self, keys):
        os.write(self.terminal, keys.encode())

    def completed(self, typed):
        """The line after the key for completion. The shell takes the next key when the answer is there."""
        # Control-A and control-K empty the line.
        self.line.unlink(missing_ok=True)
        self.press(f"\x01\x0b{typed}\t\x18")
        end = time.monotonic() + 20
        while not self.line.exists() or not self.line.read_text():
            assert time.monotonic() < end, f"no line: {self.screen!r}"
            self.read(0.05)
        self.read(0.1)
        return self.line.read_text().rstrip("\n")

    def listed(self, typed, *names):
        """Expects that the key lists these names for a line that it cannot extend."""
        self.press(f"\x01\x0b{typed}")
        self.read(0.5)
        self.screen = ""
        self.press("\t\t")
        self.wait_for(*names)
