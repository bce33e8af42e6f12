//! Text to token ids and back, as a model folder defines it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::SystemTime;

use sha2::{Digest, Sha256};
use tokenizers::models::ModelWrapper;

use crate::added;
use crate::bytes::{Spelt, TokenBytes};
use crate::folder::{Folder, malformed};
use crate::template::ChatTemplate;
use crate::{Chat, ChatTemplateChoice, TextError};

/// The tokenizer and the chat template of one model folder.
#[derive(Debug)]
pub struct Tokenizer {
    folder: PathBuf,
    tokenizer: tokenizers::Tokenizer,
    template: Option<ChatTemplate>,
    stop_ids: Vec<u32>,
    bos_id: Option<u32>,
    eos_id: u32,
    pad_id: u32,
    unknown_id: Option<u32>,
    vocabulary_size: usize,
    token_bytes: Option<TokenBytes>,
    spelt: OnceLock<Spelt>,
    fingerprint: String,
    /// Characters that were seen to have tokens.
    represented: RwLock<HashSet<char>>,
}

impl Tokenizer {
    /// Reads `tokenizer.json`, `tokenizer_config.json`, and where they are there `chat_template.jinja`,
    /// `special_tokens_map.json`, `generation_config.json` and `config.json` of a Hugging Face folder.
    pub fn load(folder: &Path) -> Result<Tokenizer, TextError> {
        Self::load_with(folder, &ChatTemplateChoice::default())
    }

    /// The same, with another chat template or with variables for it.
    pub fn load_with(folder: &Path, choice: &ChatTemplateChoice) -> Result<Tokenizer, TextError> {
        let files = Folder::read(folder, choice)?;
        let tokenizer_path = folder.join("tokenizer.json");
        let mut tokenizer = tokenizers::Tokenizer::from_bytes(&files.tokenizer)
            .map_err(|error| malformed(&tokenizer_path, error.to_string()))?;
        // A release's tokenizer.json may cut or fill texts; here every token counts.
        tokenizer
            .with_truncation(None)
            .map_err(|error| malformed(&tokenizer_path, error.to_string()))?;
        tokenizer.with_padding(None);
        for (path, added) in &files.added {
            added::add(&mut tokenizer, path, added)?;
        }
        let config_path = folder.join("tokenizer_config.json");
        // A named token that there is none of is a fault where it is needed, and told there.
        let named = files.special_tokens.values();
        let named = named.filter(|text| tokenizer.token_to_id(text).is_some()).cloned();
        let special: Vec<String> = named.chain(files.more_special.iter().cloned()).collect();
        added::make_special(&mut tokenizer, &config_path, &special)?;

        let vocabulary_size = vocabulary_size(&tokenizer);
        let special_id = |name: &str| match files.special_tokens.get(name) {
            None => Ok(None),
            Some(text) => tokenizer.token_to_id(text).map(Some).ok_or_else(|| {
                malformed(
                    &config_path,
                    format!("its `{name}` is `{text}`, which `tokenizer.json` does not have"),
                )
            }),
        };
        let eos_token_id = special_id("eos_token")?;
        // Answers in training end with the end-of-sequence token, so generation has to stop at it, listed or not.
        let mut stop_ids = Vec::from_iter(eos_token_id);
        if let Some((path, ids)) = &files.stop_ids {
            if let Some(id) = ids.iter().find(|&&id| id as usize >= vocabulary_size) {
                let problem = format!("`eos_token_id` names {id}, but the tokenizer has {vocabulary_size} tokens");
                return Err(malformed(path, problem));
            }
            stop_ids.extend(ids);
        }
        let mut seen = HashSet::new();
        stop_ids.retain(|id| seen.insert(*id));
        let Some(&eos_id) = stop_ids.first() else {
            let problem = "it names no `eos_token`, and no `generation_config.json` or `config.json` beside it \
                           gives an `eos_token_id`, so nothing ends an answer";
            return Err(malformed(&config_path, problem.into()));
        };
        let pad_id = special_id("pad_token")?.unwrap_or(eos_id);
        let template = match &files.template {
            Some((file, source)) => {
                let place = choice.file.as_deref().unwrap_or(folder);
                let (special_tokens, variables) = (&files.special_tokens, &choice.variables);
                Some(ChatTemplate::compile(place, file, source, special_tokens, variables)?)
            }
            None => None,
        };
        Ok(Tokenizer {
            folder: folder.to_owned(),
            template,
            bos_id: files
                .special_tokens
                .get("bos_token")
                .and_then(|text| tokenizer.token_to_id(text)),
            eos_id,
            pad_id,
            unknown_id: unknown_id(&tokenizer),
            vocabulary_size,
            token_bytes: tokenizer
                .get_decoder()
                .and_then(|decoder| TokenBytes::read(&serde_json::to_value(decoder).ok()?)),
            spelt: OnceLock::new(),
            represented: RwLock::default(),
            fingerprint: fingerprint(&files, choice, &stop_ids, eos_id, pad_id),
            stop_ids,
            tokenizer,
        })
    }

