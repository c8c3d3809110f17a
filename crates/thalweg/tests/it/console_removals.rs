//! What one click of the console may remove, and what its pages show instead of refusals and of buttons
//! without effect.

use std::process::Command;

use serde_json::Value;

use super::binary::{run, until};
use super::browser::Browser;
use super::node::{AUTHORIZER, FREE_PORT, Node};

/// Runs the command of the page that restores what was removed.
fn restore(node: &Node, page: &str) {
    let rest = page.split_once("This command restores it").map(|(_, rest)| rest);
    let command = rest.and_then(|rest| rest.split_once("<code>thalweg ")).map(|(_, command)| command);
    let (command, _) = command.and_then(|rest| rest.split_once("</code>")).expect("a command");
    let command = command.replace("&amp;", "&").replace("&lt;", "<").replace("&quot;", "\"");
    let line = format!("\"$THALWEG\" {command}");
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]).env("THALWEG", env!("CARGO_BIN_EXE_thalweg"));
    shell.env("THALWEG_BOOTSTRAP_SERVER", &node.address).env("THALWEG_CONFIG", "/nonexistent");
    let (code, _, error) = run(&mut shell);
    assert_eq!(code, Some(0), "{line}: {error}");
}

/// The address of the first link of a page that begins so.
fn link(page: &str, beginning: &str) -> String {
    let (_, rest) = page.split_once(&format!("href=\"{beginning}")).unwrap_or_else(|| panic!("{page}"));
    let (rest, _) = rest.split_once('"').expect("the end of the attribute");
    format!("{beginning}{}", rest.replace("&amp;", "&"))
}

#[test]
fn removals_need_a_name_and_come_back_by_their_command() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = [
        "listeners=PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms=SCRAM-SHA-512",
        AUTHORIZER,
        "super.users=User:ANONYMOUS;User:ann",
        "streams.enabled=true",
        "group.initial.rebalance.delay.ms=0",
        "offsets.topic.num.partitions=1",
    ];
    let node = Node::start(dir.path(), &settings);
    for user in ["ann", "bob"] {
        node.tool(&format!("security user add {user} --password-stdin"), "correct horse");
    }
    let ann = Browser::log_in(&node, "ann");

    let line = "security acl add User:bob --group a'b --prefixed --allow read --host 10.0.0.7";
    node.tool(line, "");
    let listed = || node.tool("security acl list --json", "");
    let before = listed();
    assert!(before.contains("a'b"), "{before}");
    let page = ann.get("/acls").body;
    assert!(!page.contains("action=\"/acls/delete"), "one click deletes nothing: {page}");
    let deletion = link(&page, "/acls/delete?");
    assert!(ann.get(&deletion).body.contains("data-expect=\"User:bob\""));
    let refused = ann.post(&deletion, "confirm=bob");
    assert!(refused.status == 400 && refused.body.contains("is not User:bob"), "{}", refused.body);
    assert_eq!(listed(), before);
    let page = ann.post(&deletion, "confirm=User%3Abob").body;
    assert!(page.contains("No more for User:bob") && !listed().contains("a'b"), "{page}");
    restore(&node, &page);
    assert_eq!(listed(), before);

    node.tool("topic create orders", "");
    node.tool("produce orders", "a\nb\nc\n");
    node.tool("consume orders --group billing --from-beginning --max-messages 2", "");
    let offset = || {
        let group = ann.get("/api/v1/groups/billing").body;
        let group: Value = serde_json::from_str(&group).expect("JSON");
        group["offsets"][0]["offset"].as_i64()
    };
    until("the member is gone", || ann.get("/group?id=billing").body.contains("has no members"));
    let deletion = link(&ann.get("/group?id=billing").body, "/group/delete-offset?");
    assert_eq!(ann.post(&deletion, "confirm=orders").status, 400);
    assert_eq!(offset(), Some(2));
    let page = ann.post(&deletion, "confirm=orders-0").body;
    assert!(page.contains("no offset in orders-0 any more") && offset().is_none(), "{page}");
    assert_eq!(ann.get(&deletion).status, 404, "there is no offset");
    restore(&node, &page);
    assert_eq!(offset(), Some(2));

    let own = ann.get("/users/remove?name=ann&mechanism=SCRAM-SHA-512").body;
    assert!(own.contains("This is your own login") && own.contains("The user keeps SCRAM-SHA-256."), "{own}");
    assert_eq!(ann.post("/users/remove?name=bob&mechanism=SCRAM-SHA-512", "").status, 400);
    let bob = Browser::log_in(&node, "bob");
    let streams = bob.get("/streams");
    let is_page =
        streams.head.contains("content-type: text/html") && streams.body.contains("<h1>Streams</h1>");
    assert!(streams.status == 403 && is_page, "{} {}", streams.head, streams.body);
    assert!(streams.body.contains("User:bob may not GET /streams") && streams.body.contains("DESCRIBE"));
    assert!(streams.body.contains("Logged in as"), "{}", streams.body);
    let check = bob.get("/streams-check?definition=time");
    assert!(check.status == 403 && check.body.starts_with("{\"error\""), "{}", check.body);
    let page = ann.post("/users/remove?name=bob&mechanism=SCRAM-SHA-512", "confirm=bob").body;
    assert!(page.contains("bob has no password for SCRAM-SHA-512 any more."), "{page}");
}

