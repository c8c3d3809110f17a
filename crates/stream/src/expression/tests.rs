use super::*;
use crate::message::{BatchBuilder, Header, Headers};

fn message(value: &str) -> Message<'_> {
    Message {
        value: value.as_bytes(),
        is_null: false,
        key: Some(b"k1"),
        headers: Headers::default(),
        time_ms: 1_700_000_000_000,
        sequence: 3,
    }
}

fn written(expression: &str, value: &str) -> Result<String, String> {
    let expression = Expression::compile(expression).map_err(|error| error.to_string())?;
    let mut out = BytesMut::new();
    expression.write(&message(value), &mut out).map_err(|error| error.to_string())?;
    Ok(String::from_utf8(out.to_vec()).expect("text"))
}

const ORDER: &str = r#"{"id": 7, "amount": 12.5, "customer": {"name": "J\u00f6rg", "tags": ["a", "b"]}, "open": true, "note": null}"#;

#[test]
fn tests_look_at_fields_text_keys_and_times() {
    for (expression, expected) in [
        ("payload.id == 7", true),
        ("payload.amount > 10", true),
        ("payload.amount > 12.5", false),
        ("payload.customer.name == 'Jörg'", true),
        ("payload['id'] in [1, 7]", true),
        ("payload.customer.tags.exists(tag, tag == 'b')", true),
        ("payload.customer.tags[0] == 'a' && size(payload.customer.tags) == 2", true),
        ("has(payload.note) && payload.note == null", true),
        ("has(payload.missing)", false),
        ("has(payload.customer.missing)", false),
        ("payload.open ? payload.id < 8 : false", true),
        ("text.contains('amount')", true),
        ("text.matches('\"id\": *7')", true),
        ("key == 'k1' && key.startsWith('k')", true),
        ("size(raw) > 10", true),
        ("sequence == 3 && time_ms == 1700000000000", true),
        ("time < timestamp('2024-01-01T00:00:00Z') && time.getFullYear() == 2023", true),
        ("timestamp('2026-01-31T23:30:00-02:00').getHours() == 1", true),
        ("timestamp('2026-01-31T23:30:00-02:00').getDate() == 1", true),
        ("timestamp('2026-01-31T23:30:00-02:00') == timestamp('2026-02-01T01:30:00Z')", true),
        ("size(payload) == 5", true),
        ("string(payload.id) == '7' && int('7') == payload.id", true),
        ("'a b c'.split(' ')[1] == 'b' && ' x '.trim().upperAscii() == 'X'", true),
        ("'abc'.replace('b', '-').substring(1) == '-c' && ['a', 'b'].join('+') == 'a+b'", true),
    ] {
        let compiled =
            Expression::compile(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
        assert_eq!(compiled.test(&message(ORDER)), Ok(expected), "{expression}");
    }
}

#[test]
fn values_are_written_as_text_or_json() {
    for (expression, expected) in [
        ("payload.customer.name", "Jörg"),
        ("payload.id + 1", "8"),
        ("payload.amount * 2.0", "25"),
        ("'order ' + string(payload.id)", "order 7"),
        ("payload.customer", r#"{"name": "J\u00f6rg", "tags": ["a", "b"]}"#),
        (
            r#"{"who": payload.customer.name, "id": payload.id, "c": payload.customer, "n": [payload.amount, payload.id * 2]}"#,
            r#"{"who":"J\u00f6rg","id":7,"c":{"name": "J\u00f6rg", "tags": ["a", "b"]},"n":[12.5,14]}"#,
        ),
        ("payload.note", "null"),
        ("{'t': time, 'b': raw.size() > 0}", r#"{"t":"2023-11-14T22:13:20Z","b":true}"#),
        ("payload.customer.tags.map(tag, tag + '!')", r#"["a!","b!"]"#),
        ("text", ORDER),
    ] {
        assert_eq!(written(expression, ORDER).as_deref(), Ok(expected), "{expression}");
    }
}

#[test]
fn parts_of_the_message_are_passed_on_unchanged() {
    let value = r#"{"id": 123456789012345678901234567890, "a": [{"z": 1.10}], "s": "\u00f6", "id2": 0.12345678901234567890}"#;
    for (expression, expected) in [
        ("payload.id", "123456789012345678901234567890"),
        ("payload['id2']", "0.12345678901234567890"),
        ("payload.a[0].z", "1.10"),
        ("payload.a[0]['z']", "1.10"),
        ("payload.a", r#"[{"z": 1.10}]"#),
        ("payload.s", "ö"),
        ("payload", value),
        ("has(payload.x) ? payload.x : payload.id", "123456789012345678901234567890"),
        (
            r#"{"i": payload.id, "p": payload['id2'], "z": [payload.a[0].z]}"#,
            r#"{"i":123456789012345678901234567890,"p":0.12345678901234567890,"z":[1.10]}"#,
        ),
    ] {
        assert_eq!(written(expression, value).as_deref(), Ok(expected), "{expression}");
    }
    assert!(written("payload.a[1]", value).is_err() && written("payload.a[-1]", value).is_err());
}

#[test]
fn of_members_with_one_name_every_reader_sees_the_last() {
    let value = r#"{"a": 1, "b": {"c": 1, "c": 2}, "a": 2}"#;
    for (expression, expected) in [
        ("payload.a", "2"),
        ("payload.a == 2", "true"),
        ("payload == {'a': 2, 'b': {'c': 2}}", "true"),
        ("payload.b.c", "2"),
        ("payload.b.c == 2 && payload['b'] == {'c': 2}", "true"),
        ("payload.map(name, name == 'a' ? payload[name] : 0).exists(n, n == 2)", "true"),
        (r#"{"a": payload.a}"#, r#"{"a":2}"#),
    ] {
        assert_eq!(written(expression, value).as_deref(), Ok(expected), "{expression}");
    }
}

#[test]
fn invalid_json_is_a_bad_message_wherever_the_mistake_is() {
    for value in [r#"{"a":2026-01-31}"#, r#"{"a":"\q"}"#, r#"{"a":1 junk}"#, r#"{"a":1,"b":01}"#] {
        for expression in ["payload.a", "payload", r#"{"a": payload.a}"#, "has(payload.a)"] {
            let error = written(expression, value).expect_err(value);
            assert!(error.contains("it is not JSON"), "{expression} of {value}: {error}");
        }
    }
}

#[test]
fn canonical_texts_numbers_and_null_differ() {
    let canonical = |expression: &str, value: &str| {
        let expression = Expression::compile(expression).expect("an expression");
        let mut out = BytesMut::new();
        expression.write_canonical(&message(value), &mut out).expect("it has a value");
        String::from_utf8(out.to_vec()).expect("text")
    };
    let of = |value: &str| canonical("payload.a", &format!("{{\"a\": {value}}}"));
    let all = ["1", "1.0", "\"1\"", "null", "\"null\"", "true", "\"true\""].map(of);
    assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len(), "{all:?}");
    assert_eq!(of(r#""\u0061""#), of("\"a\""));
    assert_eq!(of(r#"{"x": 1, "y": [ 2 ]}"#), of(r#"{"y":[2],"x":1}"#));
    assert_eq!(canonical("key", "x"), "\"k1\"");
}

#[test]
fn evaluation_errors_are_reported() {
    for (expression, value, part) in [
        ("payload.missing > 1", ORDER, "No such key"),
        ("payload.id > 1", "plain text", "it is not JSON: expected value at line 1 column 1"),
        ("payload.id > 'a'", ORDER, "no matching overload"),
        ("payload.id", ORDER, "payload.id is int, not true or false"),
    ] {
        let compiled =
            Expression::compile(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
        let error = compiled.test(&message(value)).expect_err(expression).to_string();
        assert!(error.contains(part), "{expression}: {error}");
    }
    // An expression that needs no payload accepts any bytes.
    assert_eq!(Expression::compile("size(raw) == 3").map(|e| e.test(&message("}{x"))), Ok(Ok(true)));
}

#[test]
fn mistakes_are_found_before_any_message_comes() {
    for (expression, part) in [
        ("", "it is empty"),
        ("payload.a >", "it ends unexpectedly"),
        ("text.split('\n')[0]", "a quote is not closed on its line"),
        ("amount > 1", "there is no variable amount; did you mean payload.amount?"),
        ("pyload.a > 1", "there is no variable pyload; did you mean payload?"),
        ("text.startWith('a')", "there is no function startWith; did you mean startsWith?"),
        ("Order{id: 1}", "there is no type Order"),
    ] {
        let error = Expression::compile(expression).expect_err(expression).to_string();
        assert!(error.contains(part), "{expression}: {error}");
    }
}

#[test]
fn only_requested_fields_are_read() {
    let needs = |text: &str| Expression::compile(text).expect("an expression").needs;
    assert_eq!(needs("text == 'a'"), Needs::Nothing);
    assert_eq!(
        needs("payload.a > 1 && has(payload.b.c) && payload['d'] == payload.a"),
        Needs::Members(vec!["a".into(), "b".into(), "d".into()])
    );
    assert_eq!(needs("payload.exists(name, name == 'a') && payload.b"), Needs::Whole);
}

#[test]
fn unreadable_fields_are_reported() {
    let odd = message(r#"{"n": 1e999, "s": "a\ud800", "m": {"l": [1, 2e999]}, "ok": 1}"#);
    for (expression, reason) in [
        ("payload.n > 1", "found 1e999, expected a number within the range of a double"),
        ("payload.s", "found a\\ud800, expected a string with valid escapes"),
        ("payload.m.l[0] + 1", "found 2e999, expected a number within the range of a double"),
        ("payload.exists(name, name == 'n') && payload.n > 1", "found 1e999"),
    ] {
        let compiled = Expression::compile(expression).expect(expression);
        let error = compiled.write(&odd, &mut BytesMut::new()).expect_err(expression).to_string();
        assert!(error.contains(&format!("{expression} fails: {reason}")), "{error}");
    }
    let compiled = Expression::compile("payload.n > 1 || payload.ok == 1").expect("an expression");
    assert_eq!(compiled.test(&odd), Ok(true), "a field that does not matter may be unreadable");
}

#[test]
fn numbers_and_times_are_taken_from_fields() {
    let number = |text: &str| Expression::compile(text).expect("an expression").number(&message(ORDER));
    assert_eq!((number("payload.amount"), number("payload.id")), (Ok(12.5), Ok(7.0)));
    assert!(number("payload.open").is_err());
    let time = |text: &str| Expression::compile(text).expect("an expression").time_ms(&message(ORDER));
    assert_eq!(time("time"), Ok(1_700_000_000_000));
    assert_eq!(time("'1970-01-01T00:00:01Z'"), Ok(1000));
    assert!(time("'yesterday'").is_err());
}

#[test]
fn headers_are_a_map_of_texts_and_a_map_becomes_headers() {
    let mut gather = BatchBuilder::default();
    let header = |name, value| Header { name, value };
    let headers = [header("trace", Some(&b"1"[..])), header("trace", Some(b"2")), header("gone", None)];
    gather.push(Some(b"{}"), None, headers, 0, 0);
    let batch = gather.take();
    let message = batch.messages().next().expect("one message");
    for (expression, expected) in [
        ("headers.trace == '2' && headers['gone'] == null", true),
        ("has(headers.trace) && !has(headers.other)", true),
        ("'trace' in headers && size(headers) == 2", true),
    ] {
        let compiled =
            Expression::compile(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
        assert_eq!(compiled.test(&message), Ok(expected), "{expression}");
    }
    let entries = |text: &str| Expression::compile(text).expect("an expression").entries(&message);
    let found = entries("{'b': 1 + 1, 'a': headers.trace, 'c': null}").expect("a map");
    let found: Vec<_> = found.iter().map(|(name, value)| (&**name, value.as_deref())).collect();
    assert_eq!(found, [("a", Some(&b"2"[..])), ("b", Some(&b"2"[..])), ("c", None)]);
    assert!(entries("1").expect_err("no map").to_string().contains("is int, not a map"));
}

/// Evaluates on a stack as small as a stream thread's.
fn tested_on_a_thread(text: &str, value: &str) -> Result<bool, String> {
    let (text, value) = (text.to_owned(), value.to_owned());
    let run = move || {
        let compiled = Expression::compile(&text).map_err(|error| error.to_string())?;
        compiled.test(&message(&value)).map_err(|error| error.to_string())
    };
    let thread = std::thread::Builder::new().stack_size(crate::STACK_BYTES).spawn(run);
    thread.expect("a thread").join().expect("it does not panic")
}

#[test]
fn expressions_that_grow_or_loop_without_end_fail_soon() {
    let sums = |variable: usize| vec![format!("x{variable}"); 16].join("+");
    let grows = format!(
        "['{}'].exists(x0, [{}].exists(x1, [{}].exists(x2, [{}].exists(x3, [{}].exists(x4, size(x4) > 1)))))",
        "a".repeat(6000),
        sums(0),
        sums(1),
        sums(2),
        sums(3)
    );
    let ten = "[0,1,2,3,4,5,6,7,8,9]";
    let loops = |name: &str, count: usize, inner: &str| {
        let text = (0..count).map(|level| format!("{ten}.{name}(v{level}, ")).collect::<String>();
        format!("{text}{inner}{}", ")".repeat(count))
    };
    let wide = format!("[{}]", vec!["payload"; 1500].join(","));
    let large = format!("[{}]", vec!["0"; 200_000].join(","));
    let text = "a".repeat(1 << 20);
    for (expression, value) in [
        (grows, "{}"),
        (loops("all", 9, "v0 >= 0"), "{}"),
        (loops("exists", 9, "v0 > 10"), "{}"),
        (loops("all", 9, "payload.a.b == 1 || true"), "{}"),
        (loops("map", 9, "v0") + " == []", "{}"),
        (loops("filter", 9, "true").replace(')', " == [])"), "{}"),
        (loops("exists_one", 9, "true"), "{}"),
        (format!("{wide} == []"), &*large),
        ("payload.all(x, payload.all(y, x == y))".to_owned(), &large),
        ("text.replace('', text) == ''".to_owned(), &text),
        ("text.split('').join(text) == ''".to_owned(), &text),
        (format!("{ten}.all(a, {ten}.all(b, {ten}.all(c, text.contains('b') || true)))"), &text),
        (format!("[text].all(t, {})", loops("all", 3, "t.contains('b') || true")), &text),
    ] {
        let found = tested_on_a_thread(&expression, value);
        let error = found.expect_err(&expression[..expression.len().min(80)]);
        assert!(error.contains(budget::EXHAUSTED), "{error}");
    }
    // Comparing all places needs at most the square of the length.
    let sought = "text.indexOf(text.substring(500000) + 'b') == -1 && text.lastIndexOf('b' + text.substring(500000)) == -1";
    assert_eq!(tested_on_a_thread(sought, &text), Ok(true));
}

#[test]
fn useful_loops_and_texts_stay_within_the_budget() {
    let items: Vec<String> = (0..5_000).map(|id| format!(r#"{{"id": {id}, "tags": ["a", "b"]}}"#)).collect();
    let order = format!(r#"{{"customer": {{"id": 4999}}, "items": [{}]}}"#, items.join(","));
    for expression in [
        "payload.items.exists(item, item.id == payload.customer.id)",
        "payload.items.all(item, item.tags.exists(tag, tag == 'b' && tag.matches('^[a-z]$')))",
        "payload.items.filter(item, item.id < 10).map(item, {'id': item.id}).size() == 10",
        "payload.items.map(item, item.id % 2 == 0, string(item.id)).join(',').startsWith('0,2,4')",
        "payload.items[0].tags.exists_one(tag, optional.of(tag).hasValue() && tag in ['a'])",
        "text.contains('customer') && text.upperAscii().contains('CUSTOMER') && text.replace('id', 'ID').contains('ID')",
    ] {
        assert_eq!(tested_on_a_thread(expression, &order), Ok(true), "{expression}");
    }
}

#[test]
fn replaced_functions_answer_as_those_of_the_language() {
    for expression in [
        "'aäbäc'.indexOf('ä') == 1 && 'aäbäc'.indexOf('ä', 2) == 3 && 'abc'.indexOf('x') == -1",
        "'aäbäc'.lastIndexOf('ä') == 3 && 'aäbäc'.lastIndexOf('ä', 2) == 1 && 'aäbäc'.lastIndexOf('ä', 3) == 3",
        "'abc'.indexOf('') == 0 && 'abc'.indexOf('', 9) == 3 && 'abc'.lastIndexOf('') == 3 && 'abc'.lastIndexOf('', 1) == 1",
        "'aaa'.replace('a', 'b', 2) == 'bba' && 'aaa'.replace('a', 'b', -1) == 'bbb' && 'aaa'.replace('a', 'b', 0) == 'aaa'",
        "['a', 'b'].join() == 'ab' && ['a', 'b'].join(', ') == 'a, b'",
        "matches('abc', '^a.c$') && !'abc'.matches('^b')",
    ] {
        assert_eq!(tested_on_a_thread(expression, "{}"), Ok(true), "{expression}");
    }
    for (expression, part) in [
        ("'abc'.indexOf('a', 3) == 0", "index out of range: 3"),
        ("'abc'.lastIndexOf('a', -1) == 0", "index out of range: -1"),
        ("key.matches('[')", "'[' is not a regular expression: unclosed character class"),
        ("key.matches('(a{1000}){1000}')", "takes more than 1048576 bytes of memory"),
        ("1.matches('a')", "no matching overload for 'matches'"),
    ] {
        let error = tested_on_a_thread(expression, "{}").expect_err(expression);
        assert!(error.contains(part), "{expression}: {error}");
    }
    let many = vec!["text.matches('a')"; 65].join("||").replacen("text", "(text", 1);
    let many = format!("{many})");
    assert!(Expression::compile(&many).is_err());
}

#[test]
fn the_deepest_expressions_are_evaluated_without_overflow() {
    let sum = vec!["text"; 64].join("+") + " == ''";
    let sum = sum.replacen("text+", "", 1);
    let loops = (0..10).map(|level| format!("[text + 'a'].all(v{level}, ")).collect::<String>();
    let deep = format!("{loops}size(v0 + text) > 0{}", ")".repeat(10));
    let lists = format!("{}text + 'a'{} == []", "[".repeat(60), "]".repeat(60));
    let in_a_loop = format!("[text].all(t, {}t + 'a'{} != [])", "[".repeat(55), "]".repeat(55));
    for (text, expected) in [(sum, false), (deep, true), (lists, false), (in_a_loop, true)] {
        assert_eq!(tested_on_a_thread(&text, "abc"), Ok(expected), "{text}");
    }
}

#[test]
fn optional_members_have_a_value_or_not() {
    for (expression, expected) in [
        ("payload.?missing.orValue(7)", "7"),
        ("payload.?id.orValue(0)", "7"),
        ("payload.?customer.?name.orValue('nobody')", "J\u{f6}rg"),
        ("payload.?missing.?name.orValue('nobody')", "nobody"),
        ("payload.customer[?'missing'].hasValue()", "false"),
        ("payload.?id.optMap(id, id + 1).orValue(0)", "8"),
        (
            "{?'id': payload.?id, ?'x': payload.?missing, 'y': 1, ?'n': payload.customer.?name}",
            r#"{"id":7,"y":1,"n":"J\u00f6rg"}"#,
        ),
        ("{?'x': payload.?missing}", "{}"),
    ] {
        assert_eq!(written(expression, ORDER).as_deref(), Ok(expected), "{expression}");
    }
    let digits = written("{?'n': payload.?n}", r#"{"n": 0.12345678901234567890}"#);
    assert_eq!(digits.as_deref(), Ok(r#"{"n":0.12345678901234567890}"#));
    assert!(
        written("{?'id': payload.id}", ORDER).expect_err("it is not optional").contains("an optional value")
    );
}

#[test]
fn numbers_are_rounded_and_added() {
    for (expression, expected) in [
        ("math.round(payload.amount)", "13"),
        ("math.round(payload.id)", "7"),
        ("math.round(2.345678, 2)", "2.35"),
        ("math.round(7, 2)", "7"),
        ("math.floor(payload.amount) + math.ceil(0.1)", "13"),
        ("math.greatest(1, payload.amount, 3)", "12.5"),
        ("math.abs(-3)", "3"),
        ("sum([1, 2, 3])", "6"),
        ("sum([1, payload.amount])", "13.5"),
        ("sum([])", "0"),
        ("sum([1, 2].map(x, x * 2))", "6"),
        ("[3, 1, 2].sort()", "[1,2,3]"),
        ("lists.range(3)", "[0,1,2]"),
    ] {
        assert_eq!(written(expression, ORDER).as_deref(), Ok(expected), "{expression}");
    }
    for (expression, reason) in [
        ("sum(['a'])", "found string, expected a number"),
        ("sum([9223372036854775807, 1])", "no 64-bit integer"),
        ("math.round(1.5, 16)", "from 0 to 15"),
        ("lists.range(1000000).map(x, lists.range(1000000))", "too much time or memory"),
    ] {
        let error = written(expression, ORDER).expect_err(expression);
        assert!(error.contains(reason), "{expression}: {error}");
    }
}

#[test]
fn texts_are_hashed_and_encoded() {
    // printf abc | sha256sum
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    for (expression, expected) in [
        ("sha256('abc')", digest),
        ("sha256(b'abc')", digest),
        ("sha512('abc').substring(0, 8)", "ddaf35a1"),
        ("base64.encode(b'hello')", "aGVsbG8="),
        ("string(base64.decode('aGVsbG8='))", "hello"),
        ("base64.encode(raw).size() > 10", "true"),
        ("percentEncode('a b/\u{e9}~')", "a%20b%2F%C3%A9~"),
        ("[1].map(x, base64.encode(b'a'))", "[\"YQ==\"]"),
        ("now() > timestamp('2026-01-01T00:00:00Z') && now() - time > duration('1h')", "true"),
    ] {
        assert_eq!(written(expression, ORDER).as_deref(), Ok(expected), "{expression}");
    }
}
