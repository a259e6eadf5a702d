//! The JSON Schema of the configuration, made from the structs.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::settings::Config;

/// Returns the JSON Schema of the configuration file.
///
/// Every part is written where it is used, so that a reader of the schema, and
/// the check of a file against it, follow no references.
pub fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<Config>();
    schema.insert("title".into(), "Innkeeper".into());
    schema.into()
}
