//! Commands that ask once: what they ask the server for, and what they print of its answer.

use serde_json::{Value, json};

use super::process::Folder;
use super::server_away::{run, scripted};

/// Runs a command against a server that gives this answer, and answers what it was asked and what was printed.
fn ask(args: &[&str], answer: &Value) -> (String, String) {
    let (url, server) = scripted(&[(200, answer.to_string().leak())]);
    let ended = run(&Folder::new(), &url, args);
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
    let mut asked = server.join().unwrap();
    assert_eq!(asked.len(), 1);
    (asked.remove(0), ended.stdout)
}

fn letters() -> Value {
    let letter = |id: &str, topic: &str, reason: &str, attempts: u32, died_at: &str, error: Value| {
        json!({
            "id": id, "tenant_id": "acme", "destination_id": "des_1", "topic": topic, "reason": reason,
            "attempts": attempts, "died_at": died_at, "error": error,
        })
    };
    let (first, second) = ("2026-01-01T00:00:06.000Z", "2026-01-01T00:00:07.000Z");
    json!({
        "models": [
            letter("dlv_2", "order.paid", "permanent_failure", 1, second, json!("401: denied")),
            letter("dlv_1", "", "expired", 0, first, Value::Null),
        ],
        "pagination": { "next": "cur_2" },
    })
}

#[test]
fn dead_letters_are_listed_as_a_table_with_the_next_page() {
    let list = [
        "dead-letters",
        "list",
        "--limit",
        "2",
        "--next",
        "cur+1",
        "--tenant",
        "acme",
        "--code",
        "401",
    ];
    let (asked, printed) = ask(&list, &letters());
    assert_eq!(
        asked,
        "GET /api/v1/dead-letters?limit=2&next=cur%2B1&tenant_id[]=acme&code[]=401 HTTP/1.1"
    );
    let right = [
        "ID     TENANT  DESTINATION  TOPIC       REASON             ATTEMPTS  DIED                      LAST ERROR",
        "dlv_2  acme    des_1        order.paid  permanent_failure  1         2026-01-01T00:00:07.000Z  401: denied",
        "dlv_1  acme    des_1                    expired            0         2026-01-01T00:00:06.000Z",
        "more with --next cur_2",
    ];
    assert_eq!(printed.lines().collect::<Vec<_>>(), right);
}

#[test]
fn a_dry_run_of_a_purge_says_how_many() {
    let counted = json!({ "dry_run": true, "count": 5, "upto": "7" });
    let purge = ["dead-letters", "purge", "--tenant", "acme", "--dry-run"];
    let (asked, printed) = ask(&purge, &counted);
    assert_eq!(asked, "POST /api/v1/dead-letters/purge HTTP/1.1");
    assert_eq!(printed, "5 dead letters would be deleted\n");
}

#[test]
fn json_is_the_answer_as_it_is() {
    let replay = json!({ "id": "rpl_1", "state": "paused", "total": 7, "eta_seconds": null });
    let summary = json!({ "count": 0, "groups": 0, "models": [] });
    let counted = json!({ "dry_run": true, "count": 5, "upto": "7" });
    let shown = json!({ "id": "dlv_1", "event": {}, "history": [] });
    let page = json!({ "models": [replay], "pagination": {} });
    for (args, request, answer) in [
        (
            "dead-letters list",
            "GET /api/v1/dead-letters?limit=50",
            &letters(),
        ),
        (
            "dead-letters summary",
            "GET /api/v1/dead-letters/summary?limit=20",
            &summary,
        ),
        (
            "dead-letters show dlv-1",
            "GET /api/v1/dead-letters/dlv%2D1",
            &shown,
        ),
        (
            "dead-letters purge --all --dry-run",
            "POST /api/v1/dead-letters/purge",
            &counted,
        ),
        (
            "dead-letters replay --all --dry-run",
            "POST /api/v1/replays",
            &counted,
        ),
        (
            "dead-letters replay --all --detach",
            "POST /api/v1/replays",
            &replay,
        ),
        ("replays list", "GET /api/v1/replays?limit=20", &page),
        (
            "replays pause rpl-1",
            "POST /api/v1/replays/rpl%2D1/pause",
            &replay,
        ),
    ] {
        let words: Vec<&str> = args.split(' ').chain(["--json"]).collect();
        let (asked, printed) = ask(&words, answer);
        assert_eq!(asked, format!("{request} HTTP/1.1"), "{args}");
        assert_eq!(
            &serde_json::from_str::<Value>(&printed).unwrap(),
            answer,
            "{args}"
        );
    }
}

