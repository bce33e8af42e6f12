//! Where two plans differ, so that a refused resume can say more than two hashes.

use serde_json::Value;

/// Paths at which two documents differ, with both values: `nodes.trainer.max_grad_norm: 1.0 before, 0.5 now`.
pub fn differences(before: &Value, now: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", Some(before), Some(now), &mut found);
    found
}

fn compare(path: &str, before: Option<&Value>, now: Option<&Value>, found: &mut Vec<String>) {
    match (before, now) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let added = new.keys().filter(|key| !old.contains_key(*key));
            for key in old.keys().chain(added) {
                compare(&join(path, key), old.get(key), new.get(key), found);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            for index in 0..old.len().max(new.len()) {
                compare(&format!("{path}[{index}]"), old.get(index), new.get(index), found);
            }
        }
        (before, now) if before == now => {}
        (before, now) => {
            let text = |value: Option<&Value>| value.map_or("not there".to_owned(), Value::to_string);
            found.push(format!("{path}: {} before, {} now", text(before), text(now)));
        }
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn differences_are_named_by_path() {
        let before = json!({ "a": 1, "b": { "c": [1, 2], "d": "x" }, "gone": true });
        let now = json!({ "a": 1, "b": { "c": [1, 3, 4], "d": "x" }, "new": null });
        assert_eq!(
            differences(&before, &now),
            [
                "b.c[1]: 2 before, 3 now",
                "b.c[2]: not there before, 4 now",
                "gone: true before, not there now",
                "new: not there before, null now",
            ]
        );
        assert!(differences(&before, &before).is_empty());
    }
}
