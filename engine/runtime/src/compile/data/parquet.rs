//! Parquet files, written out as JSON lines: what comes after is the same for both.

use std::fs::File;
use std::path::Path;

/// The rows of a Parquet file as JSON lines, in a file without a name that is gone with this process.
#[cfg(feature = "parquet")]
pub fn spool(path: &Path) -> Result<File, String> {
    use std::io::{BufWriter, Write};

    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::dataset::no_temporary_file;

    let cannot = |error: &dyn std::fmt::Display| format!("cannot read `{}`: {error}", path.display());
    let file = File::open(path).map_err(|error| cannot(&error))?;
    let reader = SerializedFileReader::new(file).map_err(|error| cannot(&error))?;
    let rows = reader.get_row_iter(None).map_err(|error| cannot(&error))?;
    let spool = tempfile::tempfile().map_err(|error| no_temporary_file(&error))?;
    let mut writer = BufWriter::with_capacity(1 << 18, spool);
    for row in rows {
        let row = object(&row.map_err(|error| cannot(&error))?);
        writeln!(writer, "{row}").map_err(|error| no_temporary_file(&error))?;
    }
    writer.into_inner().map_err(|error| no_temporary_file(error.error()))
}

/// A row, or a group of a row's columns, as JSON.
#[cfg(feature = "parquet")]
fn object(row: &parquet::record::Row) -> serde_json::Value {
    row.get_column_iter()
        .map(|(name, field)| (name.clone(), value(field)))
        .collect()
}

/// What a column holds as JSON. Many writers leave out that bytes are text, and as Base64 they would be another prompt;
/// bytes that are no UTF-8, such as an image, are Base64.
#[cfg(feature = "parquet")]
fn value(field: &parquet::record::Field) -> serde_json::Value {
    use parquet::record::Field;
    use serde_json::Value;

    match field {
        Field::Bytes(bytes) => std::str::from_utf8(bytes.data()).map_or_else(|_| field.to_json_value(), Value::from),
        Field::Group(row) => object(row),
        Field::ListInternal(list) => list.elements().iter().map(value).collect(),
        Field::MapInternal(map) => {
            let entries = map.entries().iter().map(|(key, entry)| match value(key) {
                Value::String(key) => (key, value(entry)),
                key => (key.to_string(), value(entry)),
            });
            entries.collect()
        }
        other => other.to_json_value(),
    }
}

/// Says that this build has no Parquet.
#[cfg(not(feature = "parquet"))]
pub fn spool(path: &Path) -> Result<File, String> {
    Err(format!(
        "`{}` is Parquet, and this build does not read it: build with `--features parquet`, or convert the file to JSON lines",
        path.display()
    ))
}
