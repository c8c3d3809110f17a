//! Daily tasks in the console: a topic like another, a purge, a user with rights, sorted lists, a quota,
//! and a message whose session has ended.

use serde_json::{Value, json};

use super::binary::{run, run_with_input, thalweg, until};
use super::browser::Browser;
use super::node::{self, AUTHORIZER, FREE_PORT, JSON, Node};

/// The value of an attribute of a page, after these words.
fn attribute(page: &str, before: &str) -> String {
    let (_, rest) = page.split_once(before).unwrap_or_else(|| panic!("no {before}: {page}"));
    rest.split('"').next().unwrap_or_default().replace("&amp;", "&")
}

/// A setting of a topic that is set for it; none if the default applies.
fn setting(browser: &Browser<'_>, topic: &str, name: &str) -> Option<String> {
    let lines = browser.json(&format!("/api/v1/topics/{topic}/configuration"));
    let lines = lines.as_array().expect("a list").iter();
    let line = lines.clone().find(|line| line["name"] == name && line["is_set"] == true)?;
    line["value"].as_str().map(str::to_owned)
}

#[test]
fn a_topic_is_created_in_words_and_cloned() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT, "log.retention.hours=48", "num.partitions=3"]);
    let browser = Browser::of(&node);
    let page = browser.get("/create-topic").body;
    for part in [
        "placeholder=\"the default: 3\"",
        "placeholder=\"the default: 2 days\"",
        "the default: delete</option>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(page.contains("placeholder=\"the default: without limit\""), "{page}");
    let refused = browser.post("/create-topic", "name=orders&retention=7");
    assert_eq!(refused.status, 400);
    assert!(
        refused.body.contains("Retention time:") && refused.body.contains("value=\"orders\""),
        "{}",
        refused.body
    );
    let form = "name=orders&partitions=2&cleanup=compact%2Cdelete&retention=36+hours&size=1+GiB\
                &configuration=max.message.bytes%3D2000";
    let page = browser.post("/create-topic", form).body;
    assert!(page.contains("orders was created.") && page.contains("/create-topic?like=orders"), "{page}");
    assert_eq!(setting(&browser, "orders", "retention.ms").as_deref(), Some("129600000"));
    assert_eq!(setting(&browser, "orders", "retention.bytes").as_deref(), Some("1073741824"));
    let page = browser.get("/topics/orders/configuration").body;
    let at =
        |name: &str| page.find(&format!("<code>{name}</code>")).unwrap_or_else(|| panic!("{name}: {page}"));
    assert!(at("retention.ms") < at("compression.type"), "what differs comes first: {page}");
    assert!(page.contains("differs from the default"), "{page}");

    let page = browser.get("/create-topic?like=orders").body;
    for part in [
        "name=\"partitions\" value=\"2\"",
        "value=\"compact,delete\" selected",
        "name=\"retention\" value=\"1 day 12 hours\"",
        "name=\"size\" value=\"1 GiB\"",
        "max.message.bytes=2000\n</textarea>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let form = form.replace("name=orders", "name=copy&like=orders").replace("36+hours", "1+day+12+hours");
    assert!(browser.post("/create-topic", &form).body.contains("copy was created."));
    for name in ["cleanup.policy", "retention.ms", "retention.bytes", "max.message.bytes"] {
        assert_eq!(setting(&browser, "copy", name), setting(&browser, "orders", name), "{name}");
    }
    assert_eq!(browser.get("/create-topic?like=nothing").status, 404);
}

