//! The kernel that draws tokens, against the distribution that they should come from, on a card. One test, because torch's
//! CUDA half must come before any torch act of the process; a machine without a card has nothing to check here.
#![allow(clippy::unwrap_used)]

mod common;

use common::kernels::{CARD, FLOAT, Guarded, INT, LONG, below, count, launch, numbers, random, run, wide};
use common::probabilities;
use rlpipe_torch::generate::SlotSettings;
use rlpipe_torch::{kernels, rng};
use tch::{Kind, Tensor};

#[test]
fn the_kernel_draws_from_the_distribution() {
    if common::card().is_none() {
        return;
    }
    run(&[
        ("uniform numbers", uniform_numbers),
        ("draws", draws),
        ("draws at the edges", draws_at_the_edges),
    ]);
}

fn uniform_numbers() {
    let keys: Vec<i64> = (0..500).map(|_| below(i64::MAX)).collect();
    let indices: Vec<i64> = (0..500).map(|_| below(1 << 40)).collect();
    let (keys_on, indices_on) = (Tensor::from_slice(&keys), Tensor::from_slice(&indices));
    let (keys_on, indices_on) = (keys_on.to_device(CARD), indices_on.to_device(CARD));
    let out = Guarded::new(&[500], (Kind::Double, CARD));
    let arguments = [(&keys_on).into(), (&indices_on).into(), out.argument()];
    launch(
        &kernels::of_heads(Kind::BFloat16, 64, 3).unwrap(),
        "uniforms",
        [500, 1],
        [1, 1],
        0,
        &arguments,
    );
    let expected: Vec<f64> = keys
        .iter()
        .zip(&indices)
        .map(|(&key, &index)| rng::uniform(key as u64, index as u64))
        .collect();
    assert_eq!(numbers::<f64>(&out.written()), expected);
}

/// Slots that draw alike, and what they drew.
struct Draws {
    settings: SlotSettings,
    slots: i64,
    /// Row of the logits that each slot draws from; its own where there is none.
    logit_row: Option<Tensor>,
    stop_ids: Tensor,
    position: Tensor,
    end: Tensor,
    done: Guarded,
    tokens: Guarded,
    step: Tensor,
    ids: Guarded,
    logprobs: Guarded,
}

const FIRST: i64 = 5;

impl Draws {
    fn new(settings: &SlotSettings, slots: i64, ring: i64) -> Self {
        let ids: Vec<i32> = settings.stop_ids.iter().map(|&id| id as i32).chain([-1]).collect();
        Self {
            settings: settings.clone(),
            slots,
            logit_row: None,
            stop_ids: Tensor::from_slice(&ids).to_device(CARD).repeat([slots, 1]),
            position: Tensor::full([slots], FIRST, INT),
            end: Tensor::full([slots], 1_000_000, INT),
            done: Guarded::holding(&Tensor::zeros([slots], INT)),
            tokens: Guarded::new(&[slots], INT),
            step: Tensor::zeros([1], INT),
            ids: Guarded::new(&[ring, slots], INT),
            logprobs: Guarded::new(&[ring, slots], FLOAT),
        }
    }

    fn draw(&self, logits: &Tensor) {
        let slots = self.slots;
        let floats = |value: f64| Tensor::full([slots], value, FLOAT);
        let ints = |value: i64| Tensor::full([slots], value, INT);
        let settings = &self.settings;
        let [temperature, top_p, min_p] = [settings.temperature, settings.top_p, settings.min_p].map(floats);
        let [top_k, stops_from] = [settings.top_k, settings.stops_from].map(ints);
        let (rows, seeds) = (Tensor::arange(slots, INT), Tensor::arange(slots, LONG) + 17);
        let arguments = [
            logits.into(),
            self.logit_row.as_ref().into(),
            (&rows).into(),
            (&temperature).into(),
            (&top_k).into(),
            (&top_p).into(),
            (&min_p).into(),
            (&seeds).into(),
            (&self.stop_ids).into(),
            (self.stop_ids.size()[1] as i32).into(),
            (&stops_from).into(),
            (&self.end).into(),
            (&self.position).into(),
            self.done.argument(),
            self.tokens.argument(),
            (&self.step).into(),
            (self.ids.size[0] as i32).into(),
            self.ids.argument(),
            self.logprobs.argument(),
            (logits.size()[1] as i32).into(),
        ];
        let module = kernels::of_heads(Kind::BFloat16, 64, 3).unwrap();
        launch(&module, "sample", [slots as u32, 1], [256, 1], 0, &arguments);
        let _ = self.step.shallow_clone().g_add_scalar_(1);
    }
}

