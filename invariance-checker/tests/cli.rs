//! The command as CI runs it: exit codes for every mixture of verdicts, the forms of output, and bad input of every kind.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const UNKNOWN: &str = "module {\n  tt.func public @strange(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>) {\n    %p = tt.get_program_id x : i32\n    \
    %a = tt.addptr %x, %p : !tt.ptr<f32>, i32\n    %v = tt.load %a : !tt.ptr<f32>\n    %w = foo.bar %v : f32 -> f32\n    \
    %b = tt.addptr %y, %p : !tt.ptr<f32>, i32\n    tt.store %b, %w : !tt.ptr<f32>\n    tt.return\n  }\n}\n";
const TRUNCATED: &str = "module {\n  tt.func public @cut(%x: !tt.ptr<f32>) {\n    %p = tt.get_program_id x : i32\n    %a = tt.addptr %x, %p";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn made(name: &str, bytes: impl AsRef<[u8]>) -> String {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli");
    std::fs::create_dir_all(&dir).expect("a folder");
    let path = dir.join(name);
    std::fs::write(&path, bytes).expect("written");
    path.display().to_string()
}

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_invariance-checker"));
    command.current_dir(root()).args(args).output().expect("runs")
}

fn code(args: &[&str]) -> i32 {
    run(args).status.code().expect("an exit code, not a signal")
}

fn text(out: &[u8]) -> String {
    String::from_utf8(out.to_vec()).expect("UTF-8")
}

/// A kernel that is proved, one that is proved under a condition, one that is refuted.
const PROVED: &str = "kernels/argmax.ttir";
const UNDER: &str = "kernels/rope_key_write.ttir";
const REFUTED: &str = "kernels/rmsnorm_packed.ttir";

#[test]
fn exit_codes_of_every_mixture() {
    let (unknown, bad) = (made("unknown.ttir", UNKNOWN), made("cut.ttir", TRUNCATED));
    let files = [(PROVED, 0), (UNDER, 1), (REFUTED, 1), (unknown.as_str(), 2), (bad.as_str(), 3)];
    for mixture in 1u32..1 << files.len() {
        let chosen: Vec<_> = (0..files.len()).filter(|i| mixture >> i & 1 == 1).map(|i| files[i]).collect();
        let worst = [3, 1, 2, 0].into_iter().find(|c| chosen.iter().any(|(_, code)| code == c)).expect("a code");
        let names: Vec<&str> = chosen.iter().map(|(name, _)| *name).chain(["--witness-seconds", "2"]).collect();
        assert_eq!(code(&names), worst, "{names:?}");
    }
}

#[test]
fn an_allowed_condition_is_no_fault() {
    assert_eq!(code(&[UNDER, "--allow", "distinct"]), 0);
    assert_eq!(code(&[UNDER, "--allow", "finite"]), 1);
}

#[test]
fn words_that_mean_nothing_are_bad_input() {
    let contract = made("contract.toml", "[default]\nbacth = [\"M\"]\n");
    let unknown = made("unknown2.ttir", UNKNOWN);
    assert_eq!(code(&[PROVED, "--batch-args", "no_such_argument"]), 3);
    assert_eq!(code(&[PROVED, "--contract", &contract]), 3);
    assert_eq!(code(&[PROVED, "--contract", "no/such/file.toml"]), 3);
    assert_eq!(code(&[PROVED, "--no-such-option"]), 3);
    assert_eq!(code(&[]), 3);
    assert_eq!(code(&["no/such/file.ttir"]), 3);
    assert_eq!(code(&["kernels"]), 3);
    assert_eq!(code(&[&unknown, "--json", "--sarif"]), 3);
    assert_eq!(code(&["--help"]), 0);
    assert_eq!(code(&["--version"]), 0);
}