#[test]
fn a_purge_deletes_what_its_page_has_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT, "offsets.topic.num.partitions=1"]);
    let browser = Browser::of(&node);
    node.tool("topic create orders --partitions 2", "");
    node.tool("produce orders", "a\nb\nc\n");
    node.tool("consume orders --group billing --from-beginning --max-messages 1", "");
    let page = browser.get("/topics/orders/purge").body;
    for part in ["Up to 3 messages (", "billing</bdi>", "data-expect=\"orders\"", "There is no way back."] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let until_offsets = attribute(&page, "name=\"until\" value=\"");
    // A message that arrives after the page stays.
    node.tool("produce orders", "later\n");
    let id = attribute(&page, "name=\"topic_id\" value=\"");
    let until = until_offsets.replace(',', "%2C");
    let form = |confirm: &str| format!("confirm={confirm}&topic_id={id}&until={until}");
    let refused = browser.post("/topics/orders/purge", &form("order"));
    assert!(refused.status == 400 && refused.body.contains("is not orders."), "{}", refused.body);
    let plan = browser.json("/api/v1/topics/orders/purge");
    assert_eq!((&plan["messages"], &plan["refused"]), (&json!(4), &Value::Null), "{plan}");
    let page = browser.post("/topics/orders/purge", &form("orders")).body;
    assert!(page.contains("The messages of orders were deleted in 2 partitions (0, 1)."), "{page}");
    assert_eq!(node.tool("consume orders --from-beginning --until-end", ""), "later\n");

    node.tool("topic create state --config cleanup.policy=compact", "");
    let page = browser.get("/topics/state/purge").body;
    assert!(page.contains("keeps the newest message of each key") && !page.contains("data-expect"), "{page}");
    let purge = |topic: &str, partition: i32, id: &Value| {
        let order = json!({ "topic_id": id, "until": [{ "partition": partition, "offset": 0 }] }).to_string();
        node::ask(&node.http, "POST", &format!("/api/v1/topics/{topic}/purge"), JSON, &order)
    };
    let refused = purge("state", 0, &browser.json("/api/v1/topics/state/purge")["topic_id"]);
    assert!(refused.status == 400, "the cluster refuses it, too: {}", refused.body);
    assert_eq!(purge("orders", 9, &plan["topic_id"]).status, 404);
    let order = json!({ "until": [{ "partition": 0, "offset": 0 }] }).to_string();
    let refused = node::ask(&node.http, "POST", "/api/v1/topics/orders/purge", JSON, &order);
    assert!(refused.status == 400 && refused.body.contains("topic_id"), "{}", refused.body);
}

#[test]
fn a_user_is_made_with_its_rights_and_the_settings_of_its_client() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = [
        "listeners=PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms=SCRAM-SHA-512",
        AUTHORIZER,
        "super.users=User:ANONYMOUS;User:root",
        "group.initial.rebalance.delay.ms=0",
        "offsets.topic.num.partitions=1",
    ];
    let node = Node::start(&dir.path().join("data"), &settings);
    node.tool("topic create orders", "");
    node.tool("security user add root --password-stdin", "correct horse");
    let browser = Browser::log_in(&node, "root");
    let page = browser.get("/create-user?name=ann&rights=both&topic=orders").body;
    for part in ["ALLOW READ on TOPIC orders", "ALLOW WRITE on TOPIC orders", "ALLOW READ on GROUP ann"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!node.tool("security user list --json", "").contains("ann"), "a preview makes nothing");
    let form = "name=ann&rights=both&topic=orders&password=";
    let made = browser.send("/create-user", form);
    assert_eq!(made.status, 200, "{}", made.body);
    assert!(made.head.contains("cache-control: no-store"), "{}", made.head);
    let (_, java) = made.body.split_once("<pre class=\"card mono\">").expect("settings");
    let java = java.split("</pre>").next().expect("an end").replace("&quot;", "\"");
    let file = dir.path().join("ann.properties");
    std::fs::write(&file, &java).expect("a file");
    let as_ann = |line: &str, input: &str| {
        let mut command = thalweg(line);
        command.arg("--command-config").arg(&file);
        let (code, out, error) = run_with_input(&mut command, input.as_bytes());
        assert_eq!(code, Some(0), "{line}: {error}: {java}");
        out
    };
    // Brokers learn of the new user a moment after the controller.
    until("the login works", || run(thalweg("topic list -q --command-config").arg(&file)).0 == Some(0));
    as_ann("produce orders", "one\n");
    assert_eq!(as_ann("consume orders --group ann --from-beginning --max-messages 1", ""), "one\n");
    let again = browser.send("/create-user", form);
    assert!(again.status == 400 && again.body.contains("There is a user ann already"), "{}", again.body);
    let preview = browser.get("/create-user?name=ann&rights=both&topic=orders");
    assert!(
        preview.status == 400 && preview.body.contains("There is a user ann already"),
        "{}",
        preview.body
    );
    assert!(!preview.body.contains("What would be made"), "{}", preview.body);
    assert!(!browser.get("/users").body.contains("sasl.password"));

    let plain = tempfile::tempdir().expect("a directory");
    let open = Node::start(plain.path(), &[FREE_PORT]);
    let browser = Browser::of(&open);
    let page = browser.get("/create-user?name=bob&rights=admin").body;
    assert!(
        page.contains("No authorizer is configured") && page.contains("Only the user would be made."),
        "{page}"
    );
    let made = browser.send("/create-user", "name=bob&rights=admin&password=secret+words").body;
    for part in ["Only the user was made.", "listener without SASL", "sasl.password=secret words\n"] {
        assert!(made.contains(part), "{part}: {made}");
    }
    assert!(open.tool("security user list --json", "").contains("bob"));
}

