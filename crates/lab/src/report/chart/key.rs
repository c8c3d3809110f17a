//! The key of a chart: the signs that the chart has, each with its meaning.

use super::put;

/// A sign of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    HollowDot,
    HollowBar,
    QuotedDot,
    QuotedBar,
    Whisker,
    WithinNoise,
    Faint,
    FellBehind,
    Knee,
    QuotedKnee,
    KneeRange,
    Ideal,
    Published,
}

impl Sign {
    fn meaning(self) -> &'static str {
        match self {
            Sign::HollowDot | Sign::HollowBar => "not quotable",
            Sign::QuotedDot | Sign::QuotedBar => "a headline rests on it",
            Sign::Whisker => "minimum to maximum",
            Sign::WithinNoise => "no difference shown: within the noise, or fewer than 3 repetitions",
            Sign::Faint => "other repetitions",
            Sign::FellBehind => "fell behind the requested rate",
            Sign::Knee => "knee",
            Sign::QuotedKnee => "knee: a headline rests on it",
            Sign::KneeRange => "range of the knee",
            Sign::Ideal => "the requested rate",
            Sign::Published => "published, on other hardware: not comparable",
        }
    }

    /// The sign, in a drawing of 22 by 12.
    fn drawing(self) -> &'static str {
        match self {
            Sign::HollowDot => "<circle class=\"figure grey\" cx=\"11\" cy=\"6\" r=\"4.5\"/>",
            Sign::HollowBar => "<rect class=\"bar hollow\" x=\"1\" y=\"2\" width=\"20\" height=\"8\"/>",
            Sign::QuotedDot => {
                "<circle class=\"figure\" cx=\"11\" cy=\"6\" r=\"3.2\"/>\
                 <circle class=\"quoted\" cx=\"11\" cy=\"6\" r=\"5.4\"/>"
            }
            Sign::QuotedBar => "<rect class=\"bar quoted\" x=\"1\" y=\"2\" width=\"20\" height=\"8\"/>",
            Sign::Whisker => {
                "<g class=\"whisker\"><line x1=\"2\" x2=\"20\" y1=\"6\" y2=\"6\"/>\
                 <line x1=\"2\" x2=\"2\" y1=\"3\" y2=\"9\"/><line x1=\"20\" x2=\"20\" y1=\"3\" y2=\"9\"/></g>"
            }
            Sign::WithinNoise => "<path class=\"line within-noise\" d=\"M0 6L22 6\"/>",
            Sign::Faint => "<path class=\"line faint\" d=\"M0 6L22 6\"/>",
            Sign::FellBehind => "<circle class=\"mark behind\" cx=\"11\" cy=\"6\" r=\"4\"/>",
            Sign::Knee | Sign::QuotedKnee => "<circle class=\"mark\" cx=\"11\" cy=\"6\" r=\"5\"/>",
            Sign::KneeRange => "<rect class=\"band\" x=\"5\" y=\"0\" width=\"12\" height=\"12\"/>",
            Sign::Ideal => "<path class=\"line ideal\" d=\"M0 6L22 6\"/>",
            Sign::Published => "<path class=\"line published\" d=\"M0 6L22 6\"/>",
        }
    }
}

/// The markup of a key; empty without signs.
pub(super) fn markup(signs: &[Sign]) -> String {
    if signs.is_empty() {
        return String::new();
    }
    let mut markup = "<ul class=\"key\">".to_owned();
    for sign in signs {
        put(
            &mut markup,
            format_args!(
                "<li><svg viewBox=\"0 0 22 12\" aria-hidden=\"true\">{}</svg>{}</li>",
                sign.drawing(),
                sign.meaning()
            ),
        );
    }
    markup + "</ul>"
}