#[test]
fn replays_are_listed_with_the_time_they_take() {
    let replay = |id: &str, state: &str, created_at: &str, counts: [u64; 6], eta: Value| {
        let [total, done, succeeded, failed, canceled, skipped] = counts;
        json!({
            "id": id, "state": state, "created_at": created_at, "total": total, "done": done, "succeeded": succeeded,
            "failed": failed, "canceled": canceled, "skipped": skipped, "eta_seconds": eta,
        })
    };
    let (first, second) = ("2026-01-01T00:00:06.000Z", "2026-01-01T00:00:07.000Z");
    let page = json!({
        "models": [
            replay("rpl_2", "running", second, [500, 120, 108, 2, 3, 7], json!(8)),
            replay("rpl_1", "paused", first, [7, 0, 0, 0, 0, 0], Value::Null),
        ],
        "pagination": {},
    });
    let (asked, printed) = ask(&["replays", "list", "--limit", "2"], &page);
    assert_eq!(asked, "GET /api/v1/replays?limit=2 HTTP/1.1");
    let right = [
        "ID     STATE    CREATED                   TOTAL  DONE  SUCCEEDED  FAILED  CANCELED  SKIPPED  ETA S",
        "rpl_2  running  2026-01-01T00:00:07.000Z  500    120   108        2       3         7        8",
        "rpl_1  paused   2026-01-01T00:00:06.000Z  7      0     0          0       0         0",
    ];
    assert_eq!(printed.lines().collect::<Vec<_>>(), right);
}

#[test]
fn a_replay_is_paused_resumed_and_canceled() {
    for (verb, state, eta, end) in [
        ("pause", "paused", Value::Null, ""),
        ("resume", "running", json!(90), ", about 1 min 30 s to go"),
        ("cancel", "canceled", Value::Null, ""),
    ] {
        let replay = json!({
            "id": "rpl_1", "state": state, "total": 7, "done": 3, "succeeded": 2, "failed": 1, "eta_seconds": eta,
        });
        let (asked, printed) = ask(&["replays", verb, "rpl_1"], &replay);
        assert_eq!(asked, format!("POST /api/v1/replays/rpl%5F1/{verb} HTTP/1.1"));
        let right = format!("rpl_1 {state}: 3 of 7 done, 2 succeeded, 1 failed again{end}\n");
        assert_eq!(printed, right);
    }
}

#[test]
fn a_replay_in_one_line_says_what_was_canceled_and_skipped() {
    let replay = json!({
        "id": "rpl_1", "state": "done", "total": 9, "done": 9, "succeeded": 1, "failed": 2, "canceled": 4, "skipped": 2,
    });
    let (_, printed) = ask(&["replays", "show", "rpl_1"], &replay);
    let right = "rpl_1 done: 9 of 9 done, 1 succeeded, 2 failed again, 4 canceled, 2 skipped\n";
    assert_eq!(printed, right);
}

#[test]
fn an_address_with_the_path_of_the_api_is_taken_without_it() {
    let summary = json!({ "count": 0, "groups": 0, "models": [] });
    for end in ["/api/v1", "/api/v1/", "/"] {
        let (url, server) = scripted(&[(200, summary.to_string().leak())]);
        let ended = run(
            &Folder::new(),
            &format!("{url}{end}"),
            &["dead-letters", "summary"],
        );
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(
            server.join().unwrap(),
            ["GET /api/v1/dead-letters/summary?limit=20 HTTP/1.1"],
            "{end}"
        );
    }
}

#[test]
fn a_server_that_is_not_postrider_is_told() {
    for (command, status, body) in [
        ("summary", 200, ""),
        ("summary", 200, "<html>"),
        ("summary", 404, "404 page not found"),
        ("summary", 404, r#"{"status":404,"message":"not found"}"#),
        ("export", 200, ""),
        ("export", 404, "404 page not found"),
    ] {
        let (url, server) = scripted(&[(status, body)]);
        let ended = run(&Folder::new(), &url, &["dead-letters", command]);
        assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{ended:?}");
        let question = format!("(is {url} the address of a Postrider server? see --url)");
        assert!(ended.stderr.contains(&question), "{ended:?}");
        server.join().unwrap();
    }
    let (url, server) = scripted(&[(404, r#"{"status":404,"message":"dead letter not found"}"#)]);
    let ended = run(&Folder::new(), &url, &["dead-letters", "show", "dlv_1"]);
    assert!(ended.stderr.contains("404 dead letter not found"), "{ended:?}");
    assert!(!ended.stderr.contains("see --url"), "{ended:?}");
    server.join().unwrap();
}

/// A whole answer of an export.
fn lines_of_json(lines: &str) -> &'static str {
    let head = "HTTP/1.1 200 x\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n";
    format!("{head}{lines}").leak()
}

#[test]
fn an_export_to_a_dash_is_standard_output_with_the_count_beside_it() {
    let folder = Folder::new();
    for file in [&["-"][..], &[]] {
        let (url, server) = scripted(&[(0, lines_of_json("{\"id\":1}\n{\"id\":2}\n"))]);
        let ended = run(&folder, &url, &[&["dead-letters", "export"], file].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(ended.stdout, "{\"id\":1}\n{\"id\":2}\n");
        assert_eq!(ended.stderr, "2 dead letters written to standard output\n");
        server.join().unwrap();
    }
    assert!(!folder.path().join("-").exists());
}

#[test]
fn an_export_whose_reader_has_seen_enough_ends_without_a_word() {
    // More than a pipe holds.
    let lines = lines_of_json(&"{\"id\":1}\n".repeat(100_000));
    for more in [&[][..], &["--zstd"]] {
        let (url, server) = scripted(&[(0, lines)]);
        let args = [
            &["dead-letters", "export", "-", "--url", &url, "--api-key", "k"],
            more,
        ]
        .concat();
        let ended = Folder::new().run_unread(&args);
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{more:?}");
        server.join().unwrap();
    }
}
