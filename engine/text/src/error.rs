use std::path::PathBuf;

/// What can go wrong between a text and its token ids.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A file is missing or cannot be read.
    #[error("cannot read `{}`: {source}; {remedy}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// A file or folder cannot be written.
    #[error("cannot write `{}`: {source}; free space or choose another folder", .path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is there but does not hold what it should.
    #[error("`{}` is ill-formed: {problem}; {remedy}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The model folder has no chat template.
    #[error(
        "`{}` has no chat template; put one into `chat_template.jinja` there, name a file in the model's \
         `chat_template`, or use a model that was trained to chat (its folder brings one)", .folder.display()
    )]
    NoTemplate {
        /// The model folder.
        folder: PathBuf,
    },
    /// The chat template called `raise_exception`.
    #[error("the chat template of `{}` rejects the messages: {message}", .place.display())]
    TemplateRejects {
        /// The model folder, or the template's own file.
        place: PathBuf,
        /// What the template said.
        message: String,
    },
    /// The chat template failed while it was rendered.
    #[error(
        "the chat template of `{}` fails: {problem}; correct the template there, \
         or name another file in the model's `chat_template`", .place.display()
    )]
    TemplateFails {
        /// The model folder, or the template's own file.
        place: PathBuf,
        /// The engine's message with the template's line.
        problem: String,
    },
    /// A variable of the chat template has the name of something that every template is given.
    #[error("`{name}` cannot be a variable of a chat template: it comes from the rows; give it another name")]
    Variable {
        /// The name.
        name: String,
    },
    /// The tokenizer itself failed on a text or on ids.
    #[error("the tokenizer of `{}` cannot {action}: {problem}; check its `tokenizer.json`", .folder.display())]
    Tokenizer {
        /// The model folder.
        folder: PathBuf,
        /// `encode` or `decode`, with an excerpt of what.
        action: String,
        /// The tokenizer's own message.
        problem: String,
    },
    /// A character of a text has no token.
    #[error(
        "the tokenizer of `{}` has no token for {character:?} (U+{:04X}), character {position} of {excerpt:?}; \
         take it out of the text or use a tokenizer that has it", .folder.display(), u32::from(*.character)
    )]
    Unrepresentable {
        /// The model folder.
        folder: PathBuf,
        /// The first character that is lost.
        character: char,
        /// Where it stands in the whole text, in characters from 1.
        position: usize,
        /// The text around it.
        excerpt: String,
    },
    /// A model specification contradicts itself.
    #[error("{0}")]
    Spec(String),
    /// A new model would be written over something.
    #[error("`{}` is not an empty folder; a new model is written only where nothing is: remove it or choose another", .folder.display())]
    NotEmpty {
        /// The folder that was to be written.
        folder: PathBuf,
    },
}
