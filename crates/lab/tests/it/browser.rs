//! The page of a result in a real browser: light, dark and printed. Skipped without Chromium (a Debian
//! package).

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

use thalweg_lab::report;

use crate::fixture;

/// A browser with its own profile, whose requests would all arrive at `asked`.
struct Browser {
    program: PathBuf,
    dir: tempfile::TempDir,
    proxy: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Browser {
    /// None without a browser, with a message.
    fn start() -> Option<Browser> {
        static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
        let Some(program) = FOUND.get_or_init(find) else {
            // Bypasses the test harness's capture, so that the summary of skipped tests has it.
            let how = "scripts/apt-install chromium, then run this again";
            writeln!(std::io::stderr(), "SKIPPED: the report in a browser: {how}")
                .expect("stderr takes a line");
            return None;
        };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let proxy = format!("http://{}", listener.local_addr().expect("bound"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&asked);
        // Killed with the test program: a browser sends requests as long as it lives.
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut request = [0; 2048];
                let length = stream.read(&mut request).unwrap_or(0);
                let line =
                    String::from_utf8_lossy(&request[..length]).lines().next().unwrap_or("").to_owned();
                heard.lock().expect("no panic").push(line);
                let _ = stream
                    .write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            }
        });
        let dir = tempfile::tempdir().expect("a temporary directory");
        Some(Browser { program: program.clone(), dir, proxy, asked })
    }

    fn page(&self, name: &str, markup: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, markup).expect("a temporary directory takes files");
        path
    }

    fn open(&self, page: &Path, flags: &[&str]) -> Output {
        let output = Command::new("timeout")
            .args(["--kill-after=5", "90"])
            .arg(&self.program)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--enable-logging=stderr",
            ])
            .arg(format!("--user-data-dir={}", self.dir.path().join("profile").display()))
            .arg(format!("--proxy-server={}", self.proxy))
            .args(flags)
            .arg(format!("file://{}", page.display()))
            .stdin(Stdio::null())
            .output()
            .expect("timeout is part of coreutils");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// The document after loading, and the console output.
    fn document(&self, page: &Path) -> (String, Vec<String>) {
        let output = self.open(page, &["--dump-dom", "--virtual-time-budget=2000"]);
        let said = String::from_utf8_lossy(&output.stderr);
        let console = said.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
        (String::from_utf8_lossy(&output.stdout).into_owned(), console)
    }

    /// The colour of the first pixel of a screenshot.
    fn corner(&self, page: &Path, name: &str, flags: &[&str]) -> [u8; 3] {
        let picture = self.dir.path().join(name);
        let shot = format!("--screenshot={}", picture.display());
        self.open(page, &[&[shot.as_str(), "--window-size=1280,2000"], flags].concat());
        first_pixel(&std::fs::read(&picture).expect("a picture"))
    }

    fn pages_on_paper(&self, page: &Path) -> usize {
        let paper = self.dir.path().join("paper.pdf");
        self.open(page, &[&format!("--print-to-pdf={}", paper.display()), "--no-pdf-header-footer"]);
        let pdf = std::fs::read(&paper).expect("a document");
        assert!(pdf.starts_with(b"%PDF"));
        let text = String::from_utf8_lossy(&pdf);
        text.matches("/Type /Page\n").count()
    }

    fn requested_addresses(&self, what: &str) -> bool {
        self.asked.lock().expect("no panic").iter().any(|line| line.contains(what))
    }
}

fn find() -> Option<PathBuf> {
    installed().or_else(|| {
        // Without root, the test would prompt for a password.
        let root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/apt-install");
        if root {
            let _ =
                Command::new("timeout").arg("300").arg(script).arg("chromium").stdin(Stdio::null()).output();
        }
        installed()
    })
}

fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path).flat_map(|dir| names.map(|name| dir.join(name))).find(|path| path.is_file())
}

/// The first pixel of a PNG with 8 bits per colour, which is stored unchanged by any row filter.
fn first_pixel(png: &[u8]) -> [u8; 3] {
    let mut packed = Vec::new();
    let mut rest = &png[8..];
    while rest.len() >= 12 {
        let length = u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
        if &rest[4..8] == b"IDAT" {
            packed.extend_from_slice(&rest[8..8 + length]);
        }
        rest = &rest[12 + length..];
    }
    let mut start = [0; 4];
    flate2::read::ZlibDecoder::new(&packed[..]).read_exact(&mut start).expect("a picture has a point");
    [start[1], start[2], start[3]]
}

