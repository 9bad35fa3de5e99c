//! Development aid.
use invariance_checker::{Options, check, parse};
fn main() {
    let dir = std::env::args().nth(1).unwrap();
    let only = std::env::args().nth(2);
    let idx = std::fs::read_to_string(dir.clone() + "/index.tsv").unwrap();
    let head: Vec<&str> = idx.lines().next().unwrap().split('\t').collect();
    let (vc, bc) = (head.iter().position(|h| *h == "verdict").unwrap(), head.iter().position(|h| *h == "batch_args").unwrap());
    let (mut ok, mut unk, mut bad) = (0, 0, 0);
    for line in idx.lines().skip(1) {
        let f: Vec<&str> = line.split('\t').collect();
        if let Some(o) = &only { if !f[0].contains(o.as_str()) { continue; } }
        let Ok(text) = std::fs::read(format!("{dir}/{}", f[0])) else { continue };
        let module = match parse::parse(&text) { Ok(m) => m, Err(e) => { println!("{}: parse {e}", f[0]); continue } };
        let options = Options { batch_args: f[bc].split(',').filter(|s| !s.is_empty()).map(str::to_owned).collect(), ..Options::default() };
        let r = check(&module, &options);
        let v = r.verdict.text();
        let right = match (f[vc], v) { ("INV" | "INV*", "INVARIANT" | "INVARIANT UNDER") => 1, ("NOT", "VARIANT") | ("IDX", "VARIANT") => 1, (_, "UNKNOWN") => 2, _ => 3 };
        match right { 1 => ok += 1, 2 => unk += 1, _ => bad += 1 }
        println!("{} {:4} {:16} {:35} {:8.1}ms {} {}", ["", "  ", "? ", "XX"][right], f[vc], v, f[0], r.millis, r.terms, r.digest.as_deref().map_or("-", |d| &d[..8]));
        if right != 1 || only.is_some() {
            println!("      given {:?} cond {:?}", r.given, r.conditions.iter().map(|c| c.name.as_str()).collect::<Vec<_>>());
            for x in &r.reasons { println!("      ! {}", x.text); }
            if let Some(w) = &r.witness { println!("      witness {} | {} | {} | {:?} | {}", w.change, w.launches[0], w.element, w.bits, w.shows); }
            if only.is_some() { for o in &r.outputs { println!("  {} {:?} rows {:?}\n{}", o.pointer, o.coordinates, o.rows, o.tree); } println!("{:?} {:?}", r.views, r.rules); }
        }
    }
    println!("right {ok} unknown {unk} wrong {bad}");
}