#[test]
fn a_misspelt_condition_is_bad_input_and_a_foreign_kernel_in_a_contract_is_noted() {
    let out = run(&[PROVED, "--allow", "distnict(slot)"]);
    assert_eq!(out.status.code(), Some(3));
    assert!(text(&out.stderr).contains("distnict(slot)") && text(&out.stderr).contains("distinct,"), "{out:?}");
    let contract = made("allow.toml", "[kernel.argmax]\nallow = [\"finit\"]\n");
    assert_eq!(code(&[PROVED, "--contract", &contract]), 3);
    let contract = made("foreign.toml", "[kernel.argmaks]\nbatch = [\"N\"]\n");
    let out = run(&[PROVED, "--contract", &contract]);
    assert_eq!(out.status.code(), Some(0));
    assert!(text(&out.stderr).contains("note: the contract speaks of argmaks"), "{out:?}");
}

#[test]
fn the_contract_of_the_example_is_one() {
    let out = run(&["--contract", "examples/ci/roles.toml", "--quiet", "kernels/linear_m64_k1.ttir"]);
    assert!(out.status.success() && out.stdout.is_empty() && out.stderr.is_empty(), "{out:?}");
}

/// One contract serves all kernels of a project, also when a hook checks the files of one change.
#[test]
fn what_a_contract_says_of_all_kernels_need_not_be_in_each_file() {
    let contract = made("default.toml", "[default]\nbatch = [\"num_seqs\"]\nfixed = [\"N\"]\n");
    let out = run(&[PROVED, "--contract", &contract]);
    assert_eq!(out.status.code(), Some(0));
    assert_eq!(text(&out.stderr), "note: the contract speaks of num_seqs, which no kernel of these files has\n");
}

#[test]
fn a_contract_is_refused_with_line_and_column() {
    for (toml, place, word) in [
        ("[default]\nbacth = [\"M\"]\n", "line 2, column 1", "bacth"),
        ("[default\nbatch = [\"M\"]\n", "line 1, column 9", "unclosed table"),
        ("[kernel.f]\nbatch = \"M\"\n", "line 2, column 9", "expected a sequence"),
    ] {
        let out = run(&[PROVED, "--contract", &made("faulty.toml", toml)]);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(3), "{said}");
        assert!(said.contains("faulty.toml") && said.contains(place) && said.contains(word), "{said}");
    }
}

/// A solver that was asked for by name and is not one is bad input, whatever the files hold; one that is only looked for may be missing.
#[cfg(unix)]
#[test]
fn a_solver_that_is_missing_is_bad_input() {
    use std::os::unix::fs::PermissionsExt;
    let script = |name: &str, body: &str, mode: u32| {
        let path = made(name, body);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("ours");
        path
    };
    let plain = script("not-executable", "#!/bin/sh\n", 0o644);
    let silent = script("silent", "#!/bin/sh\nexit 0\n", 0o755);
    let chatty = script("chatty", "#!/bin/sh\nwhile read line; do echo hello; done\n", 0o755);
    for solver in ["/nonexistent/z3", "no-such-solver", "kernels", &plain, &silent, &chatty] {
        for file in [PROVED, REFUTED] {
            let out = run(&[file, "--solver", solver]);
            let said = text(&out.stderr);
            assert_eq!(out.status.code(), Some(3), "{solver}: {said}");
            assert!(said.contains(&format!("the solver {solver} cannot be used")), "{said}");
            assert!(text(&out.stdout).is_empty(), "{out:?}");
        }
    }
    let without_path = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_invariance-checker"));
        command.current_dir(root()).args(args).env("PATH", "/nonexistent").output().expect("runs")
    };
    assert_eq!(without_path(&[PROVED, "--solver", "z3"]).status.code(), Some(3));
    assert_eq!(without_path(&[PROVED]).status.code(), Some(0));
    assert_eq!(without_path(&[PROVED, "--solver", "none"]).status.code(), Some(0));
}

/// A program that takes questions and never answers does not hold up the run for ever.
#[cfg(unix)]
#[test]
fn a_solver_that_never_answers_is_bad_input() {
    use std::os::unix::fs::PermissionsExt;
    let path = made("sleeper", "#!/bin/sh\nexec sleep 60\n");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("ours");
    let out = run(&[PROVED, "--solver", &path]);
    assert_eq!(out.status.code(), Some(3));
    assert!(text(&out.stderr).contains("no answer within 10s"), "{out:?}");
}

