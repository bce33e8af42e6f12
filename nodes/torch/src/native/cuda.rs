//! The card, through `librlpipe_cuda.so`: streams, events, graphs, pinned and device memory.
//!
//! One card, number 0, which [`crate::device::open`] has opened. The current stream belongs to a thread.

use std::env;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::OnceLock;

use tch::kind::Element;
use tch::{Device, Kind, Tensor};
use torch_sys::C_tensor;

use super::{Message, answer};
use crate::{Error, Result, fail};

/// The file that is opened; it lies beside the program.
const OBJECT: &CStr = c"librlpipe_cuda.so";

/// The card that was opened.
#[derive(Debug, Clone, PartialEq)]
pub struct Card {
    /// What its maker calls it.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (i32, i32),
}

/// Memory of the card, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(C)]
pub struct Memory {
    /// What no process holds.
    pub free: u64,
    /// What there is.
    pub total: u64,
    /// What lives in tensors of this process.
    pub allocated: u64,
    /// What torch's allocator holds of the card, for tensors that live and for such to come.
    pub reserved: u64,
    /// The most that was allocated since the start, or since [`reset_peak`].
    pub peak_allocated: u64,
    /// The most that was reserved since then.
    pub peak_reserved: u64,
}

macro_rules! table {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the object.
        #[derive(Debug)]
        pub(super) struct Table { $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)* }

        /// What the object must have.
        #[cfg(test)]
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        impl Table {
            /// # Safety
            /// `library` is an object of these sources.
            unsafe fn load(library: *mut c_void) -> Result<Self> {
                Ok(Self { $($name: {
                    let found = symbol(library, concat!(stringify!($name), "\0"))?;
                    // SAFETY: the signature is the one in `native/cuda`.
                    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(found) }
                },)* })
            }
        }
    };
}

table! {
    rlpipe_cuda_sources() -> u64;
    rlpipe_cuda_free(*mut c_void);
    rlpipe_cuda_start(*mut c_char, usize, *mut c_int, *mut c_int) -> Message;
    rlpipe_cuda_stream_new(*mut i64) -> Message;
    rlpipe_cuda_stream_current(*mut i64) -> Message;
    rlpipe_cuda_stream_set_current(i64) -> Message;
    rlpipe_cuda_stream_synchronize(i64) -> Message;
    rlpipe_cuda_event_new(bool, *mut *mut c_void) -> Message;
    rlpipe_cuda_event_record(*mut c_void, i64) -> Message;
    rlpipe_cuda_event_block(*mut c_void, i64) -> Message;
    rlpipe_cuda_event_done(*mut c_void, *mut bool) -> Message;
    rlpipe_cuda_event_synchronize(*mut c_void) -> Message;
    rlpipe_cuda_event_milliseconds(*mut c_void, *mut c_void, *mut f32) -> Message;
    rlpipe_cuda_event_free(*mut c_void);
    rlpipe_cuda_pool_new(*mut *mut c_void) -> Message;
    rlpipe_cuda_pool_free(*mut c_void);
    rlpipe_cuda_graph_new(*mut *mut c_void) -> Message;
    rlpipe_cuda_graph_begin(*mut c_void, *mut c_void) -> Message;
    rlpipe_cuda_graph_end(*mut c_void) -> Message;
    rlpipe_cuda_graph_replay(*mut c_void) -> Message;
    rlpipe_cuda_graph_free(*mut c_void);
    rlpipe_cuda_pinned(*const i64, usize, *const C_tensor, *mut *mut C_tensor) -> Message;
    rlpipe_cuda_memory(*mut Memory) -> Message;
    rlpipe_cuda_reset_peak() -> Message;
    rlpipe_cuda_empty_cache() -> Message;
    rlpipe_cuda_nvrtc_version(*mut c_int, *mut c_int) -> Message;
    rlpipe_cuda_compile(*const c_char, *const *const c_char, usize, *mut *mut c_char, *mut usize) -> Message;
    rlpipe_cuda_module_new(*const u8, *mut *mut c_void) -> Message;
    rlpipe_cuda_module_free(*mut c_void);
    rlpipe_cuda_module_function(*mut c_void, *const c_char, *mut *mut c_void) -> Message;
    rlpipe_cuda_launch(*mut c_void, *const u32, *const u32, u32, i32, *mut *mut c_void) -> Message;
}

static OPENED: OnceLock<Result<(Table, Card)>> = OnceLock::new();

fn opened() -> Result<&'static (Table, Card)> {
    match OPENED.get() {
        Some(Ok(opened)) => Ok(opened),
        Some(Err(error)) => Err(error.clone()),
        None => fail!("the card is not open"),
    }
}

pub(super) fn table() -> Result<&'static Table> {
    opened().map(|(table, _)| table)
}

