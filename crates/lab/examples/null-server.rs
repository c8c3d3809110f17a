//! Runs a null server until its standard input ends, then prints what it counted: `cargo run --example null-server
//! -- '{"records_per_s_max": 100000}'`.
use std::io::Read;
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let settings = match std::env::args().nth(1) {
        Some(json) => serde_json::from_str(&json)?,
        None => thalweg_lab::null_server::Settings::default(),
    };
    let server = thalweg_lab::null_server::NullServer::start(&settings)?;
    eprintln!("{}", server.address());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    eprintln!("{:?}", server.counts());
    Ok(())
}
