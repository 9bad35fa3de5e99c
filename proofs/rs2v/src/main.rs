//! `rs2v SRC OUT`: check the ledger crate in folder SRC, translate its `proved.rs` to OUT/LedgerTypes.v and LedgerFns.v.

use std::path::Path;
use std::process::ExitCode;

fn run(source: &Path, target: &Path) -> Result<(), String> {
    let read = |name: &str| {
        let path = source.join(name);
        std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
    };
    rs2v::check_root(&read("lib.rs")?).map_err(|e| format!("lib.rs, {e}"))?;
    rs2v::check_view(&read("view.rs")?).map_err(|e| format!("view.rs, {e}"))?;
    for (name, text) in rs2v::theories(&read("proved.rs")?).map_err(|e| format!("proved.rs, {e}"))? {
        let path = target.join(name);
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let [_, source, target] = &args[..] else {
        eprintln!("expected: rs2v SOURCE_FOLDER TARGET_FOLDER, got {} arguments", args.len().saturating_sub(1));
        return ExitCode::FAILURE;
    };
    match run(Path::new(source), Path::new(target)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("refused: {e}");
            ExitCode::FAILURE
        }
    }
}
