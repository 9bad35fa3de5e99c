//! Numbers whose JSON spelling is one value for every reader: binary32 values as their shortest decimal, 64-bit seeds as text
//! (a reader that keeps numbers in binary64, as JavaScript does, would change them).

/// A finite binary32 value. Its shortest decimal is written; a number that only rounds to it is refused, since the digest
/// would not notice the edit.
pub mod binary32 {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    /// The binary64 value of the shortest decimal that reads back as `value`; zero has no sign.
    fn shortest(value: f32) -> f64 {
        (value + 0.0).to_string().parse().unwrap_or(f64::NAN)
    }

    /// Writes the shortest decimal.
    pub fn serialize<S: Serializer>(value: &f32, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(shortest(*value))
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f32, D::Error> {
        let wide = f64::deserialize(deserializer)?;
        let value = wide as f32;
        if value.is_finite() && shortest(value).to_bits() == wide.to_bits() {
            return Ok(value);
        }
        Err(D::Error::custom(format!("expected the shortest decimal of a finite binary32 value, got {wide}")))
    }
}

/// A 64-bit seed as decimal text.
pub mod seed {
    use std::borrow::Cow;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes the digits.
    pub fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    /// Reads them; no sign, no leading zeros.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().ok().filter(|value: &u64| value.to_string() == text).ok_or_else(|| {
            let shown: String = text.chars().take(80).collect();
            D::Error::custom(format!("expected the digits of a 64-bit seed in quotes, got {shown:?}"))
        })
    }
}
