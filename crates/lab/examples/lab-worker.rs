fn main() {
    if let Err(e) = thalweg_lab::worker::serve() {
        eprintln!("{e}");
        std::process::exit(1)
    }
}
