//! Model folders that cannot be loaded, each with its reason, and fresh weights.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use common::{cpu, golden, init_folder, load_command};
use rlpipe_torch::policy::Policy;
use rlpipe_wire::v1;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

type Tensors = HashMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

/// The tied golden model with its tensors changed.
fn changed(change: impl FnOnce(&mut Tensors)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(golden("tied/config.json"), folder.path().join("config.json")).unwrap();
    let bytes = fs::read(golden("tied/model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: Tensors = file
        .iter()
        .map(|(name, view)| {
            (
                name.to_owned(),
                (view.dtype(), view.shape().to_vec(), view.data().to_vec()),
            )
        })
        .collect();
    change(&mut tensors);
    let views = tensors
        .iter()
        .map(|(name, (dtype, shape, data))| (name.as_str(), TensorView::new(*dtype, shape.clone(), data).unwrap()));
    safetensors::serialize_to_file(views, None, &folder.path().join("model.safetensors")).unwrap();
    folder
}

fn load(folder: &Path) -> rlpipe_torch::Result<Policy> {
    Policy::load(&load_command(folder, "float32", None), &cpu())
}

fn refused(folder: &Path) -> String {
    load(folder).unwrap_err().0
}

#[test]
fn what_is_wrong_with_a_file_is_named() {
    let norm = "model.norm.weight";
    let missing = changed(|tensors| drop(tensors.remove(norm)));
    assert!(
        refused(missing.path()).ends_with("lacks `model.norm.weight`"),
        "{}",
        refused(missing.path())
    );
    let extra = changed(|tensors| {
        let bias = tensors[norm].clone();
        tensors.insert("model.layers.0.self_attn.q_proj.bias".to_owned(), bias);
    });
    assert!(refused(extra.path()).ends_with("has unexpected `model.layers.0.self_attn.q_proj.bias`"));
    let misshapen = changed(|tensors| tensors.get_mut(norm).unwrap().1 = vec![4, 8]);
    assert!(refused(misshapen.path()).contains("`model.norm.weight` has shape [4, 8], but [32] is needed"));
    let integers = changed(|tensors| tensors.get_mut(norm).unwrap().0 = Dtype::I32);
    assert!(refused(integers.path()).contains("`model.norm.weight` has type I32"));
    let empty = changed(Tensors::clear);
    assert!(
        refused(empty.path()).contains("and 15 more"),
        "{}",
        refused(empty.path())
    );
    let other_head = changed(|tensors| {
        let (dtype, shape, mut data) = tensors["model.embed_tokens.weight"].clone();
        data[3] ^= 1;
        tensors.insert("lm_head.weight".to_owned(), (dtype, shape, data));
    });
    assert!(refused(other_head.path()).contains("`lm_head.weight` differs from the embedding"));
}

#[test]
fn files_that_are_no_models_are_named() {
    let cut = changed(|_| {});
    let path = cut.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert!(refused(cut.path()).contains("not a whole safetensors file"));
    fs::write(&path, b"hello").unwrap();
    assert!(refused(cut.path()).contains("not a whole safetensors file"));
    fs::remove_file(&path).unwrap();
    assert!(refused(cut.path()).contains("has neither model.safetensors nor"));
    let index = cut.path().join("model.safetensors.index.json");
    fs::write(&index, r#"{"weight_map": {"a": "../../etc/passwd"}}"#).unwrap();
    assert!(refused(cut.path()).contains("is not a file name"));
    fs::write(&index, r#"{"weight_map": {"a": "gone.safetensors"}}"#).unwrap();
    assert!(refused(cut.path()).contains("gone.safetensors"));
    assert!(refused(Path::new("/nowhere")).contains("cannot read `/nowhere/config.json`"));
}

#[test]
fn a_repeated_head_and_old_rotary_tables_do_no_harm() {
    let folder = changed(|tensors| {
        let embedding = tensors["model.embed_tokens.weight"].clone();
        tensors.insert("lm_head.weight".to_owned(), embedding.clone());
        tensors.insert("model.layers.0.self_attn.rotary_emb.inv_freq".to_owned(), embedding);
    });
    load(folder.path()).unwrap();
}

#[test]
fn half_precision_files_keep_their_type_on_export() {
    let folder = changed(|tensors| {
        for (dtype, _, data) in tensors.values_mut() {
            *dtype = Dtype::BF16;
            *data = data.chunks_exact(4).flat_map(|float| [float[2], float[3]]).collect();
        }
    });
    let out = tempfile::tempdir().unwrap();
    load(folder.path()).unwrap().export(out.path(), "source").unwrap();
    let (before, after) = (
        folder.path().join("model.safetensors"),
        out.path().join("model.safetensors"),
    );
    let (before, after) = (fs::read(before).unwrap(), fs::read(after).unwrap());
    let (before, after) = (
        SafeTensors::deserialize(&before).unwrap(),
        SafeTensors::deserialize(&after).unwrap(),
    );
    for (name, view) in before.iter() {
        let found = after.tensor(name).unwrap();
        assert!(found.dtype() == Dtype::BF16 && found.data() == view.data());
    }
}

#[test]
fn i25d_a_dropped_tensor_makes_the_export_fail() {
    for name in ["tied", "untied", "qwen3-biases"] {
        let mut policy = load(&golden(name)).unwrap();
        let dropped = policy.network.layout.pieces.pop().unwrap();
        let out = tempfile::tempdir().unwrap();
        let error = policy.export(out.path(), "source").unwrap_err().0;
        assert!(error.contains("the export is not the model that was loaded"), "{error}");
        assert!(error.contains(&format!("lacks `{}`", dropped.name)), "{error}");
        assert!(error.contains(&format!("they differ in `{}`", dropped.name)), "{error}");
    }
    // One without weights of its own has its configuration to be held against.
    let folder = init_folder(true);
    let command = v1::Load {
        engine: None,
        ..load_command(folder.path(), "float32", Some(1))
    };
    let mut policy = Policy::load(&command, &cpu()).unwrap();
    let out = tempfile::tempdir().unwrap();
    policy.export(out.path(), "source").unwrap();
    policy.network.layout.pieces.pop();
    assert!(
        policy
            .export(out.path(), "source")
            .unwrap_err()
            .0
            .contains("lacks `model.norm.weight`")
    );
}

#[test]
fn an_export_may_have_another_type() {
    let policy = load(&golden("qwen2-tied")).unwrap();
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("model.safetensors");
    let sizes = |dtype: &str| {
        policy.export(out.path(), dtype).unwrap();
        let bytes = fs::read(&path).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let types: std::collections::BTreeSet<String> =
            file.iter().map(|(_, view)| format!("{:?}", view.dtype())).collect();
        let norm = file.tensor("model.norm.weight").unwrap().data().to_vec();
        (types.into_iter().collect::<Vec<_>>(), norm)
    };
    let (source, wide) = sizes("source");
    assert_eq!(
        (source, sizes("float32")),
        (vec!["F32".to_owned()], (vec!["F32".to_owned()], wide.clone()))
    );
    let (types, narrow) = sizes("bfloat16");
    assert_eq!(types, ["BF16"]);
    for (wide, narrow) in wide.chunks_exact(4).zip(narrow.chunks_exact(2)) {
        let wide = f32::from_le_bytes(wide.try_into().unwrap());
        let narrow = f32::from_bits(u32::from(u16::from_le_bytes(narrow.try_into().unwrap())) << 16);
        assert!((wide - narrow).abs() <= wide.abs() / 256.0);
    }
    assert!(
        policy
            .export(out.path(), "int8")
            .unwrap_err()
            .0
            .contains("`int8` is unknown")
    );
}

#[test]
fn fresh_biases_are_zero_and_fresh_norms_one() {
    for model_type in ["qwen2", "qwen3"] {
        let folder = init_folder(true);
        let path = folder.path().join("config.json");
        let mut config: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        config["architectures"] = serde_json::Value::Null;
        config["model_type"] = model_type.into();
        config["head_dim"] = 16.into();
        fs::write(&path, config.to_string()).unwrap();
        let command = v1::Load {
            engine: None,
            ..load_command(folder.path(), "float32", Some(1))
        };
        let policy = Policy::load(&command, &cpu()).unwrap();
        let block = policy.network.layout.blocks[0];
        let values = |leaf: usize| Vec::<f32>::try_from(policy.weights[leaf].detach().view([-1])).unwrap();
        match model_type {
            "qwen2" => assert!(values(block.qkv.bias.unwrap()).iter().all(|bias| *bias == 0.0)),
            _ => assert!(values(block.query_key_norms.unwrap().1).iter().all(|norm| *norm == 1.0)),
        }
    }
}

#[test]
fn fresh_weights_follow_from_seed_and_name() {
    let folder = init_folder(false);
    let weights = |seed| {
        let command = v1::Load {
            engine: None,
            ..load_command(folder.path(), "float32", Some(seed))
        };
        let policy = Policy::load(&command, &cpu()).unwrap();
        let leaves: Vec<Vec<f32>> = policy
            .weights
            .iter()
            .map(|leaf| Vec::try_from(leaf.detach().view([-1])).unwrap())
            .collect();
        leaves
    };
    let (one, again, other) = (weights(1), weights(1), weights(2));
    assert_eq!(one, again);
    assert!(one[0] != other[0] && one[0] != *one.last().unwrap());
    assert!(one[1].iter().all(|norm| *norm == 1.0));
    let deviation = (one[0].iter().map(|w| w * w).sum::<f32>() / one[0].len() as f32).sqrt();
    assert!((deviation - 0.1).abs() < 0.005);
}
