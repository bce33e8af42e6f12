//! Draws against the distribution they should come from.
#![allow(clippy::unwrap_used)]

mod common;

use common::probabilities;
use rlpipe_torch::generate::{SlotSampling, SlotSettings};
use rlpipe_torch::rng;
use tch::{Device, Kind, Tensor};

const LOGITS: [f64; 10] = [0.3, -1.0, 2.0, 0.0, 1.2, -4.0, 0.9, f64::NEG_INFINITY, 1.5, 0.9];
const DRAWS: usize = 100_000;
/// 99.99th percentile of chi-squared with 9 degrees of freedom; fewer degrees stay below it more often.
const LIMIT: f64 = 33.7;

fn draw(settings: &SlotSettings, kind: Kind) -> (Vec<i64>, Vec<f64>) {
    tch::set_num_threads(1);
    let (rows, batches) = (1000, DRAWS / 1000);
    let sampling = SlotSampling::new(&vec![settings.clone(); rows], LOGITS.len() as i64, kind, Device::Cpu);
    let logits = Tensor::from_slice(&LOGITS).to_kind(kind).repeat([rows as i64, 1]);
    let positions = Tensor::full([rows as i64], 5, (Kind::Int64, Device::Cpu));
    let (mut ids, mut logprobs) = (Vec::new(), Vec::new());
    for batch in 0..batches {
        let uniforms: Vec<f64> = (0..rows)
            .map(|row| rng::uniform(17 + row as u64, batch as u64))
            .collect();
        let (drawn, of) = sampling.draw(&logits, &positions, &Tensor::from_slice(&uniforms));
        ids.extend(Vec::<i64>::try_from(drawn).unwrap());
        logprobs.extend(Vec::<f64>::try_from(of.to_kind(Kind::Double)).unwrap());
    }
    (ids, logprobs)
}

#[test]
fn draws_follow_the_distribution() {
    let base = SlotSettings::default();
    let cases = [
        base.clone(),
        SlotSettings {
            temperature: 0.5,
            ..base.clone()
        },
        SlotSettings {
            temperature: 2.5,
            ..base.clone()
        },
        SlotSettings {
            top_k: 1,
            ..base.clone()
        },
        SlotSettings {
            top_k: 4,
            ..base.clone()
        },
        SlotSettings {
            top_k: 40,
            ..base.clone()
        },
        SlotSettings {
            top_p: 0.5,
            ..base.clone()
        },
        SlotSettings {
            top_p: 0.999,
            ..base.clone()
        },
        SlotSettings {
            top_p: 1e-9,
            ..base.clone()
        },
        SlotSettings {
            top_p: 0.7,
            ..base.clone()
        },
        SlotSettings {
            min_p: 0.3,
            ..base.clone()
        },
        SlotSettings {
            min_p: 0.9,
            ..base.clone()
        },
        SlotSettings {
            temperature: 2.5,
            min_p: 0.3,
            ..base.clone()
        },
        SlotSettings {
            temperature: 1.4,
            top_k: 6,
            top_p: 0.8,
            ..base.clone()
        },
        SlotSettings {
            temperature: 1.4,
            top_k: 6,
            top_p: 0.9,
            min_p: 0.5,
            ..base
        },
    ];
    for (settings, kind) in cases
        .iter()
        .flat_map(|settings| [(settings, Kind::Float), (settings, Kind::Double)])
    {
        let expected = probabilities(&LOGITS, settings);
        let (ids, logprobs) = draw(settings, kind);
        let mut counts = [0.0; LOGITS.len()];
        for (&id, logprob) in ids.iter().zip(logprobs) {
            counts[id as usize] += 1.0;
            assert!(
                (logprob - expected[id as usize].ln()).abs() < 1e-5,
                "{settings:?}: {id} {logprob}"
            );
        }
        let mut statistic = 0.0;
        for (id, &probability) in expected.iter().enumerate() {
            let mean = probability * DRAWS as f64;
            assert!(probability > 0.0 || counts[id] == 0.0, "{settings:?} drew {id}");
            statistic += if probability > 0.0 {
                (counts[id] - mean).powi(2) / mean
            } else {
                0.0
            };
        }
        assert!(statistic < LIMIT, "{settings:?}: {statistic}, {counts:?}");
    }
}

