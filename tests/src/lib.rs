//! What the tests of the whole have in common: the files of the project, compiling them, and files that are generated.

mod generate;
mod generated;
mod large;
mod pipelines;
mod reference;

pub use generate::Schema;
pub use generated::{WRITE_VARIABLE, check_generated, is_writing};
pub use large::large_pipeline;
pub use pipelines::{Case, compile_files, compile_text, project, shipped_pipelines, to_toml, tree_of};
pub use reference::{checks_page, codes_page, kinds_page, pipeline_page};
