//! Reading single fields out of a large document, whatever else is in it.
//!
//! A payload has some two hundred fields, of which a dozen matter. Typed models
//! of the rest reject authentic payloads as soon as one field changes its type,
//! and a general tree of a 25 MB body costs hundreds of megabytes. So an object
//! is walked once, the wanted values are kept as slices of the text, and each is
//! read on its own: a value of an unexpected type is an absent value.
//!
//! Values that are not wanted are skipped without recursion, so that nesting
//! cannot exhaust the stack.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// A value of the document, unread; none where the field is absent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a>(Option<&'a RawValue>);

impl<'a> Field<'a> {
    /// Returns the document as one value, or none if it is no JSON.
    pub(super) fn document(bytes: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes).map(|raw| Self(Some(raw)))
    }

    /// Returns the fields of these names; every one absent if this is no object.
    /// Of several fields of one name the last counts.
    pub(super) fn fields<const N: usize>(self, names: [&'static str; N]) -> [Field<'a>; N] {
        self.read(Wanted { names }).unwrap_or([Field(None); N])
    }

    /// Returns the first few elements; none of them if this is no list.
    pub(super) fn elements(self, most: usize) -> Vec<Field<'a>> {
        self.read(Elements { most }).unwrap_or_default()
    }

    /// Returns a text.
    pub(super) fn text(self) -> Option<String> {
        serde_json::from_str(self.0?.get()).ok()
    }

    /// Returns a text that says something.
    pub(super) fn name(self) -> Option<String> {
        self.text().filter(|text| !text.is_empty())
    }

    /// Returns a whole number, also where it is written `15.0`.
    pub(super) fn number(self) -> Option<u64> {
        let text = self.0?.get();
        if let Ok(number) = text.parse() {
            return Some(number);
        }
        text.strip_suffix(".0")?.parse().ok()
    }

    /// Returns a boolean.
    pub(super) fn flag(self) -> Option<bool> {
        match self.0?.get() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// Returns whether the field is there and `null`.
    pub(super) fn is_null(self) -> bool {
        self.0.is_some_and(|raw| raw.get() == "null")
    }

    /// Returns whether the field is there and an object.
    pub(super) fn is_object(self) -> bool {
        self.0.is_some_and(|raw| raw.get().starts_with('{'))
    }

    fn read<S: DeserializeSeed<'a>>(self, seed: S) -> Option<S::Value> {
        let mut deserializer = serde_json::Deserializer::from_str(self.0?.get());
        seed.deserialize(&mut deserializer).ok()
    }
}

/// Picks fields out of an object by name.
struct Wanted<const N: usize> {
    names: [&'static str; N],
}

impl<'de, const N: usize> DeserializeSeed<'de> for Wanted<N> {
    type Value = [Field<'de>; N];

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, const N: usize> Visitor<'de> for Wanted<N> {
    type Value = [Field<'de>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [Field(None); N];
        while let Some(position) = map.next_key_seed(Position(&self.names))? {
            match position {
                Some(position) => found[position] = Field(Some(map.next_value()?)),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

/// Finds a key's place among the wanted names.
struct Position<'n>(&'n [&'static str]);

impl<'de> DeserializeSeed<'de> for Position<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Position<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|name| *name == key))
    }
}

/// Picks the first elements of a list.
struct Elements {
    most: usize,
}

impl<'de> DeserializeSeed<'de> for Elements {
    type Value = Vec<Field<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Elements {
    type Value = Vec<Field<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while found.len() < self.most {
            match seq.next_element()? {
                Some(raw) => found.push(Field(Some(raw))),
                None => return Ok(found),
            }
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(text: &str) -> Field<'_> {
        Field::document(text.as_bytes()).expect("the test's text is JSON")
    }

    #[test]
    fn a_field_of_another_type_is_an_absent_field() {
        for value in ["7", "true", "null", "[]", "{}", "-1", "1.5", "1e400"] {
            let text = format!(r#"{{"x":{value}}}"#);
            let [x] = document(&text).fields(["x"]);
            assert_eq!(x.text(), None, "{value}");
            let [deeper] = x.fields(["y"]);
            assert_eq!(deeper.text(), None, "{value}");
            assert_eq!(x.number(), (value == "7").then_some(7), "{value}");
            assert_eq!(x.flag(), (value == "true").then_some(true), "{value}");
        }
    }

    #[test]
    fn spacing_escapes_and_repeated_keys_are_read() {
        let [x, number] =
            document(" { \"\\u0078\" : 1 , \"x\" :\t\"a\\u003cb\\n\" , \"n\":15.0 } ")
                .fields(["x", "n"]);
        assert_eq!(x.text().as_deref(), Some("a<b\n"));
        assert_eq!(number.number(), Some(15));
    }

    #[test]
    fn nesting_cannot_exhaust_the_stack() {
        let depth = 1_000_000;
        let bomb = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let text = format!(r#"{{"skipped":{bomb},"wanted":{bomb},"x":"here"}}"#);
        let [wanted, x] = document(&text).fields(["wanted", "x"]);
        assert_eq!(x.text().as_deref(), Some("here"));
        assert_eq!(wanted.text(), None);
        assert_eq!(wanted.elements(3).len(), 1);
        assert!(Field::document("[".repeat(depth).as_bytes()).is_err());
    }

    #[test]
    fn a_list_is_read_up_to_a_bound() {
        let [list] = document(r#"{"list":["a",1,{"x":2},"b"]}"#).fields(["list"]);
        assert_eq!(list.elements(10).len(), 4);
        assert_eq!(list.elements(2).len(), 2);
        assert_eq!(list.elements(0).len(), 0);
    }
}
