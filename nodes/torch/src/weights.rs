//! Weight files: safetensors in, safetensors out, and fresh weights from a seed.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use rlpipe_model::{Fault, Parameter, Part};
use safetensors::{Dtype, SafeTensors, View};
use sha2::{Digest, Sha256};
use tch::{Device, Kind, Tensor};

use crate::model::{Layout, Piece};
use crate::{Error, Result, fail, rng};

/// Weights on a device, and what their files looked like.
pub struct Loaded {
    /// One tensor a leaf of the layout.
    pub leaves: Vec<Tensor>,
    /// Type of each piece in the source, in the layout's order.
    pub source_kinds: Vec<Kind>,
}

/// Reads the weights of a model folder into `kind` on `device`. What is wrong with the folder is named before anything
/// is read.
///
/// A tied model's file may repeat the head; it must then equal the embedding.
pub fn load(folder: &Path, layout: &Layout, kind: Kind, device: Device) -> Result<Loaded> {
    let faults = rlpipe_model::check_folder(folder);
    // A token that the model does not have is refused when it comes.
    let faults: Vec<Fault> = faults
        .into_iter()
        .filter(|fault| fault.part != Part::Tokenizer)
        .collect();
    if !faults.is_empty() {
        return Err(faults.into());
    }
    let mut reader = Reader::new(layout, kind, device);
    for path in rlpipe_model::weight_files(folder).map_err(|fault| Error(fault.message))? {
        reader.read(&path)?;
    }
    reader.finish(folder)
}

/// Reads one file that [`write`] made; every piece must be of type `kind`.
pub fn read(folder: &Path, name: &str, layout: &Layout, kind: Kind, device: Device) -> Result<Vec<Tensor>> {
    let path = folder.join(name);
    let parameter = |piece: &Piece| Parameter {
        name: piece.name.clone(),
        shape: piece.shape.clone(),
    };
    let parameters: Vec<Parameter> = layout.pieces.iter().map(parameter).collect();
    let faults = rlpipe_model::check_files(&path, std::slice::from_ref(&path), &parameters, false);
    if !faults.is_empty() {
        return Err(faults.into());
    }
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

/// Fills leaves from files that were checked.
struct Reader<'a> {
    layout: &'a Layout,
    wanted: HashMap<&'a str, usize>,
    leaves: Vec<Tensor>,
    source_kinds: Vec<Option<Kind>>,
    repeated_head: Option<Tensor>,
}

impl<'a> Reader<'a> {
    fn new(layout: &'a Layout, kind: Kind, device: Device) -> Self {
        let pieces = layout.pieces.iter().enumerate();
        Self {
            layout,
            wanted: pieces.map(|(index, piece)| (piece.name.as_str(), index)).collect(),
            leaves: layout.zeros(kind, device),
            source_kinds: vec![None; layout.pieces.len()],
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
            match self.wanted.get(name) {
                Some(&index) => {
                    let tensor = tensor_of(path, name, &view)?;
                    self.layout
                        .view(&self.leaves, &self.layout.pieces[index])
                        .f_copy_(&tensor)?;
                    self.source_kinds[index] = Some(tensor.kind());
                }
                None if name == "lm_head.weight" => self.repeated_head = Some(tensor_of(path, name, &view)?),
                // Tables that old exports carry; they follow from the configuration.
                None => {}
            }
        }
        Ok(())
    }

    fn finish(self, source: &Path) -> Result<Loaded> {
        if self.source_kinds.contains(&None) {
            fail!("`{}` changed while it was read; start again", source.display());
        }
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

/// Draws weights by (seed, parameter name): normal with deviation `initializer_range`, norms 1, biases 0.
pub fn init(layout: &Layout, seed: u64, initializer_range: f64, kind: Kind, device: Device) -> Loaded {
    let leaves = layout.zeros(kind, device);
    for piece in &layout.pieces {
        let mut target = layout.view(&leaves, piece);
        if piece.shape.len() == 1 {
            let _ = target.fill_(f64::from(!piece.name.ends_with(".bias")));
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