#[test]
fn the_page_is_whole_quiet_and_sends_no_requests() {
    let Some(browser) = Browser::start() else { return };
    // First check the method: scripts and requests of a page are detected.
    let loud = "<title>x</title><img src=http://evil.invalid/x><script>console.error('heard')</script>";
    let (_, console) = browser.document(&browser.page("loud.html", loud));
    assert!(console.iter().any(|line| line.contains("heard")), "{console:?}");
    assert!(browser.requested_addresses("evil.invalid"));
    browser.asked.lock().expect("no panic").clear();

    let run = fixture::run(7);
    let (document, console) = browser.document(&browser.page("report.html", &report::html(&run)));
    assert!(console.is_empty(), "{console:?}");
    for workload in &run.workloads {
        assert!(document.contains(&workload.workload.name) && document.contains(&workload.workload.title));
    }
    for text in
        ["other hardware, not comparable", "99.99", "knee", "in sync, min", "thalweg lab run ibm-fast"]
    {
        assert!(document.contains(text), "{text} is not on the page");
    }
    assert!(document.matches("<svg").count() > 50);
}

#[test]
fn hostile_names_stay_names() {
    let Some(browser) = Browser::start() else { return };
    let page = report::html(&fixture::hostile(7));
    let (document, console) = browser.document(&browser.page("hostile.html", &page));
    assert!(console.is_empty(), "{console:?}");
    assert!(!document.contains("<img") && !document.contains("<script"));
    assert!(!document.contains("<title>owned"));
    assert!(!browser.requested_addresses("evil.invalid"));
}

#[test]
fn light_dark_and_paper_have_their_colours() {
    let Some(browser) = Browser::start() else { return };
    let page = browser.page("report.html", &report::html(&fixture::run(7)));
    assert_eq!(browser.corner(&page, "light.png", &["--blink-settings=preferredColorScheme=1"]), [255; 3]);
    let dark = browser.corner(&page, "dark.png", &["--blink-settings=preferredColorScheme=0"]);
    assert_eq!(dark, [0x14, 0x17, 0x1a]);
}

#[test]
fn paper_shows_what_the_screen_folds() {
    let Some(browser) = Browser::start() else { return };
    let page = report::html(&fixture::run(7));
    let opened = page.replace("<details>", "<details open>");
    let folded = page.replace("details::details-content {", "details::nothing {");
    assert!(opened != page && folded != page);
    let pages = browser.pages_on_paper(&browser.page("report.html", &page));
    assert_eq!(pages, browser.pages_on_paper(&browser.page("opened.html", &opened)));
    assert!(pages > browser.pages_on_paper(&browser.page("folded.html", &folded)) + 3, "{pages} pages");
}

/// Percentiles need no scrolling in a window of 1,200 pixels.
#[test]
fn the_table_of_latencies_fits_its_column() {
    let Some(browser) = Browser::start() else { return };
    let measure = "<script>for (const each of document.querySelectorAll('details')) each.open = true;\
        const all = [...document.querySelectorAll('.scroll')].filter(one => one.innerText.includes('p99.99'));\
        const wide = all.filter(one => one.scrollWidth > one.clientWidth);\
        document.title = `${all.length > 2} ${wide.length}`</script></body>";
    let page = report::html(&fixture::run(7));
    let page = page.replace("default-src 'none'; style-src 'unsafe-inline'", "").replace("</body>", measure);
    let page = browser.page("latencies.html", &page);
    let output = browser.open(&page, &["--dump-dom", "--window-size=1200,900"]);
    let document = String::from_utf8_lossy(&output.stdout);
    assert!(document.contains("<title>true 0</title>"), "{:.400}", document);
}

#[test]
fn the_page_fits_wide_and_narrow_windows() {
    let Some(browser) = Browser::start() else { return };
    // The page forbids scripts: this one measures a modified copy.
    let measure =
        "<script>document.title='width '+(document.documentElement.scrollWidth-innerWidth)</script></body>";
    let page = report::html(&fixture::run(7));
    let page = page.replace("default-src 'none'; style-src 'unsafe-inline'", "").replace("</body>", measure);
    let page = browser.page("measured.html", &page);
    for width in [500, 800, 1280] {
        let output = browser.open(&page, &["--dump-dom", &format!("--window-size={width},900")]);
        let document = String::from_utf8_lossy(&output.stdout);
        assert!(document.contains("<title>width 0</title>"), "at {width}: {:.400}", document);
    }
}
