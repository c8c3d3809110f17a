//! The page of messages: pages before and after one another, columns and order, downloads, and copies that
//! are sent again.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::http_client::login;
use super::node::{self, AUTHORIZER, Answer, FORM, FREE_PORT, JSON, Node};

fn page(node: &Node, path: &str) -> String {
    let answer = node.get(path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.body
}

/// The partition and offset of each row, in order.
fn rows(page: &str) -> Vec<(i32, i64)> {
    let ids = page.split("<tbody id=\"m-").skip(1).filter_map(|rest| rest.split('"').next());
    let place = |id: &str| {
        let (partition, offset) = id.split_once('-').expect("two numbers");
        (partition.parse().expect("a partition"), offset.parse().expect("an offset"))
    };
    ids.map(place).collect()
}

/// The address of the first link with these words in its tag or as its text.
fn link(page: &str, words: &str) -> Option<String> {
    let tag = page
        .split("<a ")
        .skip(1)
        .find(|rest| rest.split_once("</a>").is_some_and(|(link, _)| link.contains(words)))?;
    let (_, rest) = tag.split_once("href=\"")?;
    rest.split('"').next().map(|address| address.replace("&amp;", "&"))
}

fn records(count: usize) -> String {
    (0..count).map(|number| format!("{{\"n\": {number}, \"card\": \"4711\"}}\n")).collect()
}

/// The pages from an address on, along the links with these words.
fn pages(node: &Node, address: &str, words: &str) -> Vec<String> {
    let mut pages = vec![page(node, address)];
    while let Some(next) = link(pages.last().expect("the first"), words) {
        assert!(pages.len() < 50, "{next}");
        pages.push(page(node, &next));
    }
    pages
}

#[test]
fn pages_have_every_message_once_in_both_directions() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT]);
    node.tool("topic create t --partitions 3", "");
    for _ in 0..7 {
        node.tool("produce t", &records(19));
    }
    for (filter, view) in
        [("", "limit=20"), ("&text=5", "limit=3&sort=-value"), ("", "limit=33&from=earliest")]
    {
        let all = node.get(&format!("/api/v1/topics/t/messages?limit=500{filter}"));
        let all: Value = serde_json::from_str(&all.body).expect("JSON");
        let all: BTreeSet<(i32, i64)> = all["messages"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|one| Some((one["partition"].as_i64()?.try_into().ok()?, one["offset"].as_i64()?)))
            .collect();
        let (away, back, first) = match view.contains("earliest") {
            true => ("Newer ›", "‹ Older", "« Start"),
            false => ("Older ›", "‹ Newer", "« Newest"),
        };
        let address = format!("/topics/t/messages?{view}{filter}");
        let there = pages(&node, &address, away);
        assert!(there.len() >= 3 && there[1].contains(first), "{view}: {} pages", there.len());
        // From the last page back to the first one.
        let last = there.last().expect("there are three");
        let mut here = vec![last.clone()];
        here.extend(pages(&node, &link(last, back).expect("there are messages before it"), back));
        for pages in [there, here] {
            let shown: Vec<(i32, i64)> = pages.iter().flat_map(|page| rows(page)).collect();
            let unique: BTreeSet<(i32, i64)> = shown.iter().copied().collect();
            assert_eq!((shown.len(), &unique), (all.len(), &all), "{view}");
        }
    }

    // A new message moves nothing to another page.
    let first = page(&node, "/topics/t/messages?limit=20");
    let older = link(&first, "Older ›").expect("there are older ones");
    let before = rows(&page(&node, &older));
    node.tool("produce t", "{\"n\": -5}\n");
    assert_eq!(rows(&page(&node, &older)), before);
    let newer = pages(&node, &older, "‹ Newer");
    assert!(newer.last().expect("it is there").contains("&quot;n&quot;: -5"), "the new message is newer");
}

