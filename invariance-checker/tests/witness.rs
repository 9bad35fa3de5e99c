//! What a refutation shows. Every witness is made again from the report alone; kernels on which a careless comparison would find one where
//! there is none; and the search turned against what was proved: of a kernel that is called INVARIANT it finds nothing.

use invariance_checker::analysis::{Analysis, Problem};
use invariance_checker::check::{WitnessLine, inspect};
use invariance_checker::float::decode;
use invariance_checker::interp::{Memory, Options as Run, ProgramOrder, run};
use invariance_checker::ir::{Module, Scalar};
use invariance_checker::term::{Node, Sort};
use invariance_checker::witness::Recipe;
use invariance_checker::{Options, Report, Verdict, check, eval, parse, witness};
use std::path::{Path, PathBuf};
use std::time::Duration;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The kernels of an index, with the batch arguments that are declared of each.
fn kernels(folder: &Path) -> Vec<(PathBuf, Vec<String>)> {
    let index = std::fs::read_to_string(folder.join("index.tsv")).expect("an index");
    let mut lines = index.lines();
    let head: Vec<&str> = lines.next().expect("a head line").split('\t').collect();
    let column = |name: &str| head.iter().position(|h| *h == name).expect("a column");
    let (file, batch) = (column("file"), column("batch_args"));
    let kernel = |line: &str| {
        let cells: Vec<&str> = line.split('\t').collect();
        let batch = cells[batch].split(',').filter(|b| !b.is_empty()).map(str::to_owned).collect();
        (folder.join(cells[file]), batch)
    };
    lines.map(kernel).collect()
}

