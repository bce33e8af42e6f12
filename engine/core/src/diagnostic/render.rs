//! Diagnostics for people, editors and continuous integration.

use std::fmt::Write as _;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Patch, Renderer, Snippet, normalize_untrusted_str};
use serde_json::{Value as Json, json};

use super::{Alternative, Diagnostic, Diagnostics, Label, Severity};
use crate::document::{Range, SourceId, Sources};

/// Every diagnostic with the text it is about, and a closing line with the counts; empty when there are none.
pub fn render_full(diagnostics: &Diagnostics, sources: &Sources, color: bool) -> String {
    let renderer = if color { Renderer::styled() } else { Renderer::plain() }.decor_style(DecorStyle::Ascii);
    let mut output = String::new();
    for diagnostic in diagnostics.sorted() {
        output.push_str(&renderer.render(&groups(diagnostic, sources)));
        output.push_str("\n\n");
    }
    close(&mut output, diagnostics, true);
    output
}

/// A line for each diagnostic, and a closing line with the counts; empty when there are none.
pub fn render_concise(diagnostics: &Diagnostics, sources: &Sources) -> String {
    let mut output = String::new();
    for diagnostic in diagnostics.sorted() {
        let place = match shown_place(diagnostic.primary.range, sources) {
            Some(place) => format!("{}:{}:{}", place.file, place.line, place.column),
            None => sources.get(diagnostic.primary.range.source).name.clone(),
        };
        let (severity, id) = (diagnostic.severity.as_str(), diagnostic.code.id);
        let _ = writeln!(
            output,
            "{}: {severity}[{id}]: {}",
            one_line(&place),
            one_line(&diagnostic.message)
        );
    }
    close(&mut output, diagnostics, false);
    output
}

/// An array of objects: `code`, `severity`, `message`, `label`, `file`, `line`, `column`, `end_line`, `end_column`,
/// `labels`, `notes`, `fix`, `alternatives` (of settings to values). Lines and columns count from 1, columns in characters, ends exclusive; they are null
/// where there is no text, as for the environment.
pub fn render_json(diagnostics: &Diagnostics, sources: &Sources) -> String {
    let list: Vec<Json> = diagnostics
        .sorted()
        .into_iter()
        .map(|diagnostic| as_json(diagnostic, sources))
        .collect();
    // Plain JSON values always serialize.
    serde_json::to_string_pretty(&list).unwrap_or_default() + "\n"
}

/// Workflow commands that GitHub shows beside the changed lines.
pub fn render_github(diagnostics: &Diagnostics, sources: &Sources) -> String {
    let data = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| data(text).replace(':', "%3A").replace(',', "%2C");
    let mut output = String::new();
    for diagnostic in diagnostics.sorted() {
        let range = diagnostic.primary.range;
        let _ = write!(output, "::{} ", diagnostic.severity.as_str());
        if let Some(place) = shown_place(range, sources) {
            let _ = write!(
                output,
                "file={},line={},col={},endLine={},endColumn={},",
                property(&place.file),
                place.line,
                place.column,
                place.end_line,
                place.end_column
            );
        }
        let mut message = diagnostic.message.clone();
        for text in std::iter::once(&diagnostic.primary.text)
            .chain(&diagnostic.notes)
            .filter(|text| !text.is_empty())
        {
            message.push('\n');
            message.push_str(text);
        }
        let _ = writeln!(output, "title={}::{}", diagnostic.code.id, data(&message));
    }
    output
}

/// "2 errors and 1 warning".
pub fn count_words(errors: usize, warnings: usize) -> String {
    let words = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    match (errors, warnings) {
        (_, 0) => words(errors, "error"),
        (0, _) => words(warnings, "warning"),
        _ => format!("{} and {}", words(errors, "error"), words(warnings, "warning")),
    }
}

fn close(output: &mut String, diagnostics: &Diagnostics, explain: bool) {
    let (errors, warnings) = diagnostics.counts();
    let Some(first) = diagnostics
        .sorted()
        .into_iter()
        .min_by_key(|diagnostic| diagnostic.severity)
    else {
        return;
    };
    let hint = if explain {
        format!("; `rlpipe explain {}` says more", first.code.id)
    } else {
        String::new()
    };
    let _ = writeln!(output, "{}{hint}", count_words(errors, warnings));
}

/// The place of a range, unless its source has no text.
fn shown_place(range: Range, sources: &Sources) -> Option<crate::document::Place> {
    (!sources.get(range.source).text.is_empty()).then(|| sources.place(range))
}

fn one_line(text: &str) -> String {
    normalize_untrusted_str(text).replace('\n', " ")
}

/// The range as byte offsets that lie within the text and on whole characters.
fn bytes(range: Range, sources: &Sources) -> std::ops::Range<usize> {
    let text = &*sources.get(range.source).text;
    let start = text.floor_char_boundary(range.start as usize);
    start..text.floor_char_boundary(range.end as usize).max(start)
}

/// Of longer texts, only the lines that are shown are given to the renderer, which goes through all it is given.
const WHOLE_TEXT_BYTES: usize = 1 << 16;

/// The part of a text that is shown.
struct Window<'a> {
    text: &'a str,
    /// Its first byte in the whole text.
    start: usize,
    /// The line that it begins with.
    first_line: usize,
}

