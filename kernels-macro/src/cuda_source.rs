//! What is read from a CUDA source: the `#define` of a family, the signature in it, and its uses; a kernel that stands alone;
//! a constant.
//!
//! This is no C++ parser. It understands the form that the kernel files are written in, and anything else is refused.

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The C type without `const` and `__grid_constant__`, such as `CUtensorMap` or `uint16_t *`.
    pub ctype: String,
    /// Its name.
    pub name: String,
}

/// A family of kernels: one `#define` and its uses, or one kernel that stands alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// Parameters of the `#define` after the first, which names the kernel.
    pub constants: Vec<String>,
    /// Parameters of the kernels.
    pub parameters: Vec<Parameter>,
    /// The first number in `__launch_bounds__`, where it is one.
    pub launch_bound: Option<i64>,
    /// Kernel name and arguments of every use, in the order of the file.
    pub variants: Vec<(String, Vec<String>)>,
}

/// The text without comments and with continued lines joined.
fn logical_lines(source: &str) -> Vec<String> {
    let mut text = String::new();
    let mut rest = source;
    while let Some(start) = rest.find("/*") {
        text.push_str(&rest[..start]);
        rest = rest[start..].find("*/").map_or("", |end| &rest[start + end + 2..]);
    }
    text.push_str(rest);
    let mut lines = Vec::new();
    let mut current = String::new();
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default().trim_end();
        match line.strip_suffix('\\') {
            Some(line) => current.push_str(line),
            None => {
                current.push_str(line);
                lines.push(std::mem::take(&mut current));
            }
        }
    }
    lines.push(current);
    lines
}

/// What lies between the parenthesis at the start of `text` and its partner, and what follows.
fn parenthesised(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0;
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => {
                depth -= 1;
                if depth == 0 {
                    return Some((&text[1..i], &text[i + 1..]));
                }
            }
            _ => {}
        }
    }
    None
}

/// Splits at commas that are not inside brackets.
fn arguments(text: &str) -> Vec<String> {
    let (mut parts, mut depth, mut current) = (Vec::new(), 0, String::new());
    for c in text.chars() {
        match c {
            '(' | '<' | '[' => depth += 1,
            ')' | '>' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(current.trim().to_string());
                current.clear();
                continue;
            }
            _ => {}
        }
        current.push(c);
    }
    parts.push(current.trim().to_string());
    parts
}

fn parameter(text: &str) -> Result<Parameter, String> {
    let split =
        text.rfind(|c: char| !c.is_alphanumeric() && c != '_').ok_or_else(|| format!("`{text}` has no name"))?;
    let (ctype, name) = text.split_at(split + 1);
    let words: Vec<&str> =
        ctype.split_whitespace().filter(|w| !matches!(*w, "const" | "__grid_constant__" | "__restrict__")).collect();
    if words.is_empty() || name.is_empty() {
        return Err(format!("`{text}` is not a type and a name"));
    }
    Ok(Parameter { ctype: words.join(" "), name: name.to_string() })
}

const GLOBAL: &str = "extern \"C\" __global__";

/// Parameters and, where it is a number, the launch bound.
type Signature = (Vec<Parameter>, Option<i64>);

/// The signature of the kernel called `kernel` whose text begins at `text`; none if it has another name.
fn signature(text: &str, kernel: &str) -> Result<Option<Signature>, String> {
    let head = text.split('{').next().unwrap_or_default();
    let at = format!(" {kernel}(");
    let Some(start) = head.find(&at) else { return Ok(None) };
    let (inside, _) = parenthesised(&head[start + at.len() - 1..])
        .ok_or_else(|| format!("the signature of `{kernel}` does not end"))?;
    let bound = head.find("__launch_bounds__(").and_then(|i| parenthesised(&head[i + "__launch_bounds__".len()..]));
    let bound = bound.and_then(|(inside, _)| arguments(inside).first().and_then(|first| first.parse().ok()));
    let parameters = arguments(inside).iter().map(|text| parameter(text)).collect::<Result<_, _>>()?;
    Ok(Some((parameters, bound)))
}

/// Reads a kernel that stands alone, as a family of one without constants.
pub fn kernel(source: &str, name: &str) -> Result<Family, String> {
    let text = logical_lines(source).join("\n");
    for (start, _) in text.match_indices(GLOBAL) {
        if let Some((parameters, launch_bound)) = signature(&text[start..], name)? {
            let variants = vec![(name.to_string(), Vec::new())];
            return Ok(Family { constants: Vec::new(), parameters, launch_bound, variants });
        }
    }
    Err(format!("the source has no `{GLOBAL}` kernel `{name}`"))
}

