//! `rlpipe lsp`: what the compiler knows, as one types.
//!
//! Two readers share the work. The compiler itself says what is wrong with a text, after every change. `scan` reads a
//! text that is only half there, finds the place of the cursor, and is what completion, hover and navigation go by.
//! Neither looks at anything but open documents: checks of data and of the machine are for `rlpipe validate`.

mod candidates;
mod complete;
mod document;
mod hover;
mod names;
mod navigate;
mod scan;
mod server;
mod shapes;
mod snippet;
mod text;

use lsp_server::Connection;
use rlpipe_core::kind::Kind;

/// Why the conversation with an editor ended badly.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The editor went away, or ended without asking for a shutdown.
    #[error("the editor ended the conversation without `shutdown`")]
    Abandoned,
    /// What came is no message, or nothing can be written any more.
    #[error("cannot speak with the editor: {0}")]
    Stream(#[from] std::io::Error),
}

/// Serves an editor over standard input and output, until it ends the conversation.
pub fn serve_stdio(kinds: &'static [Kind]) -> Result<(), ServeError> {
    let (connection, threads) = Connection::stdio();
    let ended = serve(&connection, kinds);
    // The writer ends when nothing can be sent any more.
    drop(connection);
    threads.join()?;
    ended
}

/// Serves an editor over any connection.
pub fn serve(connection: &Connection, kinds: &'static [Kind]) -> Result<(), ServeError> {
    if server::Server::new(connection, kinds).run() {
        Ok(())
    } else {
        Err(ServeError::Abandoned)
    }
}