#[test]
fn columns_and_order_are_in_the_address() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT, "thalweg.console.masking=t: card"]);
    node.tool("topic create t", "");
    node.tool("produce t", "{\"n\": 10, \"card\": \"4711\"}\n{\"n\": 9}\ntext\n");
    let first = page(&node, "/topics/t/messages");
    assert_eq!(rows(&first), [(0, 2), (0, 1), (0, 0)]);
    assert!(first.contains("data-tail="));
    let with_column = link(&first, "Add the column n").expect("a field is offered");
    let with_card = link(&page(&node, &with_column), "Add the column card").expect("another");
    let shown = page(&node, &with_card);
    assert!(
        shown.contains("data-name=\"n\">10</td>") && shown.contains("data-name=\"card\">***</td>"),
        "{shown}"
    );
    let up = link(&shown, "title=\"n\"").expect("the head");
    let up_page = page(&node, &up);
    assert_eq!(rows(&up_page), [(0, 1), (0, 0), (0, 2)], "{up}");
    // The rows stay when a message arrives.
    node.tool("produce t", "{\"n\": 1}\n");
    assert_eq!(rows(&page(&node, &up)), [(0, 1), (0, 0), (0, 2)], "{up}");
    assert!(!up_page.contains("data-tail="), "new messages have no place in an order");
    let down = link(&up_page, "title=\"n\"").expect("the head");
    assert_eq!(rows(&page(&node, &down)), [(0, 0), (0, 1), (0, 2)], "{down}");
    let without = link(&up_page, "Remove the column n").expect("a link");
    let without = page(&node, &without);
    assert!(!without.contains("data-name=\"n\"") && without.contains("data-name=\"card\""), "{without}");
}

fn lines(answer: &Answer) -> Vec<Value> {
    answer.body.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn downloads_have_what_the_view_selects_with_its_masks() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT, "thalweg.console.masking=t: card"]);
    node.tool("topic create t --partitions 2", "");
    node.tool("produce t", &records(1700));
    let answer = node.get("/topics/t/messages/download");
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains("content-disposition: attachment; filename=\"t.jsonl\""), "{}", answer.head);
    let all = lines(&answer);
    assert_eq!(all.len(), 1700, "several searches, and no word of a cut");
    assert!(!answer.body.contains("4711") && all[0]["value"].as_str().expect("text").contains("***"));
    let times: Vec<i64> = all.iter().filter_map(|line| line["timestamp"].as_i64()).collect();
    assert!(times.is_sorted_by(|newer, older| newer >= older), "the newest first");
    let places: BTreeSet<String> =
        all.iter().map(|line| format!("{}-{}", line["partition"], line["offset"])).collect();
    assert_eq!(places.len(), 1700);
    let from_start = lines(&node.get("/api/v1/topics/t/messages/download?from=earliest&limit=1100"));
    let of_zero: Vec<i64> = from_start
        .iter()
        .filter(|line| line["partition"] == 0)
        .filter_map(|line| line["offset"].as_i64())
        .collect();
    assert!(from_start.len() == 1100 && of_zero.is_sorted() && of_zero[0] == 0, "{of_zero:?}");

    // The links of a page: what it shows, and all that is found.
    let shown = page(&node, "/topics/t/messages?limit=10&text=%22n%22:+77&column=n");
    let rows = rows(&shown);
    assert_eq!(rows.len(), 10, "{shown}");
    let csv = node.get(&link(&shown, "Download: This page, as CSV").expect("a link"));
    let csv: Vec<&str> = csv.body.lines().collect();
    assert_eq!(csv[0], "partition,offset,timestamp,time,key,key_form,value,value_form,headers,\"n\"");
    assert!(
        csv[1].contains(",null,\"{\"\"n\"\": 77") && csv[1].contains("\"\"***\"\"}\",text,\"\",77"),
        "{}",
        csv[1]
    );
    let places: Vec<(i32, i64)> = csv[1..]
        .iter()
        .map(|line| {
            let mut numbers = line.split(',');
            let mut number =
                || numbers.next().and_then(|number| number.parse::<i64>().ok()).expect("a number");
            (i32::try_from(number()).expect("small"), number())
        })
        .collect();
    assert_eq!(places, rows);
    let values = node.get(&link(&shown, "Download: All that is found, as values").expect("a link"));
    assert_eq!(values.body.lines().count(), 11, "{}", values.body);
    assert!(values.body.lines().all(|line| line.starts_with("{\"n\": 77")), "{}", values.body);

    for (path, status, words) in [
        ("/topics/t/messages/download?format=xml", 400, "jsonl, csv, values"),
        ("/topics/t/messages/download?colum=n", 400, "unknown field `colum`"),
        ("/topics/nowhere/messages/download", 404, "nowhere"),
        ("/api/v1/topics/t/messages/download?colum=n", 400, "is not a parameter"),
        ("/api/v1/topics/t/messages/download?expression=payload..", 400, "not expected"),
        ("/topics/t/messages?colum=n", 400, "unknown field `colum`"),
        ("/topics/t/messages?before=x", 400, "before: &quot;x&quot; is not a list of positions"),
        ("/topics/t/messages?sort=size", 400, "is no column of the page"),
        ("/topics/t/message?partition=0&offset=1&part=all", 400, "part: &quot;all&quot; is unknown"),
        ("/topics/t/message?partition=0&offset=99999&part=key", 404, "no message at offset 99999"),
        ("/topics/t/send?partition=7&offset=0", 400, "no partition 7"),
    ] {
        let answer = node.get(path);
        assert!(answer.status == status && answer.body.contains(words), "{path}: {}", answer.body);
    }
}

