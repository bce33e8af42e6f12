//! Weight files: safetensors in, safetensors out, and fresh weights from a seed.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors, View};
use sha2::{Digest, Sha256};
use tch::{Device, Kind, Tensor};

use crate::model::Layout;
use crate::{Error, Result, fail, rng};

/// Weights on a device, and what their files looked like.
pub struct Loaded {
    /// One tensor a leaf of the layout.
    pub leaves: Vec<Tensor>,
    /// Type of each piece in the source, in the layout's order.
    pub source_kinds: Vec<Kind>,
}

/// Reads `model.safetensors`, or the shards that `model.safetensors.index.json` names, into `kind` on `device`.
///
/// A tied model's file may repeat the head; it must then equal the embedding.
pub fn load(folder: &Path, layout: &Layout, kind: Kind, device: Device) -> Result<Loaded> {
    let mut reader = Reader::new(layout, kind, device);
    for path in files(folder)? {
        reader.read(&path)?;
    }
    reader.finish(folder)
}

/// Reads one file that [`write`] made; every piece must be of type `kind`.
pub fn read(folder: &Path, name: &str, layout: &Layout, kind: Kind, device: Device) -> Result<Vec<Tensor>> {
    let path = folder.join(name);
    let mut reader = Reader::new(layout, kind, device);
    reader.read(&path)?;
    let loaded = reader.finish(&path)?;
    if let Some(found) = loaded.source_kinds.iter().find(|found| **found != kind) {
        fail!(
            "`{}` holds {found:?}, but {kind:?} is needed; was it saved with another dtype?",
            path.display()
        );
    }
    Ok(loaded.leaves)
}

/// Fills leaves from files, and keeps account of names.
struct Reader<'a> {
    layout: &'a Layout,
    wanted: HashMap<&'a str, usize>,
    leaves: Vec<Tensor>,
    source_kinds: Vec<Option<Kind>>,
    unexpected: BTreeSet<String>,
    repeated_head: Option<Tensor>,
}

impl<'a> Reader<'a> {
    fn new(layout: &'a Layout, kind: Kind, device: Device) -> Self {
        Self {
            layout,
            wanted: layout
                .pieces
                .iter()
                .enumerate()
                .map(|(index, piece)| (piece.name.as_str(), index))
                .collect(),
            leaves: layout.zeros(kind, device),
            source_kinds: vec![None; layout.pieces.len()],
            unexpected: BTreeSet::new(),
            repeated_head: None,
        }
    }

    fn read(&mut self, path: &Path) -> Result<()> {
        let bytes = fs::read(path).map_err(|error| Error::io("read", path, &error))?;
        let file = SafeTensors::deserialize(&bytes).map_err(|error| {
            Error(format!(
                "`{}` is not a whole safetensors file ({error}); copy it again",
                path.display()
            ))
        })?;
        for (name, view) in file.iter() {
            let tensor = tensor_of(path, name, &view)?;
            match self.wanted.get(name) {
                Some(&index) => {
                    let piece = &self.layout.pieces[index];
                    let (found, needed) = (tensor.size(), &piece.shape);
                    if found != *needed {
                        fail!(
                            "`{}`: `{name}` has shape {found:?}, but {needed:?} is needed",
                            path.display()
                        );
                    }
                    self.layout.view(&self.leaves, piece).copy_(&tensor);
                    self.source_kinds[index] = Some(tensor.kind());
                }
                None if name == "lm_head.weight" => self.repeated_head = Some(tensor),
                // Tables that old exports carry; they follow from the configuration.
                None if name.ends_with("rotary_emb.inv_freq") => {}
                None => {
                    self.unexpected.insert(name.to_owned());
                }
            }
        }
        Ok(())
    }

    fn finish(self, source: &Path) -> Result<Loaded> {
        let missing = self
            .layout
            .pieces
            .iter()
            .zip(&self.source_kinds)
            .filter(|(_, kind)| kind.is_none());
        let missing: Vec<&str> = missing.map(|(piece, _)| piece.name.as_str()).collect();
        refuse_names(source, "lacks", missing.iter().copied())?;
        refuse_names(source, "has unexpected", self.unexpected.iter().map(String::as_str))?;
        if let Some(head) = self.repeated_head {
            let embedding = &self.leaves[0];
            if head.size() != embedding.size()
                || !head
                    .to_kind(embedding.kind())
                    .to_device(embedding.device())
                    .equal(embedding)
            {
                fail!(
                    "`{}`: `lm_head.weight` differs from the embedding, but `tie_word_embeddings` is true; \
                     set it to false in config.json to keep both",
                    source.display()
                );
            }
        }
        Ok(Loaded {
            leaves: self.leaves,
            source_kinds: self.source_kinds.into_iter().flatten().collect(),
        })
    }
}