    /// Fixes the date that a chat template may ask for; without this it is the time of loading. A run that must
    /// give the same prompts when it is resumed on another day passes the time at which it began.
    pub fn with_moment(mut self, moment: SystemTime) -> Tokenizer {
        if let Some(template) = &mut self.template {
            template.set_moment(moment);
        }
        self
    }

    /// Token ids of `text`. Nothing is put before or after; special tokens written in the text are recognised.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let encoding = self
            .tokenizer
            .encode_fast(text, false)
            .map_err(|error| self.cannot("encode", text, &error))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// As [`encode`](Self::encode), but an error names the first character that has no token: one that becomes the
    /// unknown token, or one that the tokenizer drops. Whitespace counts only if it becomes the unknown token.
    pub fn encode_lossless(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let characters: Vec<char> = text.chars().collect();
        let ids = self.encode(text)?;
        if !ids.iter().any(|id| Some(*id) == self.unknown_id) && self.first_dropped(&characters)?.is_none() {
            return Ok(ids);
        }
        // Offsets take as long as all the rest.
        let encoding = self
            .tokenizer
            .encode_char_offsets(text, false)
            .map_err(|error| self.cannot("encode", text, &error))?;
        let unknown = encoding
            .get_ids()
            .iter()
            .zip(encoding.get_offsets())
            .find_map(|(&id, &(start, end))| {
                // The unknown token may also be spelt out in the text.
                let is_lost = Some(id) == self.unknown_id && !self.spells(id, characters.get(start..end)?);
                is_lost.then_some(start)
            });
        let lost = match unknown {
            Some(index) => Some(index),
            None => self.first_dropped(&characters)?,
        };
        match lost {
            None => Ok(ids),
            Some(index) => Err(TextError::Unrepresentable {
                folder: self.folder.clone(),
                character: characters[index],
                position: index + 1,
                excerpt: characters[index.saturating_sub(20)..characters.len().min(index + 20)]
                    .iter()
                    .collect(),
            }),
        }
    }

    /// A model without an unknown token passes over what it does not know, and its offsets shift, so that each
    /// character has to be tried alone.
    fn first_dropped(&self, characters: &[char]) -> Result<Option<usize>, TextError> {
        let mut unseen: Vec<(usize, char)> = {
            let represented = self.represented.read().unwrap_or_else(PoisonError::into_inner);
            let unseen =
                |(_, character): &(usize, char)| !character.is_whitespace() && !represented.contains(character);
            characters.iter().copied().enumerate().filter(unseen).collect()
        };
        let mut seen = HashSet::new();
        unseen.retain(|(_, character)| seen.insert(*character));
        for (index, character) in unseen {
            if self.encode(character.encode_utf8(&mut [0; 4]))?.is_empty() {
                return Ok(Some(index));
            }
            let mut represented = self.represented.write().unwrap_or_else(PoisonError::into_inner);
            represented.insert(character);
        }
        Ok(None)
    }

