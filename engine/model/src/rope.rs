//! Rotary position embeddings: how fast each pair of a head's values turns with the position.
//!
//! The formulas are those of transformers' `modeling_rope_utils.py`, rounded to float32 where it rounds, so that angles
//! at far positions are the same.

use std::f32::consts::TAU;

use serde_json::Value;

use crate::ModelConfig;
use crate::keys::Keys;

/// How the wavelengths of the rotary embedding are stretched for long contexts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rope {
    /// Not at all.
    Default,
    /// All by one factor.
    Linear {
        /// By what frequencies are divided.
        factor: f64,
    },
    /// A larger base for sequences longer than `max_position_embeddings` (NTK scaling): a token's angle then depends on
    /// the length of the whole sequence.
    Dynamic {
        /// How strongly the base grows.
        factor: f64,
    },
    /// Llama 3.1: long wavelengths by a factor, short ones not, between them a blend.
    Llama3 {
        /// By what low frequencies are divided.
        factor: f64,
        /// `original / low_freq_factor` is the wavelength above which all is divided.
        low_freq_factor: f64,
        /// `original / high_freq_factor` is the wavelength below which nothing is.
        high_freq_factor: f64,
        /// Positions before stretching.
        original: i64,
    },
    /// YaRN (Peng and others, 2023): a ramp over the pairs between dividing and not, and a factor on attention.
    Yarn {
        /// By what low frequencies are divided.
        factor: f64,
        /// Positions before stretching.
        original: i64,
        /// Cosine and sine are multiplied by this.
        attention_factor: f64,
        /// Turns over `original` positions above which a pair is left alone.
        beta_fast: f64,
        /// Turns below which a pair is divided.
        beta_slow: f64,
        /// Whether the ramp begins and ends at whole pairs.
        truncate: bool,
    },
}

/// Angles of a head's pairs.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotary {
    /// Radians a position, one a pair: `[head_dim / 2]`.
    pub frequencies: Vec<f32>,
    /// Cosine and sine are multiplied by this.
    pub scale: f32,
}

impl Rope {
    /// Reads base and scaling from `rope_parameters`, `rope_scaling` or the top level of `config.json`.
    pub(crate) fn read(keys: &mut Keys<'_>, max_positions: i64) -> (f64, Self) {
        let given = ["rope_scaling", "rope_parameters"].into_iter().find_map(|name| {
            let value = keys.get(name)?;
            (value.as_object().is_none_or(|object| !object.is_empty())).then_some((name, value))
        });
        let top_theta = keys.optional_number("rope_theta").unwrap_or(10_000.0);
        let top_original = keys.optional_count("original_max_position_embeddings");
        let (name, object) = match given {
            None => return (top_theta, Self::Default),
            Some((name, Value::Object(object))) => (name, object),
            Some((name, value)) => {
                keys.fault(format!("`{name}` is {value}, but an object is needed"));
                return (top_theta, Self::Default);
            }
        };
        let within = format!("{name}.");
        let mut scaling = Keys::new(object, &within);
        let theta = scaling.optional_number("rope_theta").unwrap_or(top_theta);
        let rope = Self::read_scaling(name, &mut scaling, top_original, max_positions);
        keys.faults.append(&mut scaling.faults);
        (theta, rope)
    }

    fn read_scaling(name: &str, keys: &mut Keys<'_>, top_original: Option<i64>, max_positions: i64) -> Self {
        if let Some(layers) = ["full_attention", "sliding_attention"]
            .into_iter()
            .find(|key| keys.get(key).is_some())
        {
            keys.fault(format!(
                "`{name}` differs between layers (`{layers}`); this version has: one for all layers"
            ));
        }
        if keys
            .get("partial_rotary_factor")
            .is_some_and(|part| part.as_f64() != Some(1.0))
        {
            keys.fault(format!(
                "`{name}.partial_rotary_factor` is not 1; this version rotates whole heads"
            ));
        }
        let original = keys.optional_count("original_max_position_embeddings");
        let original = top_original.or(original).unwrap_or(max_positions);
        let kind = keys
            .text("rope_type")
            .or_else(|| keys.text("type"))
            .unwrap_or("default");
        match kind {
            "default" => Self::Default,
            "linear" => Self::Linear {
                factor: keys.number("factor"),
            },
            "dynamic" => Self::Dynamic {
                factor: keys.number("factor"),
            },
            "llama3" => Self::Llama3 {
                factor: keys.number("factor"),
                low_freq_factor: keys.number("low_freq_factor"),
                high_freq_factor: keys.number("high_freq_factor"),
                original,
            },
            "yarn" => Self::read_yarn(keys, original, max_positions),
            other => {
                keys.fault(format!(
                    "`{name}` of type `{other}` is not supported; \
                     this version has: `default`, `linear`, `dynamic`, `llama3`, `yarn`"
                ));
                Self::Default
            }
        }
    }

