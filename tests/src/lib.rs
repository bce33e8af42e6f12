//! What the tests of the whole have in common: the files of the project, compiling them, and files that are generated.

mod generated;
mod pipelines;
mod reference;

pub use generated::{WRITE_VARIABLE, check_generated, is_writing};
pub use pipelines::{Case, compile_files, compile_text, project, shipped_pipelines, tree_of};
pub use reference::{checks_page, codes_page, kinds_page, pipeline_page};
