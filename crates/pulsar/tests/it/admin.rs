//! Requests to the admin API, over a plain HTTP/1.0 connection.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::broker::Broker;

impl Broker {
    /// Sends a request whose answer is a success.
    ///
    /// # Panics
    /// If it is none.
    pub async fn admin(&self, method: &str, path: &str, body: &str) -> String {
        let host = self.web_url.strip_prefix("http://").expect("an http URL").trim_end_matches('/');
        let mut stream = TcpStream::connect(host).await.expect("the admin API listens");
        let length = body.len();
        let request = format!(
            "{method} /admin/v2/{path} HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.expect("the admin API reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("the admin API answers");
        let status = answer.split(' ').nth(1).unwrap_or_default();
        assert!(status.starts_with('2'), "{method} {path}: {answer}");
        answer
    }
}