impl<'a> Window<'a> {
    /// The lines around ranges of a source.
    fn around<'b>(ranges: impl Iterator<Item = &'b Range>, id: SourceId, sources: &'a Sources) -> Window<'a> {
        let text = &*sources.get(id).text;
        let whole = Window {
            text,
            start: 0,
            first_line: sources.first_line(id) as usize,
        };
        let ranges = ranges
            .filter(|range| range.source == id)
            .map(|range| bytes(*range, sources));
        let covered = ranges.reduce(|all, range| all.start.min(range.start)..all.end.max(range.end));
        let Some(covered) = covered.filter(|_| text.len() > WHOLE_TEXT_BYTES) else {
            return whole;
        };
        let start = text[..covered.start].rfind('\n').map_or(0, |newline| newline + 1);
        let end = text[covered.end..]
            .find('\n')
            .map_or(text.len(), |newline| covered.end + newline + 1);
        Window {
            text: &text[start..end],
            start,
            first_line: sources.line_column(id, start as u32).0 as usize,
        }
    }

    /// A range of the whole text as one of the window.
    fn within(&self, range: Range, sources: &Sources) -> std::ops::Range<usize> {
        let range = bytes(range, sources);
        range.start - self.start..range.end - self.start
    }
}

fn groups<'a>(diagnostic: &'a Diagnostic, sources: &'a Sources) -> Vec<Group<'a>> {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level
        .primary_title(one_line(&diagnostic.message))
        .id(diagnostic.code.id);
    let mut group = Group::with_title(title);
    let mut order: Vec<SourceId> = vec![diagnostic.primary.range.source];
    for label in &diagnostic.labels {
        if !order.contains(&label.range.source) {
            order.push(label.range.source);
        }
    }
    for id in order {
        let source = sources.get(id);
        if source.text.is_empty() {
            group = group.element(Origin::path(one_line(&source.name)));
            continue;
        }
        let ranges = std::iter::once(&diagnostic.primary).chain(&diagnostic.labels);
        let window = Window::around(ranges.map(|label| &label.range), id, sources);
        let mut snippet = Snippet::source(window.text)
            .line_start(window.first_line)
            .path(one_line(&source.name));
        if diagnostic.primary.range.source == id {
            snippet = snippet.annotation(annotation(
                AnnotationKind::Primary,
                &diagnostic.primary,
                &window,
                sources,
            ));
        }
        for label in diagnostic.labels.iter().filter(|label| label.range.source == id) {
            snippet = snippet.annotation(annotation(AnnotationKind::Context, label, &window, sources));
        }
        group = group.element(snippet);
    }
    // Without an excerpt, what its labels would say becomes notes.
    for label in std::iter::once(&diagnostic.primary).chain(&diagnostic.labels) {
        if sources.get(label.range.source).text.is_empty() && !label.text.is_empty() {
            group = group.element(Level::NOTE.message(one_line(&label.text)));
        }
    }
    for note in &diagnostic.notes {
        group = group.element(Level::NOTE.message(normalize_untrusted_str(note)));
    }
    let mut groups = vec![group];
    if let Some(fix) = &diagnostic.fix {
        let source = sources.get(fix.range.source);
        let window = Window::around(std::iter::once(&fix.range), fix.range.source, sources);
        let patch = Patch::new(window.within(fix.range, sources), fix.replacement.as_str());
        let snippet = Snippet::source(window.text).line_start(window.first_line);
        groups.push(
            Level::HELP
                .secondary_title(one_line(&fix.title))
                .element(snippet.path(one_line(&source.name)).patch(patch)),
        );
    }
    groups
}

fn annotation<'a>(
    kind: AnnotationKind,
    label: &'a Label,
    window: &Window<'_>,
    sources: &Sources,
) -> annotate_snippets::Annotation<'a> {
    let annotation = kind.span(window.within(label.range, sources));
    if label.text.is_empty() {
        annotation
    } else {
        annotation.label(one_line(&label.text))
    }
}

fn as_json(diagnostic: &Diagnostic, sources: &Sources) -> Json {
    let mut object = json!({
        "code": diagnostic.code.id,
        "severity": diagnostic.severity.as_str(),
        "message": diagnostic.message,
        "label": diagnostic.primary.text,
    });
    place_into(&mut object, diagnostic.primary.range, sources);
    object["labels"] = diagnostic
        .labels
        .iter()
        .map(|label| {
            let mut object = json!({ "text": label.text });
            place_into(&mut object, label.range, sources);
            object
        })
        .collect();
    object["notes"] = json!(diagnostic.notes);
    object["fix"] = match &diagnostic.fix {
        Some(fix) => {
            let mut object = json!({ "title": fix.title, "replacement": fix.replacement });
            place_into(&mut object, fix.range, sources);
            object
        }
        None => Json::Null,
    };
    let settings = |alternative: &Alternative| -> Json { alternative.settings.iter().cloned().collect() };
    object["alternatives"] = diagnostic.alternatives.iter().map(settings).collect();
    object
}

fn place_into(object: &mut Json, range: Range, sources: &Sources) {
    object["file"] = json!(sources.get(range.source).name);
    let place = shown_place(range, sources);
    let place = place.as_ref();
    object["line"] = json!(place.map(|place| place.line));
    object["column"] = json!(place.map(|place| place.column));
    object["end_line"] = json!(place.map(|place| place.end_line));
    object["end_column"] = json!(place.map(|place| place.end_column));
}
