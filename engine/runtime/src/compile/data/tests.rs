#![allow(clippy::unwrap_used, clippy::print_stderr)]
//! Data sets through a real tokenizer and template.

use std::path::Path;
use std::sync::Arc;

use rlpipe_core::services::Rows;
use rlpipe_stages::KINDS;
use serde_json::{Value, json};

use super::pass::MOST_SOURCES;
use super::{Data, load};
use crate::compile::{Outcome, Request, compile, read_file};

/// Everything but the sampler's data.
const PIPELINE: &str = "
version: 1
name: reading
run: { work_dir: runs, seed: 3, total_steps: 1, checkpoint: { every_steps: 1 } }
pools: { local: { accelerator: cpu, workers_per_node: 1 } }
models:
  tiny: { init: { architecture: llama, hidden_size: 32, layers: 1, heads: 2, intermediate_size: 64, tokenizer: bytes } }
nodes:
  engine: { type: rollout_engine, pool: local, model: tiny, max_context_tokens: 1024 }
  answers: { type: agent_loop, inputs: { prompts: prompts, engine: engine }, sampling: { max_new_tokens: 8, temperature: 1.0 } }
  scored: { type: judger, inputs: { groups: answers }, judge: number }
  buffer: { type: replay_buffer, inputs: { groups: [scored] }, prompts_per_step: 1 }
  advantages: { type: advantage, inputs: { batch: buffer }, estimator: grpo }
  trainer: { type: trainer, inputs: { batch: advantages }, pool: local, model: tiny, optimizer: { adamw: { lr: 1e-4 } } }
  sync: { type: weight_sync, inputs: { weights: trainer }, to: engine, every_steps: 1 }
  prompts: { type: sampler, samples_per_prompt: 2, ";

/// The data of a sampler with these settings, and what was said.
fn read(folder: &Path, settings: &str) -> (Data, Outcome) {
    read_text(folder, &format!("{PIPELINE}{settings} }}\n"))
}

fn read_text(folder: &Path, text: &str) -> (Data, Outcome) {
    std::fs::write(folder.join("pipeline.yaml"), text).unwrap();
    let mut outcome = compile(&Request {
        files: vec!["pipeline.yaml".into()],
        overrides: Vec::new(),
        environment: &|_| None,
        working_folder: folder.to_owned(),
        read: &read_file,
        kinds: KINDS,
    });
    let pipeline = outcome.pipeline.as_ref().unwrap();
    let data = load(pipeline, &mut outcome.sources, &mut outcome.diagnostics, &|_, _, _| {});
    (data, outcome)
}

/// The rows of a sampler whose data has no faults.
fn rows(folder: &Path, settings: &str) -> (Arc<dyn Rows>, Data) {
    let (data, outcome) = read(folder, settings);
    assert!(outcome.diagnostics.is_empty(), "{:?}", said(&outcome));
    (data.rows["prompts"].clone(), data)
}

fn said(outcome: &Outcome) -> Vec<String> {
    let text = |found: &rlpipe_core::diagnostic::Diagnostic| format!("{}: {}", found.code.id, found.message);
    outcome.diagnostics.iter().map(text).collect()
}

fn sum(a: u64) -> Value {
    json!({ "prompt": format!("{a}+1="), "reward_model": { "ground_truth": a + 1 } })
}

fn write(folder: &Path, name: &str, rows: impl IntoIterator<Item = Value>) {
    let lines: String = rows.into_iter().map(|row| format!("{row}\n")).collect();
    std::fs::write(folder.join(name), lines).unwrap();
}

fn texts(rows: &dyn Rows) -> Vec<String> {
    let text = |index| rows.row(index).unwrap().prompt[0].text().into_owned();
    (0..rows.count()).map(text).collect()
}

#[test]
fn rows_are_what_the_lines_say_however_lines_end() {
    let folder = tempfile::tempdir().unwrap();
    let first = r#"{"prompt": "1+1=", "reward_model": {"ground_truth": 2}, "level": {"of": ["a", 1.5]}}"#;
    let last = r#"{"prompt": [{"role": "user", "content": "é="}], "data_source": "odd", "reward_model": {"ground_truth": "7"}}"#;
    std::fs::write(
        folder.path().join("rows.jsonl"),
        format!("\u{feff}{first}\r\n\n   \r\n  {last}"),
    )
    .unwrap();
    let (rows, data) = rows(folder.path(), "dataset: { path: rows.jsonl }");
    assert_eq!(rows.count(), 2);
    let (one, two) = (rows.row(0).unwrap(), rows.row(1).unwrap());
    assert_eq!((one.line, two.line), (1, 4));
    assert_eq!(
        (one.ground_truth.as_deref(), two.ground_truth.as_deref()),
        (Some("2"), Some("7"))
    );
    assert_eq!((one.data_source.as_str(), two.data_source.as_str()), ("", "odd"));
    assert_eq!(one.columns["level"], json!({ "of": ["a", 1.5] }));
    assert_eq!(one.dataset, "prompts");
    let tokenizer = &data.tokenizers["tiny"];
    assert!(tokenizer.decode(&two.prompt_ids, true).unwrap().contains("é="));
    assert_eq!(rows.data_sources(), ["", "odd"]);
    assert!(rows.row(2).is_err());
}

/// However long the file, only so many rows are in memory, and any of them can be drawn.
#[test]
fn a_long_file_is_never_held() {
    let folder = tempfile::tempdir().unwrap();
    const COUNT: u64 = 20_000;
    write(folder.path(), "rows.jsonl", (0..COUNT).map(sum));
    let (rows, data) = rows(folder.path(), "dataset: { path: rows.jsonl }");
    let tally = &data.tallies[0];
    assert_eq!((tally.read, tally.used), (COUNT, COUNT));
    assert_eq!(tally.most_held, 16 * 512);
    for index in [0, COUNT - 1, 12_345, 511, 512, 16 * 512] {
        let row = rows.row(index).unwrap();
        assert_eq!(
            (row.line, row.prompt[0].text().as_ref()),
            (index + 1, format!("{index}+1=").as_str())
        );
    }
}

#[test]
fn raw_gsm8k_needs_no_conversion() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/gsm8k/test.jsonl");
    if !shared.is_file() {
        eprintln!("skipped: `{}` is not there", shared.display());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let settings = format!(
        "dataset: {{ path: {:?}, map: {{ prompt: \"{{{{ question }}}}\", ground_truth: \"{{{{ answer.split('#### ')[1].replace(',', '') }}}}\" }} }}, \
         over_long: skip",
        shared.canonicalize().unwrap()
    );
    let (rows, data) = rows(folder.path(), &settings);
    let tally = &data.tallies[0];
    assert_eq!((tally.read, tally.unwanted), (1319, 0));
    assert_eq!(tally.read - tally.over_long, rows.count());
    assert!(rows.row(0).unwrap().prompt[0].text().starts_with("Janet"));
    assert_eq!(rows.row(0).unwrap().ground_truth.as_deref(), Some("18"));
    assert_eq!(rows.row(2).unwrap().ground_truth.as_deref(), Some("70000"));
    let is_number = |truth: &str| truth.parse::<i64>().is_ok();
    assert!((0..rows.count()).all(|index| is_number(rows.row(index).unwrap().ground_truth.as_ref().unwrap())));
}

#[test]
fn templates_make_messages_of_columns() {
    let folder = tempfile::tempdir().unwrap();
    write(
        folder.path(),
        "rows.jsonl",
        [json!({ "q": "2+2", "hint": "add", "a": 4, "chat": [{ "role": "user", "content": "hi" }], "from": "sums" })],
    );
    let list = "map: { prompt: [{ role: system, content: \"Hint: {{ hint }}\" }, { role: user, content: \"{{ q }}=\" }], \
                ground_truth: \"{{ a }}\", data_source: \"{{ from }}/x\" }";
    let (of_list, _) = rows(folder.path(), &format!("dataset: {{ path: rows.jsonl, {list} }}"));
    let row = of_list.row(0).unwrap();
    let said: Vec<(&str, String)> = row
        .prompt
        .iter()
        .map(|it| (it.role(), it.text().into_owned()))
        .collect();
    assert_eq!(said, [("system", "Hint: add".to_owned()), ("user", "2+2=".to_owned())]);
    assert_eq!(
        (row.ground_truth.as_deref(), row.data_source.as_str()),
        (Some("4"), "sums/x")
    );

    let whole = "map: { prompt: \"{{ chat }}\", ground_truth: \"{{ a }}\" }";
    let (of_column, _) = rows(folder.path(), &format!("dataset: {{ path: rows.jsonl, {whole} }}"));
    assert_eq!(texts(&*of_column), ["hi"]);
}

#[test]
fn what_is_left_out_is_counted_by_reason() {
    let folder = tempfile::tempdir().unwrap();
    let row =
        |level: u64, text: &str| json!({ "prompt": text, "level": level, "reward_model": { "ground_truth": "1" } });
    let long = "1+".repeat(600);
    write(
        folder.path(),
        "rows.jsonl",
        [row(1, "1="), row(2, &long), row(3, "2="), row(0, "3="), row(0, &long)],
    );
    let (rows, data) = rows(folder.path(), "dataset: { path: rows.jsonl, where: level > 0 }");
    let tally = &data.tallies[0];
    assert_eq!((tally.read, tally.unwanted, tally.over_long, tally.used), (5, 2, 1, 2));
    assert_eq!(texts(&*rows), ["1=", "2="]);
    assert_eq!(rows.row(1).unwrap().line, 3);
}

/// As XTuner takes them, but for binary fractions: `len * ratio` rows, rounded down, of those that pass, whole passes first; of an incomplete one a drawn part, or with
/// a sampler that goes in order the leading rows.
#[test]
fn a_ratio_takes_a_part_or_repeats() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "rows.jsonl", (0..10).map(sum));
    let of = |ratio: &str, shuffle: bool| {
        let (rows, _) = rows(
            folder.path(),
            &format!("dataset: {{ path: rows.jsonl, sample_ratio: {ratio} }}, shuffle: {shuffle}"),
        );
        (0..rows.count())
            .map(|index| rows.row(index).unwrap().line)
            .collect::<Vec<_>>()
    };
    assert_eq!(of("0.39", false), [1, 2, 3]);
    assert_eq!(
        of("2.25", false),
        [
            &(1..=10).collect::<Vec<_>>()[..],
            &(1..=10).collect::<Vec<_>>(),
            &[1, 2]
        ]
        .concat()
    );
    let drawn = of("0.39", true);
    assert!(drawn.len() == 3 && drawn != [1, 2, 3], "{drawn:?}");
    assert_eq!(drawn, of("0.39", true));
    let repeated = of("1.5", true);
    assert_eq!(repeated[..10], (1..=10).collect::<Vec<_>>());
    let mut part = repeated[10..].to_vec();
    part.sort_unstable();
    part.dedup();
    assert_eq!(part.len(), 5, "none of them twice");
    let (_, outcome) = read(folder.path(), "dataset: { path: rows.jsonl, sample_ratio: 0.05 }");
    assert_eq!(
        said(&outcome),
        [format!(
            "RL1005: `sample_ratio: 0.05` leaves none of the 10 rows of `{}`",
            folder.path().join("rows.jsonl").display()
        )]
    );
}

