//! The webhook's secrets, and whether one of them made a signature.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};

/// Ready-keyed authenticators, in the order of the configuration.
#[derive(Clone, Default)]
pub struct Secrets {
    keyed: Vec<Hmac<Sha256>>,
}

/// A secret is empty or blank. As a key it would be valid, and known to everybody.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("webhook secret number {} is empty", index + 1)]
pub struct EmptySecret {
    /// Place in the list.
    pub index: usize,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.keyed.len())
    }
}

impl Secrets {
    /// Returns these secrets. With none, no signature is ever good.
    ///
    /// # Errors
    ///
    /// Returns [`EmptySecret`] if one is empty or blank.
    pub fn new<S: AsRef<[u8]>>(secrets: &[S]) -> Result<Self, EmptySecret> {
        let keyed = secrets.iter().enumerate().map(|(index, secret)| {
            let secret = secret.as_ref();
            if secret.trim_ascii().is_empty() {
                return Err(EmptySecret { index });
            }
            Hmac::new_from_slice(secret).map_err(|_length| EmptySecret { index })
        });
        Ok(Self {
            keyed: keyed.collect::<Result<_, _>>()?,
        })
    }

    /// Returns which secret made `signature` over `body`.
    ///
    /// Every secret is tried, so that the time tells neither which one matched
    /// nor how much of a signature was right.
    pub fn matching(&self, body: &[u8], signature: &[u8; 32]) -> Option<usize> {
        let mut matched = Choice::from(0);
        let mut place = 0_u64;
        for (index, keyed) in (0_u64..).zip(&self.keyed) {
            let made = keyed.clone().chain_update(body).finalize().into_bytes();
            let is_equal = made.as_slice().ct_eq(signature.as_slice());
            place = u64::conditional_select(&place, &index, is_equal);
            matched |= is_equal;
        }
        bool::from(matched).then_some(usize::try_from(place).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(all: &[&str]) -> Result<Secrets, EmptySecret> {
        Secrets::new(all)
    }

    /// The example of GitHub's own documentation.
    #[test]
    fn the_documented_example_matches_and_says_which_secret() {
        let mut signature = [0; 32];
        hex::decode_to_slice(
            "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
            &mut signature,
        )
        .expect("hexadecimal");
        let both = secrets(&["other", "It's a Secret to Everybody"]).expect("not empty");
        assert_eq!(both.matching(b"Hello, World!", &signature), Some(1));
        assert_eq!(both.matching(b"Hello, World", &signature), None);
        signature[31] ^= 1;
        assert_eq!(both.matching(b"Hello, World!", &signature), None);
    }

    #[test]
    fn an_empty_or_blank_secret_is_refused_wherever_it_stands() {
        for (all, index) in [(&[""][..], 0), (&["abc", ""], 1), (&["abc", " \n"], 1)] {
            assert_eq!(secrets(all).expect_err("refused"), EmptySecret { index });
        }
    }

    #[test]
    fn without_a_secret_nothing_is_authentic() {
        let none = secrets(&[]).expect("an empty list");
        assert_eq!(none.matching(b"", &[0; 32]), None);
    }
}