/// The card that was opened.
pub fn card() -> Result<&'static Card> {
    opened().map(|(_, card)| card)
}

/// Calls a function of the object, and takes its answer.
pub(super) fn call(function: impl FnOnce(&Table) -> Message) -> Result<()> {
    let table = table()?;
    // SAFETY: every function that answers does so with a text of the object.
    unsafe { answer(function(table), table.rlpipe_cuda_free) }
}

/// Opens the object and the card, once; torch sees a card already. The object is the one that RLPIPE_CUDA_OBJECT names, or
/// lies in the folder of the program, or in the one above, where the programs of `cargo test` have theirs.
pub fn open() -> Result<&'static Card> {
    OPENED.get_or_init(load).as_ref().map_err(Error::clone)?;
    card()
}

fn load() -> Result<(Table, Card)> {
    let path = find()?;
    let unfit = |why: &dyn std::fmt::Display| {
        Error(format!(
            "the CUDA object `{}` does not fit: {why}; build program and object together (`make build`), and let \
             LD_LIBRARY_PATH name the `lib` folder of a CUDA build of torch {}",
            path.display(),
            crate::device::TORCH_VERSION
        ))
    };
    let name = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|error| unfit(&error))?;
    // SAFETY: the object has no initialisers but those of the C++ runtime.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(unfit(&loader_error()));
    }
    // SAFETY: whether it is of these sources is asked of it by the first function, whose signature never changes.
    let table = unsafe { Table::load(library) }.map_err(|error| unfit(&error))?;
    // SAFETY: as above.
    if Some(unsafe { (table.rlpipe_cuda_sources)() }.to_string().as_str()) != option_env!("RLPIPE_CUDA_SOURCES") {
        return Err(unfit(&"it was built from other sources than this program"));
    }
    let (mut name, mut major, mut minor) = ([0 as c_char; 256], 0, 0);
    // SAFETY: the buffer's length is given, and the text ends within it.
    unsafe {
        let message = (table.rlpipe_cuda_start)(name.as_mut_ptr(), name.len(), &mut major, &mut minor);
        answer(message, table.rlpipe_cuda_free)?;
        let name = CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned();
        Ok((
            table,
            Card {
                name,
                capability: (major, minor),
            },
        ))
    }
}

fn find() -> Result<PathBuf> {
    if let Some(path) = env::var_os("RLPIPE_CUDA_OBJECT") {
        return Ok(path.into());
    }
    let program = env::current_exe().map_err(|error| Error(format!("the folder of this program: {error}")))?;
    let name = OBJECT.to_string_lossy();
    let places = program.ancestors().skip(1).take(2).map(|folder| folder.join(&*name));
    places.clone().find(|path| path.is_file()).ok_or_else(|| {
        let folder = program.with_file_name("");
        Error(format!(
            "there is no `{name}` in `{}`, where this program is; `make build` makes it: keep both together",
            folder.display()
        ))
    })
}

fn loader_error() -> Error {
    // SAFETY: the text is copied before the next call of the loader.
    let message = unsafe { libc::dlerror() };
    match message.is_null() {
        true => Error("the loader does not say why".to_owned()),
        // SAFETY: as above.
        false => Error(unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()),
    }
}

/// `name` ends with a zero byte.
fn symbol(library: *mut c_void, name: &str) -> Result<*mut c_void> {
    // SAFETY: the handle is open, and the name ends.
    let found = unsafe { libc::dlsym(library, name.as_ptr().cast()) };
    if found.is_null() {
        Err(loader_error())
    } else {
        Ok(found)
    }
}

/// A pointer that the object made and frees. Torch lets any thread use it, one at a time.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) pointer: *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: what it points at belongs to no thread.
unsafe impl Send for Handle {}

impl Handle {
    pub(super) fn new(
        make: impl FnOnce(&Table, *mut *mut c_void) -> Message,
        free: impl FnOnce(&Table) -> unsafe extern "C" fn(*mut c_void),
    ) -> Result<Self> {
        let mut pointer = ptr::null_mut();
        call(|table| make(table, &mut pointer))?;
        Ok(Self {
            pointer,
            free: free(table()?),
        })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made by the object, and freed only here.
        unsafe { (self.free)(self.pointer) }
    }
}

/// An order of work on the card. Torch owns it; operators of a thread go to the thread's current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream(i64);

impl Stream {
    /// One of torch's pool of 32, which are handed out in turn.
    pub fn new() -> Result<Self> {
        let mut id = 0;
        // SAFETY: writes one number.
        call(|table| unsafe { (table.rlpipe_cuda_stream_new)(&mut id) })?;
        Ok(Self(id))
    }

    /// This thread's.
    pub fn current() -> Result<Self> {
        let mut id = 0;
        // SAFETY: writes one number.
        call(|table| unsafe { (table.rlpipe_cuda_stream_current)(&mut id) })?;
        Ok(Self(id))
    }

