//! Placeholders in the arguments of a session's command.

/// The placeholders that `start` and `resume` may hold.
pub const PLACEHOLDERS: [&str; 9] = [
    "{prompt}",
    "{prompt.file}",
    "{session.id}",
    "{workItem}",
    "{checkout}",
    "{branch}",
    "{event}",
    "{action}",
    "{url}",
];

/// Returns everything in `text` that has the form of a placeholder: a name in
/// braces. Braces around anything else, such as JSON, are plain text.
pub fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('{').filter_map(move |(start, _)| {
        let name = &text[start + 1..];
        let end = name.find('}')?;
        let is_name = name[..end]
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
            && name.starts_with(|c: char| c.is_ascii_alphabetic());
        is_name.then(|| &text[start..=start + 1 + end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_is_a_name_in_braces_and_json_is_not() {
        let found: Vec<_> =
            placeholders(r#"a{prompt}{x.y} {"k": {"l": 1}} {} {1} {a b} ${HOME}"#).collect();
        assert_eq!(found, ["{prompt}", "{x.y}", "{HOME}"]);
    }
}