#[test]
fn pages_show_what_is_there() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT]);
    let browser = Browser::of(&node);
    node.tool("topic create orders", "");

    for path in ["/acls", "/acls/rights?principal=User%3Aann&resource_type=TOPIC&resource_name=orders"] {
        let page = browser.get(path);
        let is_explained =
            page.body.contains("No authorizer is configured") && !page.body.contains("note bad");
        assert!(page.status == 200 && is_explained, "{path}: {}", page.body);
    }

    let messages = "/topics/orders/messages";
    let form = "key=k&partition=7&value=%7B%0D%0A%22name%22%3A+%22%5Cu017dofka%22%0D%0A%7D&headers=a%3D1";
    let refused = browser.post(messages, form);
    for part in [
        "The message was not sent:",
        "value=\"7\"",
        ">{\n&quot;name&quot;: &quot;\\u017dofka&quot;\n}</textarea>",
        ">a=1</textarea>",
    ] {
        assert!(refused.status >= 400 && refused.body.contains(part), "{part}: {}", refused.body);
    }
    let page = browser.post(messages, &form.replace("partition=7", "partition=0")).body;
    assert!(page.contains("The message is in partition 0, offset 0."), "{page}");
    let stored = node.tool("consume orders --from-beginning --until-end", "");
    assert_eq!(stored, "{\n\"name\": \"\\u017dofka\"\n}\n");
    assert!(page.contains("&quot;Žofka&quot;") && page.contains("&quot;\\u017dofka&quot;"), "{page}");

    // The time of the message, as a person copies it from the page.
    let (_, row) = page.split_once("<tbody id=\"m-0-0\"").expect("a message");
    let (_, time) = row.split_once("class=\"time\">").expect("its time");
    let time = time.split('Z').next().map(|time| format!("{time}Z")).expect("in UTC");
    let found = browser.get(&format!("{messages}?from=time&at={time}")).body;
    assert!(found.contains("Žofka"), "{time}: {found}");
    let found = node.tool(&format!("consume orders --from-time {time} --until-end"), "");
    assert!(found.contains("ofka"), "{time}: {found}");

    let replicas = || browser.get("/topics/orders/replicas").body;
    assert!(!replicas().contains("Remove the throttle"));
    node.tool("config set topic:orders leader.replication.throttled.replicas=*", "");
    until("the throttle shows", || replicas().contains("Remove the throttle"));
    let page = browser.post("/topics/orders/replicas/end-throttle", "").body;
    assert!(page.contains("The throttle was removed.") && !page.contains(">Remove the throttle<"), "{page}");

    let page = browser.get("/topics/orders/configuration?filter=retention.ms").body;
    assert!(page.contains("604800000 <span class=\"quiet\">= 7 days</span>"), "{page}");
}