#[test]
fn huge_ratios_add_up() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "rows.jsonl", (0..3).map(sum));
    let huge = "{ path: rows.jsonl, sample_ratio: 1.0e+300 }";
    let (rows, _) = rows(
        folder.path(),
        &format!("datasets: {{ a: {huge}, b: {huge} }}, shuffle: false"),
    );
    assert_eq!(rows.count(), 1 << 54);
    assert_eq!(rows.row(rows.count() - 1).unwrap().dataset, "b");
    assert!(rows.row(rows.count()).is_err());
}

#[test]
fn several_data_sets_are_one_with_their_names_as_sources() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.jsonl", (0..3).map(sum));
    std::fs::create_dir(folder.path().join("parts")).unwrap();
    write(folder.path(), "parts/2.jsonl", (20..22).map(sum));
    write(
        folder.path(),
        "parts/1.jsonl",
        (10..12).map(|a| {
            let mut row = sum(a);
            row["data_source"] = "own".into();
            row
        }),
    );
    std::fs::write(folder.path().join("parts/notes.txt"), "no rows").unwrap();
    let (rows, data) = rows(
        folder.path(),
        "datasets: { small: { path: a.jsonl }, folder: { path: parts, sample_ratio: 1.5 } }, shuffle: false",
    );
    let found: Vec<(String, String, u64)> = (0..rows.count())
        .map(|index| rows.row(index).unwrap())
        .map(|row| (row.dataset.clone(), row.data_source.clone(), row.line))
        .collect();
    let place = |dataset: &str, source: &str, line| (dataset.to_owned(), source.to_owned(), line);
    assert_eq!(
        found,
        [
            place("folder", "own", 1),
            place("folder", "own", 2),
            place("folder", "folder", 1),
            place("folder", "folder", 2),
            place("folder", "own", 1),
            place("folder", "own", 2),
            place("small", "small", 1),
            place("small", "small", 2),
            place("small", "small", 3),
        ]
    );
    assert_eq!(rows.data_sources(), ["folder", "own", "small"]);
    let names: Vec<&String> = data.fingerprints.keys().collect();
    assert_eq!(names, ["prompts.folder", "prompts.small"]);
}