fn refuse_names<'a>(folder: &Path, what: &str, names: impl ExactSizeIterator<Item = &'a str>) -> Result<()> {
    let count = names.len();
    let names: Vec<String> = names.take(5).map(|name| format!("`{name}`")).collect();
    if names.is_empty() {
        return Ok(());
    }
    let more = if count > names.len() {
        format!(" and {} more", count - names.len())
    } else {
        String::new()
    };
    fail!("`{}` {what} {}{more}", folder.display(), names.join(", "))
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let (whole, index) = (
        folder.join("model.safetensors"),
        folder.join("model.safetensors.index.json"),
    );
    if whole.exists() {
        return Ok(vec![whole]);
    }
    if !index.exists() {
        fail!(
            "`{}` has neither model.safetensors nor model.safetensors.index.json",
            folder.display()
        );
    }
    let text = fs::read_to_string(&index).map_err(|error| Error::io("read", &index, &error))?;
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let parsed: Index =
        serde_json::from_str(&text).map_err(|error| Error(format!("`{}`: {error}", index.display())))?;
    let names: BTreeSet<String> = parsed.weight_map.into_values().collect();
    if let Some(name) = names.iter().find(|name| name.contains('/') || name.as_str() == "..") {
        fail!("`{}`: shard `{name}` is not a file name", index.display());
    }
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

fn tensor_of(path: &Path, name: &str, view: &safetensors::tensor::TensorView<'_>) -> Result<Tensor> {
    let kind = match view.dtype() {
        Dtype::F64 => Kind::Double,
        Dtype::F32 => Kind::Float,
        Dtype::BF16 => Kind::BFloat16,
        Dtype::F16 => Kind::Half,
        other => fail!(
            "`{}`: `{name}` has type {other:?}, but a floating-point one is needed",
            path.display()
        ),
    };
    let shape: Vec<i64> = view.shape().iter().map(|&size| size as i64).collect();
    Ok(Tensor::f_from_data_size(view.data(), &shape, kind)?)
}

/// Draws weights by (seed, parameter name): normal with deviation `initializer_range`, norms 1.
pub fn init(layout: &Layout, seed: u64, initializer_range: f64, kind: Kind, device: Device) -> Loaded {
    let leaves = layout.zeros(kind, device);
    for piece in &layout.pieces {
        let mut target = layout.view(&leaves, piece);
        if piece.shape.len() == 1 {
            let _ = target.fill_(1.0);
            continue;
        }
        let key = rng::key(seed, &piece.name);
        let count = piece.shape.iter().product::<i64>() as u64;
        let values: Vec<f32> = (0..count)
            .map(|index| (rng::normal(key, index) * initializer_range) as f32)
            .collect();
        target.copy_(&Tensor::from_slice(&values).view(piece.shape.as_slice()));
    }
    Loaded {
        leaves,
        source_kinds: vec![Kind::Float; layout.pieces.len()],
    }
}

/// A file as written: its size and SHA-256, read back from the disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// Name inside its folder.
    pub name: String,
    /// Size.
    pub bytes: u64,
    /// In hex.
    pub sha256: String,
}

/// Writes leaves as pieces into `folder/name`, piece `i` in `kinds[i]`, and syncs the file.
pub fn write(folder: &Path, name: &str, layout: &Layout, leaves: &[Tensor], kinds: &[Kind]) -> Result<Written> {
    let views = layout.pieces.iter().zip(kinds).map(|(piece, &kind)| {
        (
            piece.name.as_str(),
            PieceView {
                tensor: layout.view(leaves, piece),
                kind,
                shape: usizes(&piece.shape),
            },
        )
    });
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let path = folder.join(name);
    let failed = |error: &std::io::Error| Error::io("write", &path, error);
    // The library renames a private temporary file into place; the result should have an ordinary file's permissions.
    let ordinary = File::create(&path)
        .and_then(|file| file.metadata())
        .map_err(|error| failed(&error))?
        .permissions();
    safetensors::serialize_to_file(views, Some(metadata), &path).map_err(|error| match error {
        safetensors::SafeTensorError::IoError(error) => failed(&error),
        error => Error(format!("cannot write `{}`: {error}", path.display())),
    })?;
    fs::set_permissions(&path, ordinary).map_err(|error| failed(&error))?;
    sync_and_hash(folder, name)
}

/// Syncs `folder/name` and hashes what the disk gives back.
pub fn sync_and_hash(folder: &Path, name: &str) -> Result<Written> {
    let path = folder.join(name);
    let failed = |error: &std::io::Error| Error::io("write", &path, error);
    let mut file = File::options()
        .read(true)
        .write(true)
        .open(&path)
        .map_err(|error| failed(&error))?;
    file.sync_all().map_err(|error| failed(&error))?;
    let (mut digest, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 20]);
    loop {
        let read = file.read(&mut buffer).map_err(|error| failed(&error))?;
        if read == 0 {
            break;
        }
        digest.update(&buffer[..read]);
        bytes += read as u64;
    }
    let sha256 = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Written {
        name: name.to_owned(),
        bytes,
        sha256,
    })
}

fn usizes(shape: &[i64]) -> Vec<usize> {
    shape.iter().map(|&size| size as usize).collect()
}

struct PieceView {
    tensor: Tensor,
    kind: Kind,
    shape: Vec<usize>,
}

impl View for PieceView {
    fn dtype(&self) -> Dtype {
        match self.kind {
            Kind::Double => Dtype::F64,
            Kind::BFloat16 => Dtype::BF16,
            Kind::Half => Dtype::F16,
            _ => Dtype::F32,
        }
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let host = self.tensor.to_kind(self.kind).to_device(Device::Cpu).contiguous();
        let mut bytes = vec![0; self.data_len()];
        host.copy_data_u8(&mut bytes, host.numel());
        Cow::Owned(bytes)
    }

    fn data_len(&self) -> usize {
        self.shape.iter().product::<usize>() * self.kind.elt_size_in_bytes()
    }
}
