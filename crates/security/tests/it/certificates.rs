//! Which certificate chains are accepted, and from whom, beside the verdicts of Java's trust manager: a table
//! of named cases. Each difference that may be has its reason here.

use rustls::pki_types::{CertificateDer, UnixTime};
use thalweg_security::stores::TrustedCertificates;
use thalweg_security::tls::{CertificateHolder, Trust};

use crate::java::{answers, hex};
use made::{
    ANY, CERT_SIGN, CLIENT, CODE, CRL_SIGN, ENCIPHERMENT, PRINTABLE, SERVER, SIGNATURE, Spec, Validity,
};

pub mod made;

use Verdict::{Accepted, OnlyJava, Refused};

/// What Java says, and this crate with it unless the case is a difference with a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Accepted,
    Refused,
    /// Java accepts what is refused here, for this reason.
    OnlyJava(&'static str),
}

struct Case {
    name: &'static str,
    verdict: Verdict,
    holder: CertificateHolder,
    trusted: Vec<Vec<u8>>,
    chain: Vec<Vec<u8>>,
}

fn case(
    name: &'static str,
    verdict: Verdict,
    holder: CertificateHolder,
    trusted: &[&Spec],
    chain: &[&Spec],
) -> Case {
    let ders = |specs: &[&Spec]| specs.iter().map(|spec| spec.der()).collect::<Vec<_>>();
    Case { name, verdict, holder, trusted: ders(trusted), chain: ders(chain) }
}

fn question(holder: CertificateHolder, trusted: &[Vec<u8>], chain: &[Vec<u8>]) -> String {
    let list = |ders: &[Vec<u8>]| ders.iter().map(|der| hex(der)).collect::<Vec<_>>().join(",");
    let role = if holder == CertificateHolder::Client { "C" } else { "S" };
    format!("{role} {} {}", list(trusted), list(chain))
}

fn ours(holder: CertificateHolder, trusted: &[Vec<u8>], chain: &[Vec<u8>]) -> Result<(), String> {
    let certificates = |ders: &[Vec<u8>]| ders.iter().cloned().map(CertificateDer::from).collect::<Vec<_>>();
    let trusted = TrustedCertificates {
        certificates: certificates(trusted),
        setting: "ssl.truststore.location",
        value: "trust.pem".to_owned(),
        file: None,
    };
    let provider = rustls::crypto::ring::default_provider();
    let trust = Trust::new(Some(&trusted), None, &provider).map_err(|error| error.to_string())?;
    let chain = certificates(chain);
    trust.check(holder, &chain[0], &chain[1..], UnixTime::now()).map_err(|error| error.to_string())
}