/// As in a download cache from which a file was deleted: the rest alone would be another data set.
#[test]
fn what_is_named_like_a_file_and_is_none_is_not_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let parts = folder.path().join("parts");
    std::fs::create_dir_all(parts.join("inner")).unwrap();
    write(&parts, "1.jsonl", (0..2).map(sum));
    write(&parts, "blob", (2..4).map(sum));
    std::os::unix::fs::symlink("blob", parts.join("2.jsonl")).unwrap();
    let settings = "dataset: { path: parts }, shuffle: false";
    assert_eq!(rows(folder.path(), settings).0.count(), 4);

    std::fs::remove_file(parts.join("blob")).unwrap();
    let faulty = |what: &str| {
        let (data, outcome) = read(folder.path(), settings);
        let said = said(&outcome);
        let start = format!(
            "RL1001: cannot read `{}`: it is {what}",
            parts.join("2.jsonl").display()
        );
        assert!(said.len() == 1 && said[0].starts_with(&start), "{said:?}");
        assert!(data.rows.is_empty());
    };
    faulty("a link to `blob`: ");
    std::fs::remove_file(parts.join("2.jsonl")).unwrap();
    std::os::unix::fs::symlink("inner", parts.join("2.jsonl")).unwrap();
    faulty("a folder, not a regular file");
}