/// Settings that cut or heat in each way and in several at once.
fn cases() -> Vec<SlotSettings> {
    let of = |temperature: f64, top_k: i64, top_p: f64, min_p: f64| SlotSettings {
        temperature,
        top_k,
        top_p,
        min_p,
        ..SlotSettings::default()
    };
    vec![
        of(1.0, 0, 1.0, 0.0),
        of(0.5, 0, 1.0, 0.0),
        of(2.5, 0, 1.0, 0.0),
        of(1.0, 1, 1.0, 0.0),
        of(1.0, 4, 1.0, 0.0),
        of(0.7, 50, 1.0, 0.0),
        of(1.0, 0, 0.5, 0.0),
        of(1.3, 0, 0.9, 0.0),
        of(1.0, 0, 1e-9, 0.0),
        of(1.0, 0, 1.0, 0.2),
        of(1.4, 6, 0.8, 0.0),
        of(2.0, 100, 0.95, 0.05),
    ]
}

fn draws() {
    // 100,000 of each case from a few logits: 99.99th percentile of chi-squared with 10 degrees of freedom.
    let logits = [0.3, -1.0, 2.0, 0.0, 1.2, -4.0, 0.9, f64::NEG_INFINITY, 1.5, -0.4, 0.9];
    let logits = Tensor::from_slice(&logits).to_device(CARD).to_kind(Kind::Float);
    let exact: Vec<f64> = numbers(&wide(&logits));
    for settings in cases() {
        let mut draws = Draws::new(&settings, 1000, 100);
        draws.logit_row = Some(Tensor::zeros([1000], INT));
        for _ in 0..100 {
            draws.draw(&logits.unsqueeze(0));
        }
        let expected = probabilities(&exact, &settings);
        let mut counts = [0.0; 11];
        let logprobs: Vec<f64> = numbers(&wide(&draws.logprobs.written()));
        for (id, logprob) in numbers::<i32>(&draws.ids.written()).into_iter().zip(logprobs) {
            counts[id as usize] += 1.0;
            assert!(
                (logprob - expected[id as usize].ln()).abs() < 2e-6,
                "{settings:?}: {logprob}"
            );
        }
        let mut statistic = 0.0;
        for (found, probability) in counts.iter().zip(&expected) {
            let mean = probability * 1e5;
            assert!(mean > 0.0 || *found == 0.0, "{settings:?}");
            statistic += if mean > 0.0 { (found - mean).powi(2) / mean } else { 0.0 };
        }
        assert!(statistic < 35.6, "{settings:?}: {statistic}, {counts:?}");
        assert_eq!(count(&draws.position.eq(FIRST + 100)), 1000);
        assert!(draws.tokens.written().equal(&draws.ids.written().get(99)));
        assert_eq!(count(&draws.done.written()), 0);
    }
    for vocabulary in [49_152, 151_936, 50_257, 50_260, 7] {
        // Many of those rounded to bfloat16 are equal.
        let logits = Tensor::randn([6, vocabulary], FLOAT) * 3.0;
        logits.narrow(0, 0, 3).copy_(&(random(&[3, vocabulary]) * 3.0));
        for settings in cases() {
            let draws = Draws::new(&settings, 6, 1);
            draws.draw(&logits);
            let ids: Vec<i32> = numbers(&draws.ids.written());
            let logprobs: Vec<f64> = numbers(&wide(&draws.logprobs.written()));
            for row in 0..6 {
                let exact: Vec<f64> = numbers(&wide(&logits.get(row as i64)));
                let apart = near(&settings).map(|settings| {
                    let expected = probabilities(&exact, &settings)[ids[row] as usize].ln();
                    (logprobs[row] - expected).abs()
                });
                let least = apart.fold(f64::INFINITY, f64::min);
                assert!(least < 1e-5, "{vocabulary} {settings:?}: {least}");
            }
        }
    }
}

/// The settings, and with cuts moved by what sums in single precision may be off: a value at the very edge is in or out.
fn near(settings: &SlotSettings) -> impl Iterator<Item = SlotSettings> {
    let factors = [1.0 - 2e-6, 1.0, 1.0 + 2e-6];
    factors.into_iter().flat_map(move |of_p| {
        factors.map(|of_min| SlotSettings {
            top_p: (settings.top_p * of_p).min(1.0),
            min_p: settings.min_p * of_min,
            ..settings.clone()
        })
    })
}

