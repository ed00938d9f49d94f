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
    let replay = |id: &str, state: &str, created_at: &str, counts: [u64; 4], eta: Value| {
        let [total, done, succeeded, failed] = counts;
        json!({
            "id": id, "state": state, "created_at": created_at, "total": total, "done": done,
            "succeeded": succeeded, "failed": failed, "eta_seconds": eta,
        })
    };
    let (first, second) = ("2026-01-01T00:00:06.000Z", "2026-01-01T00:00:07.000Z");
    let page = json!({
        "models": [
            replay("rpl_2", "running", second, [500, 120, 118, 2], json!(8)),
            replay("rpl_1", "paused", first, [7, 0, 0, 0], Value::Null),
        ],
        "pagination": {},
    });
    let (asked, printed) = ask(&["replays", "list", "--limit", "2"], &page);
    assert_eq!(asked, "GET /api/v1/replays?limit=2 HTTP/1.1");
    let right = [
        "ID     STATE    CREATED                   TOTAL  DONE  SUCCEEDED  FAILED  ETA S",
        "rpl_2  running  2026-01-01T00:00:07.000Z  500    120   118        2       8",
        "rpl_1  paused   2026-01-01T00:00:06.000Z  7      0     0          0",
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