#[test]
fn a_pipe_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("rows.jsonl");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let (_, outcome) = read(folder.path(), "dataset: { path: rows.jsonl }");
    let said = said(&outcome);
    let start = format!("RL1001: cannot read `{}`: it is a pipe", pipe.display());
    assert!(said.len() == 1 && said[0].starts_with(&start), "{said:?}");
}

#[test]
fn an_empty_source_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let row = |source: Value| {
        let mut row = sum(1);
        row["data_source"] = source;
        row
    };
    write(
        folder.path(),
        "a.jsonl",
        ["".into(), Value::Null, "own".into()].map(row),
    );
    let (named, _) = rows(folder.path(), "datasets: { small: { path: a.jsonl } }, shuffle: false");
    let found = |rows: &dyn Rows| [0, 1, 2].map(|index| rows.row(index).unwrap().data_source.clone());
    assert_eq!(found(&*named), ["small", "small", "own"]);
    assert_eq!(named.data_sources(), ["own", "small"]);
    let (unnamed, _) = rows(folder.path(), "dataset: { path: a.jsonl }, shuffle: false");
    assert_eq!(found(&*unnamed), ["", "", "own"]);
}

#[test]
fn very_many_sources_are_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let row = |a: u64| {
        let mut row = sum(a);
        row["data_source"] = format!("{a:05}").into();
        row
    };
    write(folder.path(), "rows.jsonl", (0..3000).map(row));
    let (rows, _) = rows(folder.path(), "dataset: { path: rows.jsonl }");
    assert_eq!(rows.data_sources().len(), MOST_SOURCES);
}

/// A loader that goes on by position in another file trains on other rows than it says: what a row becomes is hashed, too.
#[test]
fn i25_a_fingerprint_is_of_the_file_and_of_what_is_made_of_it() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "rows.jsonl", (0..600).map(sum));
    let of = |settings: &str| rows(folder.path(), settings).1.fingerprints["prompts"].clone();
    let plain = of("dataset: { path: rows.jsonl }");
    assert_eq!(plain, of("dataset: { path: rows.jsonl }"));
    assert_ne!(
        plain,
        of("dataset: { path: rows.jsonl, map: { prompt: \"{{ prompt }}?\" } }")
    );
    assert_ne!(plain, of("dataset: { path: rows.jsonl, map: { ground_truth: \"3\" } }"));
    assert_ne!(plain, of("dataset: { path: rows.jsonl, where: \"prompt != '5+1='\" }"));
    write(
        folder.path(),
        "rows.jsonl",
        (0..600).map(|a| sum(a + u64::from(a == 599))),
    );
    assert_ne!(plain, of("dataset: { path: rows.jsonl }"));
}