#[test]
fn refused_acls_are_shown_with_the_commands_that_add_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = [
        "listeners=PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms=SCRAM-SHA-512",
        AUTHORIZER,
        "super.users=User:ANONYMOUS",
    ];
    let node = Node::start(dir.path(), &settings);
    node.tool("security user add half --password-stdin", "correct horse");
    node.tool("security acl add User:half --cluster --allow alter,describe", "");
    let browser = Browser::log_in(&node, "half");
    // An ACL with a resource that the cluster refuses: longer than the name of a topic may be in a record.
    let long = "x".repeat(40_000);
    let made =
        browser.send("/create-user", &format!("name=ann&rights=both&topic=orders&group={long}&password=p"));
    assert_eq!(made.status, 200, "{}", made.body);
    let page = made.body;
    assert!(page.contains("was made, and not all of its ACLs."), "{page}");
    assert!(page.contains("thalweg security acl add --group x"), "{page}");
    let acls = node.tool("security acl list --json", "");
    assert!(acls.contains("orders") && !acls.contains("xxx"), "{acls}");
}

#[test]
fn lists_are_sorted_by_their_heads() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = [FREE_PORT, "offsets.topic.num.partitions=1", "group.initial.rebalance.delay.ms=0"];
    let node = Node::start(dir.path(), &settings);
    let browser = Browser::of(&node);
    for (name, partitions) in [("a", 3), ("b", 9), ("c", 1)] {
        node.tool(&format!("topic create {name} --partitions {partitions}"), "");
    }
    let names = |query: &str| -> Vec<String> {
        let list = browser.json(&format!("/api/v1/topics?{query}"));
        let topics = list["topics"].as_array().expect("a list").iter();
        topics.map(|topic| topic["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(""), ["a", "b", "c"]);
    assert_eq!(names("sort=name&order=descending"), ["c", "b", "a"]);
    assert_eq!(names("sort=partitions"), ["b", "a", "c"]);
    assert_eq!(names("sort=partitions&order=ascending"), ["c", "a", "b"]);
    assert_eq!(browser.get("/api/v1/topics?sort=colour").status, 400);
    let page = browser.get("/topics?filter=&sort=partitions&page=1").body;
    assert!(page.contains("aria-sort=\"descending\""), "{page}");
    let turned = attribute(&page, "aria-sort=\"descending\"><a class=\"sort\" href=\"");
    assert_eq!(turned, "/topics?filter=&sort=partitions&order=ascending");
    let page = browser.get(&turned).body;
    let at = |name: &str| page.find(&format!("href=\"/topics/{name}\"")).expect("it is listed");
    assert!(at("c") < at("a") && at("a") < at("b"), "{page}");
    assert!(page.contains("<input type=\"hidden\" name=\"sort\" value=\"partitions\">"), "{page}");

    node.tool("produce a", "1\n2\n3\n");
    for (group, read) in [("near", 2), ("far", 1)] {
        node.tool(&format!("consume a --group {group} --from-beginning --max-messages {read}"), "");
    }
    let groups = |query: &str| -> Vec<(String, Value, Value)> {
        let list = browser.json(&format!("/api/v1/groups?{query}"));
        let groups = list["groups"].as_array().expect("a list").iter();
        let row = |group: &Value| {
            (
                group["group"].as_str().expect("a name").to_owned(),
                group["members"].clone(),
                group["lag"].clone(),
            )
        };
        groups.map(row).collect()
    };
    // The list of topics has read the groups before; a reading is kept for some seconds.
    until("the groups are listed, and the members are gone", || {
        let listed = groups("");
        listed.len() == 2 && listed.iter().all(|(_, members, _)| *members == json!(0))
    });
    let by_lag = groups("sort=lag");
    assert_eq!(
        by_lag.iter().map(|(group, ..)| group.as_str()).collect::<Vec<_>>(),
        ["far", "near"],
        "{by_lag:?}"
    );
    assert!(browser.get("/groups?sort=members").body.contains("aria-sort=\"descending\""));

    let brokers = browser.json("/api/v1/brokers");
    assert_eq!(brokers[0]["kafka_version"], "4.3", "{brokers}");
    assert!(brokers[0]["uptime_ms"].as_i64().is_some_and(|up| (0..600_000).contains(&up)), "{brokers}");
    let page = browser.get("/brokers?sort=size").body;
    assert!(page.contains("Kafka version") && page.contains("aria-sort=\"descending\""), "{page}");
}

#[test]
fn a_quota_is_removed_by_its_name_and_comes_back_by_its_command() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &[FREE_PORT]);
    let browser = Browser::of(&node);
    let page = browser.post("/quotas", "user=ann&client=*&limit=producer_byte_rate&value=2048").body;
    assert!(page.contains("producer_byte_rate was set.") && !page.contains("name=\"entity\""), "{page}");
    let removal = format!("/quotas/remove?{}", attribute(&page, "href=\"/quotas/remove?"));
    let refused = browser.post(&removal, "confirm=ann");
    assert!(refused.status == 400 && refused.body.contains("is not */ann."), "{}", refused.body);
    let listed = || node.tool("quota describe --json", "");
    let before = listed();
    assert!(before.contains("2048"), "{before}");
    let page = browser.post(&removal, "confirm=*%2Fann").body;
    assert!(page.contains("was removed.") && !listed().contains("2048"), "{page}");
    let command = "thalweg quota set --default client-id --user ann producer_byte_rate=2048";
    assert!(page.contains(&format!("<code>{command}</code>")), "{page}");
    node.tool(command.trim_start_matches("thalweg "), "");
    assert_eq!(listed(), before);
    // An empty value removes nothing.
    let page = browser.post("/quotas", "user=ann&limit=producer_byte_rate&value=").body;
    assert!(page.contains("is not a number") && listed() == before, "{page}");
}

