//! How the binary is linked: its debug information is compressed in release builds. Line tables are four
//! fifths of it otherwise; backtraces, gdb and perf read them either way.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|is| is == value);
    // Other systems keep debug information beside the binary, and their linkers do not know the option.
    if is("CARGO_CFG_TARGET_OS", "linux") && is("PROFILE", "release") {
        println!("cargo::rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
    }
}