fn module(path: &Path) -> Module {
    parse::parse(&std::fs::read(path).expect("readable")).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// One launch of a witness, from its JSON.
struct Again {
    recipe: Recipe,
    before: Memory,
    after: Memory,
    bits: u64,
    /// What the element held when other programs' order is reversed.
    reversed: u64,
}

fn again(what: &str, module: &Module, json: &serde_json::Value, which: usize) -> Again {
    let recipe: Recipe = serde_json::from_value(json["recipes"][which].clone()).expect("a recipe");
    let (pointer, element) = (number(&json["places"][which]["pointer"]), number(&json["places"][which]["element"]));
    let go = |options: Run, watched: bool| {
        let mut memory = Memory::new();
        let (launch, buffers) = recipe.build(&mut memory);
        let before = memory.clone();
        let buffer = buffers[&(pointer as u32)];
        assert!(element < memory.bits(buffer).len(), "{what}: the element lies in its buffer");
        if watched {
            memory.watch(buffer, element);
        }
        // A trap would be an access out of bounds, or an assumption of the kernel that does not hold.
        run(module, &launch, &mut memory, &options).unwrap_or_else(|e| panic!("{what}: {e}"));
        (before, memory, buffer)
    };
    let (before, after, buffer) = go(recipe.options(), true);
    let writes = after.writes();
    assert!(!writes.is_empty(), "{what}: nothing writes the element");
    let text = |line: u32| {
        let path = Path::new(what);
        let text = std::fs::read_to_string(path).expect("readable");
        text.lines().nth(line as usize - 1).expect("a line").to_owned()
    };
    let atomic = writes.iter().all(|w| {
        let line = text(w.by.at.line);
        line.contains("atomic") || line.contains("descriptor_reduce")
    });
    let one = writes.iter().all(|w| w.by.program == writes[0].by.program);
    // Where their order is what is shown, programs may meet.
    let order = json["change"].as_str().is_some_and(|c| c.contains("programs run"));
    assert!(one || atomic || order, "{what}: several programs store the element");
    let bits = after.bits_at(buffer, element).expect("there");
    let (_, back, _) = go(Run { order: ProgramOrder::Descending, ..recipe.options() }, false);
    let reversed = back.bits_at(buffer, element).expect("there");
    Again { recipe, before, after, bits, reversed }
}

fn number(json: &serde_json::Value) -> usize {
    json.as_u64().expect("a number") as usize
}

/// Makes both launches from the report, and looks at everything that can be looked at without the analysis.
fn revalidate(path: &Path, module: &Module, w: &WitnessLine) {
    let what = path.display().to_string();
    let json = serde_json::to_value(w).expect("JSON");
    let [x, y] = [0, 1].map(|i| again(&what, module, &json, i));
    assert_ne!(x.bits, y.bits, "{what}");
    assert_eq!(w.bits, [format!("{:#x}", x.bits), format!("{:#x}", y.bits)], "{what}");
    let kernel = module.kernel().expect("a kernel");
    let pointer = w.places[0].pointer;
    assert_eq!(pointer, w.places[1].pointer, "{what}");
    if let Some(Scalar::Float(f)) = kernel.ty(kernel.params[pointer as usize].value).pointee() {
        assert!(!decode(x.bits, f).is_nan() || !decode(y.bits, f).is_nan(), "{what}: two NaNs");
    }
    let moved = w.change.contains("next one");
    assert!(moved || w.places[0].element == w.places[1].element || w.change.contains("in one launch"), "{what}");
    if w.change.contains("programs run") {
        assert_ne!(x.recipe.order, y.recipe.order, "{what}");
    } else if !w.shows.contains("atomic") && !w.shows.contains("where it is computed") {
        assert_eq!((x.bits, y.bits), (x.reversed, y.reversed), "{what}: the order of programs shows");
    }
    same_inputs(&what, module, w, &x, &y);
}

/// Nothing differs but what the report says: numbers by name, and memory outside of the compared row or behind the pointer that belongs to
/// the whole batch.
fn same_inputs(what: &str, module: &Module, w: &WitnessLine, x: &Again, y: &Again) {
    let kernel = module.kernel().expect("a kernel");
    let build = |r: &Recipe| r.build(&mut Memory::new());
    let ((first, buffers), (second, _)) = (build(&x.recipe), build(&y.recipe));
    for (i, (a, b)) in first.args.iter().zip(&second.args).enumerate() {
        let name = kernel.name_of(kernel.params[i].value).unwrap_or("?");
        assert!(a == b || w.change.starts_with(&format!("{name} is ")), "{what}: {name} differs");
    }
    assert!(first.grid == second.grid || w.change.starts_with("grid axis"), "{what}: the grids differ");
    for (i, buffer) in &buffers {
        let (a, b) = (x.before.bits(*buffer), y.before.bits(*buffer));
        assert_eq!(a.len(), b.len(), "{what}");
        assert!(!x.recipe.replaces(*i) && x.recipe.kept(*i).is_none(), "{what}: the first launch is the plain one");
        let free =
            |at: usize| y.recipe.replaces(*i) || y.recipe.kept(*i).is_some_and(|own| !own.contains(&(at as u64)));
        assert!((0..a.len()).all(|at| a[at] == b[at] || free(at)), "{what}: argument {i} differs within the row");
    }
    assert_eq!(x.after.bits(buffers[&w.places[0].pointer]).len(), y.after.bits(buffers[&w.places[1].pointer]).len());
}

/// Kernels of a folder that are refuted, each witness made again.
fn refuted(name: &str, declared: bool) -> usize {
    let mut count = 0;
    for (path, batch_args) in kernels(&folder(name)) {
        let batch_args = if declared { batch_args } else { vec![] };
        let module = module(&path);
        let report = check(&module, &Options { batch_args, ..Options::default() });
        if let Some(w) = &report.witness {
            assert_eq!(report.verdict, Verdict::Variant);
            revalidate(&path, &module, w);
            count += 1;
        }
    }
    count
}

#[test]
fn witnesses_of_own_kernels_are_made_again_from_the_report() {
    assert!(refuted("kernels", false) >= 5);
}

#[test]
fn witnesses_of_the_corpora_are_made_again_from_the_report() {
    assert!(refuted("tests/corpus/v360", true) + refuted("tests/corpus/v390", true) >= 15);
}

#[test]
fn witnesses_of_adversarial_kernels_are_made_again_from_the_report() {
    assert!(refuted("tests/adversarial", true) >= 30);
    assert!(refuted("tests/classes", true) + refuted("tests/atomics", true) >= 3);
}

#[test]
#[ignore = "needs a folder of kernels with an index in REAL_KERNELS_TTIR"]
fn witnesses_of_other_peoples_kernels_are_made_again_from_the_report() {
    let folder = std::env::var("REAL_KERNELS_TTIR").expect("a folder");
    println!("{} made again", refuted(&folder, true));
}

/// The analysis with a suspicion for everything that was proved: that the place of a row, the other rows, the grid, the order of programs,
/// undefined lanes or an argument outside of S matter.
fn suspected<'m>(e: &mut eval::Evaluator<'_>, a: &Analysis<'m>) -> Analysis<'m> {
    let mut out = a.clone();
    let ints: Vec<u32> = a.args.iter().filter(|r| !r.given).map(|r| r.index).collect();
    let params: Vec<_> = ints.into_iter().map(|i| e.arena.intern(Node::Arg(i), Sort::Int)).collect();
    for j in &mut out.sites {
        let mixed = j.by_row.iter().map(|&base| Problem::Mixed { base, why: "other rows".into() });
        let mut all: Vec<Problem> = mixed.collect();
        all.push(Problem::Instance { vars: "place".into() });
        all.push(Problem::Index { coordinate: "row".into() });
        all.push(Problem::Undefined { op: 0 });
        all.extend(params.iter().map(|&param| Problem::Batch { param, how: "outside of S" }));
        j.problems = all;
    }
    out
}

/// What the search finds against a kernel as if each property that was proved had failed; `None` if the kernel is not called INVARIANT.
fn second_look(module: &Module, batch_args: Vec<String>, budget: Duration) -> Option<Option<String>> {
    let options =
        Options { batch_args, timeout: Duration::from_secs(5), witness_budget: Duration::ZERO, ..Options::default() };
    if check(module, &options).verdict != Verdict::Invariant {
        return None;
    }
    let found = inspect(module, &options, |e, a| {
        let suspected = suspected(e, a);
        witness::search(e, &suspected, &[], budget).map(|(w, _)| {
            let at: Vec<String> = w.coordinates.iter().map(|(n, v)| format!("{n}={v}")).collect();
            format!("{}, element {} at {} ({}; {})", w.change, w.element, at.join(", "), w.first, w.second)
        })
    });
    Some(found.flatten())
}

fn turned_against(list: Vec<(PathBuf, Vec<String>)>, budget: Duration) -> usize {
    let mut refuted = Vec::new();
    let mut stands = 0;
    for (path, batch_args) in list {
        match second_look(&module(&path), batch_args, budget) {
            Some(Some(how)) => refuted.push(format!("{}: {how}", path.display())),
            Some(None) => stands += 1,
            None => {}
        }
    }
    assert!(refuted.is_empty(), "{}", refuted.join("\n"));
    stands
}

#[test]
fn what_is_called_invariant_is_not_refuted() {
    let names = ["kernels", "tests/adversarial", "tests/classes", "tests/corpus/v360", "tests/corpus/v390"];
    let list: Vec<_> = names.iter().flat_map(|n| kernels(&folder(n))).collect();
    assert!(turned_against(list, Duration::from_millis(250)) >= 60);
}

#[test]
#[ignore = "needs a folder of kernels in BULK_KERNELS"]
fn what_is_called_invariant_of_whole_packages_is_not_refuted() {
    let folder = std::env::var("BULK_KERNELS").expect("a folder");
    let entries = std::fs::read_dir(folder).expect("readable").map(|e| e.expect("an entry").path());
    let mut list: Vec<_> =
        entries.filter(|p| p.extension().is_some_and(|x| x == "ttir")).map(|p| (p, vec![])).collect();
    list.sort();
    println!("{} stand", turned_against(list, Duration::from_millis(400)));
}

/// A kernel over rows of 64 lanes: `%r` is the program, `%o` the lane, `%t` and `%tp` the types of a block of numbers and of pointers.
fn kernel(params: &str, body: &str) -> Module {
    let text = format!(
        "module {{\n  tt.func public @k({params}) {{\n    %r = tt.get_program_id x : i32\n    \
         %o = tt.make_range {{end = 64 : i32, start = 0 : i32}} : tensor<64xi32>\n{body}    tt.return\n  }}\n}}\n"
    )
    .replace("!P", "tensor<64x!tt.ptr<f32>>")
    .replace("!I", "tensor<64xi32>")
    .replace("!B", "tensor<64xi1>")
    .replace("!F", "tensor<64xf32>");
    parse::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// `name = base + (row * stride + o * step)`.
fn at(name: &str, base: &str, row: &str, stride: &str, step: u32) -> String {
    format!(
        "    %{name}0 = arith.muli {row}, {stride} : i32\n    %{name}1 = tt.splat %{name}0 : i32 -> !I\n    \
         %{name}k = arith.constant dense<{step}> : !I\n    %{name}2 = arith.muli %o, %{name}k : !I\n    \
         %{name}3 = arith.addi %{name}1, %{name}2 : !I\n    %{name}4 = tt.splat {base} : !tt.ptr<f32> -> !P\n    \
         %{name} = tt.addptr %{name}4, %{name}3 : !P, !I\n"
    )
}

/// `name = o < bound`.
fn below(name: &str, bound: &str) -> String {
    format!("    %{name}0 = tt.splat {bound} : i32 -> !I\n    %{name} = arith.cmpi slt, %o, %{name}0 : !I\n")
}

const XY: &str = "%x: !tt.ptr<f32>, %y: !tt.ptr<f32>";
const ZERO: &str = "    %zero = arith.constant dense<0.0> : !F\n";

fn report(m: &Module, batch: &[&str]) -> Report {
    let batch_args = batch.iter().map(|b| (*b).to_owned()).collect();
    check(m, &Options { batch_args, witness_budget: Duration::from_secs(2), ..Options::default() })
}

/// Neither refuted as it is, nor when the search is turned against it.
fn stands(m: &Module, batch: &[&str]) {
    let r = report(m, batch);
    assert_ne!(r.verdict, Verdict::Variant, "{:?}", r.witness);
    let batch_args: Vec<String> = batch.iter().map(|b| (*b).to_owned()).collect();
    let found = second_look(m, batch_args, Duration::from_millis(500));
    assert!(found.as_ref().is_none_or(Option::is_none), "{found:?}");
}

#[test]
fn a_column_past_the_last_is_no_element() {
    // The next row begins at N, where the mask of the store ends.
    let load = at("p", "%x", "%r", "%N", 1) + &below("m", "%N") + ZERO + "    %v = tt.load %p, %m, %zero : !P\n";
    let double = "    %w = arith.addf %v, %v : !F\n";
    let masked = load.clone() + double + &at("q", "%y", "%r", "%N", 1) + "    tt.store %q, %w, %m : !P\n";
    let m = kernel(&format!("{XY}, %N: i32"), &masked);
    assert_eq!(report(&m, &[]).verdict, Verdict::Invariant);
    stands(&m, &[]);
    // Without a mask on the store, what lies past N is written and is no element: it is +0 in one launch and data in the other.
    let open = load + double + &at("q", "%y", "%r", "%S", 1) + "    tt.store %q, %w : !P\n";
    let m = kernel(&format!("{XY}, %N: i32, %S: i32"), &open);
    stands(&m, &["N"]);
}

#[test]
fn a_descriptor_clips_what_it_stores() {
    let body = "    %one = arith.constant 1 : i64\n    %c0 = arith.constant 0 : i32\n    %s = arith.extsi %N : i32 to i64\n    \
                %a = tt.make_tensor_descriptor %x, [%M, %N], [%s, %one] : <f32>, <1x64xf32>\n    \
                %b = tt.make_tensor_descriptor %y, [%M, %N], [%s, %one] : <f32>, <1x64xf32>\n    \
                %v = tt.descriptor_load %a[%r, %c0] : !tt.tensordesc<1x64xf32> -> tensor<1x64xf32>\n    \
                %w = arith.addf %v, %v : tensor<1x64xf32>\n    \
                tt.descriptor_store %b[%r, %c0], %w : !tt.tensordesc<1x64xf32>, tensor<1x64xf32>\n";
    let m = kernel(&format!("{XY}, %M: i32, %N: i32"), body);
    assert_eq!(report(&m, &["M"]).verdict, Verdict::Invariant);
    stands(&m, &["M"]);
}

#[test]
fn a_row_that_only_the_larger_launch_has_is_no_row() {
    // The grid covers M rows and more, and all are stored; those from M on are +0 plus what is in z.
    let rows = "    %rm = arith.cmpi slt, %r, %M : i32\n    %m = tt.splat %rm : i1 -> !B\n";
    let body = at("p", "%x", "%r", "%S", 1)
        + rows
        + ZERO
        + "    %v = tt.load %p, %m, %zero : !P\n"
        + &at("q", "%y", "%r", "%S", 1)
        + "    tt.store %q, %v : !P\n";
    let m = kernel(&format!("{XY}, %M: i32, %S: i32"), &body);
    stands(&m, &["M"]);
    // That rows end at M is the user's to say: padding looks like a row that is left out.
    let r = report(&m, &["M"]);
    let names: Vec<&str> = r.conditions.iter().filter(|c| !c.layout).map(|c| c.name.as_str()).collect();
    assert_eq!((r.verdict, names), (Verdict::Under, vec!["row-exists(x)"]));
}

#[test]
fn what_belongs_to_all_rows_of_another_output_is_not_held_against_it() {
    // y reads the first row of w for every row, z reads the row after its own.
    let body =
        "    %one = arith.constant 1 : i32\n    %none = arith.constant 0 : i32\n    %next = arith.addi %r, %one : i32\n"
            .to_owned()
            + &at("p", "%x", "%r", "%S", 1)
            + &at("f", "%w", "%none", "%S", 1)
            + &at("n", "%w", "%next", "%S", 1)
            + &below("m", "%N")
            + ZERO
            + "    %a = tt.load %p, %m, %zero : !P\n    %b = tt.load %f, %m, %zero : !P\n    %c = tt.load %n, %m, %zero : !P\n    \
           %ab = arith.addf %a, %b : !F\n"
            + &at("q", "%y", "%r", "%S", 1)
            + "    tt.store %q, %ab, %m : !P\n"
            + &at("s", "%z", "%r", "%S", 1) + "    tt.store %s, %c, %m : !P\n";
    let m = kernel(&format!("{XY}, %z: !tt.ptr<f32>, %w: !tt.ptr<f32>, %N: i32, %S: i32"), &body);
    let r = report(&m, &[]);
    assert_eq!(r.verdict, Verdict::Variant, "{:?}", r.reasons);
    let w = r.witness.expect("two launches");
    assert!(w.element.starts_with("z["), "{w:?}");
}

#[test]
fn holes_between_stored_columns_are_no_elements() {
    let load = at("p", "%x", "%r", "%S", 1) + &below("m", "%N") + ZERO + "    %v = tt.load %p, %m, %zero : !P\n";
    let body = load + &at("q", "%y", "%r", "%T", 2) + "    tt.store %q, %v, %m : !P\n";
    let m = kernel(&format!("{XY}, %N: i32, %S: i32, %T: i32"), &body);
    stands(&m, &[]);
}

#[test]
fn nans_of_different_payload_are_one_value() {
    let body = "    %q = arith.constant 2143289344 : i32\n    %n = arith.addi %q, %M : i32\n    %f = arith.bitcast %n : i32 to f32\n    \
                %v = tt.splat %f : f32 -> !F\n"
        .to_owned()
        + &at("q1", "%y", "%r", "%S", 1)
        + "    tt.store %q1, %v : !P\n";
    let m = kernel(&format!("{XY}, %M: i32, %S: i32"), &body);
    let r = report(&m, &["M"]);
    assert_eq!(r.verdict, Verdict::Unknown, "{:?}", r.witness);
    // The same with numbers that are none.
    let body = body.replace("2143289344", "1065353216");
    let m = kernel(&format!("{XY}, %M: i32, %S: i32"), &body);
    assert_eq!(report(&m, &["M"]).verdict, Verdict::Variant);
}

#[test]
fn the_factor_of_a_computed_place_is_no_stride() {
    // Row r is read at 64*((4*pid + i) mod 65536): the row coordinate is a digit in a remainder, and 64 is not the length of its row.
    let body = "    %c4 = arith.constant 4 : i32\n    %bits = arith.constant dense<65535> : tensor<4xi32>\n    \
                %n = arith.constant dense<64> : tensor<4x1xi32>\n    %z = arith.constant dense<0.0> : tensor<4x64xf32>\n    \
                %b = arith.muli %r, %c4 : i32\n    \
                %i = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<4xi32>\n    \
                %bs = tt.splat %b : i32 -> tensor<4xi32>\n    %row = arith.addi %bs, %i : tensor<4xi32>\n    \
                %few = arith.andi %row, %bits : tensor<4xi32>\n    \
                %rc = tt.expand_dims %row {axis = 1 : i32} : tensor<4xi32> -> tensor<4x1xi32>\n    \
                %fc = tt.expand_dims %few {axis = 1 : i32} : tensor<4xi32> -> tensor<4x1xi32>\n    \
                %ms = tt.splat %M : i32 -> tensor<4x1xi32>\n    %m1 = arith.cmpi slt, %rc, %ms : tensor<4x1xi32>\n    \
                %m = tt.broadcast %m1 : tensor<4x1xi1> -> tensor<4x64xi1>\n    \
                %oc = tt.expand_dims %o {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>\n    \
                %o2 = tt.broadcast %oc : tensor<1x64xi32> -> tensor<4x64xi32>\n    \
                %f64 = arith.muli %fc, %n : tensor<4x1xi32>\n    %r64 = arith.muli %rc, %n : tensor<4x1xi32>\n    \
                %f2 = tt.broadcast %f64 : tensor<4x1xi32> -> tensor<4x64xi32>\n    \
                %r2 = tt.broadcast %r64 : tensor<4x1xi32> -> tensor<4x64xi32>\n    \
                %fa = arith.addi %f2, %o2 : tensor<4x64xi32>\n    %ra = arith.addi %r2, %o2 : tensor<4x64xi32>\n    \
                %xs = tt.splat %x : !tt.ptr<f32> -> tensor<4x64x!tt.ptr<f32>>\n    \
                %xp = tt.addptr %xs, %fa : tensor<4x64x!tt.ptr<f32>>, tensor<4x64xi32>\n    \
                %v = tt.load %xp, %m, %z : tensor<4x64x!tt.ptr<f32>>\n    \
                %tp = tt.addptr %t, %r : !tt.ptr<f32>, i32\n    %tv = tt.load %tp : !tt.ptr<f32>\n    \
                %ts = tt.splat %tv : f32 -> tensor<4x64xf32>\n    %s = arith.addf %v, %ts : tensor<4x64xf32>\n    \
                %ys = tt.splat %y : !tt.ptr<f32> -> tensor<4x64x!tt.ptr<f32>>\n    \
                %yp = tt.addptr %ys, %ra : tensor<4x64x!tt.ptr<f32>>, tensor<4x64xi32>\n    \
                tt.store %yp, %s, %m : tensor<4x64x!tt.ptr<f32>>\n";
    let m = kernel(&format!("{XY}, %t: !tt.ptr<f32>, %M: i32"), body);
    let r = report(&m, &["M"]);
    assert_eq!(r.verdict, Verdict::Unknown, "{:?}", r.witness);
}

#[test]
fn groups_that_reach_into_the_next_row_are_no_launch() {
    // Group g of a row begins at g*D: with D the stride of rows, group 1 is the next row.
    let body = "    %g = tt.get_program_id y : i32\n    %gd = arith.muli %g, %D : i32\n    \
                %xg = tt.addptr %x, %gd : !tt.ptr<f32>, i32\n    %yg = tt.addptr %y, %gd : !tt.ptr<f32>, i32\n"
        .to_owned()
        + &at("p", "%xg", "%r", "%S", 1)
        + &below("m", "%D")
        + ZERO
        + "    %v = tt.load %p, %m, %zero : !P\n"
        + &at("q", "%yg", "%r", "%T", 1)
        + "    tt.store %q, %v, %m : !P\n";
    let m = kernel(&format!("{XY}, %S: i32, %T: i32, %D: i32"), &body);
    stands(&m, &[]);
}

#[test]
fn programs_that_meet_because_of_the_launch_show_nothing() {
    // Two programs a row, each storing what it read: the last one to run wins, but the address names the program, so another launch has one.
    let body = "    %two = arith.constant 2 : i32\n    %row = arith.divsi %r, %two : i32\n".to_owned()
        + &at("p", "%x", "%r", "%S", 1)
        + "    %v = tt.load %p : !P\n"
        + &at("q", "%y", "%row", "%S", 1)
        + "    tt.store %q, %v : !P\n";
    let m = kernel(&format!("{XY}, %S: i32"), &body);
    let r = report(&m, &[]);
    assert_eq!(r.verdict, Verdict::Unknown, "{:?}", r.witness);
}

#[test]
fn programs_that_meet_whatever_the_launch_are_refuted_by_their_order() {
    // Row r is stored by as many programs as axis 1 has, each with its own number added.
    let body = "    %g = tt.get_program_id y : i32\n    %gf = arith.sitofp %g : i32 to f32\n    %gs = tt.splat %gf : f32 -> !F\n"
        .to_owned()
        + &at("p", "%x", "%r", "%S", 1)
        + "    %v = tt.load %p : !P\n    %w = arith.addf %v, %gs : !F\n"
        + &at("q", "%y", "%r", "%S", 1)
        + "    tt.store %q, %w : !P\n";
    let m = kernel(&format!("{XY}, %S: i32"), &body);
    assert_eq!(report(&m, &[]).verdict, Verdict::Variant);
}

#[test]
fn a_counter_of_programs_is_not_invariant() {
    let body = "    %one = arith.constant 1 : i32\n    %t = arith.constant true\n    \
                %old = tt.atomic_rmw add, acq_rel, gpu, %c, %one, %t : (!tt.ptr<i32>, i32, i1) -> i32\n"
        .to_owned()
        + &at("p", "%x", "%r", "%S", 1)
        + "    %v = tt.load %p : !P\n"
        + &at("q", "%y", "%r", "%S", 1)
        + "    tt.store %q, %v : !P\n";
    let m = kernel(&format!("{XY}, %c: !tt.ptr<i32>, %S: i32"), &body);
    let r = report(&m, &[]);
    assert!(matches!(r.verdict, Verdict::Variant | Verdict::Unknown), "{:?}", r.verdict);
    assert!(r.reasons.iter().any(|r| r.text.contains("how many programs")), "{:?}", r.reasons);
}
