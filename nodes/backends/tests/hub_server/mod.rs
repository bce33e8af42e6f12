//! A hub with one repository, in HTTP/1.1 by hand: as much of it as the real one shows to a download, and its faults.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What goes wrong with the next request for a file.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The connection breaks after so many bytes of the body.
    Cut { after_bytes: usize },
    /// The whole file is sent whatever part was asked for.
    IgnoreRange,
    /// Another part is sent than was asked for.
    WrongRange,
    /// A byte is another one.
    Flip { byte: usize },
    /// A byte more is sent.
    Longer,
    /// Only who has accepted the terms may have it.
    Gated,
    /// It lies on another host.
    Redirect { to: String },
}

/// What was asked for.
#[derive(Debug, Clone)]
pub struct Request {
    pub path: String,
    headers: Vec<(String, String)>,
}

impl Request {
    /// The value of a header, by its name in small letters.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

struct File {
    content: Vec<u8>,
    hash: String,
    large: bool,
}

struct Hub {
    repository: String,
    commit: String,
    files: BTreeMap<String, File>,
    faults: Vec<(String, Fault)>,
    refusal: Option<(u16, String, String)>,
    requests: Vec<Request>,
}

pub struct HubServer {
    hub: Arc<Mutex<Hub>>,
    address: std::net::SocketAddr,
    server: JoinHandle<()>,
}

impl Drop for HubServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl HubServer {
    pub async fn start(repository: &str, commit: &str) -> Self {
        let hub = Arc::new(Mutex::new(Hub {
            repository: repository.to_owned(),
            commit: commit.to_owned(),
            files: BTreeMap::new(),
            faults: Vec::new(),
            refusal: None,
            requests: Vec::new(),
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = hub.clone();
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, shared.clone()));
            }
        });
        Self { hub, address, server }
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Adds a file; `large` ones are named by their SHA-256, others by git's blob name.
    pub fn file(&self, name: &str, content: &[u8], hash: &str, large: bool) {
        let file = File {
            content: content.to_owned(),
            hash: hash.to_owned(),
            large,
        };
        self.hub.lock().unwrap().files.insert(name.to_owned(), file);
    }

    pub fn remove(&self, name: &str) {
        self.hub.lock().unwrap().files.remove(name);
    }

    /// Lets the next request for a file go wrong, after those that were to before.
    pub fn fault(&self, file: &str, fault: Fault) {
        self.hub.lock().unwrap().faults.push((file.to_owned(), fault));
    }

    /// Answers everything with this status, error code and message.
    pub fn refuse(&self, status: u16, code: &str, message: &str) {
        self.hub.lock().unwrap().refusal = Some((status, code.to_owned(), message.to_owned()));
    }

    /// What was asked for since the last time.
    pub fn take_requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.hub.lock().unwrap().requests)
    }

    /// The ranges that were asked for of a file.
    pub fn ranges_of(&self, file: &str) -> Vec<Option<String>> {
        let hub = self.hub.lock().unwrap();
        let of_file = hub
            .requests
            .iter()
            .filter(|request| request.path.ends_with(&format!("/{file}")));
        of_file
            .map(|request| request.header("range").map(str::to_owned))
            .collect()
    }
}

/// A status, headers, a body, and after how many bytes of it the connection breaks.
struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    cut: Option<usize>,
}

impl Answer {
    fn of(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
            cut: None,
        }
    }
}

async fn answer(mut stream: TcpStream, hub: Arc<Mutex<Hub>>) -> std::io::Result<()> {
    loop {
        let Some(request) = read(&mut stream).await? else {
            return Ok(());
        };
        let answer = hub.lock().unwrap().answer(request);
        let mut head = format!(
            "HTTP/1.1 {} Answer\r\ncontent-length: {}\r\n",
            answer.status,
            answer.body.len()
        );
        for (name, value) in &answer.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{head}\r\n").as_bytes()).await?;
        let sent = answer.cut.unwrap_or(answer.body.len());
        stream.write_all(&answer.body[..sent]).await?;
        if answer.cut.is_some() {
            return stream.shutdown().await;
        }
    }
}

/// The next request; none where the connection ends.
async fn read(stream: &mut TcpStream) -> std::io::Result<Option<Request>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return Ok(None),
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.lines();
    let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
    let headers = lines.filter_map(|line| line.split_once(": "));
    Ok(Some(Request {
        path,
        headers: headers
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect(),
    }))
}

impl Hub {
    fn answer(&mut self, request: Request) -> Answer {
        self.requests.push(request.clone());
        if let Some((status, code, message)) = &self.refusal {
            let mut answer = Answer::of(*status);
            answer.headers = vec![("x-error-code", code.clone()), ("x-error-message", message.clone())];
            answer.headers.retain(|(_, value)| !value.is_empty());
            return answer;
        }
        if request
            .path
            .starts_with(&format!("/api/models/{}/revision/", self.repository))
        {
            let mut answer = Answer::of(200);
            answer.body = self.listing().into_bytes();
            return answer;
        }
        let at = format!("/{}/resolve/{}/", self.repository, self.commit);
        match request.path.strip_prefix(&at).map(str::to_owned) {
            Some(name) => self.file(&name, &request),
            None => Answer::of(404),
        }
    }

    /// As `GET /api/models/ORG/NAME/revision/REVISION?blobs=true` answers.
    fn listing(&self) -> String {
        let siblings = self.files.iter().map(|(name, file)| {
            let mut sibling = serde_json::json!({
                "rfilename": name,
                "size": file.content.len(),
                "blobId": if file.large { "0".repeat(40) } else { file.hash.clone() },
            });
            if file.large {
                sibling["lfs"] = serde_json::json!({
                    "sha256": file.hash, "size": file.content.len(), "pointerSize": 134
                });
            }
            sibling
        });
        serde_json::json!({
            "id": self.repository, "sha": self.commit, "private": false, "gated": false,
            "siblings": siblings.collect::<Vec<_>>(),
        })
        .to_string()
    }

    fn file(&mut self, name: &str, request: &Request) -> Answer {
        let Some(file) = self.files.get(name) else {
            return Answer::of(404);
        };
        let at = self.faults.iter().position(|(of, _)| of == name);
        let fault = at.map(|at| self.faults.remove(at).1);
        let wanted = request
            .header("range")
            .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-'));
        let mut from: usize = wanted.map_or(0, |from| from.parse().unwrap());
        let mut answer = Answer::of(if wanted.is_some() { 206 } else { 200 });
        let mut body = file.content.clone();
        match fault {
            Some(Fault::Cut { after_bytes }) => answer.cut = Some(after_bytes),
            Some(Fault::IgnoreRange) => (from, answer.status) = (0, 200),
            Some(Fault::WrongRange) => from -= 1,
            Some(Fault::Flip { byte }) => body[byte] ^= 1,
            Some(Fault::Longer) => body.push(0),
            Some(Fault::Gated) => {
                answer.status = 401;
                answer.headers.push(("x-error-code", "GatedRepo".to_owned()));
                return answer;
            }
            Some(Fault::Redirect { to }) => {
                answer.status = 302;
                answer.headers.push(("location", format!("{to}{}", request.path)));
                return answer;
            }
            None => {}
        }
        if answer.status == 206 {
            let range = format!("bytes {from}-{}/{}", body.len() - 1, body.len());
            answer.headers.push(("content-range", range));
        }
        answer.body = body.split_off(from);
        answer
    }
}
