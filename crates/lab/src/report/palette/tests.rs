//! The colours of `style.css`: contrast with the background, and distinctness, including for colour-blind
//! readers.

const STYLE: &str = include_str!("../style.css");

type Rgb = [f64; 3];

/// Simulates strong colour vision deficiencies in linear RGB (Machado, Oliveira and Fernandes, 2009).
const EYES: [(&str, [Rgb; 3]); 4] = [
    ("all cones", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    (
        "no red cones",
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    ),
    (
        "no green cones",
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    ),
    (
        "no blue cones",
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    ),
];

/// The first, second and third `:root` of the style: light, dark, print.
fn colour(mode: usize, name: &str) -> Rgb {
    let block = STYLE.split(":root {").nth(mode + 1).expect("three modes").split('}').next().expect("an end");
    let key = format!("--{name}: #");
    let at = block.find(&key).unwrap_or_else(|| panic!("{name} is missing")) + key.len();
    [0, 2, 4].map(|place| {
        let value =
            u8::from_str_radix(&block[at + place..at + place + 2], 16).expect("six hexadecimal digits");
        let value = f64::from(value) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    })
}

fn luminance([r, g, b]: Rgb) -> f64 {
    0.2126 * r + 0.7152 * g + 0.0722 * b
}

/// The colour in CIE L*a*b*.
fn lab([r, g, b]: Rgb) -> Rgb {
    let f = |t: f64| if t > 0.008856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
    let x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
    let y = f(luminance([r, g, b]));
    let z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

#[test]
fn every_text_and_line_stands_out_from_its_paper() {
    for mode in 0..3 {
        for name in ["ink", "soft", "good", "bad", "s0", "s1", "s2", "s3", "s4", "s5"] {
            for paper in ["paper", "card"] {
                let (a, b) = (luminance(colour(mode, name)), luminance(colour(mode, paper)));
                let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                assert!(contrast >= 4.5, "mode {mode}: {name} on {paper} has {contrast:.2}");
            }
        }
    }
}

#[test]
fn no_two_series_look_alike_to_anyone() {
    for mode in 0..3 {
        for (eye, matrix) in EYES {
            let seen: Vec<Rgb> = (0..super::COLOURS)
                .map(|number| {
                    let own = colour(mode, &format!("s{number}"));
                    lab(matrix.map(|row| {
                        row.iter().zip(own).map(|(part, value)| part * value).sum::<f64>().clamp(0.0, 1.0)
                    }))
                })
                .collect();
            for (a, one) in seen.iter().enumerate() {
                for (b, other) in seen.iter().enumerate().skip(a + 1) {
                    let distance = one.iter().zip(other).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt();
                    assert!(distance >= 10.0, "mode {mode}, {eye}: s{a} and s{b} are {distance:.1} apart");
                }
            }
        }
    }
}