    /// Waits until all that was given to it is done.
    pub fn synchronize(self) -> Result<()> {
        // SAFETY: a stream is a plain number.
        call(|table| unsafe { (table.rlpipe_cuda_stream_synchronize)(self.0) })
    }

    /// Makes it this thread's current one until what is returned is dropped. Nothing orders it after the one before:
    /// that takes an event.
    pub fn enter(self) -> Result<Entered> {
        let before = Self::current()?;
        self.set_current()?;
        Ok(Entered { before })
    }

    /// What is given to it from now on begins after `event`.
    pub fn wait(self, event: &Event) -> Result<()> {
        // SAFETY: the event lives.
        call(|table| unsafe { (table.rlpipe_cuda_event_block)(event.0.pointer, self.0) })
    }

    fn set_current(self) -> Result<()> {
        // SAFETY: a stream is a plain number.
        call(|table| unsafe { (table.rlpipe_cuda_stream_set_current)(self.0) })
    }
}

/// While it lives, a stream is this thread's current one.
#[derive(Debug)]
pub struct Entered {
    before: Stream,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Err(error) = self.before.set_current() {
            tracing::error!(%error, "the stream before cannot be made current again");
        }
    }
}

/// A point in a stream.
#[derive(Debug)]
pub struct Event(Handle);

impl Event {
    /// With `timing` it notes the time, which costs a little.
    pub fn new(timing: bool) -> Result<Self> {
        // SAFETY: writes one pointer.
        let make = |table: &Table, out| unsafe { (table.rlpipe_cuda_event_new)(timing, out) };
        Handle::new(make, |table| table.rlpipe_cuda_event_free).map(Self)
    }

    /// It is now this point of the stream.
    pub fn record(&self, stream: Stream) -> Result<()> {
        // SAFETY: the event lives.
        call(|table| unsafe { (table.rlpipe_cuda_event_record)(self.0.pointer, stream.0) })
    }

    /// Whether the stream is past it; true before it was recorded.
    pub fn done(&self) -> Result<bool> {
        let mut done = false;
        // SAFETY: the event lives; writes one flag.
        call(|table| unsafe { (table.rlpipe_cuda_event_done)(self.0.pointer, &mut done) })?;
        Ok(done)
    }

    /// Waits until the stream is past it.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the event lives.
        call(|table| unsafe { (table.rlpipe_cuda_event_synchronize)(self.0.pointer) })
    }

    /// Time from this to a later one. Both have timing and are done.
    pub fn milliseconds_until(&self, later: &Self) -> Result<f32> {
        let mut milliseconds = 0.0;
        // SAFETY: both events live; writes one number.
        call(|table| unsafe {
            (table.rlpipe_cuda_event_milliseconds)(self.0.pointer, later.0.pointer, &mut milliseconds)
        })?;
        Ok(milliseconds)
    }
}

/// Memory that graphs share. No two of them are replayed at a time, and what one leaves in it the next may overwrite. May
/// be dropped before them.
#[derive(Debug)]
pub struct Pool {
    handle: Handle,
    /// What is captured runs here. One for all: torch's allocator keeps memory a stream.
    stream: Stream,
}

impl Pool {
    /// An empty one.
    pub fn new() -> Result<Self> {
        // SAFETY: writes one pointer.
        let make = |table: &Table, out| unsafe { (table.rlpipe_cuda_pool_new)(out) };
        Ok(Self {
            handle: Handle::new(make, |table| table.rlpipe_cuda_pool_free)?,
            stream: Stream::new()?,
        })
    }
}

/// Recorded work. It reads and writes the addresses it was recorded with, so tensors from outside must live as long as
/// it does, and what it returned at capture holds the results of its last replay.
#[derive(Debug)]
pub struct Graph(Handle);

/// Ends a capture even where the closure fails or unwinds: else the stream, torch's random generators and its allocator
/// would stay unusable.
struct Capture<'a> {
    graph: &'a Graph,
    is_open: bool,
}

impl Capture<'_> {
    fn end(&mut self) -> Result<()> {
        self.is_open = false;
        // SAFETY: the graph lives, and its capture has begun.
        call(|table| unsafe { (table.rlpipe_cuda_graph_end)(self.graph.0.pointer) })
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if self.is_open
            && let Err(error) = self.end()
        {
            tracing::debug!(%error, "a capture that failed was given up");
        }
    }
}

