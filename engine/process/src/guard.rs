//! Kills process groups once the driver is gone, even if it was killed itself.
//!
//! The parent-death signal reaches a child, not what the child has started. The guard is a shell that reads which groups
//! there are, and at the end of its input, which is the driver's end, kills those that are left.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

const SCRIPT: &str = r#"
groups=
while read -r sign group; do
    case $sign in
    +) groups="$groups $group" ;;
    -)
        kept=
        for other in $groups; do [ "$other" = "$group" ] || kept="$kept $other"; done
        groups=$kept
        ;;
    esac
done
for group in $groups; do kill -s KILL -- "-$group"; done
"#;

/// The guard's program and its arguments.
pub const GUARD_COMMAND: (&str, [&str; 2]) = ("/bin/sh", ["-c", SCRIPT]);

/// A guard; clones are the same one. It ends with the last of them.
#[derive(Debug, Clone)]
pub struct Guard(Arc<Mutex<Shell>>);

#[derive(Debug)]
struct Shell {
    /// None once it is to end.
    input: Option<ChildStdin>,
    child: Child,
}

impl Guard {
    pub fn start() -> io::Result<Self> {
        let (program, arguments) = GUARD_COMMAND;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Not in the driver's group: what kills that must not kill the guard.
            .process_group(0)
            .spawn()?;
        let input = child.stdin.take();
        Ok(Self(Arc::new(Mutex::new(Shell { input, child }))))
    }

    /// The group is killed when the driver is gone.
    pub fn watch(&self, group: u32) {
        if let Err(error) = self.tell('+', group) {
            tracing::warn!(%error, "the guard is gone: what programs have started may outlive a driver that is killed");
        }
    }

    /// The group has ended.
    pub fn forget(&self, group: u32) {
        // A guard that was killed knows of no groups.
        let _ = self.tell('-', group);
    }

    fn tell(&self, sign: char, group: u32) -> io::Result<()> {
        let mut shell = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut shell.input {
            Some(input) => input.write_all(format!("{sign} {group}\n").as_bytes()),
            None => Ok(()),
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.input = None;
        // It has nothing left to wait for; one that cannot be waited for is gone already.
        let _ = self.child.wait();
    }
}
