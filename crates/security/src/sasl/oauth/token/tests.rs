use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair,
};
use serde_json::json;

use super::*;

/// RFC 7515, appendices A.2 (RS256) and A.3 (ES256): key and token. The claims lack `iat`, so only the
/// signature is compared.
const RSA_N: &str = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
const RSA_SIGNATURE: &str = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
const CLAIMS: &str =
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";

const NOW_MS: i64 = 1_700_000_000_000;
const NOW: i64 = NOW_MS / 1000;

struct Signer {
    pair: EcdsaKeyPair,
    id: &'static str,
    algorithm: &'static str,
}

impl Signer {
    fn new(id: &'static str, signing: &'static EcdsaSigningAlgorithm, algorithm: &'static str) -> Signer {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(signing, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(signing, document.as_ref(), &random).expect("a key");
        Signer { pair, id, algorithm }
    }

    fn es256(id: &'static str) -> Signer {
        Signer::new(id, &ECDSA_P256_SHA256_FIXED_SIGNING, "ES256")
    }

    fn entry(&self) -> Value {
        let point = &self.pair.public_key().as_ref()[1..];
        let (x, y) = point.split_at(point.len() / 2);
        let curve = if x.len() == 32 { "P-256" } else { "P-384" };
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({"kty": "EC", "crv": curve, "kid": self.id, "use": "sig", "x": text(x), "y": text(y)})
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).expect("a signature");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    fn token(&self, claims: &Value) -> String {
        self.sign(&json!({"alg": self.algorithm, "kid": self.id, "typ": "JWT"}), claims)
    }
}

fn keys(entries: &[Value]) -> KeySet {
    KeySet::parse(json!({ "keys": entries }).to_string().as_bytes()).expect("a JWKS")
}

fn rules() -> TokenRules {
    TokenRules {
        audiences: Vec::new(),
        issuer: None,
        scope_claim: "scope".to_owned(),
        subject_claim: "sub".to_owned(),
        skew_seconds: 30,
    }
}

fn claims() -> Value {
    json!({"sub": " alice ", "exp": NOW + 60, "iat": NOW, "scope": ["a", "b"]})
}

#[test]
fn signatures_are_those_of_rfc_7515() {
    let rsa = json!({"kty": "RSA", "n": RSA_N, "e": "AQAB"});
    let header = URL_SAFE_NO_PAD.encode("{\"alg\":\"RS256\"}");
    let verified = |token: &str| Token::verify(token, &keys(std::slice::from_ref(&rsa)), &rules(), 0);
    let whole = TokenFault::Malformed("iat is missing");
    assert_eq!(verified(&format!("{header}.{CLAIMS}.{RSA_SIGNATURE}")), Err(whole.clone()));
    let other = CLAIMS.replace("joe", "jim").replacen('J', "K", 1);
    assert_eq!(verified(&format!("{header}.{other}.{RSA_SIGNATURE}")), Err(TokenFault::Signature));

    let curve = json!({"kty": "EC", "crv": "P-256",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"});
    let header = URL_SAFE_NO_PAD.encode("{\"alg\":\"ES256\"}");
    let signature = "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
    let token = format!("{header}.{CLAIMS}.{signature}");
    assert_eq!(Token::verify(&token, &keys(&[curve]), &rules(), 0), Err(whole));
}

#[test]
fn tokens_name_a_user_until_they_expire() {
    for signer in [Signer::es256("k1"), Signer::new("k2", &ECDSA_P384_SHA384_FIXED_SIGNING, "ES384")] {
        let keys = keys(&[Signer::es256("other").entry(), signer.entry()]);
        let token = Token::verify(&signer.token(&claims()), &keys, &rules(), NOW_MS).expect("a good token");
        let expected = Token {
            subject: "alice".to_owned(),
            expires_ms: NOW_MS + 60_000,
            scopes: vec!["a".to_owned(), "b".to_owned()],
        };
        assert_eq!(token, expected);
    }
    let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
    let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("a key");
    let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(json!({"alg": "EdDSA"})), part(claims()));
    let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(pair.sign(signed.as_bytes()).as_ref()));
    let keys = keys(&[json!({"kty": "OKP", "crv": "Ed25519", "x": x})]);
    assert!(Token::verify(&token, &keys, &rules(), NOW_MS).is_ok());
}

