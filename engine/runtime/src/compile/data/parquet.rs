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
        let row = row.map_err(|error| cannot(&error))?.to_json_value();
        writeln!(writer, "{row}").map_err(|error| no_temporary_file(&error))?;
    }
    writer.into_inner().map_err(|error| no_temporary_file(error.error()))
}

/// Says that this build has no Parquet.
#[cfg(not(feature = "parquet"))]
pub fn spool(path: &Path) -> Result<File, String> {
    Err(format!(
        "`{}` is Parquet, and this build does not read it: build with `--features parquet`, or convert the file to JSON lines",
        path.display()
    ))
}