impl Graph {
    /// Runs `body` on the pool's stream: twice for real, so that libraries and the allocator have made what they need,
    /// then once recorded, which computes nothing. `body` may not wait for the card nor read from it. After an error all
    /// is as before the call, but for what the two runs did.
    pub fn capture<T>(pool: &Pool, mut body: impl FnMut() -> Result<T>) -> Result<(Self, T)> {
        Stream::current()?.synchronize()?;
        let _entered = pool.stream.enter()?;
        for _ in 0..2 {
            body()?;
        }
        pool.stream.synchronize()?;
        // SAFETY: writes one pointer.
        let make = |table: &Table, out| unsafe { (table.rlpipe_cuda_graph_new)(out) };
        let graph = Self(Handle::new(make, |table| table.rlpipe_cuda_graph_free)?);
        // SAFETY: graph and pool live.
        call(|table| unsafe { (table.rlpipe_cuda_graph_begin)(graph.0.pointer, pool.handle.pointer) })?;
        let mut capture = Capture {
            graph: &graph,
            is_open: true,
        };
        let result = body()?;
        capture.end()?;
        drop(capture);
        Ok((graph, result))
    }

    /// Does the work, on the current stream.
    pub fn replay(&self) -> Result<()> {
        // SAFETY: the graph lives.
        call(|table| unsafe { (table.rlpipe_cuda_graph_replay)(self.0.pointer) })
    }
}

/// A tensor in host memory that the card reads and writes by itself, not initialised; for
/// [`copy_later`](super::operators::copy_later).
pub fn pinned(size: &[i64], kind: Kind) -> Result<Tensor> {
    let like = Tensor::f_empty([0], (kind, Device::Cpu))?;
    let mut out = ptr::null_mut();
    // SAFETY: the length is given; the result is a new tensor when there is no message.
    unsafe {
        call(|table| (table.rlpipe_cuda_pinned)(size.as_ptr(), size.len(), like.as_ptr(), &mut out))?;
        Ok(Tensor::from_ptr(out))
    }
}

/// A copy on the card, made when the current stream comes to it.
pub fn upload<T: Element>(values: &[T]) -> Result<Tensor> {
    let size = [values.len() as i64];
    let pinned = pinned(&size, T::KIND)?;
    pinned.shallow_clone().copy_(&Tensor::from_slice(values));
    let on_card = Tensor::f_empty(size, (T::KIND, Device::Cuda(0)))?;
    // Torch does not hand the pinned memory out again before the copy is done.
    super::operators::copy_later(&on_card, &pinned)?;
    Ok(on_card)
}

/// Memory of the card.
pub fn memory() -> Result<Memory> {
    let mut memory = Memory::default();
    // SAFETY: writes one struct of this layout.
    call(|table| unsafe { (table.rlpipe_cuda_memory)(&mut memory) })?;
    Ok(memory)
}

/// Peaks are counted from now on.
pub fn reset_peak() -> Result<()> {
    // SAFETY: takes nothing.
    call(|table| unsafe { (table.rlpipe_cuda_reset_peak)() })
}

/// Gives back to the card what is reserved and not allocated. Waits for the card; not during a capture.
pub fn empty_cache() -> Result<()> {
    // SAFETY: takes nothing.
    call(|table| unsafe { (table.rlpipe_cuda_empty_cache)() })
}

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// Names that `nm` lists, without versions; it comes with the compiler that built the object.
    fn symbols(file: &Path, which: &str) -> BTreeSet<String> {
        let output = Command::new("nm").args(["-D", which]).arg(file).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let name = |line: &str| line.rsplit(' ').next().unwrap().split('@').next().unwrap().to_owned();
        text.lines().map(name).collect()
    }

    #[test]
    fn the_object_has_what_is_asked_of_it_and_asks_for_what_there_is() {
        let object = Path::new(env!("RLPIPE_BUILT_CUDA_OBJECT"));
        let has = symbols(object, "--defined-only");
        for name in NAMES {
            assert!(has.contains(*name), "{name}");
        }
        // The rest is of the C and C++ libraries, which torch's CPU half asks for too.
        let mut missing = symbols(object, "--undefined-only");
        missing.retain(|name| name.contains("2at") || name.contains("3c10"));
        assert!(missing.iter().any(|name| name.contains("CUDAGraph")));
        let torch = Path::new(env!("RLPIPE_TORCH_LIBRARIES"));
        let libraries = ["libtorch_cpu.so", "libc10.so", "libc10_cuda.so", "libtorch_cuda.so"];
        for library in libraries
            .map(|name| torch.join(name))
            .iter()
            .filter(|path| path.is_file())
        {
            let has = symbols(library, "--defined-only");
            missing.retain(|name| !has.contains(name));
        }
        if !torch.join("libtorch_cuda.so").is_file() {
            missing.retain(|name| !name.contains("cuda"));
        }
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn without_an_open_card_every_call_says_so() {
        assert_eq!(Stream::current().unwrap_err().0, "the card is not open");
        assert_eq!(memory().unwrap_err(), Event::new(true).unwrap_err());
    }
}