#[test]
fn a_message_whose_session_has_ended_survives_the_login() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = [
        "listeners=PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms=SCRAM-SHA-512",
    ];
    let node = Node::start(dir.path(), &settings);
    node.tool("topic create orders", "");
    node.tool("security user add ann --password-stdin", "correct horse");
    let mut browser = Browser::of(&node);
    browser.session = "Cookie: thalweg_session_x=ended\r\n".to_owned();
    let fields = "key=k&partition=&value=a+%3Cb%3E%0D%0Ac&headers=";
    let login = browser.send("/topics/orders/messages", fields);
    assert_eq!(login.status, 401, "{}", login.body);
    assert!(login.body.contains("Its text is kept"), "{}", login.body);
    let kept = attribute(&login.body, "name=\"form\" value=\"");
    let encoded = kept.replace('%', "%25").replace('&', "%26").replace('+', "%2B").replace('=', "%3D");
    let form = |password: &str| {
        format!("user=ann&password={password}&next=%2Ftopics%2Forders%2Fmessages&form={encoded}")
    };
    let wrong = browser.send("/login", &form("wrong"));
    assert!(wrong.status == 401 && wrong.body.contains("name=\"form\""), "{}", wrong.body);
    let shown = browser.send("/login", &form("correct+horse"));
    assert!(shown.status == 200 && shown.body.contains("was not sent"), "{}", shown.body);
    assert!(shown.body.contains("\na &lt;b&gt;\r\nc</textarea>"), "{}", shown.body);
    browser.begin(&shown);
    assert_eq!(node.tool("consume orders --from-beginning --until-end", ""), "", "a login sends nothing");
    assert!(browser.post("/topics/orders/messages", fields).body.contains("The message is in partition 0"));
    // Other forms lead to the login, as before.
    let browser = Browser::of(&node);
    let other = browser.send("/create-topic", "name=x");
    assert!(other.status == 303 && other.head.contains("location: /login"), "{}", other.head);
}