#[test]
fn claims_are_checked_as_kafka_does() {
    let signer = Signer::es256("k");
    let keys = keys(&[signer.entry()]);
    let verify = |changes: Value, rules: &TokenRules| {
        let mut all = claims();
        for (name, value) in changes.as_object().expect("claims") {
            all[name.as_str()] = value.clone();
        }
        Token::verify(&signer.token(&all), &keys, rules, NOW_MS).map(|token| token.subject)
    };
    let strict = TokenRules {
        audiences: vec!["kafka".to_owned(), "other".to_owned()],
        issuer: Some("https://idp".to_owned()),
        subject_claim: "client_id".to_owned(),
        ..rules()
    };
    let fits = json!({"aud": ["x", "kafka"], "iss": "https://idp", "client_id": "svc"});
    assert_eq!(verify(fits, &strict), Ok("svc".to_owned()));
    let ok = |changes| verify(changes, &rules()).is_ok();
    assert!(ok(json!({"exp": NOW - 29})), "within the skew");
    assert!(ok(json!({"nbf": NOW + 30, "iat": NOW + 100, "scope": "one"})));
    assert!(ok(json!({"exp": (NOW + 1) as f64 + 0.5})));
    for (changes, fault) in [
        (json!({"exp": NOW - 30}), TokenFault::Expired),
        (json!({"nbf": NOW + 31}), TokenFault::NotYet),
        (json!({"aud": "kafka"}), TokenFault::Audience),
    ] {
        assert_eq!(verify(changes, &rules()), Err(fault));
    }
    for (changes, fault) in [
        (json!({"aud": "kafka"}), TokenFault::Issuer),
        (json!({"aud": "kafka", "iss": "https://idp.evil"}), TokenFault::Issuer),
        (json!({"iss": "https://idp"}), TokenFault::Audience),
        (json!({"iss": "https://idp", "aud": "kafk"}), TokenFault::Audience),
    ] {
        assert_eq!(verify(changes, &strict), Err(fault));
    }
    for changes in [
        json!({"exp": null}),
        json!({"exp": "soon"}),
        json!({"exp": -1}),
        json!({"exp": 1e300}),
        json!({"iat": null}),
        json!({"sub": 7}),
        json!({"sub": " "}),
        json!({"sub": null}),
        json!({"aud": 7}),
        json!({"scope": [1]}),
    ] {
        let fault = verify(changes.clone(), &rules()).expect_err("malformed");
        assert!(matches!(fault, TokenFault::Malformed(_)), "{changes}: {fault}");
    }
}

#[test]
fn only_signatures_of_the_providers_keys_count() {
    let (signer, thief) = (Signer::es256("k"), Signer::es256("k"));
    let known = keys(&[signer.entry()]);
    let fault = |token: &str| Token::verify(token, &known, &rules(), NOW_MS).expect_err("a refusal");
    assert_eq!(fault(&thief.token(&claims())), TokenFault::Signature);
    let unknown = signer.sign(&json!({"alg": "ES256", "kid": "new"}), &claims());
    assert_eq!(fault(&unknown), TokenFault::UnknownKey(Some("new".to_owned())));
    // Neither unsigned, nor signed with HMAC under the public key, which anyone could do.
    for name in ["none", "None", "HS256", "ES512", "RS257"] {
        let token = signer.sign(&json!({"alg": name, "kid": "k"}), &claims());
        assert_eq!(fault(&token), TokenFault::Algorithm(name.to_owned()));
    }
    // The algorithm differs from that of the key.
    let token = signer.sign(&json!({"alg": "ES384", "kid": "k"}), &claims());
    assert_eq!(fault(&token), TokenFault::Signature);
    let good = signer.token(&claims());
    let (signed, _) = good.rsplit_once('.').expect("three parts");
    assert_eq!(fault(&format!("{signed}.")), TokenFault::Signature);
    for text in ["", "..", "a.b", "a.b.c.d", signed, "e30.e30.", "bnVsbA.e30.AA"] {
        assert!(matches!(fault(text), TokenFault::Malformed(_)), "{text}");
    }
    let critical = signer.sign(&json!({"alg": "ES256", "kid": "k", "crit": ["b64"]}), &claims());
    assert!(matches!(fault(&critical), TokenFault::Malformed(_)));
    // A token without a key id is tried with each key.
    let unnamed = signer.sign(&json!({"alg": "ES256"}), &claims());
    assert!(Token::verify(&unnamed, &keys(&[thief.entry(), signer.entry()]), &rules(), NOW_MS).is_ok());
}