fn draws_at_the_edges() {
    let nothing = f64::NEG_INFINITY;
    // Greedy: the first of the largest, log-prob at temperature 1 and without cuts.
    let settings = SlotSettings {
        temperature: 0.0,
        top_k: 1,
        ..SlotSettings::default()
    };
    let logits = Tensor::randn([5, 50_257], FLOAT);
    for row in 0..5 {
        let _ = logits.get(row).narrow(0, 40_000 - 9000 * row, 2).fill_(9.0);
    }
    let draws = Draws::new(&settings, 5, 1);
    draws.draw(&logits);
    let expected = wide(&logits).log_softmax(-1, None::<Kind>).amax([-1i64], false);
    assert_eq!(
        numbers::<i32>(&draws.ids.written()),
        [40_000, 31_000, 22_000, 13_000, 4000]
    );
    assert!(
        (wide(&draws.logprobs.written()).get(0) - expected)
            .abs()
            .max()
            .double_value(&[])
            < 1e-5
    );

    // What is drawn does not depend on where in memory the row is.
    let row = Tensor::randn([1, 50_257], FLOAT) * 3.0;
    let [apart, together] = [1, 9].map(|rows| {
        let mut draws = Draws::new(&SlotSettings::default(), 9, 1);
        draws.logit_row = (rows == 1).then(|| Tensor::zeros([9], INT));
        draws.draw(&row.repeat([rows, 1]));
        draws.ids.written()
    });
    assert!(apart.equal(&together));

    // A token of probability zero is never drawn.
    let logits = Tensor::full([4000, 48], nothing, FLOAT);
    for id in [5, 11, 40] {
        let _ = logits.narrow(1, id, 1).fill_(0.0);
    }
    let draws = Draws::new(&SlotSettings::default(), 4000, 1);
    draws.draw(&logits);
    assert!(
        numbers::<i32>(&draws.ids.written())
            .iter()
            .all(|id| [5, 11, 40].contains(id))
    );

    // Cuts fall between values that are as near to each other as numbers can be, and not among equal ones.
    for unit in [0, 1] {
        let bits = Tensor::from_slice(&[20.0f32.to_bits() as i32]).to_device(CARD);
        let bits = bits + Tensor::arange(1000, INT) * i64::from(unit);
        let logits = bits.view_dtype(Kind::Float).unsqueeze(0);
        let settings = SlotSettings {
            top_k: 7,
            ..SlotSettings::default()
        };
        let draws = Draws::new(&settings, 1, 1);
        draws.draw(&logits);
        let kept = if unit == 0 { 1000.0 } else { 7.0f64 };
        let apart = draws.logprobs.written().double_value(&[0, 0]) + kept.ln();
        assert!(apart.abs() < 1e-3, "{unit}: {apart}");
    }

    // Stop ids are held back, then stop; a slot's last token stops it; what is not finite is told; a done row is left alone.
    let settings = SlotSettings {
        stop_ids: vec![3, 7],
        stops_from: FIRST + 2,
        ..SlotSettings::default()
    };
    let logits = Tensor::randn([6, 1000], FLOAT);
    let _ = logits.narrow(1, 3, 1).fill_(30.0);
    let _ = logits.get(1).get(5).fill_(f64::NAN);
    let _ = logits.get(2).get(6).fill_(f64::INFINITY);
    let _ = logits.get(3).fill_(nothing);
    let draws = Draws::new(&settings, 6, 2);
    let _ = draws.end.get(4).fill_(FIRST + 2);
    let _ = draws.done.inside().get(5).fill_(1);
    draws.draw(&logits);
    assert_eq!(numbers::<i32>(&draws.done.written()), [0, 1, 1, 1, 1, 1]);
    draws.draw(&logits);
    let (ids, logprobs) = (draws.ids.written(), draws.logprobs.written());
    let ids: Vec<Vec<i32>> = (0..2).map(|step| numbers(&ids.get(step))).collect();
    assert!(![3, 7].contains(&ids[0][0]) && ids[1][0] == 3 && ids[0][5] == -1);
    assert!(ids[1][1..].iter().all(|&id| id == -1));
    assert_eq!(count(&logprobs.get(0).isnan()), 3);
    assert_eq!(numbers::<i32>(&draws.done.written()), [1; 6]);
    assert_eq!(numbers::<i32>(&draws.position), [7, 6, 6, 6, 6, 5]);
    let mut held: Vec<f64> = numbers(&wide(&logits.get(0)));
    (held[3], held[7]) = (nothing, nothing);
    let expected = probabilities(&held, &SlotSettings::default())[ids[0][0] as usize].ln();
    assert!((logprobs.double_value(&[0, 0]) - expected).abs() < 1e-5);
}