#[test]
fn what_is_not_ttir_is_named() {
    let cases: [(&str, Vec<u8>, &str); 7] = [
        ("cut2.ttir", TRUNCATED.into(), "4:26"),
        ("binary.ttir", b"\x7fELF\x02\x01\x01\0\0\0\0\0".to_vec(), "an ELF object"),
        ("latin.ttir", b"module {\n  // caf\xe9\n}\n".to_vec(), "UTF-8"),
        ("llvm.ttir", b"; ModuleID = 'k'\nsource_filename = \"k\"\n".to_vec(), "LLVM IR"),
        ("ptx.ttir", b"//\n// Generated by LLVM NVPTX Back-End\n//\n\n.version 8.4\n.target sm_90a\n".to_vec(), "PTX"),
        ("empty.ttir", vec![], "expected a TTIR module"),
        ("ttgir.ttir", std::fs::read(root().join("tests/variants/row_sum_4_warps.ttgir")).expect("a fixture"), "TTGIR"),
    ];
    for (name, bytes, word) in cases {
        let out = run(&[&made(name, bytes)]);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(3), "{name}: {said}");
        assert!(said.contains(word), "{name}: expected {word} in {said}");
        assert!(said.contains(&format!("{name}:")), "{name}: line and column in {said}");
    }
}

/// A run with so many KiB of address space.
#[cfg(target_os = "linux")]
fn limited(kib: u64, file: &str) -> Output {
    let command = format!("ulimit -v {kib}; exec \"$0\" \"$1\"");
    let args = ["-c", &command, env!("CARGO_BIN_EXE_invariance-checker"), file];
    Command::new("sh").args(args).env("RAYON_NUM_THREADS", "2").output().expect("runs")
}

/// The stack of one analysis takes 512 MiB of addresses (not of memory); two run at a time.
#[cfg(target_os = "linux")]
#[test]
fn memory_is_bounded_whatever_the_file_holds() {
    const KIB: u64 = 3 << 20;
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli");
    std::fs::create_dir_all(&dir).expect("a folder");
    // A file of a terabyte, nothing of it on the disk.
    let sparse = dir.join("sparse.ttir");
    let file = std::fs::File::create(&sparse).expect("made");
    file.set_len(1 << 40).expect("sparse");
    let cases = [
        (sparse.display().to_string(), 3),
        (made("open.ttir", "(".repeat(16 << 20)), 3),
        (
            made(
                "deep.ttir",
                format!("module {{\n  tt.func public @k(%c: i1) {{\n{}", "scf.if %c {\n".repeat(1 << 20)),
            ),
            3,
        ),
        (made("chain.ttir", chain(300_000)), 2),
        (
            made(
                "names.ttir",
                format!("module {{\n  tt.func public @{}() {{\n    tt.return\n  }}\n}}\n", "n".repeat(15 << 20)),
            ),
            2,
        ),
    ];
    for (file, code) in cases {
        let out = limited(KIB, &file);
        let said = text(&out.stderr) + &text(&out.stdout);
        let said: String = said.chars().take(500).collect();
        assert_eq!(out.status.code(), Some(code), "{file}: {said}");
    }
    std::fs::remove_file(sparse).expect("removed");
}

/// One value after another, each from the one before.
fn chain(n: usize) -> String {
    let ops: String = (0..n).map(|i| format!("    %v{} = math.exp %v{i} : f32\n", i + 1)).collect();
    format!(
        "module {{\n  tt.func public @deep(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>) {{\n    %p = tt.get_program_id x : i32\n    \
         %a = tt.addptr %x, %p : !tt.ptr<f32>, i32\n    %v0 = tt.load %a : !tt.ptr<f32>\n{ops}    \
         %b = tt.addptr %y, %p : !tt.ptr<f32>, i32\n    tt.store %b, %v{n} : !tt.ptr<f32>\n    tt.return\n  }}\n}}\n"
    )
}