/// The row of a topic in the list of the API, once its groups are read.
fn with_groups(browser: &Browser<'_>, topic: &str) -> (Value, Value) {
    let list = || browser.json("/api/v1/topics");
    until("a reading of the groups", || !list()["groups_at_ms"].is_null());
    let list = list();
    let row = list["topics"].as_array().expect("a list").iter().find(|row| row["name"] == topic);
    (row.unwrap_or_else(|| panic!("no {topic}: {list}")).clone(), list["groups_missing"].clone())
}

#[test]
fn the_list_of_topics_has_the_groups_and_messages_of_each() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(&dir.path().join("data"), &[FREE_PORT, "offsets.topic.num.partitions=1"]);
    let browser = Browser::of(&node);
    node.tool("topic create orders --partitions 2", "");
    node.tool("topic create unread", "");
    node.tool("produce orders", "a\nb\nc\n");
    node.tool("consume orders --group billing --from-beginning --max-messages 1", "");
    node.tool("consume orders --group audit --from-beginning --until-end", "");
    let (row, missing) = with_groups(&browser, "orders");
    assert_eq!(missing, json!([]));
    let group = |group: &str, lag| json!({ "group": group, "lag": lag, "beyond_end": 0, "members": 0 });
    assert_eq!(
        (&row["group_count"], &row["groups"]),
        (&json!(2), &json!([group("billing", 2), group("audit", 0)]))
    );
    let (row, _) = with_groups(&browser, "unread");
    assert_eq!((&row["group_count"], &row["groups"]), (&json!(0), &json!([])));
    let page = browser.get("/topics").body;
    for part in [
        "<a href=\"/group?id=billing\"><bdi>billing</bdi></a> 2 <span class=\"quiet\">no members</span>",
        "<span class=\"quiet\">none</span>",
        "<a class=\"aside\" href=\"/topics/orders/messages\" aria-label=\"Messages of orders\">Messages</a>",
        "Groups: read at ",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    // A change in the console makes the next reading due soon.
    browser.post("/group/delete", "id=audit&confirm=audit");
    until("the group is gone", || with_groups(&browser, "orders").0["group_count"] == json!(1));
}

#[test]
fn the_groups_of_a_topic_are_unknown_to_a_login_that_may_not_describe_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let settings = [
        "listeners=PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms=SCRAM-SHA-512",
        AUTHORIZER,
        "super.users=User:ANONYMOUS",
        "group.initial.rebalance.delay.ms=0",
        "offsets.topic.num.partitions=1",
    ];
    let node = Node::start(&dir.path().join("data"), &settings);
    node.tool("topic create orders", "");
    node.tool("produce orders", "a\n");
    for group in ["billing", "secret"] {
        node.tool(&format!("consume orders --group {group} --from-beginning --max-messages 1"), "");
    }
    node.tool("security user add ann --password-stdin", "correct horse");
    node.tool("security acl add User:ann --topic orders --allow describe", "");
    let browser = Browser::log_in(&node, "ann");
    let (row, missing) = with_groups(&browser, "orders");
    assert_eq!((&row["group_count"], &row["groups"]), (&Value::Null, &json!([])));
    assert!(missing[0].as_str().is_some_and(|why| why.contains("DESCRIBE on the cluster")), "{missing}");
    let page = browser.get("/topics").body;
    assert!(
        page.contains("<td class=\"lag\"><span class=\"quiet\" title=\"not known\">–</span></td>"),
        "{page}"
    );
    assert!(!page.contains("secret") && !page.contains(">none<"), "{page}");
    node.tool("security acl add User:ann --group billing --allow describe", "");
    let billing = json!([{ "group": "billing", "lag": 0, "beyond_end": 0, "members": 0 }]);
    until("the group that ann may describe now", || with_groups(&browser, "orders").0["groups"] == billing);
    assert_eq!(with_groups(&browser, "orders").0["group_count"], Value::Null, "others may exist");
}