    /// The text of `ids`; ids that the tokenizer does not have add nothing.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, TextError> {
        self.tokenizer
            .decode(ids, skip_special)
            .map_err(|error| self.cannot("decode", &format!("{:?}", &ids[..ids.len().min(8)]), &error))
    }

    /// The text of `ids` without special tokens and without the last `without_bytes` bytes that they stand for.
    pub fn decode_start(&self, ids: &[u32], without_bytes: usize) -> Result<String, TextError> {
        if let Some(spelt) = self.spelt() {
            let bytes: Vec<u8> = ids.iter().flat_map(|&id| spelt.of(id)).copied().collect();
            return Ok(String::from_utf8_lossy(&bytes[..bytes.len().saturating_sub(without_bytes)]).into_owned());
        }
        let whole = self.decode(ids, true)?;
        if without_bytes == 0 {
            return Ok(whole);
        }
        let bytes: Vec<u8> = ids
            .iter()
            .flat_map(|&id| self.token_bytes(id).unwrap_or_default())
            .collect();
        let kept = String::from_utf8_lossy(&bytes[..bytes.len().saturating_sub(without_bytes)]);
        // Some decoders leave out spaces that stand before the first word.
        let spelt = String::from_utf8_lossy(&bytes);
        let left_out = match spelt.trim_start_matches(' ') == whole.trim_start_matches(' ') {
            true => spelt.len().saturating_sub(whole.len()),
            false => 0,
        };
        let spaces = kept.bytes().take(left_out).take_while(|&byte| byte == b' ').count();
        Ok(kept[spaces..].to_owned())
    }

    /// The bytes that a token stands for; special tokens and ids that the tokenizer does not have stand for nothing.
    /// The bytes of `ids`, one after the other, are the UTF-8 of their [`decode`](Self::decode) without special tokens,
    /// but for what is not UTF-8 and for spaces that the decoder leaves out at the start.
    /// None where the tokenizer's decoder is of a kind in which tokens do not stand for bytes.
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        let bytes = self.token_bytes.as_ref()?;
        let token = self.tokenizer.id_to_token(id);
        let token = token.filter(|token| !self.tokenizer.get_added_vocabulary().is_special_token(token));
        Some(token.map(|token| bytes.of(&token)).unwrap_or_default())
    }

    /// Where a text is the bytes of its tokens: those bytes. The library takes as long to decode as to encode.
    fn spelt(&self) -> Option<&Spelt> {
        let are_all = self.token_bytes.as_ref().is_some_and(TokenBytes::are_all);
        let of = |id| self.token_bytes(id).unwrap_or_default();
        are_all.then(|| self.spelt.get_or_init(|| Spelt::new(self.vocabulary_size, of)))
    }

    /// The conversation as the model's chat template writes it.
    pub fn render(&self, chat: &Chat<'_>) -> Result<String, TextError> {
        match &self.template {
            Some(template) => template.render(chat),
            None => Err(TextError::NoTemplate {
                folder: self.folder.clone(),
            }),
        }
    }

    /// [`render`](Self::render), then [`encode`](Self::encode).
    pub fn encode_chat(&self, chat: &Chat<'_>) -> Result<Vec<u32>, TextError> {
        self.encode(&self.render(chat)?)
    }

    /// The ids that end a generation: [`eos_id`](Self::eos_id), then `eos_token_id` of the generation configuration
    /// (else of the model's). Never empty, no id twice.
    pub fn stop_ids(&self) -> &[u32] {
        &self.stop_ids
    }

    /// The token that ends an answer: `eos_token`, else the first of `eos_token_id`.
    pub fn eos_id(&self) -> u32 {
        self.eos_id
    }

    /// The token that begins a text: `bos_token`, where there is one. Encoding never adds it; a chat template may.
    pub fn bos_id(&self) -> Option<u32> {
        self.bos_id
    }

    /// Whether there is a chat template.
    pub fn has_template(&self) -> bool {
        self.template.is_some()
    }

    /// The tokens that are special, as they are written in a text, with their ids, in the order of these.
    pub fn special_tokens(&self) -> Vec<(u32, String)> {
        let added = self.tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        let special = added.iter().filter(|(_, token)| token.special);
        let mut tokens: Vec<(u32, String)> = special.map(|(&id, token)| (id, token.content.clone())).collect();
        tokens.sort_unstable();
        tokens
    }

    /// The token that fills up: `pad_token`, else [`eos_id`](Self::eos_id).
    pub fn pad_id(&self) -> u32 {
        self.pad_id
    }

    /// The largest token id, plus one. The model's embedding may have more rows.
    pub fn vocabulary_size(&self) -> usize {
        self.vocabulary_size
    }

    /// The token that text becomes which the tokenizer cannot represent, if it has one.
    pub fn unknown_id(&self) -> Option<u32> {
        self.unknown_id
    }

    /// A SHA-256 in hexadecimal of all that decides between text and ids: equal folders give equal ones.
    pub fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    fn spells(&self, id: u32, characters: &[char]) -> bool {
        self.tokenizer
            .id_to_token(id)
            .is_some_and(|token| token.chars().eq(characters.iter().copied()))
    }

    fn cannot(&self, verb: &str, what: &str, error: &tokenizers::Error) -> TextError {
        let excerpt: String = what.chars().take(40).collect();
        TextError::Tokenizer {
            folder: self.folder.clone(),
            action: format!("{verb} {excerpt:?}"),
            problem: error.to_string(),
        }
    }
}

fn vocabulary_size(tokenizer: &tokenizers::Tokenizer) -> usize {
    tokenizer
        .get_vocab(true)
        .into_values()
        .max()
        .map_or(0, |id| id as usize + 1)
}

fn unknown_id(tokenizer: &tokenizers::Tokenizer) -> Option<u32> {
    let token = match tokenizer.get_model() {
        ModelWrapper::BPE(model) => model.unk_token.clone(),
        ModelWrapper::WordPiece(model) => Some(model.unk_token.clone()),
        ModelWrapper::WordLevel(model) => Some(model.unk_token.clone()),
        // The unigram model keeps its id private.
        ModelWrapper::Unigram(model) => {
            let id = serde_json::to_value(model).ok()?["unk_id"].as_u64()?;
            return u32::try_from(id).ok();
        }
    };
    tokenizer.token_to_id(&token?)
}

fn fingerprint(files: &Folder, choice: &ChatTemplateChoice, stop_ids: &[u32], eos_id: u32, pad_id: u32) -> String {
    let mut hash = Sha256::new();
    let mut add = |part: &str| {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    };
    add(&files.tokenizer);
    add(files.template.as_ref().map_or("", |(_, source)| source));
    for (name, text) in &files.special_tokens {
        add(name);
        add(text);
    }
    for (_, added) in &files.added {
        for added in added {
            add(&format!("{:?}", added.token));
        }
    }
    for text in &files.more_special {
        add(text);
    }
    if !choice.variables.is_empty() {
        add(&serde_json::Value::Object(choice.variables.clone()).to_string());
    }
    add(&format!("{stop_ids:?} {eos_id} {pad_id}"));
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
