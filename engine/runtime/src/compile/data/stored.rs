//! Rows that stay in their files until they are drawn.

use std::sync::Arc;

use rlpipe_core::data::{Permutation, Row, Seed};
use rlpipe_core::services::{Rows, ServiceError};

use super::files::DataFile;
use super::index::Index;
use super::recipe::{Made, Recipe};

/// One data set of a sampler.
pub struct Part {
    /// What makes rows of lines.
    pub recipe: Recipe,
    /// Its files.
    pub files: Vec<DataFile>,
    /// Where the rows that pass are.
    pub index: Index,
    /// How many are used: fewer than there are, or more, which repeats them.
    pub used: u64,
    /// What draws those of an incomplete pass; none takes the leading ones.
    pub drawn_by: Option<Seed>,
}

/// More rows than these are not used of a data set: up to here every whole number is one of floating point.
const MOST_USED: u64 = 1 << f64::MANTISSA_DIGITS;

/// `count * ratio`, cut to a whole number. What misses a whole number by no more than binary fractions do is that
/// number: 0.29 of 100 rows are 29.
pub fn used(count: u64, ratio: f64) -> u64 {
    let product = (count as f64 * ratio).min(MOST_USED as f64);
    let near = product.round();
    let whole = if near - product <= (product * f64::EPSILON).max(0.5e-9) {
        near
    } else {
        product.floor()
    };
    whole as u64
}

impl Part {
    /// The place in the index of the row that is used at a place: whole passes in order, then an incomplete one.
    fn index_of(&self, place: u64) -> u64 {
        let count = self.index.count();
        let whole = self.used / count * count;
        match self.drawn_by {
            Some(seed) if place >= whole => Permutation::new(count, seed).at(place - whole),
            _ => place % count,
        }
    }

    /// The first row that passes.
    pub fn first(&self) -> Option<Result<Arc<Row>, ServiceError>> {
        (self.index.count() > 0).then(|| self.row_at(0))
    }

    fn row_at(&self, index: u64) -> Result<Arc<Row>, ServiceError> {
        let found = self.index.get(index).map_err(|error| {
            ServiceError(format!(
                "cannot read the list of the rows of `{}` in the temporary folder: {error}",
                self.recipe.dataset
            ))
        })?;
        let file = self.files.get(found.file as usize).ok_or_else(|| {
            ServiceError(format!(
                "the data set `{}` has no file {}",
                self.recipe.dataset, found.file
            ))
        })?;
        let at = || format!("line {} of `{}`", found.line, file.path.display());
        let changed = || {
            ServiceError(format!(
                "{} has changed since the data was checked; put it back, and go on with `--resume`",
                at()
            ))
        };
        let line = file.line(found.offset, found.length as usize).map_err(|error| {
            if error.kind() == std::io::ErrorKind::UnexpectedEof {
                changed()
            } else {
                ServiceError(format!("cannot read {}: {error}", at()))
            }
        })?;
        if crc32c::crc32c(&line) != found.crc {
            return Err(changed());
        }
        match self.recipe.make(&line, found.line) {
            Ok(Made::Row(row)) => Ok(Arc::from(row)),
            Ok(Made::Unwanted | Made::OverLong) => Err(changed()),
            Err(fault) => Err(ServiceError(format!("{}: {}", at(), fault.message))),
        }
    }
}

/// All rows of a sampler.
pub struct StoredRows {
    /// Its data sets, one after the other.
    pub parts: Vec<Part>,
    /// See [`Rows::data_sources`].
    pub data_sources: Vec<String>,
}

impl Rows for StoredRows {
    fn count(&self) -> u64 {
        self.parts.iter().map(|part| part.used).fold(0, u64::saturating_add)
    }

    fn row(&self, index: u64) -> Result<Arc<Row>, ServiceError> {
        let mut place = index;
        for part in &self.parts {
            if place < part.used {
                return part.row_at(part.index_of(place));
            }
            place -= part.used;
        }
        Err(ServiceError(format!("there is no row {index} among {}", self.count())))
    }

    fn data_sources(&self) -> &[String] {
        &self.data_sources
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_that_of_the_decimal_number() {
        for (count, ratio, wanted) in [
            (100, 0.29, 29),
            (100, 1.15, 115),
            (1_000_000_000, 0.29, 290_000_000),
            (10, 0.39, 3),
            (10, 0.399_999, 3),
            (3, 1.0 / 3.0, 1),
            (10, 0.05, 0),
            (7, 1.0, 7),
            (0, 2.0, 0),
            (1, 1e-12, 0),
            (3, 1e300, MOST_USED),
            (3, f64::MAX, MOST_USED),
        ] {
            assert_eq!(used(count, ratio), wanted, "{ratio} of {count}");
        }
    }
}