/// The value of `constexpr .. name = value;`.
pub fn constant(source: &str, name: &str) -> Result<i64, String> {
    let at = format!(" {name} = ");
    let line = logical_lines(source).into_iter().find(|line| line.contains("constexpr ") && line.contains(&at));
    let line = line.ok_or_else(|| format!("the file has no `constexpr .. {name} = ..;`"))?;
    let value = line.split(&at).nth(1).and_then(|rest| rest.split(';').next()).unwrap_or_default().trim();
    value.parse().map_err(|_| format!("`{name}` is `{value}`, which is no integer"))
}

/// Reads the family that `#define name(..)` makes.
pub fn family(source: &str, name: &str) -> Result<Family, String> {
    let lines = logical_lines(source);
    let head = format!("#define {name}(");
    let define = lines.iter().find_map(|line| line.strip_prefix(&head[..head.len() - 1]));
    let define = define.ok_or_else(|| format!("the source has no `#define {name}(..)`"))?;
    let (names, body) = parenthesised(define).ok_or_else(|| format!("`#define {name}` has no closing parenthesis"))?;
    let mut names = arguments(names);
    let kernel = names.remove(0);
    let global = body.find(GLOBAL);
    let body = &body[global.ok_or_else(|| format!("`{name}` holds no `{GLOBAL}` kernel"))?..];
    let (parameters, launch_bound) =
        signature(body, &kernel)?.ok_or_else(|| format!("the kernel of `{name}` is not called `{kernel}`"))?;

    let call = format!("{name}(");
    let mut variants = Vec::new();
    for line in lines.iter().filter(|line| line.starts_with(&call)) {
        let (inside, _) = parenthesised(&line[name.len()..]).ok_or_else(|| format!("`{line}` does not end"))?;
        let mut values = arguments(inside);
        if values.len() != names.len() + 1 {
            return Err(format!("`{line}` has {} arguments, `#define {name}` takes {}", values.len(), names.len() + 1));
        }
        let variant = values.remove(0);
        variants.push((variant, values));
    }
    if variants.is_empty() {
        return Err(format!("the source never uses `{name}`"));
    }
    Ok(Family { constants: names, parameters, launch_bound, variants })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "#define V(NAME, ROWS, MODE) /* one */ \\\n  extern \"C\" __global__ void __launch_bounds__(128, 1) \\\n      NAME(const __grid_constant__ CUtensorMap w, const P p, uint16_t *out) { k<ROWS, MODE>(w, p); }\n// V(commented, 1, A)\nV(a, 32, Mode::Fast)\nV(b, 64, Mode::Slow)\n";

    #[test]
    fn reads_signature_bounds_and_uses() {
        let family = family(SOURCE, "V").expect("well formed");
        assert_eq!(family.constants, ["ROWS", "MODE"]);
        assert_eq!(family.launch_bound, Some(128));
        let types: Vec<_> = family.parameters.iter().map(|p| (p.ctype.as_str(), p.name.as_str())).collect();
        assert_eq!(types, [("CUtensorMap", "w"), ("P", "p"), ("uint16_t *", "out")]);
        assert_eq!(family.variants[1], ("b".into(), vec!["64".into(), "Mode::Slow".into()]));
        assert_eq!(family.variants.len(), 2);
    }

    #[test]
    fn reads_a_kernel_that_stands_alone_and_a_constant() {
        let source = "constexpr int KV_TILE = 128;  // tokens\nextern \"C\" __global__ void __launch_bounds__(256) a(int n) {}\nextern \"C\" __global__ void b(const float *x, unsigned n) { f(x); }\n";
        let b = kernel(source, "b").expect("well formed");
        assert_eq!((b.launch_bound, b.parameters.len(), b.parameters[0].ctype.as_str()), (None, 2, "float *"));
        assert_eq!(kernel(source, "a").expect("well formed").launch_bound, Some(256));
        assert!(kernel(source, "c").is_err());
        assert_eq!(constant(source, "KV_TILE"), Ok(128));
        assert!(constant(source, "TILE").is_err());
    }

    #[test]
    fn refuses_what_it_does_not_understand() {
        for (source, name, message) in [
            ("", "V", "no `#define V"),
            ("#define V(N) int x;\nV(a)\n", "V", "holds no"),
            ("#define V(N) extern \"C\" __global__ void M(int a) {}\nV(a)\n", "V", "not called `N`"),
            ("#define V(N, A) extern \"C\" __global__ void N(int a) {}\nV(a)\n", "V", "has 1 arguments"),
            ("#define V(N) extern \"C\" __global__ void N(int a) {}\n", "V", "never uses"),
            ("#define V(N) extern \"C\" __global__ void N(int) {}\nV(a)\n", "V", "no name"),
        ] {
            let error = family(source, name).expect_err(message);
            assert!(error.contains(message), "{error}");
        }
    }
}