#[test]
fn a_row_that_changes_after_it_was_checked_is_not_drawn() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "rows.jsonl", (0..20).map(sum));
    let (rows, _) = rows(folder.path(), "dataset: { path: rows.jsonl }");
    let path = folder.path().join("rows.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"7+1=\"", "\"6+2=\"")).unwrap();
    assert!(rows.row(6).is_ok());
    let error = rows.row(7).unwrap_err().to_string();
    assert!(
        error.contains("line 8 of") && error.contains("has changed since"),
        "{error}"
    );
    std::fs::write(&path, "").unwrap();
    assert!(rows.row(0).unwrap_err().to_string().contains("has changed since"));
    std::fs::remove_file(&path).unwrap();
    assert!(rows.row(0).unwrap_err().to_string().contains("cannot read line 1 of"));
}

#[test]
fn many_faulty_rows_are_counted_and_few_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let faulty = (0..2000).map(|a| json!({ "prompt": format!("{a}="), "reward_model": { "ground_truth": [a] } }));
    let (good, untrue) = ((0..2000).map(sum), (0..700).map(|_| json!({ "prompt": "1" })));
    write(folder.path(), "rows.jsonl", faulty.chain(good).chain(untrue));
    let (data, outcome) = read(folder.path(), "dataset: { path: rows.jsonl }");
    assert!(data.rows.is_empty());
    let notes: Vec<&String> = outcome.diagnostics.iter().flat_map(|found| &found.notes).collect();
    assert_eq!(outcome.diagnostics.len(), 2, "{:?}", said(&outcome));
    assert!(
        notes.iter().any(|note| *note == "1999 more rows have such a fault"),
        "{notes:?}"
    );
    assert!(
        notes.iter().any(|note| *note == "699 more rows have such a fault"),
        "{notes:?}"
    );
    let place = outcome
        .sources
        .place(outcome.diagnostics.iter().last().unwrap().primary.range);
    assert_eq!((place.file.as_str(), place.line, place.column), ("rows.jsonl", 4001, 1));
}

/// A source that nobody judges is found before anything is started, with its line, and so is one without a ground truth
/// where its judge needs one.
#[test]
fn i19_every_source_has_a_judge_and_what_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let row = |source: &str, truth: Value| json!({ "prompt": "1=", "data_source": source, "reward_model": { "ground_truth": truth } });
    write(
        folder.path(),
        "rows.jsonl",
        [
            row("a", "1".into()),
            row("b", "one".into()),
            row("c", "1".into()),
            row("a", Value::Null),
            row("a", "one".into()),
        ],
    );
    let route = "dataset: { path: rows.jsonl } }\n  scored: { type: judger, inputs: { groups: answers }, judge: { route: { a: number, b: exact } }";
    let pipeline = PIPELINE.replace(
        "  scored: { type: judger, inputs: { groups: answers }, judge: number }\n",
        "",
    );
    let (data, outcome) = read_text(folder.path(), &format!("{pipeline}{route} }}\n"));
    assert!(data.rows.is_empty());
    assert_eq!(
        said(&outcome),
        [
            "RL1003: the row has no `reward_model.ground_truth`, which a judger needs",
            "RL1009: `scored` has no judge for the data source `c`",
            "RL1014: the row's ground truth is \"one\", and `scored` looks for a whole number",
        ]
    );
}

#[test]
fn what_is_no_text_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("rows.jsonl"),
        b"{\"prompt\": \"\xff\"}\n[1]\nnull\n{\"prompt\": \"1\"\n",
    )
    .unwrap();
    let (_, outcome) = read(folder.path(), "dataset: { path: rows.jsonl }");
    let said = said(&outcome);
    assert!(said[0].contains("not UTF-8: its byte 13 is not"), "{said:?}");
    assert!(said[1].contains("not a JSON object"), "{said:?}");
    assert!(said[2].contains("not valid JSON: EOF"), "{said:?}");
    assert_eq!(said.len(), 3);
}

