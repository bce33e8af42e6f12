//! Data sets, read.
