// drive NULL-SETTINGS-JSON ASSIGNMENT-PATCH-JSON seconds
use thalweg_lab::{null_server::*, worker::*};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let settings: Settings = serde_json::from_str(&a[1]).unwrap();
    let server = if a[1].contains("external") { None } else { Some(NullServer::start(&settings).unwrap()) };
    let mut base = serde_json::json!({"role":"producer","driver":"thalweg","bootstrap":[server.as_ref().map(|s| s.address())],"properties":{},"topics":["t"],"clients":1,"first_client":0,"threads":1,"records":{"size_bytes":128,"payload":"random","keys":null},"verify":false,"records_per_s":null,"stop":{"seconds":5.0},"group":null,"seed":7});
    let patch: serde_json::Value = serde_json::from_str(&a[2]).unwrap();
    for (k, v) in patch.as_object().unwrap() {
        base[k] = v.clone();
    }
    let assignment: Assignment = serde_json::from_value(base).unwrap();
    let mut cmd =
        tokio::process::Command::new(std::env::current_exe().unwrap().parent().unwrap().join("lab-worker"));
    cmd.args(["lab", "worker"]);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut h = Handle::spawn_command("w", cmd, &assignment).unwrap();
        println!("{:?}", h.ready().await.unwrap());
        let now =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() as u64;
        h.start(now + 200_000, now + 1_200_000).await;
        loop {
            match h.next_event().await.unwrap() {
                Event::Interval(i) => println!(
                    "{} rec {}/s p50 {:?} p99 {:?} max {:?}",
                    i.at_us - now,
                    i.records * 1_000_000 / i.length_us.max(1),
                    i.p50_us,
                    i.p99_us,
                    i.max_us
                ),
                Event::Done(mut r) => {
                    let s = std::fs::read_to_string(format!("/proc/{}/stat", h.pid())).unwrap_or_default();
                    let f: Vec<&str> = s.rsplit(')').next().unwrap().split_whitespace().collect();
                    if f.len() > 13 {
                        println!(
                            "cpu ticks u {} s {} -> us/rec {:.3}",
                            f[11],
                            f[12],
                            (f[11].parse::<f64>().unwrap() + f[12].parse::<f64>().unwrap()) * 10000.0
                                / r.acknowledged as f64
                        );
                    }
                    if let Some(h) = &mut r.acknowledge_latency {
                        h.hdr_v2_deflate_base64.clear()
                    }
                    if let Some(h) = &mut r.end_to_end_latency {
                        h.hdr_v2_deflate_base64.clear()
                    }
                    println!(
                        "rate {:.0}",
                        r.measured.records as f64 * 1e6 / (r.measured.to_us - r.measured.from_us) as f64
                    );
                    println!("{r:#?}");
                    break;
                }
                _ => {}
            }
        }
    });
    if let Some(s) = server {
        println!("{:?}", s.counts());
    }
}
