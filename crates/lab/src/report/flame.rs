//! A flame graph: samples by stack as an SVG without scripts. The width of a function is its share of the
//! samples; its callers are below it.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::text::escape;
use crate::quantity;
use crate::result::CpuProfile;

/// The width of the drawing.
const WIDTH: f64 = 1200.0;
/// The height of a function.
const ROW: f64 = 16.0;
/// The smallest width drawn.
const WIDTH_MIN: f64 = 1.2;
/// Maximum depth drawn.
const DEPTH_MAX: usize = 90;
/// The average width of a letter.
const LETTER: f64 = 6.0;
/// The mark of functions of the kernel.
const KERNEL: &str = "_[k]";

/// Functions that were called by the same functions.
#[derive(Default)]
struct Node<'a> {
    samples: u64,
    calls: BTreeMap<&'a str, Node<'a>>,
}

/// The flame graph of some profiles together, with a caption; empty without samples.
pub(super) fn markup(profiles: &[&CpuProfile]) -> String {
    let mut root = Node::default();
    let (mut drawn_to, mut all, mut left_out) = (0, 0, 0);
    for profile in profiles {
        all += profile.samples;
        left_out += profile.left_out;
        for (stack, samples) in profile.named() {
            add(&mut root, &stack, samples);
        }
    }
    if root.samples == 0 {
        return String::new();
    }
    let mut boxes = Vec::new();
    layout(&root, (0.0, 0), root.samples, &mut boxes);
    for (_, depth, ..) in &boxes {
        drawn_to = drawn_to.max(depth + 1);
    }
    let height = drawn_to as f64 * ROW;
    let mut svg = format!(
        "<svg class=\"flame\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Flame graph of {} samples\">",
        quantity::count(root.samples)
    );
    for (x, depth, width, name, samples) in boxes {
        draw(
            &mut svg,
            (x, height - (depth + 1) as f64 * ROW, width),
            name,
            samples as f64 / root.samples as f64,
        );
    }
    svg += "</svg>";
    let mut methods: Vec<&str> = profiles.iter().map(|profile| profile.method.as_str()).collect();
    methods.dedup();
    let rare = match left_out {
        0 => String::new(),
        count => format!("; {} of rare stacks are left out", quantity::count(count)),
    };
    format!(
        "<p class=\"dim\">{} samples{rare}, by {}. Callers are below; the lowest row are threads. {KERNEL} is the kernel. Functions \
         narrower than a thousandth are not drawn.</p><div class=\"scroll\" tabindex=\"0\">{svg}</div>",
        quantity::count(all),
        escape(&methods.join(" and "))
    )
}

fn add<'a>(root: &mut Node<'a>, stack: &[&'a str], samples: u64) {
    root.samples += samples;
    let mut node = root;
    for name in stack.iter().take(DEPTH_MAX) {
        node = node.calls.entry(name).or_default();
        node.samples += samples;
    }
}

/// The boxes of a node's calls: left edge, depth, width, name, samples.
fn layout<'a>(
    node: &Node<'a>,
    (left, depth): (f64, usize),
    all: u64,
    boxes: &mut Vec<(f64, usize, f64, &'a str, u64)>,
) {
    let mut x = left;
    for (name, call) in &node.calls {
        let width = WIDTH * call.samples as f64 / all as f64;
        if width >= WIDTH_MIN {
            boxes.push((x, depth, width, name, call.samples));
            layout(call, (x, depth + 1), all, boxes);
        }
        x += width;
    }
}

fn draw(svg: &mut String, (x, y, width): (f64, f64, f64), name: &str, share: f64) {
    let class = match name.ends_with(KERNEL) {
        true => "k".to_owned(),
        // Neighbours differ in shade, the same function looks the same.
        false => {
            format!("f{}", name.bytes().fold(0u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte)) % 4)
        }
    };
    let full = escape(name);
    let share = quantity::percent(share);
    let _ = write!(
        svg,
        "<g><title>{full}, {share}</title><rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"15\"/>"
    );
    let letters = ((width - 4.0) / LETTER) as usize;
    if letters >= 3 {
        let short = short(name);
        let text: String = match short.chars().count() > letters {
            true => short.chars().take(letters - 1).chain(['…']).collect(),
            false => short.to_owned(),
        };
        let _ = write!(svg, "<text x=\"{:.1}\" y=\"{:.0}\">{}</text>", x + 2.0, y + 11.5, escape(&text));
    }
    svg.push_str("</g>");
}

/// A function without the path of its module: the last two parts of a plain name; others unchanged.
fn short(name: &str) -> &str {
    let is_plain = !name.contains(['<', '(', ' ']);
    let separator = if name.contains("::") { "::" } else { "." };
    match name.rmatch_indices(separator).nth(1) {
        Some((at, _)) if is_plain => &name[at + separator.len()..],
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(stacks: &[(&[&str], u64)]) -> CpuProfile {
        let mut frames: Vec<String> = Vec::new();
        let stacks = stacks.iter().map(|(names, samples)| {
            let mut stack = Vec::new();
            for name in *names {
                let index = frames.iter().position(|frame| frame == name).unwrap_or_else(|| {
                    frames.push((*name).to_owned());
                    frames.len() - 1
                });
                stack.push(u32::try_from(index).expect("few"));
            }
            (stack, *samples)
        });
        let stacks: Vec<_> = stacks.collect();
        let samples = stacks.iter().map(|(_, samples)| samples).sum();
        CpuProfile { method: "perf".to_owned(), samples, left_out: 0, frames, stacks }
    }

    #[test]
    fn the_width_of_a_function_is_its_share_over_its_callers() {
        let one = profile(&[(&["net", "a::b::serve", "write_[k]"], 60), (&["net", "a::b::serve"], 15)]);
        let other = profile(&[(&["<io>"], 24), (&["rare"], 1), (&["net"], 0)]);
        let page = markup(&[&one, &other]);
        assert!(page.contains("100 samples, by perf."), "{page}");
        let lowest = "<g><title>net, 75 %</title><rect class=\"f";
        assert!(page.contains(lowest), "{page}");
        assert!(
            page.contains("x=\"288.0\" y=\"32\" width=\"900.0\""),
            "after <io>, in the lowest row: {page}"
        );
        assert!(
            page.contains(
                "<title>write_[k], 60 %</title><rect class=\"k\" x=\"288.0\" y=\"0\" width=\"720.0\""
            )
        );
        assert!(page.contains(">b::serve</text>") && page.contains("&lt;io&gt;, 24 %"), "{page}");
    }

    #[test]
    fn narrow_functions_are_not_drawn_and_nothing_is_no_graph() {
        let page = markup(&[&profile(&[(&["a"], 10_000), (&["b"], 9)])]);
        assert!(page.contains("<title>a, ") && !page.contains("<title>b, "), "{page}");
        assert_eq!(markup(&[]), "");
        let mut damaged = profile(&[(&["a"], 3)]);
        damaged.frames.clear();
        assert!(markup(&[&damaged]).contains("<title>?, "));
    }
}