#[test]
fn quiet_prints_only_what_is_not_invariant() {
    let out = text(&run(&[PROVED, REFUTED, "--quiet"]).stdout);
    assert!(!out.contains("argmax") && out.contains("rmsnorm_packed"), "{out}");
}

#[test]
fn a_pipe_gets_no_colours_and_no_progress_bar() {
    let out = run(&[PROVED, REFUTED, &made("cut3.ttir", TRUNCATED), "--explain"]);
    assert!(!out.stdout.contains(&0x1b), "{}", text(&out.stdout));
    assert!(!out.stderr.contains(&0x1b) && !out.stderr.contains(&b'\r'), "{}", text(&out.stderr));
}

#[test]
fn a_line_a_kernel() {
    let out = text(&run(&[PROVED, UNDER]).stdout);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 2, "{out}");
    assert!(lines[0].starts_with("INVARIANT ") && lines[0].contains(" ms  given {N}"), "{out}");
    assert!(lines[1].starts_with("INVARIANT UNDER ") && lines[1].contains("under {distinct(slot)}"), "{out}");
}

#[test]
fn a_refutation_shows_its_launches_and_both_trees_in_every_form() {
    let told = text(&run(&[REFUTED, "--explain"]).stdout);
    for word in
        ["first launch:", "second launch:", " against 0x", "the two trees", "first launch ", "| second launch", " * "]
    {
        assert!(told.contains(word), "expected {word} in {told}");
    }
    let trees: Vec<&str> =
        told.lines().skip_while(|l| *l != "  the two trees").skip(1).take_while(|l| l.starts_with("    ")).collect();
    assert!(trees.len() > 5 && trees.iter().all(|l| l.chars().count() <= 100), "{trees:#?}");
    let json: serde_json::Value = serde_json::from_slice(&run(&[REFUTED, "--json"]).stdout).expect("JSON");
    let witness = &json["kernels"][0]["report"]["witness"];
    assert_ne!(witness["trees"][0], witness["trees"][1]);
    assert_ne!(witness["bits"][0], witness["bits"][1]);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pictures");
    let _ = std::fs::remove_dir_all(&dir);
    run(&[REFUTED, PROVED, "--svg", &dir.display().to_string()]);
    let picture = std::fs::read_to_string(dir.join("rmsnorm_packed.svg")).expect("a picture");
    assert!(picture.contains("second launch") && picture.contains("#fbd9d3"), "{picture}");
    let proved = std::fs::read_to_string(dir.join("argmax.svg")).expect("a picture");
    assert!(proved.starts_with("<svg") && !proved.contains("second launch"), "{proved}");
}

#[test]
fn sarif_has_what_the_standard_asks_for() {
    let unknown = made("unknown3.ttir", UNKNOWN);
    let out = run(&[PROVED, UNDER, REFUTED, &unknown, "--sarif"]);
    let log: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let driver = &run["tool"]["driver"];
    assert!(driver["name"].is_string() && driver["version"].is_string());
    let rules: Vec<&str> = driver["rules"].as_array().expect("rules").iter().filter_map(|r| r["id"].as_str()).collect();
    let results = run["results"].as_array().expect("results");
    assert_eq!(results.len(), 3, "one for each kernel that is not INVARIANT");
    for r in results {
        let id = r["ruleId"].as_str().expect("a rule");
        assert_eq!(rules.get(r["ruleIndex"].as_u64().expect("an index") as usize), Some(&id));
        assert!(["error", "warning", "note"].contains(&r["level"].as_str().expect("a level")));
        assert!(!r["message"]["text"].as_str().expect("a message").is_empty());
        // A fingerprint ties alerts of two runs together, so that it must not hang on the seed of a witness.
        assert!(r["partialFingerprints"]["kernel/v1"].is_string());
        for place in r["locations"].as_array().expect("places") {
            let at = &place["physicalLocation"];
            let uri = at["artifactLocation"]["uri"].as_str().expect("a URI");
            assert!(!uri.contains(['\\', ' ']), "a URI reference: {uri}");
            assert!(at["region"]["startLine"].as_u64().expect("a line") >= 1);
        }
    }
}
