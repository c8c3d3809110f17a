//! Kafka's names in Rust's spelling.

/// Snake case: `ThrottleTimeMs` becomes `throttle_time_ms`; a run of capitals stays one word.
pub fn snake(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut out = String::new();
    for (index, &c) in chars.iter().enumerate() {
        if c.is_ascii_uppercase() {
            let after_lower = index > 0 && !chars[index - 1].is_ascii_uppercase();
            let before_lower = index > 0 && chars.get(index + 1).is_some_and(|n| n.is_ascii_lowercase());
            if after_lower || before_lower {
                out.push('_');
            }
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// The name of a field: snake case, raw if Rust reserves the word.
pub fn field(name: &str) -> String {
    let name = snake(name);
    match name.as_str() {
        "type" | "match" | "move" | "ref" | "use" | "where" | "loop" | "in" => format!("r#{name}"),
        _ => name,
    }
}

/// Camel case: `UNKNOWN_TOPIC_ID` becomes `UnknownTopicId`.
pub fn camel(name: &str) -> String {
    name.split('_')
        .map(|word| {
            let (first, rest) = word.split_at(1);
            first.to_ascii_uppercase() + &rest.to_ascii_lowercase()
        })
        .collect()
}
