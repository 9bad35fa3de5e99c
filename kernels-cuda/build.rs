//! Drives nvcc: every kernel file becomes one fatbin that the crate embeds. Without nvcc, or with the `cuda` feature off,
//! the images are absent and the crate says so once; nothing else of the workspace changes.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use reduction_tree::scalar;

mod layout;

/// The one list of flags. Contraction is forbidden and fast-math is never on: every rounding is in the source.
const FLAGS: &[&str] = &["-std=c++17", "-O3", "--fmad=false", "--fatbin", "-Xptxas", "-warn-spills"];
/// Hopper's own instructions.
const HOPPER: &[&str] = &["-gencode=arch=compute_90a,code=sm_90a"];
/// Ampere and later; the PTX serves cards that are newer than this list.
const PORTABLE: &[&str] = &[
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90,code=sm_90",
    "-gencode=arch=compute_80,code=compute_80",
];
/// Widths of wgmma that the kernels use.
const WGMMA_N: &[usize] = &[8, 16, 32, 48, 64, 96, 112, 128, 160, 192, 224, 256];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for path in ["build.rs", "layout.rs", "kernels", "include", "src/params.rs"] {
        println!("cargo:rerun-if-changed={path}");
    }
    for variable in ["NVCC", "CUDA_HOME", "PATH"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let sources = kernel_sources();
    let nvcc = if env::var_os("CARGO_FEATURE_CUDA").is_some() { find_nvcc() } else { None };
    if env::var_os("CARGO_FEATURE_CUDA").is_some() && nvcc.is_none() {
        println!(
            "cargo:warning=nvcc not found (looked at NVCC, CUDA_HOME/bin and PATH): built without CUDA kernels, the cuda backend will refuse to start"
        );
    }
    if let Some(nvcc) = &nvcc {
        check_layout(nvcc, &out);
        fs::write(out.join("wgmma.cuh"), wgmma_header()).expect("OUT_DIR is writable");
        fs::write(out.join("constants.cuh"), constants_header()).expect("OUT_DIR is writable");
    }
    let mut table = String::from(
        "/// One fatbin a kernel file, by file stem; empty when built without nvcc.\npub const IMAGES: &[(&str, &[u8])] = &[\n",
    );
    if let Some(nvcc) = nvcc {
        for (source, image) in sources.iter().zip(compile_all(&nvcc, &sources, &out)) {
            let stem = source.file_stem().expect("a kernel file has a name").to_string_lossy();
            writeln!(table, "    ({stem:?}, include_bytes!({:?})),", image.display().to_string())
                .expect("writing to a string");
        }
    }
    table.push_str("];\n");
    fs::write(out.join("images.rs"), table).expect("OUT_DIR is writable");
}

fn kernel_sources() -> Vec<PathBuf> {
    let mut sources: Vec<_> = fs::read_dir("kernels")
        .expect("kernels/ lies beside build.rs")
        .map(|entry| entry.expect("kernels/ is readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "cu"))
        .collect();
    sources.sort();
    sources
}

/// `NVCC`, then `CUDA_HOME/bin/nvcc`, then `nvcc` on the path.
fn find_nvcc() -> Option<OsString> {
    let named = env::var_os("NVCC").into_iter();
    let home = env::var_os("CUDA_HOME").map(|home| Path::new(&home).join("bin/nvcc").into_os_string());
    named
        .chain(home)
        .chain([OsString::from("nvcc")])
        .find(|candidate| Command::new(candidate).arg("--version").output().is_ok_and(|o| o.status.success()))
}

/// Compiles the files with as many processes as cargo allows and returns the fatbins' paths.
fn compile_all(nvcc: &OsString, sources: &[PathBuf], out: &Path) -> Vec<PathBuf> {
    let jobs: usize = env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let mut images = Vec::new();
    for batch in sources.chunks(jobs.max(1)) {
        let running: Vec<_> = batch
            .iter()
            .map(|source| {
                let stem = source.file_stem().expect("a kernel file has a name").to_string_lossy();
                let image = out.join(format!("{stem}-{:016x}.fatbin", fingerprint(source)));
                if image.exists() {
                    return (source, image, None);
                }
                let hopper = source.file_name().is_some_and(|n| n.to_string_lossy().starts_with("sm90_"));
                let mut command = Command::new(nvcc);
                command.args(FLAGS).args(if hopper { HOPPER } else { PORTABLE });
                command
                    .arg("-I")
                    .arg("include")
                    .arg("-I")
                    .arg(out)
                    .arg(source)
                    .arg("-o")
                    .arg(image.with_extension("new"));
                command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
                (source, image, Some(command.spawn().unwrap_or_else(|e| panic!("{}: {e}", nvcc.display()))))
            })
            .collect();
        for (source, image, child) in running {
            let Some(child) = child else {
                images.push(image);
                continue;
            };
            let output = child.wait_with_output().expect("nvcc can be waited for");
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "nvcc failed on {}:\n{text}", source.display());
            // A spill costs 10 to 17% (measured), and wgmma that the compiler had to serialise far more.
            assert!(
                !text.contains("spill") && !text.contains("serialized"),
                "{}: registers spill or wgmma is serialised:\n{text}",
                source.display()
            );
            fs::rename(image.with_extension("new"), &image).expect("OUT_DIR is writable");
            images.push(image);
        }
    }
    images
}

/// Holds the committed bindings to the header that the kernels are compiled with: the compiler compares every struct, field
/// and constant. A stale `src/params.rs` fails the build here and not in a kernel.
fn check_layout(nvcc: &OsString, out: &Path) {
    let bindings = fs::read_to_string("src/params.rs").expect("src/params.rs lies beside build.rs");
    let source = out.join("layout.cu");
    let checks = layout::checks(&bindings).unwrap_or_else(|e| panic!("src/params.rs: {e}"));
    fs::write(&source, checks).expect("OUT_DIR is writable");
    let mut command = Command::new(nvcc);
    command.args(["-std=c++17", "--cuda", "-gencode=arch=compute_80,code=sm_80", "-I", "include"]);
    let output = command.arg(&source).arg("-o").arg(out.join("layout.ii")).output();
    let output = output.unwrap_or_else(|e| panic!("{}: {e}", nvcc.display()));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "src/params.rs is not what include/params.h says; bindings.sh makes it again:\n{text}"
    );
}