#[test]
fn an_impossible_token_is_never_drawn_at_the_edges() {
    let nothing = f64::NEG_INFINITY;
    let logits = Tensor::from_slice(&[nothing, 0.0, nothing, 0.0, nothing])
        .unsqueeze(0)
        .to_kind(Kind::Float);
    let sampling = SlotSampling::new(&[SlotSettings::default()], 5, Kind::Float, Device::Cpu);
    let half = 2f64.powi(-49);
    for (uniform, id) in [(half, 1), (0.5 - half, 1), (0.5, 3), (1.0 - half, 3)] {
        let (drawn, _) = sampling.draw(&logits, &Tensor::from_slice(&[0i64]), &Tensor::from_slice(&[uniform]));
        assert_eq!(drawn.int64_value(&[0]), id, "{uniform}");
    }
}

#[test]
fn greedy_ignores_cuts_and_takes_its_log_prob_at_temperature_one() {
    let settings = SlotSettings {
        temperature: 0.0,
        top_k: 1,
        top_p: 0.1,
        min_p: 0.9,
        ..SlotSettings::default()
    };
    let (ids, logprobs) = draw(&settings, Kind::Double);
    let total: f64 = LOGITS.iter().map(|logit| logit.exp()).sum();
    assert!(ids.iter().all(|id| *id == 2));
    assert!((logprobs[0] - (2.0 - total.ln())).abs() < 1e-12);
}

/// Probabilities 0.4, 0.2, 0.2, 0.1, 0.06 and 0.04: what is kept of them, and what the first then has, by hand.
#[test]
fn cuts_keep_what_equals_the_last_that_is_kept() {
    let logits = Tensor::from_slice(&[0.2f64, 0.06, 0.4, 0.04, 0.2, 0.1]).log();
    let (off, first) = (SlotSettings::default(), 2);
    let cases = [
        (0, 1.0, 0.0, 0.4_f64),
        (1, 1.0, 0.0, 1.0),
        (2, 1.0, 0.0, 0.5),
        (3, 1.0, 0.0, 0.5),
        (4, 1.0, 0.0, 0.4 / 0.9),
        (7, 1.0, 0.0, 0.4),
        (0, 0.39, 0.0, 1.0),
        (0, 0.41, 0.0, 0.5),
        (0, 0.81, 0.0, 0.4 / 0.9),
        (0, 1.0, 0.6, 1.0),
        (0, 1.0, 0.4, 0.5),
        (0, 1.0, 0.24, 0.4 / 0.9),
        (0, 1.0, 0.14, 0.4 / 0.96),
        // Of the first three, whose sum is 0.8, the first alone has half.
        (2, 0.49, 0.0, 1.0),
        (2, 0.51, 0.0, 0.5),
        (4, 0.99, 0.4, 0.5),
    ];
    let slots: Vec<SlotSettings> = cases
        .iter()
        .map(|&(top_k, top_p, min_p, _)| SlotSettings {
            top_k,
            top_p,
            min_p,
            ..off.clone()
        })
        .collect();
    let rows = slots.len() as i64;
    let sampling = SlotSampling::new(&slots, 6, Kind::Double, Device::Cpu);
    let positions = Tensor::zeros([rows], (Kind::Int64, Device::Cpu));
    // Just behind what lies before the first in vocabulary order: at most 0.26 of it all.
    let uniforms = Tensor::full([rows], 0.36, (Kind::Double, Device::Cpu));
    let (drawn, logprobs) = sampling.draw(&logits.repeat([rows, 1]), &positions, &uniforms);
    for (row, case) in cases.iter().enumerate() {
        let row = [row as i64];
        assert_eq!(drawn.int64_value(&row), first, "{case:?}");
        assert!((logprobs.double_value(&row) - case.3.ln()).abs() < 1e-12, "{case:?}");
    }
}

#[test]
fn held_back_stops_are_not_drawn_and_the_rest_is_renormalised() {
    let settings = SlotSettings {
        stop_ids: vec![2, 8],
        stops_from: 6,
        ..SlotSettings::default()
    };
    let (ids, logprobs) = draw(&settings, Kind::Double);
    let total: f64 = (0..10)
        .filter(|id| ![2, 8].contains(id))
        .map(|id| LOGITS[id].exp())
        .sum();
    for (id, logprob) in ids.iter().zip(logprobs) {
        assert!(![2, 8].contains(id) && (logprob - (LOGITS[*id as usize] - total.ln())).abs() < 1e-12);
    }
    // Position 5 is the first at which they may come.
    let (ids, _) = draw(
        &SlotSettings {
            stops_from: 5,
            ..settings
        },
        Kind::Double,
    );
    assert!(ids.contains(&2) && ids.contains(&8));
}