#[cfg(feature = "parquet")]
mod parquet {
    use super::super::parquet::spool;
    use super::*;

    fn golden(name: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/golden/parquet")
            .join(name)
    }

    /// The rows as pyarrow reads them, nested types and all, whatever compresses them.
    #[test]
    fn files_are_what_pyarrow_reads_in_them() {
        let wanted = std::fs::read_to_string(golden("rows.jsonl")).unwrap();
        let values = |text: &str| {
            text.lines()
                .map(|line| serde_json::from_str::<Value>(line).unwrap())
                .collect::<Vec<_>>()
        };
        for codec in ["snappy", "zstd", "gzip", "none"] {
            let mut file = spool(&golden(&format!("{codec}.parquet"))).unwrap();
            let mut text = String::new();
            std::io::Seek::rewind(&mut file).unwrap();
            std::io::Read::read_to_string(&mut file, &mut text).unwrap();
            assert_eq!(values(&text), values(&wanted), "{codec}");
        }
    }

    #[test]
    fn its_rows_are_drawn_like_those_of_json_lines() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("both")).unwrap();
        for name in ["zstd.parquet", "rows.jsonl"] {
            std::fs::copy(golden(name), folder.path().join("both").join(name)).unwrap();
        }
        let (rows, _) = rows(folder.path(), "dataset: { path: both }, shuffle: false");
        assert_eq!(rows.count(), 14);
        for index in 0..7 {
            assert_eq!(rows.row(index).unwrap(), rows.row(7 + index).unwrap());
        }
        assert_eq!(rows.row(1).unwrap().prompt[0].role(), "system");
        assert_eq!(rows.data_sources(), ["größer", "sums"]);
    }

    /// A file with one group, `extra`, and columns of bytes that are not said to be text.
    fn write_bytes(path: &Path, prompts: &[&[u8]], notes: &[&[u8]]) {
        use ::parquet::data_type::{ByteArray, ByteArrayType};
        use ::parquet::file::writer::SerializedFileWriter;
        use ::parquet::schema::parser::parse_message_type;

        let schema = "message rows { required binary prompt; required group extra { required binary note; } }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let file = std::fs::File::create(path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, Arc::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        for values in [prompts, notes] {
            let values: Vec<ByteArray> = values.iter().map(|value| value.to_vec().into()).collect();
            let mut column = group.next_column().unwrap().unwrap();
            column
                .typed::<ByteArrayType>()
                .write_batch(&values, None, None)
                .unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
    }

    #[test]
    fn bytes_that_are_text_are_taken_as_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.parquet");
        let settings = "dataset: { path: rows.parquet, map: { ground_truth: \"1\" } }, shuffle: false";
        let prompts: [&[u8]; 2] = [b"1+1=", "größer?".as_bytes()];
        write_bytes(&path, &prompts, &[b"a", b"b"]);
        let (drawn, _) = rows(folder.path(), settings);
        assert_eq!(texts(&*drawn), ["1+1=", "größer?"]);
        assert_eq!(drawn.row(1).unwrap().columns["extra"], json!({ "note": "b" }));

        write_bytes(&path, &prompts, &[b"a", b"\xff"]);
        let (drawn, _) = rows(folder.path(), settings);
        assert_eq!(drawn.row(1).unwrap().columns["extra"], json!({ "note": "/w==" }));
    }

    #[test]
    fn what_is_no_parquet_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("rows.parquet"), "{\"prompt\": \"1\"}\n").unwrap();
        let (_, outcome) = read(folder.path(), "dataset: { path: rows.parquet }");
        let said = said(&outcome);
        assert!(
            said[0].starts_with("RL1001: cannot read `") && said[0].contains("rows.parquet`: "),
            "{said:?}"
        );
    }
}

#[cfg(not(feature = "parquet"))]
#[test]
fn a_build_without_parquet_says_how_to_get_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rows.parquet"), "PAR1").unwrap();
    let (_, outcome) = read(folder.path(), "dataset: { path: rows.parquet }");
    assert!(said(&outcome)[0].contains("build with `--features parquet`"));
}