#[test]
fn chains_get_the_verdicts_of_java() {
    let cases = cases();
    let lines: Vec<String> =
        cases.iter().map(|case| question(case.holder, &case.trusted, &case.chain)).collect();
    let java = answers("Certificates.java", &lines);
    let mut wrong = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        let Case { name, verdict, holder, .. } = case;
        let ours = ours(*holder, &case.trusted, &case.chain);
        if ours.is_ok() != (*verdict == Accepted) {
            wrong.push(format!("{at} {name} ({holder:?}): expected {verdict:?}, got {ours:?}"));
        }
        if let Some(java) = java.as_ref().map(|answers| &answers[at])
            && (java == "=") != (*verdict != Refused)
        {
            wrong.push(format!("{at} {name} ({holder:?}): expected {verdict:?}, Java says {java}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

const BOTH: [CertificateHolder; 2] = [CertificateHolder::Client, CertificateHolder::Server];

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let ca = &Spec::authority("ca");
    let leaf = &Spec::new("leaf").by("ca").basic(Some(false), None);
    let by = |issuer: &str| Spec::new("leaf").by(issuer);
    for holder in BOTH {
        let (own, other) =
            if holder == CertificateHolder::Client { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        let mut add = |name, verdict, trusted: &[&Spec], chain: &[&Spec]| {
            cases.push(case(name, verdict, holder, trusted, chain));
        };
        add("signed by an authority", Accepted, &[ca], &[leaf]);
        add("without basicConstraints", Accepted, &[ca], &[&by("ca")]);
        add("the authority is sent too", Accepted, &[ca], &[leaf, ca]);
        add("signed by a stranger", Refused, &[&Spec::authority("other")], &[leaf]);
        add("signed by a stranger of the same name", Refused, &[&ca.clone().key("other")], &[leaf]);
        add("expired", Refused, &[ca], &[&leaf.clone().valid(Validity::NoMore)]);
        add("not valid yet", Refused, &[ca], &[&leaf.clone().valid(Validity::NotYet)]);
        add("an expired authority", Accepted, &[&ca.clone().valid(Validity::NoMore)], &[leaf]);

        // Who may sign.
        let plain = &Spec::new("alice");
        add("a trusted certificate without extensions signs", Refused, &[plain], &[&by("alice")]);
        add(
            "a trusted leaf signs beside its authority",
            Refused,
            &[ca, &plain.clone().by("ca")],
            &[&by("alice")],
        );
        add("a leaf that is sent signs", Refused, &[ca], &[&by("alice"), &plain.clone().by("ca")]);
        add(
            "a trusted leaf that is sent signs",
            Refused,
            &[ca, &plain.clone().by("ca")],
            &[&by("alice"), &plain.clone().by("ca")],
        );
        add("CA:FALSE signs", Refused, &[&plain.clone().basic(Some(false), None)], &[&by("alice")]);
        add(
            "an extended key usage signs",
            Refused,
            &[&plain.clone().uses(&[CLIENT, SERVER])],
            &[&by("alice")],
        );
        add(
            "a key usage without CA:TRUE signs",
            Refused,
            &[&plain.clone().usage(CERT_SIGN)],
            &[&by("alice")],
        );
        add(
            "CA:TRUE without a key usage signs",
            Accepted,
            &[&plain.clone().basic(Some(true), None)],
            &[&by("alice")],
        );
        let no_sign = Spec::new("alice").basic(Some(true), None).usage(SIGNATURE | CRL_SIGN);
        add("an authority without keyCertSign signs", Refused, &[&no_sign], &[&by("alice")]);
        add("version 1 signs", Accepted, &[&Spec::v1("alice")], &[&by("alice")]);
        let v2 = Spec { version: 2, ..Spec::new("alice") };
        add(
            "version 2 signs",
            OnlyJava("webpki reads trusted certificates of versions 1 and 3"),
            &[&v2],
            &[&by("alice")],
        );
        add(
            "an authority with critical extensions that are unknown signs",
            Accepted,
            &[&ca.clone().unknown(true)],
            &[leaf],
        );
        add("an authority for other uses signs", Accepted, &[&ca.clone().uses(&[CODE])], &[leaf]);
        add(
            "an authority of pathLen 0 signs",
            Accepted,
            &[&Spec::new("ca").basic(Some(true), Some(0))],
            &[leaf],
        );

        // Trusted itself.
        for (name, own) in [
            ("trusted itself", plain.clone()),
            ("trusted itself, signed by a stranger", plain.clone().by("other")),
            ("trusted itself, expired", plain.clone().valid(Validity::NoMore)),
            ("trusted itself, of version 1", Spec::v1("alice")),
            ("trusted itself, an authority", Spec::authority("alice")),
            ("trusted itself, for other uses", plain.clone().uses(&[CODE]).usage(ENCIPHERMENT)),
            ("trusted itself, with a critical extension that is unknown", plain.clone().unknown(true)),
        ] {
            add(name, Accepted, &[&own], &[&own]);
            add(name, Accepted, &[ca, &own], &[&own]);
        }
        add(
            "the key of one that is trusted, in another certificate",
            Refused,
            &[plain],
            &[&plain.clone().usage(SIGNATURE)],
        );
        add(
            "the name and key of one that is trusted, signed by a stranger",
            Refused,
            &[plain],
            &[&plain.clone().by("other")],
        );
        add("the same, expired", Refused, &[plain], &[&plain.clone().valid(Validity::NoMore)]);
        add("the same, of an authority, by a stranger", Refused, &[ca], &[&ca.clone().by("other")]);
        add("the same, of an authority", Refused, &[ca], &[&ca.clone().valid(Validity::NotYet)]);

        // What a leaf may be.
        add("a leaf of version 1", Accepted, &[ca], &[&Spec::v1("leaf").by("ca")]);
        let v2 = Spec { version: 2, ..by("ca") };
        add("a leaf of version 2", Accepted, &[ca], &[&v2]);
        add(
            "a leaf of version 1, expired",
            Refused,
            &[ca],
            &[&Spec::v1("leaf").by("ca").valid(Validity::NoMore)],
        );
        add(
            "a leaf of version 1, not valid yet",
            Refused,
            &[ca],
            &[&Spec::v1("leaf").by("ca").valid(Validity::NotYet)],
        );
        add(
            "a leaf of version 1, signed by a stranger",
            Refused,
            &[ca],
            &[&Spec::v1("leaf").by("ca").signer("other")],
        );
        add("a leaf of version 1, signed by a leaf", Refused, &[ca, plain], &[&Spec::v1("leaf").by("alice")]);
        add(
            "a leaf of version 1, of an authority of version 1",
            Accepted,
            &[&Spec::v1("ca")],
            &[&Spec::v1("leaf").by("ca")],
        );
        add(
            "an authority as leaf",
            Accepted,
            &[ca],
            &[&by("ca").basic(Some(true), None).usage(CERT_SIGN | SIGNATURE)],
        );
        add("an authority as leaf, without key usage", Accepted, &[ca], &[&by("ca").basic(Some(true), None)]);
        add("pathLen without CA:TRUE", Accepted, &[ca], &[&by("ca").basic(None, Some(0))]);
        add("critical policies", Accepted, &[ca], &[&leaf.clone().policies(true)]);
        add("policies", Accepted, &[ca], &[&leaf.clone().policies(false)]);
        let demanding = leaf.clone().demands_policies();
        add("policies are demanded, and lack", Refused, &[ca], &[&demanding]);
        let reason = OnlyJava("policies are not compared");
        add("policies are demanded, and there", reason, &[ca], &[&demanding.policies(false)]);
        add("a critical extension that is unknown", Refused, &[ca], &[&leaf.clone().unknown(true)]);
        add("an extension that is unknown", Accepted, &[ca], &[&leaf.clone().unknown(false)]);
        add("a leaf with nameConstraints", Accepted, &[ca], &[&leaf.clone().only_domain("a.b")]);
        add("the same extension twice", Refused, &[ca], &[&leaf.clone().basic(Some(false), None)]);
        let printable = by("ca").issuer_type(PRINTABLE);
        add(
            "the issuer in another string type",
            OnlyJava("names are compared byte by byte"),
            &[ca],
            &[&printable],
        );

        // What is malformed. Java takes a broken extension that is not critical for none, and any number for
        // a version.
        let only_java = OnlyJava("a certificate that is not understood is refused");
        let nowhere = [Refused; 5];
        let as_end = [only_java, only_java, only_java, Refused, Refused];
        let everywhere = [only_java; 5];
        for (name, verdicts, broken) in [
            ("version 4", as_end, Spec { version: 4, ..by("ca") }),
            ("extensions in version 1", nowhere, Spec { version: 1, ..leaf.clone() }),
            ("extensions in version 2", nowhere, Spec { version: 2, ..leaf.clone() }),
            ("a key usage that is none", everywhere, by("ca").broken_usage()),
            ("an extended key usage with a byte behind it", everywhere, by("ca").broken_uses(own)),
            ("basicConstraints that are none", as_end, by("ca").broken_basic()),
        ] {
            let [as_leaf, trusted_itself, beside, between, above_version_1] = verdicts;
            add(name, as_leaf, &[ca], &[&broken]);
            let own = &broken.clone().by("leaf");
            add(name, trusted_itself, &[own], &[own]);
            add(name, Refused, &[own], &[&Spec::new("other").by("leaf")]);
            add(name, beside, &[ca, &broken], &[leaf]);
            let mid = Spec { subject: "mid".to_owned(), key: "mid".to_owned(), ..broken };
            let mid = &mid.basic(Some(true), None);
            add(name, between, &[ca], &[&by("mid"), mid]);
            add(name, above_version_1, &[ca], &[&Spec::v1("leaf").by("mid"), mid]);
        }

        // What a leaf is for.
        let (own_type, other_type) =
            if holder == CertificateHolder::Client { (0x80, 0x40) } else { (0x40, 0x80) };
        add("for this use", Accepted, &[ca], &[&leaf.clone().uses(&[own])]);
        add("for both uses", Accepted, &[ca], &[&leaf.clone().uses(&[other, own])]);
        add("for any use", Accepted, &[ca], &[&leaf.clone().uses(&[ANY])]);
        add("for the other use", Refused, &[ca], &[&leaf.clone().uses(&[other])]);
        add("for code", Refused, &[ca], &[&leaf.clone().uses(&[CODE])]);
        add("for signatures", Accepted, &[ca], &[&leaf.clone().usage(SIGNATURE)]);
        add("for signatures and keys", Accepted, &[ca], &[&leaf.clone().usage(SIGNATURE | ENCIPHERMENT)]);
        add("for keys alone", Refused, &[ca], &[&leaf.clone().usage(ENCIPHERMENT)]);
        add("of Netscape's type", Accepted, &[ca], &[&leaf.clone().netscape_type(own_type)]);
        add("of another of Netscape's types", Refused, &[ca], &[&leaf.clone().netscape_type(other_type)]);

        // Between leaf and authority.
        let (mid, end) = (&Spec::authority("mid").by("ca"), &by("mid"));
        let v1_end = &Spec::v1("leaf").by("mid");
        for end in [end, v1_end, &by("mid").policies(true), &Spec::authority("leaf").by("mid")] {
            if end.extensions.len() == 2 {
                // A key usage that lacks digitalSignature.
                add(
                    "through an intermediate, an authority without digitalSignature",
                    Refused,
                    &[ca],
                    &[end, mid],
                );
                continue;
            }
            let mut add = |name, verdict, trusted: &[&Spec], between: &[&Spec]| {
                add(name, verdict, trusted, &[&[end], between].concat());
            };
            add("through an intermediate", Accepted, &[ca], &[mid]);
            add("through an intermediate, which is not sent", Refused, &[ca], &[]);
            add("through an intermediate, which is trusted", Accepted, &[mid], &[]);
            add("through an intermediate, which is trusted and sent", Accepted, &[mid], &[mid]);
            add("through an intermediate in an order of its own", Accepted, &[ca], &[ca, mid]);
            add("through a stranger's intermediate", Refused, &[ca], &[&mid.clone().signer("other")]);
            add("through an intermediate of another key", Refused, &[ca], &[&mid.clone().key("other")]);
            add("through an expired intermediate", Refused, &[ca], &[&mid.clone().valid(Validity::NoMore)]);
            add(
                "through an intermediate that is not valid yet",
                Refused,
                &[ca],
                &[&mid.clone().valid(Validity::NotYet)],
            );
            let plain = Spec::new("mid").by("ca");
            add("through a leaf", Refused, &[ca], &[&plain]);
            add("through CA:FALSE", Refused, &[ca], &[&plain.clone().basic(Some(false), None)]);
            add(
                "through CA:TRUE without a key usage",
                Accepted,
                &[ca],
                &[&plain.clone().basic(Some(true), None)],
            );
            let no_sign = plain.clone().basic(Some(true), None).usage(SIGNATURE);
            add("through an intermediate without keyCertSign", Refused, &[ca], &[&no_sign]);
            add("through version 1", Refused, &[ca], &[&Spec::v1("mid").by("ca")]);
            add(
                "through an intermediate with a critical extension that is unknown",
                Refused,
                &[ca],
                &[&mid.clone().unknown(true)],
            );
            add(
                "through an intermediate of pathLen 0",
                Accepted,
                &[ca],
                &[&plain.clone().basic(Some(true), Some(0))],
            );
            let uses = mid.clone().uses(&[own]);
            add("through an intermediate for this use", Accepted, &[ca], &[&uses]);
            add("through an intermediate for any use", Accepted, &[ca], &[&mid.clone().uses(&[ANY])]);
            let reason = "the uses of an authority hold for those that it signs";
            add(
                "through an intermediate for other uses",
                OnlyJava(reason),
                &[ca],
                &[&mid.clone().uses(&[CODE])],
            );
            add("through one that demands policies", Refused, &[ca], &[&mid.clone().demands_policies()]);
            let low = &mid.clone().by("high");
            add("through two intermediates", Accepted, &[ca], &[low, &Spec::authority("high").by("ca")]);
            let short = Spec::new("high").by("ca").basic(Some(true), Some(0));
            add("through two, of which the pathLen allows one", Refused, &[ca], &[low, &short]);
            let long = Spec::new("high").by("ca").basic(Some(true), Some(1));
            add("through two, which the pathLen allows", Accepted, &[ca], &[low, &long]);
        }
        add(
            "through an intermediate with critical policies",
            OnlyJava("webpki reads no policies"),
            &[ca],
            &[end, &mid.clone().policies(true)],
        );

        // Constraints of names.
        let named = |host: &str| Spec::new("leaf").by("mid").host(host);
        let within = &mid.clone().only_domain("example.com");
        add("a name that is allowed", Accepted, &[ca], &[&named("a.example.com"), within]);
        add("a name that is not allowed", Refused, &[ca], &[&named("a.example.org"), within]);
        add(
            "constraints above a leaf of version 1, which has no such name",
            Refused,
            &[ca],
            &[v1_end, within],
        );
        let by_ca = |host: &str| Spec::new("leaf").by("ca").host(host);
        let trusted = &ca.clone().only_domain("example.com");
        add("a name that the authority allows", Accepted, &[trusted], &[&by_ca("a.example.com")]);
        let reason = "constraints of a trusted authority hold too";
        add(
            "a name that the authority does not allow",
            OnlyJava(reason),
            &[trusted],
            &[&by_ca("a.example.org")],
        );
    }
    cases
}
