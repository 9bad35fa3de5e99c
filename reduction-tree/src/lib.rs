//! Reduction trees: what fixes the bits of a floating-point result.
//!
//! Floating-point addition is not associative, so a sum has as many values as it has orders, and a kernel that changes
//! its tile with the batch size changes its results with it. But a result depends on nothing else: **its bits are a
//! function of its reduction tree**, the ordered expression of rounded operations that makes one output element from
//! named inputs. Tile sizes, warps, grids, page layouts, and (for tensor cores of one generation) even the instruction
//! are free, as long as the tree is the same. This crate says what a tree is, what its bits are, and when two trees are
//! one.
//!
//! # From bottom to top
//!
//! * [`scalar`]: exp2, log2, SiLU and the rounding to bfloat16, from IEEE-754 binary32 operations alone. Every
//!   function's documentation is its definition, operation by operation.
//! * [`arithmetic`] and [`tensor_core`]: a multiply-accumulate step of sixteen products, in three arithmetics. `ieee`
//!   is sixteen FMAs. `sm90` and `sm80` are tensor cores, bit for bit: `sm90` is compared with recorded outputs of an
//!   H200, special values and subnormals included; `sm80` follows published measurements. [`fp8`] is the 8-bit step of
//!   H100 and H200.
//! * [`operator`]: the parameters that name the tree of each operator of a transformer. Nothing about a batch may
//!   enter.
//! * [`evaluate`](mod@evaluate): the operators one row at a time, in the plainest code: the definition of the bits.
//!   Fast implementations are compared with it by bits, never by tolerance. [`noise`] and [`rope`] are its sources of
//!   data.
//! * [`tree`]: the same operators as expressions, with a canonical text, a digest, a drawing and a generic evaluator.
//!   Tests hold the two definitions together, bit for bit.
//!
//! # What a tree says
//!
//! A linear layer whose K is cut into two chunks is two chains, added. However a kernel tiles a chunk, it is one chain:
//!
//! ```
//! use reduction_tree::arithmetic::Arithmetic;
//! use reduction_tree::operator::{Epilogue, LinearTree, Store};
//! use reduction_tree::tree::{ChainKind, Tree, Var};
//!
//! let linear = LinearTree { n: 8, k: 256, k_split: 2, epilogue: Epilogue::None, store: Store::F32 };
//! let tree = linear.tree(Arithmetic::Sm90);
//! assert_eq!(
//!     tree.pretty().lines().next(),
//!     Some("add")
//! );
//!
//! // A loop over tiles of 32, as a kernel has it ..
//! let chunk = |start: i64| {
//!     let (i, acc, k) = (Var::fresh(), Var::fresh(), Var::fresh());
//!     let at = Tree::var(i).scaled(32).plus(&Tree::var(k)).plus(&Tree::int(start));
//!     let x = Tree::load("x", "bf16", [Tree::coord(0), at.clone()]);
//!     let w = Tree::load("weight", "bf16", [Tree::coord(1), at]);
//!     let step = Tree::chain(ChainKind::Bf16(Arithmetic::Sm90), Tree::int(32), Tree::var(acc), k, x, w);
//!     Tree::fold(Tree::int(4), i, &[(acc, Tree::number(0.0), step)], 0)
//! };
//! // .. is the same tree; one chain over all of K is another.
//! let tiled = Tree::op(reduction_tree::tree::Op::Add, [chunk(0), chunk(128)]);
//! assert_eq!(tiled.digest(), tree.digest());
//! let unsplit = LinearTree { k_split: 1, ..linear }.tree(Arithmetic::Sm90);
//! assert_ne!(unsplit.digest(), tree.digest());
//! ```
//!
//! # What is known, and how
//!
//! *Tested*: that `sm90` steps are the H200's (recorded vectors); that the evaluators and the trees of the operators
//! agree; that permuting k inside a step, padding with zeros and swapping factors change nothing. *By construction*:
//! that equal digests mean equal canonical texts (up to collisions of BLAKE3), and that flattening a chain keeps its
//! steps. *Assumed*: that a GPU computes IEEE operations as IEEE-754 says, that `sm80` is as published, and that a
//! kernel executes the tree that it claims; the last is what the invariance checker and the bit tests are for.

pub mod arithmetic;
pub mod evaluate;
pub mod fp8;
pub mod noise;
pub mod operator;
pub mod rope;
pub mod scalar;
pub mod tensor_core;
pub mod tree;