    fn read_yarn(keys: &mut Keys<'_>, original: i64, max_positions: i64) -> Self {
        let factor = if keys.is_null("factor") {
            max_positions as f64 / original as f64
        } else {
            keys.number("factor")
        };
        let mscale = |times: f64| {
            if factor <= 1.0 {
                1.0
            } else {
                0.1 * times * factor.ln() + 1.0
            }
        };
        let scales = (
            keys.number_if_not_zero("mscale"),
            keys.number_if_not_zero("mscale_all_dim"),
        );
        let suggested = match scales {
            (Some(one), Some(all)) => mscale(one) / mscale(all),
            _ => mscale(1.0),
        };
        Self::Yarn {
            factor,
            original,
            attention_factor: keys.optional_number("attention_factor").unwrap_or(suggested),
            beta_fast: keys.number_if_not_zero("beta_fast").unwrap_or(32.0),
            beta_slow: keys.number_if_not_zero("beta_slow").unwrap_or(1.0),
            truncate: keys.flag("truncate", true),
        }
    }
}

impl ModelConfig {
    /// The longest sequence that the network reads: `max_position_embeddings`, stretched where the scaling counts from
    /// the original length (linear, dynamic and YaRN; Llama 3's `max_position_embeddings` is the stretched length).
    pub fn positions(&self) -> i64 {
        let stretched = match self.rope {
            Rope::Default | Rope::Llama3 { .. } => 0.0,
            Rope::Linear { factor } | Rope::Dynamic { factor } => factor * self.max_positions as f64,
            Rope::Yarn { factor, original, .. } => factor * original as f64,
        };
        self.max_positions.max(stretched as i64)
    }

    /// The longest context in which the engine can generate as the trainer reads: with `dynamic` scaling a longer one
    /// would turn keys that are in the cache already.
    pub fn generated_positions(&self) -> i64 {
        match self.rope {
            Rope::Dynamic { .. } => self.max_positions,
            _ => self.positions(),
        }
    }

    /// How a head's pairs turn in a sequence of `length` tokens; only `dynamic` scaling asks for the length.
    pub fn rotary(&self, length: i64) -> Rotary {
        let powers: Vec<f32> = (0..self.head_dim / 2)
            .map(|pair| (2 * pair) as f32 / self.head_dim as f32)
            .collect();
        // A power in float64, rounded: within a unit of torch's float32 power.
        let waves = |base: f32| -> Vec<f32> {
            powers
                .iter()
                .map(|power| f64::from(base).powf(f64::from(*power)) as f32)
                .collect()
        };
        let plain: Vec<f32> = waves(self.rope_theta as f32).iter().map(|wave| 1.0 / wave).collect();
        let (frequencies, scale) = match self.rope {
            Rope::Default => (plain, 1.0),
            Rope::Linear { factor } => (plain.iter().map(|turn| turn / factor as f32).collect(), 1.0),
            Rope::Dynamic { factor } => {
                let base = dynamic_base(self.rope_theta, factor, length, self.max_positions, self.head_dim);
                (waves(base).iter().map(|wave| 1.0 / wave).collect(), 1.0)
            }
            Rope::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original,
            } => {
                let stretch = |turn: &f32| llama3(*turn, factor, low_freq_factor, high_freq_factor, original as f64);
                (plain.iter().map(stretch).collect(), 1.0)
            }
            Rope::Yarn {
                factor,
                attention_factor,
                ..
            } => {
                let ramp = self.yarn_ramp();
                let blend = |(wave, ramp): (&f32, f32)| {
                    let kept = 1.0 - ramp;
                    1.0 / (factor as f32 * wave) * (1.0 - kept) + 1.0 / wave * kept
                };
                let waves = waves(self.rope_theta as f32);
                (waves.iter().zip(ramp).map(blend).collect(), attention_factor as f32)
            }
        };
        Rotary { frequencies, scale }
    }

    /// 0 for pairs that are left alone, 1 for those that are divided; empty for other scalings.
    fn yarn_ramp(&self) -> Vec<f32> {
        let Rope::Yarn {
            original,
            beta_fast,
            beta_slow,
            truncate,
            ..
        } = self.rope
        else {
            return Vec::new();
        };
        let width = self.head_dim as f64;
        let pair_of = |turns: f64| {
            width * (original as f64 / (turns * std::f64::consts::TAU)).ln() / (2.0 * self.rope_theta.ln())
        };
        let (mut low, mut high) = (pair_of(beta_fast), pair_of(beta_slow));
        if truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        (low, high) = (low.max(0.0), high.min(width - 1.0));
        if low == high {
            high += 0.001;
        }
        (0..self.head_dim / 2)
            .map(|pair| ((pair as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0))
            .collect()
    }
}

/// Up to `max_positions` tokens the base itself.
fn dynamic_base(theta: f64, factor: f64, length: i64, max_positions: i64, head_dim: i64) -> f32 {
    if length <= max_positions {
        return theta as f32;
    }
    let grown = factor as f32 * length as f32 / max_positions as f32 - (factor - 1.0) as f32;
    let power = (head_dim as f64 / (head_dim - 2) as f64) as f32;
    theta as f32 * grown.powf(power)
}

fn llama3(turn: f32, factor: f64, low: f64, high: f64, original: f64) -> f32 {
    let wavelength = TAU / turn;
    if wavelength > (original / low) as f32 {
        turn / factor as f32
    } else if wavelength < (original / high) as f32 {
        turn
    } else {
        let smooth = (original as f32 / wavelength - low as f32) / (high - low) as f32;
        (1.0 - smooth) * turn / factor as f32 + smooth * turn
    }
}