#[test]
fn a_message_is_sent_again_with_its_bytes() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT]);
    node.tool("topic create t --partitions 2", "");
    let send = |message: Value| {
        let answer = node::ask(&node.http, "POST", "/api/v1/topics/t/messages", JSON, &message.to_string());
        assert_eq!(answer.status, 200, "{}", answer.body);
    };
    send(
        json!({ "partition": "1", "key": "k1", "value": "/wD+", "value_form": "base64", "headers": "a=1\nb=" }),
    );
    send(json!({ "partition": "1", "key": "k1", "tombstone": "on" }));
    let shown = page(&node, "/topics/t/messages");
    assert!(shown.contains("tombstone") && shown.contains("ff 00 fe"), "{shown}");
    let form = page(&node, &link(&shown, "/topics/t/send?partition=1&amp;offset=0").expect("a link"));
    for part in [
        "name=\"key\" value=\"k1\"",
        "name=\"partition\" value=\"1\"",
        "name=\"value\" spellcheck=\"false\">/wD+</textarea>",
        "name=\"value_form\"><option value=\"text\">text</option><option value=\"base64\" selected>",
        ">a=1\nb=\n</textarea>",
    ] {
        assert!(form.contains(part), "{part}: {form}");
    }
    assert!(
        page(&node, "/topics/t/send?partition=1&offset=1")
            .contains("name=\"tombstone\" value=\"on\" checked")
    );
    let own = format!("{FORM}Origin: http://{}\r\n", node.http);
    let body = "key=k1&partition=1&value=%2FwD%2B&value_form=base64&headers=a%3D1%0D%0Ab%3D";
    let foreign = node::ask(&node.http, "POST", "/topics/t/messages", FORM, body);
    assert_eq!(foreign.status, 403, "a form of another site");
    let sent = node::ask(&node.http, "POST", "/topics/t/messages", &own, body);
    assert_eq!(sent.status, 303, "{}", sent.body);
    let line = page(&node, "/topics/t/message?partition=1&offset=2&part=json");
    let line: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!((&line["key"], &line["value"]), (&json!("k1"), &json!({ "base64": "/wD+" })));
    assert_eq!(line["headers"], json!([{ "key": "a", "value": "1" }, { "key": "b", "value": "" }]));
    assert_eq!(page(&node, "/topics/t/message?partition=1&offset=0&part=value&form=base64"), "/wD+");
    assert_eq!(page(&node, "/topics/t/message?partition=1&offset=0&part=key"), "k1");
    let wrong = body.replace("%2FwD%2B", "no+base64%21");
    let refused = node::ask(&node.http, "POST", "/topics/t/messages", &own, &wrong);
    assert!(refused.status == 400 && refused.body.contains("value: it is not Base64"), "{}", refused.body);
    assert!(refused.body.contains(">no base64!</textarea>"), "what was typed stays: {}", refused.body);
}

#[test]
fn downloads_and_copies_need_the_right_to_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = [
        "listeners=PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms=SCRAM-SHA-512",
        AUTHORIZER,
        "super.users=User:ANONYMOUS",
    ];
    let node = Node::start(dir.path(), &settings);
    for user in ["ann", "bob"] {
        node.tool(&format!("security user add {user} --password-stdin"), "correct horse");
    }
    node.tool("topic create t", "");
    node.tool("produce t", "secret\n");
    node.tool("security acl add User:ann --topic t --allow read", "");
    node.tool("security acl add User:bob --topic t --allow describe", "");
    for path in [
        "/api/v1/topics/t/messages/download",
        "/topics/t/messages",
        "/topics/t/messages/download",
        "/topics/t/message?partition=0&offset=0&part=value",
        "/topics/t/send?partition=0&offset=0",
    ] {
        for (user, status) in [("ann", 200), ("bob", 403)] {
            let answer = node::ask(&node.http, "GET", path, &login(user, "correct horse"), "");
            assert_eq!(answer.status, status, "{user} {path}: {}", answer.body);
            assert_eq!(answer.body.contains("secret"), status == 200, "{user} {path}: {}", answer.body);
        }
    }
}
