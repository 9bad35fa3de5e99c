//! Chat templates: the Jinja text that a model ships, run with bounded fuel and without a clock.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind, Value, context};
use serde::{Deserialize, Serialize};

use super::error::{Error, Result};

/// One turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`; the template decides what it accepts.
    pub role: String,
    /// Its text.
    pub content: String,
}

impl Message {
    /// A turn by `role`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// A compiled template.
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

const NAME: &str = "chat";
/// Instructions that one rendering may take: a thousand times what real templates need for a long conversation.
const FUEL: u64 = 50_000_000;
/// Longest template that is compiled, in bytes; the longest published ones have about 20 KB.
const TEMPLATE_BYTES_MAX: usize = 1 << 20;

impl ChatTemplate {
    /// Compiles `source`. `bos` and `eos` are the spellings of the start and end tokens.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self> {
        if source.len() > TEMPLATE_BYTES_MAX {
            return Err(Error::input(
                "chat_template",
                format!("at most {TEMPLATE_BYTES_MAX} bytes"),
                source.len().to_string(),
            ));
        }
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment
            .set_syntax(syntax.map_err(|error| Error::input("chat_template", "a valid syntax", error.to_string()))?);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function(
            "raise_exception",
            |message: String| -> std::result::Result<Value, minijinja::Error> {
                Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
            },
        );
        environment
            .add_template_owned(NAME, source.to_owned())
            .map_err(|error| Error::input("chat_template", "a Jinja template", error.to_string()))?;
        Ok(Self { environment, bos: bos.to_owned(), eos: eos.to_owned() })
    }

    /// The prompt for the next answer of the assistant.
    pub fn render(&self, messages: &[Message]) -> Result<String> {
        self.render_with(messages, &[])
    }

    /// Whether the template has a place for tools.
    pub fn takes_tools(&self) -> bool {
        self.environment.get_template(NAME).is_ok_and(|template| template.undeclared_variables(false).contains("tools"))
    }

    /// The same for messages of any shape and a list of tools that the model may call.
    pub fn render_with(&self, messages: &[impl Serialize], tools: &[serde_json::Value]) -> Result<String> {
        let failed = |error: minijinja::Error| {
            Error::input("chat_template", "a template that accepts these messages", error.to_string())
        };
        let template = self.environment.get_template(NAME).map_err(failed)?;
        // Templates ask whether `tools` is there at all.
        let tools = if tools.is_empty() { Value::UNDEFINED } else { Value::from(Serde(tools)) };
        template
            .render(context! { messages => Serde(messages), tools, add_generation_prompt => true, bos_token => &self.bos, eos_token => &self.eos })
            .map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chatml_template_renders() {
        let source = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
        let template = ChatTemplate::new(source, "<s>", "</s>").unwrap();
        let text = template.render(&[Message::new("user", "Hi")]).unwrap();
        assert_eq!(text, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    }

    #[test]
    fn endless_and_broken_templates_are_errors() {
        let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}";
        assert!(ChatTemplate::new(endless, "", "").unwrap().render(&[]).is_err());
        assert!(ChatTemplate::new("{% for %}", "", "").is_err());
        let raising = ChatTemplate::new("{{ raise_exception('roles must alternate') }}", "", "").unwrap();
        assert!(raising.render(&[]).unwrap_err().to_string().contains("roles must alternate"));
    }
}