/// Of a kernel's text, the headers that it includes and everything here, so that only what changed is compiled again.
fn fingerprint(source: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    include_str!("build.rs").hash(&mut hasher);
    constants_header().hash(&mut hasher);
    let mut pending = vec![source.to_path_buf()];
    let mut seen = HashSet::new();
    while let Some(path) = pending.pop() {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        text.hash(&mut hasher);
        for name in text.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"')) {
            if seen.insert(name.to_owned()) {
                pending.push(Path::new("include").join(name));
            }
        }
    }
    hasher.finish()
}

/// The constants of the scalar functions, as bits, from the crate that defines them.
fn constants_header() -> String {
    let bits = |values: &[f32]| values.iter().map(|v| format!("{:#010x}", v.to_bits())).collect::<Vec<_>>().join(", ");
    let array = |name: &str, values: &[f32]| {
        format!("__device__ constexpr uint32_t {name}[{}] = {{{}}};\n", values.len(), bits(values))
    };
    let value = |name: &str, value: f32| format!("constexpr uint32_t {name} = {};\n", bits(&[value]));
    format!(
        "// Generated by build.rs.\n#pragma once\n#include <stdint.h>\nnamespace sametree {{\n{}{}{}{}}}\n",
        array("EXP2_POLYNOMIAL", &scalar::EXP2_POLYNOMIAL),
        array("LOG2_POLYNOMIAL", &scalar::LOG2_POLYNOMIAL),
        value("LOG2_E", scalar::LOG2_E),
        value("LN_2", scalar::LN_2),
    )
}

/// wgmma m64nNk16 for bf16 with both operands in shared memory, and with A in registers and B MN-major. The operand lists
/// are too long to write by hand.
fn wgmma_header() -> String {
    let mut text = String::from(
        "// Generated by build.rs.\n#pragma once\n#include <stdint.h>\nnamespace sametree {\ntemplate <int N> struct Wgmma;\n",
    );
    for &n in WGMMA_N {
        let registers = n / 2;
        let list =
            |from: usize, count: usize| (from..from + count).map(|i| format!("%{i}")).collect::<Vec<_>>().join(", ");
        let outputs = (0..registers).map(|i| format!("\"+f\"(d[{i}])")).collect::<Vec<_>>().join(", ");
        let d = list(0, registers);
        let r = registers;
        let method = |name: &str, arguments: &str, operands: String, scale: usize, flags: &str, inputs: &str| {
            format!(
                "  static __device__ __forceinline__ void {name}(float (&d)[{r}], {arguments}, int accumulate) {{\n    asm volatile(\"{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{scale}, 0;\\nwgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{d}}}, {operands}, p, {flags};\\n}}\\n\" : {outputs} : {inputs}, \"r\"(accumulate));\n  }}\n"
            )
        };
        let shared = method(
            "shared",
            "uint64_t a, uint64_t b",
            format!("%{r}, %{}", r + 1),
            r + 2,
            "1, 1, 0, 0",
            "\"l\"(a), \"l\"(b)",
        );
        let in_registers = method(
            "registers",
            "const uint32_t (&a)[4], uint64_t b",
            format!("{{{}}}, %{}", list(r, 4), r + 4),
            r + 5,
            "1, 1, 1",
            "\"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b)",
        );
        writeln!(text, "template <> struct Wgmma<{n}> {{\n{shared}{in_registers}}};").expect("writing to a string");
    }
    text.push_str("}\n");
    text
}