#[test]
fn other_keys_of_a_provider_are_left_out() {
    let signer = Signer::es256("k");
    let mut encrypts = signer.entry();
    encrypts["use"] = json!("enc");
    let others = [
        json!({"kty": "oct", "k": "AAAA"}),
        json!({"kty": "EC", "crv": "P-521", "x": "AA", "y": "AA"}),
        json!({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}),
        json!({"kty": "RSA"}),
        json!(7),
        encrypts,
    ];
    let parse = |value: Value| KeySet::parse(value.to_string().as_bytes());
    assert_eq!(
        parse(json!({ "keys": others })).expect_err("none is left").to_string(),
        crate::sasl::oauth::KeySetFault::Empty.to_string()
    );
    let mut all = others.to_vec();
    all.push(signer.entry());
    let known = parse(json!({ "keys": all })).expect("one is left");
    assert!(Token::verify(&signer.token(&claims()), &known, &rules(), NOW_MS).is_ok());
    assert!(parse(json!({})).is_err());
    assert!(parse(json!({ "keys": vec![signer.entry(); 201] })).is_err());
    let mut bound = signer.entry();
    bound["alg"] = json!("ES384");
    let fault = Token::verify(&signer.token(&claims()), &keys(&[bound]), &rules(), NOW_MS);
    assert_eq!(fault, Err(TokenFault::Signature), "the key is for another algorithm");
}

#[test]
fn keys_without_a_name_are_none_that_a_token_names() {
    let signer = Signer::es256("k");
    let mut unnamed = signer.entry();
    unnamed.as_object_mut().expect("an object").remove("kid");
    let unnamed = keys(&[unnamed]);
    let verify = |token: &str| Token::verify(token, &unnamed, &rules(), NOW_MS);
    assert_eq!(verify(&signer.token(&claims())), Err(TokenFault::UnknownKey(Some("k".to_owned()))));
    assert!(verify(&signer.sign(&json!({"alg": "ES256"}), &claims())).is_ok());
}

#[test]
fn claims_that_are_there_twice_are_refused() {
    let signer = Signer::es256("k");
    let keys = keys(&[signer.entry()]);
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let head = r#"{"alg":"ES256","kid":"k"}"#;
    let body = format!(r#"{{"sub":"alice","exp":{0},"iat":{NOW}}}"#, NOW + 60);
    let verify = |head: &str, body: &str| {
        let signed = format!("{}.{}", part(head), part(body));
        let signature = signer.pair.sign(&SystemRandom::new(), signed.as_bytes()).expect("a signature");
        Token::verify(&format!("{signed}.{}", part_bytes(signature.as_ref())), &keys, &rules(), NOW_MS)
    };
    assert!(verify(head, &body).is_ok());
    let twice = Err(TokenFault::Malformed("it is not a JSON object of distinct names"));
    assert_eq!(verify(head, &body.replacen('{', r#"{"sub":"bob","#, 1)), twice);
    assert_eq!(verify(&head.replacen('{', r#"{"kid":"other","#, 1), &body), twice);
}

fn part_bytes(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
